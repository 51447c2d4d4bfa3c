package console

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestColours(t *testing.T) {
	p := &Page{colours: true}
	p.Table([]string{"NAME", "STATE", "+MORE"}, [][]string{{"a", "Ready", "x"}, {"bcd", "Error", "y"}})
	want := "NAME   STATE\na      \x1b[32mReady\x1b[0m\nbcd    \x1b[31mError\x1b[0m\n"
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
