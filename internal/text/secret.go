package text

import (
	"net/url"
	"regexp"
	"strings"
)

// Hidden is the text that is shown instead of a secret value.
const Hidden = "(redacted)"

var (
	// secretName matches keys and variables whose values are secret. secretName does not match names of Secrets.
	secretName = regexp.MustCompile(
		`(?i)(passw(or)?d|passphrase|token|kubeconfig|credentials?|authorization|(api|access|private|secret|client|encryption|signing)[-_. ]?(key|secret)([-_. ]?data)?)$|^(secret|auth|pwd)$|\.dockerconfigjson$`)
	// secretForm matches values whose form shows that they are secret: keys, tokens and kubeconfigs.
	secretForm = regexp.MustCompile(
		`-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}|(?i)\bbearer [a-z0-9._~+/-]{8,}|client-key-data|\bkind: Config\b|"kind": ?"Config"|\bAKIA[0-9A-Z]{16}\b`)
	// secretAssignment matches the assignment of a secret inside of a longer text, such as an argument. A value in
	// quotes ends at the same quote, any other value ends at white space: passwords may contain all other characters.
	secretAssignment = regexp.MustCompile(
		`(?i)((?:password|token|secret|api-?key)["']?\s*[=:]\s*)(?:"[^"\n]*"|'[^'\n]*'|\S+)`)
	// login matches the user and the password in a URL.
	login = regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^/\s@"']*@`)
)

// IsSensitiveKey reports whether the value of a key or of a variable with this name is secret.
func IsSensitiveKey(name string) bool { return secretName.MatchString(name) }

// IsSensitiveValue reports whether a value looks like a secret: a private key, a token or a kubeconfig.
func IsSensitiveValue(value string) bool { return secretForm.MatchString(value) }

// WithoutAssignedSecrets returns a text without logins in URLs, and with [Hidden] in place of passwords, tokens,
// secrets and API keys in assignments such as password=abc.
func WithoutAssignedSecrets(text string) string {
	return secretAssignment.ReplaceAllString(WithoutURLLogins(text), "${1}"+Hidden)
}

// WithoutURLLogins removes the user and the password from the URLs in a text.
func WithoutURLLogins(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return login.ReplaceAllString(text, "$1")
}
