package page

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
)

// pageRows is the number of rows of one page of a table.
const pageRows = 100

// table is a table of a page. Its rows are sorted and paged by the parameters sort and page of the URL.
type table struct {
	Caption string
	Columns []column
	Rows    [][]cell
	// Empty is shown in place of a table without rows.
	Empty string
	// Total is the number of rows of all pages; First and Last are those of this page, from 1.
	Total, First, Last int
	Previous, Next     string // URLs; "" if there is none
	Note               string
}

// column is a column of a table.
type column struct {
	Title, Key string
	IsNumber   bool
	Sort       string // URL that sorts by this column; "" if it cannot be sorted
	Order      string // ascending or descending, for aria-sort; "" if it is not sorted by this column
}

// cell is a cell of a table.
type cell struct {
	Text, Path string
	State      string // of a badge, "" for a plain text
	Hint       string // shown when the pointer is over it
	Wide       bool   // a long text
	Code       bool
	Bar        *bar
	IsNumber   bool
}

// bar is a stacked bar in a cell.
type bar struct {
	Parts []part
	Label string
}

// part is a part of a bar. At and Width are in percent.
type part struct {
	Class, At, Width string
}

// barOf returns a bar for counts out of a total.
func barOf(total int, label string, counts ...struct {
	class string
	n     int
}) *bar {
	b, at := &bar{Label: label}, 0.0
	for _, c := range counts {
		if c.n == 0 || total == 0 {
			continue
		}
		width := 100 * float64(c.n) / float64(total)
		b.Parts = append(b.Parts, part{c.class, fmt.Sprintf("%.2f", at), fmt.Sprintf("%.2f", width)})
		at += width
	}
	return b
}

// row is a row before it is rendered. keys are what it is sorted by, one for each column.
type row struct {
	keys  []string
	cells func() []cell
}

// arrange is arrangeAll for rows that exist.
func (r *request) arrange(t table, rows []row) (table, error) {
	return r.arrangeAll(t, len(rows), func(i, column int) string { return rows[i].keys[column] },
		func(i int) []cell { return rows[i].cells() })
}

// arrangeAll sorts n rows, cuts out one page and makes its cells. key returns what a row is sorted by in a column.
// Columns with a key can be sorted. Without sort, the rows keep their order.
func (r *request) arrangeAll(t table, n int, key func(i, column int) string, cells func(i int) []cell) (table, error) {
	q := r.URL.Query()
	sortBy, descending := strings.CutPrefix(q.Get("sort"), "-")
	at := slices.IndexFunc(t.Columns, func(c column) bool { return c.Key != "" && c.Key == sortBy })
	if sortBy != "" && at < 0 {
		return t, usage("the table has no column %q to sort by", sortBy)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if at >= 0 {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = key(i, at)
		}
		slices.SortStableFunc(order, func(a, b int) int {
			if descending {
				a, b = b, a
			}
			return compare(keys[a], keys[b])
		})
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Key == "" {
			continue
		}
		by := c.Key
		if i == at && !descending {
			by, c.Order = "-"+by, "ascending"
		} else if i == at {
			c.Order = "descending"
		}
		c.Sort = r.with("sort", by, "page", "")
	}
	number, err := strconv.Atoi(cmp.Or(q.Get("page"), "1"))
	if err != nil || number < 1 {
		return t, usage("page %q is not a number from 1", q.Get("page"))
	}
	t.Total = n
	number = min(number, max((n+pageRows-1)/pageRows, 1)) // rows may have gone since the page was linked
	from := (number - 1) * pageRows
	to := min(from+pageRows, n)
	if t.First, t.Last = from+1, to; number > 1 {
		t.Previous = r.with("page", strconv.Itoa(number-1))
	}
	if to < n {
		t.Next = r.with("page", strconv.Itoa(number+1))
	}
	for _, i := range order[from:to] {
		t.Rows = append(t.Rows, cells(i))
	}
	for i := range t.Rows {
		for j := range t.Rows[i] {
			t.Rows[i][j].IsNumber = t.Columns[j].IsNumber
		}
	}
	return t, nil
}

// compare compares numbers and versions by their values, and everything else as text.
func compare(a, b string) int {
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		if y, err := strconv.ParseFloat(b, 64); err == nil {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Or(connection.CompareVersions(a, b), strings.Compare(a, b))
}

// with returns the URL of the request with other parameters. An empty value removes one.
func (r *request) with(pairs ...string) string {
	q := r.URL.Query()
	for i := 0; i < len(pairs); i += 2 {
		if q.Del(pairs[i]); pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return pathWith(r.URL.Path, q)
}

func pathWith(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
