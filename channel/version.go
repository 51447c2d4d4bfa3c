package channel

import (
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// isVersion reports whether v is a strict semantic version: it has three numbers and no leading v.
func isVersion(v string) bool {
	if _, ok := plainVersion(v); ok {
		return true
	}
	_, err := semver.StrictNewVersion(v)
	return err == nil
}

// isLower reports whether version a precedes version b by semantic versioning. If one of the two versions is invalid,
// isLower returns false, because an invalid version cannot be compared.
func isLower(a, b string) bool { return compareVersions(a, b) < 0 }

// IsLower reports whether version a precedes version b by semantic versioning. IsLower returns false if a or b is not a
// valid version.
func IsLower(a, b string) bool { return isLower(a, b) }

// Highest returns the version with the highest precedence. Of equal versions it returns the first one. Invalid versions
// are ignored. If no version is valid, Highest returns "".
func Highest(versions ...string) string {
	highest := ""
	for _, v := range versions {
		if isVersion(v) && (highest == "" || isLower(highest, v)) {
			highest = v
		}
	}
	return highest
}

// compareVersions returns -1, 0 or +1 if version a precedes, equals or follows version b. If one of the versions is
// invalid, compareVersions returns 0.
func compareVersions(a, b string) int {
	if a == b {
		return 0
	}
	plainA, isPlainA := plainVersion(a)
	plainB, isPlainB := plainVersion(b)
	if isPlainA && isPlainB {
		return slices.Compare(plainA[:], plainB[:])
	}
	va, errA := semver.StrictNewVersion(a)
	vb, errB := semver.StrictNewVersion(b)
	if errA != nil || errB != nil {
		return 0
	}
	return va.Compare(vb)
}

// plainVersion returns the three numbers of a semantic version without pre-release and build metadata. For other
// versions, and for numbers with more than nine digits, ok is false. Almost all versions are plain, and a rollout
// compares them for each runtime every few seconds. Unlike package semver, plainVersion allocates no memory.
func plainVersion(v string) (numbers [3]uint64, ok bool) {
	for i := range numbers {
		digits, rest, isLast := v, "", i == len(numbers)-1
		if !isLast {
			if digits, rest, ok = strings.Cut(v, "."); !ok {
				return numbers, false
			}
		}
		if len(digits) == 0 || len(digits) > 9 || digits[0] == '0' && len(digits) > 1 {
			return numbers, false
		}
		for _, c := range []byte(digits) {
			if c < '0' || c > '9' {
				return numbers, false
			}
			numbers[i] = numbers[i]*10 + uint64(c-'0')
		}
		v = rest
	}
	return numbers, true
}
