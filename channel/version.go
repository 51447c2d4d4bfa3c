package channel

import "github.com/Masterminds/semver/v3"

// isVersion reports whether v is a strict semantic version: it has three numbers and no leading v.
func isVersion(v string) bool {
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
	va, errA := semver.StrictNewVersion(a)
	vb, errB := semver.StrictNewVersion(b)
	if errA != nil || errB != nil {
		return 0
	}
	return va.Compare(vb)
}
