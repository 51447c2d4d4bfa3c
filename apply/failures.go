package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// The constants limit the text that summarizes the failures of many objects. The text about failed objects becomes part
// of the message of a status condition. The message of a condition may have 32,768 bytes and also contains other texts,
// so the text about failed objects has to be much shorter.
const (
	maxFailuresInFull  = 3
	failureBytesLimit  = 2 << 10 // of each failure in full
	maxReasonsInErrors = 10
)

// JoinFailures returns the failures of several objects as one error. JoinFailures returns nil for no failure, and the
// failure itself for one failure. errors.Is and errors.As find each failure. The text of the error contains the first
// three failures in full, and the numbers of other failures by reason, so it stays below 8 KiB for any number of failed
// objects. The text of the joined error changes only if the failures or their order change.
func JoinFailures(failed []*Error) error {
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return failed[0]
	}
	return &failures{slices.Clone(failed)}
}

// failures is an error that combines the failures of two or more objects.
type failures struct{ all []*Error }

// Unwrap returns all failures.
func (f *failures) Unwrap() []error {
	errs := make([]error, len(f.all))
	for i, e := range f.all {
		errs[i] = e
	}
	return errs
}

// class returns the class of all failures, or Transient if they have different classes.
func (f *failures) class() Class {
	class := ClassOf(f.all[0])
	for _, e := range f.all[1:] {
		if ClassOf(e) != class {
			return Transient
		}
	}
	return class
}

// Error returns the first failures in full and the number of other failures by reason.
func (f *failures) Error() string {
	inFull := min(maxFailuresInFull, len(f.all))
	parts := make([]string, 0, inFull+1)
	for _, e := range f.all[:inFull] {
		parts = append(parts, text.ClipCollapsingSpaces(e.Error(), failureBytesLimit))
	}
	if others := f.all[inFull:]; len(others) > 0 {
		parts = append(parts, fmt.Sprintf("and %d more: %s", len(others), countByReason(others)))
	}
	return strings.Join(parts, "; ")
}

// countByReason returns the number of failures for each reason. The most frequent reason is first: "100
// RuntimeForbidden, 17 ObjectRefused".
func countByReason(failed []*Error) string {
	counts := map[string]int{}
	for _, e := range failed {
		counts[e.reason]++
	}
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	parts := make([]string, 0, len(reasons))
	for _, reason := range reasons[:min(maxReasonsInErrors, len(reasons))] {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return strings.Join(parts, ", ")
}
