package channel

import (
	"testing"

	"github.com/Masterminds/semver/v3"
)

// TestPrecedence tests the order of the example in chapter 11 of semver.org.
func TestPrecedence(t *testing.T) {
	rising := []string{
		"0.0.1", "0.1.0", "0.9.9", "0.10.0", "1.0.0-0", "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-alpha",
		"1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta",
		"1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1-rc", "1.0.1", "1.2.0",
		"1.10.0", "2.0.0", "10.0.0",
	}
	for i, a := range rising {
		for j, b := range rising {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			if got := compareVersions(a, b); got != want {
				t.Errorf("precedence(%s, %s) is %d, want %d", a, b, got, want)
			}
			if got := compareVersions(a+"+x.1", b+"+y"); got != want {
				t.Errorf("with build metadata precedence(%s, %s) is %d, want %d", a, b, got, want)
			}
		}
	}
}

// FuzzLower checks that isLower is a strict order of valid versions, that it is the order of package semver, and that
// isLower is false if a version is invalid.
func FuzzLower(f *testing.F) {
	f.Add("1.0.0", "1.0.1", "1.0.2")
	f.Add("1.0.0-rc", "1.0.0", "1.0.0-rc.1")
	f.Add("1.0.0-9", "1.0.0-a", "1.0.0-99999999999999999999")
	f.Add("", "x", "v1.0.0")
	f.Add("01.0.0", "1.00.0", "0.0.0")
	f.Add("1.0", "1.0.0.0", "1..0")
	f.Add("999999999.0.0", "1000000000.0.0", "18446744073709551616.0.0")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if isLower(a, b) && isLower(b, a) {
			t.Errorf("%q and %q are both lower than the other", a, b)
		}
		if isLower(a, a) {
			t.Errorf("%q is lower than itself", a)
		}
		if isLower(a, b) && isLower(b, c) && !isLower(a, c) {
			t.Errorf("%q, %q, %q: not in order", a, b, c)
		}
		va, errA := semver.StrictNewVersion(a)
		vb, errB := semver.StrictNewVersion(b)
		if errA == nil && errB == nil && isLower(a, b) != va.LessThan(vb) {
			t.Errorf("%q is lower than %q: %t", a, b, isLower(a, b))
		}
		if (errA != nil || errB != nil) && isLower(a, b) {
			t.Errorf("%q or %q is no version and yet lower", a, b)
		}
		if isVersion(a) != (errA == nil) {
			t.Errorf("%q: is a version %t", a, isVersion(a))
		}
	})
}
