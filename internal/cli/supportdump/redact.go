package supportdump

import (
	"net/url"
	"regexp"
	"strings"
)

// hidden stands for what was taken out.
const hidden = "(taken out)"

var (
	// secretKey matches keys whose values nobody else should see. Names of Secrets are no secrets.
	secretKey = regexp.MustCompile(`(?i)(passw(or)?d|passphrase|token|kubeconfig|credentials?|authorization|(api|access|private|secret|client|encryption|signing)[-_. ]?(key|secret)([-_. ]?data)?)$|^(secret|auth|pwd)$|\.dockerconfigjson$`)
	// secretValue matches values that give themselves away: keys, tokens, kubeconfigs.
	secretValue = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}|(?i)\bbearer [a-z0-9._~+/-]{8,}|client-key-data|\bkind: Config\b|"kind": ?"Config"|\bAKIA[0-9A-Z]{16}\b`)
	// secretAssignment matches a secret in a longer text, such as an argument.
	secretAssignment = regexp.MustCompile(`(?i)((?:password|token|secret|api-?key)["']?\s*[=:]\s*["']?)[^\s"',;&]+`)
)

// redacted returns a copy of an object without what is secret in it, and without what says nothing: who wrote which field.
func redacted(object map[string]any) map[string]any {
	clean, _ := redact("", object).(map[string]any)
	meta, _ := clean["metadata"].(map[string]any)
	delete(meta, "managedFields")
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
	return clean
}

func redact(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		name, _ := v["name"].(string) // as in env of a container: {name: TOKEN, value: …}
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

// withoutLogin takes user and password out of the addresses in a text.
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
