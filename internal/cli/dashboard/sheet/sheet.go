// Package sheet makes the tables of the pages of the dashboard. The server sorts the rows of a table and selects one
// page of rows, as the parameters of the URL request.
//
// # Use
//
//	t, err := sheet.Arrange(address, sheet.Table{Caption: "Versions", Columns: columns}, rows)
//
// # How it works
//
// The parameters sort and page of a URL select the order and the page of a table. A table can be sorted by each column
// that has a sort key. Only the cells of the page that is shown are made.
//
// # What it does not do
//
// The package makes no HTML, and filters nothing.
package sheet

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// The parameters of a URL that select the order and the page.
const (
	ParamSort = "sort"
	ParamPage = "page"
)

// pageRows is the number of rows of one page of a table.
const pageRows = 100

// Table is a table of a page. The rows of a table are sorted, and split into pages, by the parameters sort and page of
// the URL.
type Table struct {
	Caption string
	Columns []Column
	Rows    [][]Cell
	// Empty is shown in place of a table without rows.
	Empty string
	// Total is the number of rows of all pages. First and Last are the numbers of the first and the last row of this
	// page, from 1.
	Total, First, Last int
	Previous, Next     string // URLs; "" if there is none
	Note               string
}

// Column is a column of a table.
type Column struct {
	Title, Key string
	IsNumber   bool
	Sort       string // URL that sorts by this column; "" if it cannot be sorted
	Order      string // ascending or descending, for aria-sort; "" if it is not sorted by this column
}

// Cell is a cell of a table.
type Cell struct {
	Text, Path string
	Link       string // the address of another site; it is opened in a new tab
	State      string // of a badge, "" for a plain text
	Hint       string // shown when the pointer is over the cell
	Wide       bool   // a long text
	Code       bool
	Bar        *Bar
	IsNumber   bool
}

// Bar is a stacked bar in a cell.
type Bar struct {
	Parts []Part
	Label string
}

// Part is a part of a bar. At and Width are in percent.
type Part struct {
	Class, At, Width string
}

// Share is one part of a stacked bar: a number, and the CSS class of the part.
type Share struct {
	Class string
	N     int
}

// BarOf returns a stacked bar with one part for each share of a total.
func BarOf(total int, label string, shares ...Share) *Bar {
	b, at := &Bar{Label: label}, 0.0
	for _, c := range shares {
		if c.N == 0 || total == 0 {
			continue
		}
		width := 100 * float64(c.N) / float64(total)
		b.Parts = append(b.Parts, Part{c.Class, fmt.Sprintf("%.2f", at), fmt.Sprintf("%.2f", width)})
		at += width
	}
	return b
}

// Row is a row before it is rendered. Keys are the sort keys of the row, one key for each column.
type Row struct {
	Keys  []string
	Cells func() []Cell
}

// Arrange sorts rows, selects one page of rows, and makes the cells of this page, as the URL requests.
func Arrange(address *url.URL, t Table, rows []Row) (Table, error) {
	return ArrangeAll(address, t, len(rows), func(i, column int) string { return rows[i].Keys[column] },
		func(i int) []Cell { return rows[i].Cells() })
}

// ArrangeAll sorts n rows, selects one page of rows, and makes the cells of this page, as the URL requests. The
// function key returns the sort key of a row in a column. Columns with a key can be sorted. Without sort, the rows keep
// their order.
func ArrangeAll(address *url.URL, t Table, n int, key func(i, column int) string, cells func(i int) []Cell) (
	Table, error) {
	q := address.Query()
	sortBy, descending := strings.CutPrefix(q.Get(ParamSort), "-")
	at := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Key != "" && c.Key == sortBy })
	if sortBy != "" && at < 0 {
		return t, console.Fail(console.ExitUsage, "the table has no column %q to sort by", sortBy)
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
			return CompareNumberVersionOrText(keys[a], keys[b])
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
		c.Sort = WithQuery(address, ParamSort, by, ParamPage, "")
	}
	number, err := strconv.Atoi(cmp.Or(q.Get(ParamPage), "1"))
	if err != nil || number < 1 {
		return t, console.Fail(console.ExitUsage, "page %q is not a number from 1", q.Get(ParamPage))
	}
	t.Total = n
	number = min(number, max((n+pageRows-1)/pageRows, 1)) // there may be fewer rows than when the page was linked
	from := (number - 1) * pageRows
	to := min(from+pageRows, n)
	if t.First, t.Last = from+1, to; number > 1 {
		t.Previous = WithQuery(address, ParamPage, strconv.Itoa(number-1))
	}
	if to < n {
		t.Next = WithQuery(address, ParamPage, strconv.Itoa(number+1))
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

// CompareNumberVersionOrText compares numbers and versions by their values, and everything else as text.
func CompareNumberVersionOrText(a, b string) int {
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		if y, err := strconv.ParseFloat(b, 64); err == nil {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Or(connection.CompareVersions(a, b), strings.Compare(a, b))
}

// WithQuery is a function that returns an address with changed query parameters. A query parameter with an empty value
// is removed.
func WithQuery(address *url.URL, pairs ...string) string {
	q := address.Query()
	for i := 0; i < len(pairs); i += 2 {
		if q.Del(pairs[i]); pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return PathWith(address.Path, q)
}

// PathWith returns a path with parameters.
func PathWith(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// Count returns a text with a number and its noun, such as 1,234 runtimes.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Number(n) + " " + noun
}

// Number returns a number with separators of thousands.
func Number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
