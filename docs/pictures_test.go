package docs_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The constants are the average widths of one character in em, used to estimate the width of a text in a picture. They
// are those of the widest common fonts: DejaVu Sans, DejaVu Sans Bold, and Menlo.
const (
	sansWidth = 0.65
	boldWidth = 0.72
	monoWidth = 0.605
	padding   = 6 // pixels between a text and the right side of its box
)

// picture is what is drawn by an SVG.
type picture struct {
	boxes []box
	texts []label
	lines []line
}

type box struct{ left, top, right, bottom float64 }

func (b box) contains(x, y float64) bool {
	return b.left <= x && x <= b.right && b.top <= y && y <= b.bottom
}

type label struct {
	text string
	box
	baseline float64
}

type line struct{ x1, y1, x2, y2 float64 }

// crosses reports whether the horizontal or vertical line l has a point in the box b.
func (l line) crosses(b box) bool {
	return min(l.x1, l.x2) <= b.right && max(l.x1, l.x2) >= b.left &&
		min(l.y1, l.y2) <= b.bottom && max(l.y1, l.y2) >= b.top
}

// TestPictures checks each picture of docs/images with estimated widths of text: a text is within the smallest box
// around its beginning, no two texts overlap, no text is on a line, and no line crosses another one.
func TestPictures(t *testing.T) {
	files, err := filepath.Glob("images/*.svg")
	if err != nil || len(files) == 0 {
		t.Fatal("no pictures", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := read(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range p.problems() {
				t.Error(problem)
			}
		})
	}
}

// TestProblems checks that each kind of problem is found.
func TestProblems(t *testing.T) {
	for want, content := range map[string]string{
		`"much too long" does not fit`: `<rect width="50" height="20"/><text x="5" y="15">much too long</text>`,
		`"label" is on a line`:         `<text x="5" y="15">label</text><path d="M0 12 H50"/>`,
		`"label" and "other" overlap`:  `<text x="5" y="15">label</text><text x="9" y="15">other</text>`,
		`lines cross`:                  `<path d="M0 50 H90"/><path d="M50 10 V90"/>`,
	} {
		p, err := read([]byte(`<svg viewBox="0 0 100 100" font-size="10">` + content + `</svg>`))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.problems(); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("the problems of %s are %q, want one with %q", content, got, want)
		}
	}
}

func (p picture) problems() (all []string) {
	for i, text := range p.texts {
		around := box{right: math.Inf(1), bottom: math.Inf(1), left: math.Inf(-1), top: math.Inf(-1)}
		for _, b := range p.boxes {
			if b.contains(text.left, text.baseline) && b.right-b.left <= around.right-around.left {
				around = b
			}
		}
		if text.right+padding > around.right || text.top < around.top || text.bottom > around.bottom {
			all = append(all, fmt.Sprintf("%q does not fit into its box: it ends at %.0f, %.0f, the box at %.0f, %.0f",
				text.text, text.right, text.bottom, around.right, around.bottom))
		}
		for _, other := range p.texts[:i] {
			if text.left < other.right && other.left < text.right &&
				text.top < other.bottom && other.top < text.bottom {
				all = append(all, fmt.Sprintf("%q and %q overlap", other.text, text.text))
			}
		}
		for _, l := range p.lines {
			if l.crosses(text.box) {
				all = append(all, fmt.Sprintf("%q is on a line", text.text))
			}
		}
	}
	for i, l := range p.lines {
		for _, other := range p.lines[:i] {
			if l.crosses(box{min(other.x1, other.x2), min(other.y1, other.y2), max(other.x1, other.x2),
				max(other.y1, other.y2)}) {
				all = append(all, fmt.Sprintf("lines cross at %.0f, %.0f", l.x1, l.y1))
			}
		}
	}
	return all
}

// read reads an SVG with the elements rect, text, tspan and path. Paths are horizontal and vertical lines. The content
// of the SVG element <defs> is not drawn. The attributes of an SVG element also apply to its child elements.
func read(data []byte) (p picture, err error) {
	decoder := xml.NewDecoder(strings.NewReader(string(data)))
	var attributes []map[string]string
	var text *label
	hidden := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return p, fmt.Errorf("reading the picture: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			own := map[string]string{}
			if n := len(attributes); n > 0 {
				own["font-size"], own["font-weight"] = attributes[n-1]["font-size"], attributes[n-1]["font-weight"]
				own["font-family"] = attributes[n-1]["font-family"]
			}
			for _, a := range token.Attr {
				own[a.Name.Local] = a.Value
			}
			attributes = append(attributes, own)
			switch name := token.Name.Local; {
			case hidden > 0 || name == "defs":
				hidden++
			case name == "svg":
				sides := strings.Fields(own["viewBox"])
				if len(sides) != 4 {
					return p, fmt.Errorf("viewBox %q has no four numbers", own["viewBox"])
				}
				p.boxes = append(p.boxes, box{right: number(sides[2]), bottom: number(sides[3])})
			case name == "rect":
				x, y := number(own["x"]), number(own["y"])
				p.boxes = append(p.boxes, box{x, y, x + number(own["width"]), y + number(own["height"])})
			case name == "text":
				text = &label{baseline: number(own["y"]), box: box{left: number(own["x"])}}
			case name == "path":
				lines, err := linesOf(own["d"])
				if err != nil {
					return p, err
				}
				p.lines = append(p.lines, lines...)
			case name != "tspan" && name != "g" && name != "style":
				return p, fmt.Errorf("element %s is not known here", name)
			}
		case xml.CharData:
			if text != nil {
				text.text += string(token)
			}
		case xml.EndElement:
			if hidden > 0 {
				hidden--
			}
			if token.Name.Local == "text" && text != nil {
				own := attributes[len(attributes)-1]
				size, width := number(own["font-size"]), sansWidth
				switch {
				case strings.Contains(own["font-family"], "monospace"):
					width = monoWidth
				case own["font-weight"] == "bold":
					width = boldWidth
				}
				text.right = text.left + float64(utf8.RuneCountInString(text.text))*size*width
				text.top, text.bottom = text.baseline-0.8*size, text.baseline+0.25*size
				if text.text != "" {
					p.texts = append(p.texts, *text)
				}
				text = nil
			}
			attributes = attributes[:len(attributes)-1]
		}
	}
}

// linesOf returns the lines of a path such as "M10 20 H50 V90".
func linesOf(path string) (lines []line, err error) {
	var x, y float64
	parts := strings.Fields(path)
	for i := 0; i < len(parts); i++ {
		next := line{x1: x, y1: y, x2: x, y2: y}
		value := number(parts[i][1:])
		switch command := parts[i][0]; {
		case command == 'M' && i+1 < len(parts):
			i++
			x, y = value, number(parts[i])
			continue
		case command == 'H':
			next.x2 = value
		case command == 'V':
			next.y2 = value
		default:
			return nil, fmt.Errorf("path %q has other commands than M, H and V", path)
		}
		lines = append(lines, next)
		x, y = next.x2, next.y2
	}
	return lines, nil
}

// number returns the value of an attribute, 0 if it is missing, and NaN if it is no number.
func number(text string) float64 {
	if text == "" {
		return 0
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return value
}
