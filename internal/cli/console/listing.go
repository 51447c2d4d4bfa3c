package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/spf13/cobra"
)

// The filters of listings. The value of each constant is the name of the flag.
const (
	FilterLabels  = "selector"
	FilterModule  = "module"
	FilterVersion = "version"
	FilterChannel = "channel"
	FilterState   = "state"
	FilterReason  = "reason"
	// FilterKubernetes accepts versions of Kubernetes that begin with the value of the filter, see
	// [Listing.AcceptsVersionPrefix].
	FilterKubernetes = "kubernetes-version"
)

// filterHelp contains the help text for the flag of each filter.
var filterHelp = map[string]string{
	FilterLabels:  "only those with these labels, such as a=b,c!=d",
	FilterModule:  "only this module; several names are separated by commas",
	FilterVersion: "only this version",
	FilterChannel: "only this release channel",
	FilterState:   "only this state, such as Error",
	FilterReason:  "only what this reason blocks, such as DowngradeRefused",
	FilterKubernetes: "only runtimes with this version of Kubernetes, such as 1.34 or 1.34.2; several are separated by " +
		"commas",
}

// Listing has the flags of a command that lists something: its filters, the order of the rows, and whether the list is
// shown again after changes.
type Listing struct {
	filters map[string]*string
	sortBy  string
	Watch   bool
}

// NewListing returns a listing with the given values of filters, for callers whose filters do not come from the flags
// of a listing.
func NewListing(values map[string]string) *Listing {
	l := &Listing{filters: map[string]*string{}}
	for name, value := range values {
		l.filters[name] = &value
	}
	return l
}

// Register adds the flags to a command. The argument filters has the names of the filters that the listing supports.
func (l *Listing) Register(c *cobra.Command, filters ...string) {
	l.filters = map[string]*string{}
	for _, name := range filters {
		short := ""
		if name == FilterLabels {
			short = "l"
		}
		l.filters[name] = new(string)
		if name == FilterKubernetes {
			c.Flags().Var((*versionFilter)(l.filters[name]), name, filterHelp[name])
			continue
		}
		c.Flags().StringVarP(l.filters[name], name, short, "", filterHelp[name])
	}
	c.Flags().BoolVarP(&l.Watch, "watch", "w", false, "keep running, and show every change")
}

// versionFilter is the value of a flag with versions, separated by commas. versionFilter refuses a text with which no
// version can begin.
type versionFilter string

// String implements [pflag.Value].
func (f *versionFilter) String() string { return string(*f) }

// Type implements [pflag.Value].
func (f *versionFilter) Type() string { return "string" }

// Set implements [pflag.Value].
func (f *versionFilter) Set(value string) error {
	for one := range strings.SplitSeq(value, ",") {
		if _, err := semver.NewVersion(strings.TrimSpace(one)); err != nil && value != "" {
			return fmt.Errorf("%q is not a version: give one such as 1.34 or 1.34.2", one)
		}
	}
	*f = versionFilter(value)
	return nil
}

// RegisterSort adds the flag --sort-by to a command.
func (l *Listing) RegisterSort(c *cobra.Command) {
	c.Flags().StringVar(&l.sortBy, "sort-by", "", "field of -o json by which the rows are sorted, such as .version")
}

// Value returns the value of a filter, or "" if the filter is not set.
func (l *Listing) Value(filter string) string {
	if v := l.filters[filter]; v != nil {
		return *v
	}
	return ""
}

// Accepts reports whether the filter contains one of the values. Accepts ignores the case of letters. A filter that is
// not set accepts everything.
func (l *Listing) Accepts(filter string, values ...string) bool {
	wanted := l.Value(filter)
	if wanted == "" {
		return true
	}
	for one := range strings.SplitSeq(wanted, ",") {
		if slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, strings.TrimSpace(one)) }) {
			return true
		}
	}
	return false
}

// AcceptsVersionPrefix reports whether a version equals one of the values of the filter, or begins with one of these
// values: 1.34 accepts v1.34.2, but not v1.3.4. A filter that is not set accepts everything.
func (l *Listing) AcceptsVersionPrefix(filter, version string) bool {
	wanted := l.Value(filter)
	if wanted == "" {
		return true
	}
	version = strings.TrimPrefix(version, "v")
	for one := range strings.SplitSeq(wanted, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "v")
		rest, begins := strings.CutPrefix(version, one)
		if one != "" && begins && (rest == "" || strings.ContainsAny(rest[:1], ".+-_~")) {
			return true
		}
	}
	return false
}

// PrintListing prints a listing: the rows that the function "read" returns and that the function "keep" accepts, in the
// order of --sort-by. With --watch, PrintListing prints the rows again after each change, until ctx ends.
func PrintListing[T any, R interface {
	~[]T
	Report
}](ctx context.Context, a *App, l *Listing, changed func() <-chan struct{}, read func() (R, error),
	keep func(*T) bool) error {
	rows := func() (R, error) {
		all, err := read()
		if err != nil {
			return nil, err
		}
		return SelectAndSort[T](l, all, keep)
	}
	if !l.Watch {
		all, err := rows()
		if err != nil {
			return err
		}
		return a.Print(all)
	}
	screen := Screen{App: a}
	return RefreshUntilDone(ctx, changed(), func() error {
		all, err := rows()
		if err != nil {
			return err
		}
		return screen.Show(all)
	})
}

// SelectAndSort returns the rows that the function "keep" accepts, in the order of --sort-by.
func SelectAndSort[T any, R ~[]T](l *Listing, all R, keep func(*T) bool) (R, error) {
	kept := R{}
	for i := range all {
		if keep == nil || keep(&all[i]) {
			kept = append(kept, all[i])
		}
	}
	if l.sortBy == "" {
		return kept, nil
	}
	path, err := pathOf("--sort-by", l.sortBy)
	if err != nil {
		return nil, err
	}
	type keyed struct {
		key string
		row T
	}
	byKey, found := make([]keyed, len(kept)), len(kept) == 0
	for i, row := range kept {
		fields, err := fieldsOf(row)
		if err != nil {
			return nil, err
		}
		byKey[i] = keyed{cellOf(path, fields), row}
		found = found || byKey[i].key != noValue
	}
	if !found {
		return nil, Fail(ExitUsage, "--sort-by: no row has a field %s: -o json shows the fields", l.sortBy)
	}
	slices.SortStableFunc(byKey, func(a, b keyed) int { return compareValues(a.key, b.key) })
	for i := range byKey {
		kept[i] = byKey[i].row
	}
	return kept, nil
}

// compareValues compares numbers and versions by their values, and everything else as text. A missing value counts as
// higher than all other values, so that rows without a value come last.
func compareValues(a, b string) int {
	if a == noValue || b == noValue {
		return cmp.Compare(strconv.FormatBool(a == noValue), strconv.FormatBool(b == noValue))
	}
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		if y, err := strconv.ParseFloat(b, 64); err == nil {
			return cmp.Compare(x, y)
		}
	}
	if x, err := semver.StrictNewVersion(a); err == nil {
		if y, err := semver.StrictNewVersion(b); err == nil {
			return x.Compare(y)
		}
	}
	return strings.Compare(a, b)
}
