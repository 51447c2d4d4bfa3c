package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Sizes of the chart, in pixels.
const (
	panelWidth, panelHeight = 320, 190
	marginLeft, marginRight = 24, 44
	marginTop, marginBottom = 34, 30
	columns                 = 3
)

// point is the value of a figure at one size.
type point struct {
	clusters int
	value    float64
}

// drawing is one panel of the chart.
type drawing struct {
	title  string
	aim    float64 // 0 means none
	points []point
}

// chart draws a panel for each figure that was measured at two sizes or more: first the leading figures, then the
// others. The horizontal axis is the number of clusters, one step per order of magnitude. The vertical axis is the cost
// of one runtime or module, from zero, so a cost that does not grow with the fleet is a flat line.
func chart(runs []Run) []byte {
	var first, others []drawing
	for _, f := range figures {
		d := drawing{title: titleOf(f)}
		for i := range runs {
			if v, there := f.value(&runs[i]); there {
				d.points = append(d.points, point{runs[i].Clusters, v})
			}
		}
		if len(d.points) < 2 {
			continue
		}
		slices.SortFunc(d.points, func(a, b point) int { return cmp.Compare(a.clusters, b.clusters) })
		if share, isShared := shared[f.title]; isShared {
			d.title = titleOf(figure{title: f.title + " ÷ clusters", unit: share.unit})
			for i := range d.points {
				d.points[i].value *= share.factor / float64(d.points[i].clusters)
			}
		}
		at := slices.IndexFunc(leading, func(l lead) bool { return l.title == f.title })
		if at < 0 {
			others = append(others, d)
			continue
		}
		d.aim = leading[at].aim
		first = append(first, d)
	}
	all := append(first, others...)
	rows := (len(all) + columns - 1) / columns
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", columns*panelWidth, rows*panelHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i := range all {
		b.WriteString(all[i].panelSVG(i))
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// panelSVG returns the SVG text that draws one figure.
func (d *drawing) panelSVG(number int) string {
	left, top := number%columns*panelWidth, number/columns*panelHeight
	most := d.aim
	for _, p := range d.points {
		most = max(most, p.value)
	}
	least, span := math.Log10(float64(d.points[0].clusters)),
		math.Log10(float64(d.points[len(d.points)-1].clusters)/float64(d.points[0].clusters))
	x := func(p point) float64 {
		return marginLeft + (math.Log10(float64(p.clusters))-least)/cmp.Or(span, 1)*(panelWidth-marginLeft-marginRight)
	}
	y := func(value float64) float64 {
		return panelHeight - marginBottom - value/cmp.Or(most, 1)*(panelHeight-marginTop-marginBottom-12)
	}
	var b, line strings.Builder
	fmt.Fprintf(&b, `<g transform="translate(%d,%d)"><text x="%d" y="18" font-weight="bold">%s</text>`+"\n", left, top,
		marginLeft-12, html.EscapeString(d.title))
	fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#888"/>`+"\n", marginLeft, panelHeight-marginBottom,
		panelWidth-marginRight, panelHeight-marginBottom)
	if d.aim > 0 {
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#1b6e44" stroke-dasharray="5 3"/>`,
			marginLeft, y(d.aim), panelWidth-marginRight, y(d.aim))
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end" fill="#1b6e44">%s</text>`+"\n", panelWidth-4,
			y(d.aim)+4, "≤ "+formatWithAtMostTwoDecimals(d.aim))
	}
	for _, p := range d.points {
		fmt.Fprintf(&line, "%.1f,%.1f ", x(p), y(p.value))
		fmt.Fprintf(&b,
			`<circle cx="%.1f" cy="%.1f" r="3" fill="#1a5fb4"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x(p), y(p.value), x(p), y(p.value)-7, formatWithAtMostTwoDecimals(p.value))
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#666">%d</text>`+"\n", x(p),
			panelHeight-marginBottom+15, p.clusters)
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#1a5fb4" stroke-width="1.5"/></g>`+"\n",
		strings.TrimSpace(line.String()))
	return b.String()
}

func titleOf(f figure) string {
	if f.unit == "" {
		return f.title
	}
	return f.title + ", " + f.unit
}

// formatWithAtMostTwoDecimals formats a number with three digits.
func formatWithAtMostTwoDecimals(v float64) string {
	switch {
	case v >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
