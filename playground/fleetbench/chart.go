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

// chart draws a panel for each figure that was measured at two sizes or more. The horizontal axis is the number of
// clusters, one step per order of magnitude. The vertical axis is the figure, from zero.
func chart(runs []Run) []byte {
	var panels []string
	for _, f := range figures {
		var points []point
		for i := range runs {
			if v, there := f.value(&runs[i]); there {
				points = append(points, point{runs[i].Clusters, v})
			}
		}
		if len(points) > 1 {
			slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.clusters, b.clusters) })
			panels = append(panels, panel(len(panels), f, points))
		}
	}
	rows := (len(panels) + columns - 1) / columns
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", columns*panelWidth, rows*panelHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for _, p := range panels {
		b.WriteString(p)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// panel draws one figure.
func panel(number int, f figure, points []point) string {
	left, top := number%columns*panelWidth, number/columns*panelHeight
	most := 0.0
	for _, p := range points {
		most = max(most, p.value)
	}
	least, span := math.Log10(float64(points[0].clusters)),
		math.Log10(float64(points[len(points)-1].clusters)/float64(points[0].clusters))
	x := func(p point) float64 {
		return marginLeft + (math.Log10(float64(p.clusters))-least)/cmp.Or(span, 1)*(panelWidth-marginLeft-marginRight)
	}
	y := func(p point) float64 {
		return panelHeight - marginBottom - p.value/cmp.Or(most, 1)*(panelHeight-marginTop-marginBottom-12)
	}
	var b, line strings.Builder
	fmt.Fprintf(&b, `<g transform="translate(%d,%d)"><text x="%d" y="18" font-weight="bold">%s</text>`+"\n", left, top,
		marginLeft-12, html.EscapeString(title(f)))
	fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#999"/>`+"\n", marginLeft, panelHeight-marginBottom,
		panelWidth-marginRight, panelHeight-marginBottom)
	for _, p := range points {
		fmt.Fprintf(&line, "%.1f,%.1f ", x(p), y(p))
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="#1a5fb4"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x(p), y(p), x(p), y(p)-7, short(p.value))
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#666">%d</text>`+"\n", x(p),
			panelHeight-marginBottom+15, p.clusters)
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="#1a5fb4" stroke-width="1.5"/></g>`+"\n",
		strings.TrimSpace(line.String()))
	return b.String()
}

func title(f figure) string {
	if f.unit == "" {
		return f.title
	}
	return f.title + ", " + f.unit
}

// short formats a number with three digits.
func short(v float64) string {
	switch {
	case v >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
