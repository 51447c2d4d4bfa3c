package supportdump

import (
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// redactObject returns a copy of an object without secret values. The copy also has no managedFields and no last
// applied configuration, because support does not need these fields.
func redactObject(object map[string]any) map[string]any {
	clean, _ := redact("", object).(map[string]any)
	meta, _ := clean["metadata"].(map[string]any)
	delete(meta, "managedFields")
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
	return clean
}

// redact returns a copy of a value without secret values. The parameter key is the key of the value in its object.
func redact(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		name, _ := v["name"].(string) // the name acts as a key, as in env of a container: {name: TOKEN, value: …}
		for k, child := range v {
			if _, isText := child.(string); isText && k == "value" && text.IsSensitiveKey(name) {
				child = text.Hidden
			}
			clean[k] = redact(k, child)
		}
		return clean
	case []any:
		clean := make([]any, len(v))
		for i := range v {
			flag, value, isFlag := flagOf(v[i])
			switch {
			case i > 0 && isValueOfSensitiveFlag(v[i-1], v[i]):
				clean[i] = text.Hidden
			case isFlag && value != "" && text.IsSensitiveKey(flag) && !strings.ContainsAny(value, " \t\n"):
				clean[i] = strings.TrimSuffix(v[i].(string), value) + text.Hidden
			default:
				clean[i] = redact(key, v[i])
			}
		}
		return clean
	case string:
		switch {
		case v == "":
			return v
		case text.IsSensitiveKey(key), text.IsSensitiveValue(v):
			return text.Hidden
		}
		return text.WithoutAssignedSecrets(v)
	}
	return value
}

// isValueOfSensitiveFlag reports whether two successive arguments are a flag for a secret, such as --password, and the
// value of this flag.
func isValueOfSensitiveFlag(before, argument any) bool {
	flag, value, isFlag := flagOf(before)
	_, isText := argument.(string)
	_, _, isNextFlag := flagOf(argument)
	return isFlag && value == "" && text.IsSensitiveKey(flag) && isText && !isNextFlag
}

// flagOf splits an argument such as --name or --name=value. The result "is" is false if the argument is no flag.
func flagOf(argument any) (name, value string, is bool) {
	s, _ := argument.(string)
	name, value, _ = strings.Cut(strings.TrimLeft(s, "-"), "=")
	return name, value, strings.HasPrefix(s, "-")
}
