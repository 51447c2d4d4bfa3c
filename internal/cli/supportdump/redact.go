package supportdump

import (
	"net/url"
	"regexp"
	"strings"
)

// hidden is the text that replaces redacted values.
const hidden = "(redacted)"

var (
	// secretKey matches keys whose values are secret. secretKey does not match keys of names of Secrets.
	secretKey = regexp.MustCompile(
		`(?i)(passw(or)?d|passphrase|token|kubeconfig|credentials?|authorization|(api|access|private|secret|client|encryption|signing)[-_. ]?(key|secret)([-_. ]?data)?)$|^(secret|auth|pwd)$|\.dockerconfigjson$`)
	// secretValue matches values whose form shows that they are secret: keys, tokens and kubeconfigs.
	secretValue = regexp.MustCompile(
		`-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}|(?i)\bbearer [a-z0-9._~+/-]{8,}|client-key-data|\bkind: Config\b|"kind": ?"Config"|\bAKIA[0-9A-Z]{16}\b`)
	// secretAssignment matches a secret in a longer text, such as an argument.
	secretAssignment = regexp.MustCompile(`(?i)((?:password|token|secret|api-?key)["']?\s*[=:]\s*["']?)[^\s"',;&]+`)
)

// redactObject returns a copy of an object without secret values. The copy also has no managedFields and no last
// applied configuration, because support does not need them.
func redactObject(object map[string]any) map[string]any {
	clean, _ := redact("", object).(map[string]any)
	meta, _ := clean["metadata"].(map[string]any)
	delete(meta, "managedFields")
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
	return clean
}

// redact returns a copy of a value without secret values. key is the key of the value in its object.
func redact(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		name, _ := v["name"].(string) // the name acts as a key, as in env of a container: {name: TOKEN, value: …}
		for k, child := range v {
			if _, isText := child.(string); isText && k == "value" && secretKey.MatchString(name) {
				child = hidden
			}
			clean[k] = redact(k, child)
		}
		return clean
	case []any:
		clean := make([]any, len(v))
		for i := range v {
			clean[i] = redact(key, v[i])
		}
		return clean
	case string:
		switch {
		case v == "":
			return v
		case secretKey.MatchString(key), secretValue.MatchString(v):
			return hidden
		}
		return secretAssignment.ReplaceAllString(withoutLogin(v), "${1}"+hidden)
	}
	return value
}

var login = regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^/\s@"']*@`)

// withoutLogin removes user and password from the URLs in a text.
func withoutLogin(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return login.ReplaceAllString(text, "$1")
}
