package supportdump

import (
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

// TestDumpReport checks that objects that could not be read are reported.
func TestDumpReport(t *testing.T) {
	fixture.GoldenFormats(t, "dump.txt", dumpReport{"x.tar.gz", map[string]int{"kymas": 3, "events": 2},
		[]string{"secrets"}})
}
