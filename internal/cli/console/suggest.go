package console

import (
	"cmp"
	"slices"
	"strings"
)

// closest returns those of the names that somebody who wrote name may have meant, the likeliest first, three at most.
func closest(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	wrote := strings.ToLower(name)
	for _, n := range slices.Compact(slices.Sorted(slices.Values(names))) {
		meant := strings.ToLower(n)
		d := editDistance(wrote, meant)
		if len(wrote) > 2 && strings.Contains(meant, wrote) {
			d = min(d, 1)
		}
		if d <= 1+min(len(wrote), len(meant))/3 {
			found = append(found, candidate{n, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var likely []string
	for _, c := range found[:min(len(found), 3)] {
		likely = append(likely, c.name)
	}
	return likely
}

// Suggest says what else there is: the closest names, else some of them.
func Suggest(name string, names []string) string {
	const most = 8
	if likely := closest(name, names); len(likely) > 0 {
		return "did you mean " + strings.Join(likely, " or ") + "?"
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	switch {
	case len(names) == 0:
		return "there are none"
	case len(names) > most:
		return "there are " + strings.Join(names[:most], ", ") + " and more"
	}
	return "there are " + strings.Join(names, ", ")
}

// editDistance is the number of letters to add, drop, change or swap with the next to get from a to b.
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
