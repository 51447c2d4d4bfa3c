package channel

import "github.com/Masterminds/semver/v3"

// isVersion tells whether v is a semantic version, strictly: three numbers, no leading v.
func isVersion(v string) bool {
	_, err := semver.StrictNewVersion(v)
	return err == nil
}

// lower tells whether version a comes before b by semantic versioning. What is not a version cannot be compared and is not lower.
func isLower(a, b string) bool { return compareVersions(a, b) < 0 }

// precedence returns -1, 0 or +1 if version a comes before, with or after b. What is not a version comes with everything.
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
