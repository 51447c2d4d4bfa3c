package channel

import "github.com/Masterminds/semver/v3"

// isVersion reports whether v is a strict semantic version: three numbers, no leading v.
func isVersion(v string) bool {
	_, err := semver.StrictNewVersion(v)
	return err == nil
}

// isLower reports whether version a precedes b by semantic versioning. An invalid version cannot be compared and is not
// lower.
func isLower(a, b string) bool { return compareVersions(a, b) < 0 }

// compareVersions returns -1, 0 or +1 if version a precedes, equals or follows b. It returns 0 if one of them is
// invalid.
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
