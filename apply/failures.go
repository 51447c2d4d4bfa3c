package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Limits of the text that sums up the failures of many objects. A condition may have 32,768 bytes, and other texts are
// part of it.
const (
	maxFailuresInFull  = 3
	failureBytesLimit  = 2 << 10 // of each failure in full
	maxReasonsInErrors = 10
)

// JoinFailures returns the failures of several objects as one error: nil for none, and the failure itself for one.
// errors.Is and errors.As find each of them. The text names the first three in full and counts the others by reason, so
// that it stays below 8 KiB however many objects have failed. It is stable as long as the order of the failures is.
func JoinFailures(failed []*Error) error {
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return failed[0]
	}
	return &failures{slices.Clone(failed)}
}

// failures are two or more failures of single objects.
type failures struct{ all []*Error }

// Unwrap returns all failures.
func (f *failures) Unwrap() []error {
	errs := make([]error, len(f.all))
	for i, e := range f.all {
		errs[i] = e
	}
	return errs
}

// Error names the first failures in full and counts the others by reason.
func (f *failures) Error() string {
	inFull := min(maxFailuresInFull, len(f.all))
	parts := make([]string, 0, inFull+1)
	for _, e := range f.all[:inFull] {
		parts = append(parts, clip(e.Error(), failureBytesLimit))
	}
	if others := f.all[inFull:]; len(others) > 0 {
		parts = append(parts, fmt.Sprintf("and %d more: %s", len(others), countByReason(others)))
	}
	return strings.Join(parts, "; ")
}

// countByReason returns how many failures have which reason, the most frequent first: "100 RuntimeForbidden, 17
// ObjectRefused".
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
