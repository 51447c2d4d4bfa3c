package console

import (
	"cmp"
	"slices"
	"strings"
)

// closest returns at most three of the names that are similar to name. The most similar name is first.
func closest(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	typed := strings.ToLower(name)
	for _, n := range slices.Compact(slices.Sorted(slices.Values(names))) {
		existing := strings.ToLower(n)
		d := editDistance(typed, existing)
		if len(typed) > 2 && strings.Contains(existing, typed) {
			d = min(d, 1)
		}
		if d <= 1+min(len(typed), len(existing))/3 {
			found = append(found, candidate{n, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var similar []string
	for _, c := range found[:min(len(found), 3)] {
		similar = append(similar, c.name)
	}
	return similar
}

// SuggestionText returns the end of an error message about an unknown name: a text with names that are similar to the
// unknown name. If there are no similar names, the text lists existing names.
func SuggestionText(name string, names []string) string {
	const limit = 8
	if similar := closest(name, names); len(similar) > 0 {
		return "did you mean " + strings.Join(similar, " or ") + "?"
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	switch {
	case len(names) == 0:
		return "none exist"
	case len(names) > limit:
		return "choose one of " + strings.Join(names[:limit], ", ") + ", …"
	}
	return "choose one of " + strings.Join(names, ", ")
}

// editDistance returns the number of edits that convert a into b. An edit adds, removes or changes a letter, or swaps
// two neighbouring letters.
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := last[j-1]
			if x[i-1] != y[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
