package ocm

import (
	"strings"
	"testing"
)

func TestImageResource(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for reference, want := range map[string][2]string{
		"r.io/a/op:1.2.3":               {"op", "1.2.3"},
		"r.io/a/op:v1.2.3-rc.1":         {"op", "v1.2.3-rc.1"},
		"localhost:5000/op:main_1":      {"op", "0.0.0-main-1"},
		"localhost:5000/op":             {"op", "0.0.0-unknown"},
		"r.io/op" + digest:              {"op-01234567", "0.0.0+sha256.0123456789ab"},
		"r.io/op:1.2.3" + digest:        {"op-01234567", "1.2.3+sha256.0123456789ab"},
		"r.io/op:v20240101-ab" + digest: {"op-01234567", "0.0.0-v20240101-ab+sha256.0123456789ab"},
	} {
		got := imageResource(reference)
		if got["name"] != want[0] || got["version"] != want[1] {
			t.Errorf("%s: got %v %v, want %v", reference, got["name"], got["version"], want)
		}
	}
}
