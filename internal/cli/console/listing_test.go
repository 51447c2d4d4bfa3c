package console

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// fruit is a row of a listing.
type fruit struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Count   int    `json:"count"`
}

type basket []fruit

func (b basket) Names() []string { return nil }

func (b basket) Show(p *Page) {
	for _, f := range b {
		p.Line("%s", f.Name)
	}
}

var fruits = basket{{"pear", "1.10.0", 9}, {"apple", "1.9.0", 10}, {"fig", "", 1}}

// list runs a command that lists the sample data fruits, with the given arguments, and returns the printed text.
func list(t *testing.T, output string, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	var l Listing
	a := &App{Streams: Streams{Out: &out}, Config: &config.Klm{Output: output}, Now: time.Now}
	c := &cobra.Command{Use: "list", SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return PrintListing(cmd.Context(), a, &l, nil, func() (basket, error) { return fruits, nil },
				func(f *fruit) bool { return l.Accepts(FilterModule, f.Name) })
		}}
	l.Register(c, FilterModule)
	l.RegisterSort(c)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestList(t *testing.T) {
	cases := map[string]struct {
		reason, output string
		args           []string
		want           string
		code           int
	}{
		"All":      {"no filter, no order", "table", nil, "pear\napple\nfig\n", ExitOK},
		"Filter":   {"one value, in any case", "table", []string{"--module=Fig"}, "fig\n", ExitOK},
		"Filters":  {"several values", "table", []string{"--module=fig, pear"}, "pear\nfig\n", ExitOK},
		"Text":     {"sorted as text", "table", []string{"--sort-by=.name"}, "apple\nfig\npear\n", ExitOK},
		"Number":   {"sorted as numbers", "table", []string{"--sort-by={.count}"}, "fig\npear\napple\n", ExitOK},
		"Version":  {"sorted as versions, none is last", "table", []string{"--sort-by=version"}, "apple\npear\nfig\n", ExitOK},
		"NoField":  {"a field that no row has", "table", []string{"--sort-by=.nothing"}, "no row has a field .nothing", ExitUsage},
		"NoPath":   {"no JSONPath", "table", []string{"--sort-by={.a"}, "is not a JSONPath", ExitUsage},
		"JSONPath": {"fields of all rows", "jsonpath={[*].name}", nil, "pear apple fig", ExitOK},
		"Items":    {"as kubectl calls the rows", `jsonpath={range .items[*]}{.name}{"\n"}{end}`, nil, "pear\napple\nfig\n", ExitOK},
		"BadPath":  {"no JSONPath", "jsonpath={.a", nil, "is not a JSONPath", ExitUsage},
		"Columns": {"a table of fields", "custom-columns=NAME:.name,V:{.version}", nil,
			"NAME    V\npear    1.10.0\napple   1.9.0\nfig     <none>\n", ExitOK},
		"BadColumns": {"a column has a title and a path", "custom-columns=NAME", nil, "is not a column TITLE:PATH", ExitUsage},
	}
	for name, c := range cases {
		got, err := list(t, c.output, c.args...)
		if err != nil {
			got = err.Error()
		}
		if ExitCode(err) != c.code || err == nil && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s: exit code %d, %s", name, c.reason, ExitCode(err), cmp.Diff(c.want, got))
		}
	}
}

func TestVersionFilter(t *testing.T) {
	cases := map[string]struct{ reason, value, want string }{
		"Minor":   {"a release", "1.34", ""},
		"Several": {"with spaces and prefixes", "1.34, v1.35.1", ""},
		"None":    {"like a flag that is not given", "", ""},
		"Word":    {"no version begins with it", "abc", `"abc" is not a version`},
		"Pattern": {"patterns are not supported", "1.x", `"1.x" is not a version`},
		"Second":  {"each is checked", "1.34,foo", `"foo" is not a version`},
	}
	for name, c := range cases {
		command, l := &cobra.Command{}, &Listing{}
		l.Register(command, FilterKubernetes)
		err := command.Flags().Set(FilterKubernetes, c.value)
		if c.want == "" && (err != nil || l.Value(FilterKubernetes) != c.value) ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s: value %q, error %v, want %q", name, c.reason, l.Value(FilterKubernetes), err, c.want)
		}
	}
}
