package place

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

// Token identifies a Kyma among the admitted ones of a rollout: 48 bits of a hash, as 8 characters.
type Token string

const tokenLength = 8

// MaxAdmitted is the maximum number of runtimes that are admitted but have not begun their update. MaxAdmitted limits
// the size of the status of a rollout. MaxAdmitted does not slow down a rollout, because a runtime begins within
// seconds after its admission.
const MaxAdmitted = 800

// identify returns the rank of a Kyma in a rollout, and the token (a short hash) that represents the Kyma in the list
// of admitted runtimes.
func identify(lineage, kyma string) (rank uint16, token Token) {
	sum := sha256.Sum256([]byte(lineage + "\x00" + kyma))
	return binary.BigEndian.Uint16(sum[:2]), Token(base64.RawURLEncoding.EncodeToString(sum[:6]))
}

// Admitted is the set of the runtimes that may begin and have not begun yet.
type Admitted map[Token]bool

// Encode returns the set as text: the sorted tokens without a separator.
func (a Admitted) Encode() string {
	var all strings.Builder
	for _, t := range slices.Sorted(maps.Keys(a)) {
		all.WriteString(string(t))
	}
	return all.String()
}

// Decode reads the result of Encode. Decode ignores the rest of a text that is too short for a token.
func Decode(encoded string) Admitted {
	all := Admitted{}
	for i := 0; i+tokenLength <= len(encoded); i += tokenLength {
		all[Token(encoded[i:i+tokenLength])] = true
	}
	return all
}

// IsAdmitted reports whether a runtime is admitted: whether the text, a set of admitted runtimes that Encode has
// encoded, contains the token of the runtime.
func IsAdmitted(encoded string, token Token) bool {
	for i := 0; i+tokenLength <= len(encoded); i += tokenLength {
		if encoded[i:i+tokenLength] == string(token) {
			return true
		}
	}
	return false
}

// NewlyAdmitted returns the Kymas that are admitted in the next status of a rollout and were not admitted in the
// previous one.
func NewlyAdmitted(lineage, before, after string, kymas []string) []string {
	if before == after || after == "" {
		return nil
	}
	had, has := Decode(before), Decode(after)
	var found []string
	for _, k := range kymas {
		if _, token := identify(lineage, k); has[token] && !had[token] {
			found = append(found, k)
		}
	}
	return found
}
