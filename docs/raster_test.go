package docs_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// pngFolder is the value of the flag -png. TestDrawn writes the drawn pictures into this folder: go test ./docs -run
// TestDrawn -png=FOLDER.
var pngFolder = flag.String("png", "", "write the pictures as PNG into this folder")

// WCAG 2 requires these contrasts with the background, one for text, and one for lines and borders.
const (
	textContrast = 4.5
	lineContrast = 3
)

// TestDrawn draws each picture for a light and a dark page. TestDrawn checks that each text, drawn with the Go fonts,
// fits into its box, which is the smallest box that contains the beginning of the text, and that each text and line has
// enough contrast with its background.
func TestDrawn(t *testing.T) {
	files, err := filepath.Glob("images/*.svg")
	if err != nil || len(files) == 0 {
		t.Fatal("no pictures", err)
	}
	for _, file := range append(files, "benchmarks.svg") {
		for name, dark := range map[string]bool{"light": false, "dark": true} {
			t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				c, err := rasterise(data, dark)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range c.problems {
					t.Error(p)
				}
				if *pngFolder == "" {
					return
				}
				out, err := os.Create(filepath.Join(*pngFolder, strings.TrimSuffix(filepath.Base(file), ".svg")+"-"+
					name+".png"))
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(png.Encode(out, c.img), out.Close()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDrawnProblems checks that each kind of problem in a picture is found, and that the colours of elements are read
// from attributes and from style sheets for light and dark pages.
func TestDrawnProblems(t *testing.T) {
	const style = `<style>.a { fill: #ffffff } text { fill: #112233 }
@media (prefers-color-scheme: dark) { .a { fill: #0d1117 } }</style>`
	const page = `<rect class="a" width="100" height="100"/>`
	cases := map[string]struct {
		content string
		dark    bool
		want    string // part of the only problem, "" for none
	}{
		"Good":     {page + `<text x="9" y="30">good</text>`, false, ""},
		"Long":     {`<rect width="50" height="40" fill="#fff"/><text x="9" y="30">too long for it</text>`, false, "ends at"},
		"Faint":    {page + `<text x="9" y="30" class="a">faint</text>`, false, "contrast"},
		"InDark":   {page + `<text x="9" y="30">dark</text>`, true, "contrast"},
		"OwnFill":  {page + `<text x="9" y="30"><tspan fill="#eee">own</tspan></text>`, false, "contrast"},
		"Line":     {page + `<path d="M9 9 H90" stroke="#eee"/>`, false, "line"},
		"Anchor":   {page + `<text x="50" y="30" text-anchor="middle">middle</text>`, false, ""},
		"Moved":    {page + `<g transform="translate(70,0)"><text x="9" y="30">moved</text></g>`, false, "ends at"},
		"NoColour": {page + `<text x="9" y="30"><tspan fill="blueish">no</tspan></text>`, false, `colour "blueish"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			svg := `<svg viewBox="0 0 100 100" font-size="13">` + style + c.content + `</svg>`
			got, err := rasterise([]byte(svg), c.dark)
			if err != nil {
				got = &canvas{problems: []string{err.Error()}}
			}
			if c.want == "" && len(got.problems) > 0 || c.want != "" &&
				(len(got.problems) != 1 || !strings.Contains(got.problems[0], c.want)) {
				t.Errorf("the problems are %q, want %q", got.problems, c.want)
			}
		})
	}
}

// node is an element with all its attributes: those of its parents, of the style, and its own.
type node struct {
	name     string
	own      map[string]string
	children []*node
	text     string
}

// parse reads an SVG as a tree.
func parse(data []byte) (*node, error) {
	decoder, root := xml.NewDecoder(strings.NewReader(string(data))), &node{}
	path := []*node{root}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return root.children[0], nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the picture: %w", err)
		}
		top := path[len(path)-1]
		switch token := token.(type) {
		case xml.StartElement:
			n := &node{name: token.Name.Local, own: map[string]string{}}
			for _, a := range token.Attr {
				n.own[a.Name.Local] = a.Value
			}
			top.children, path = append(top.children, n), append(path, n)
		case xml.CharData: // of tspans, and of texts without them
			if strings.TrimSpace(string(token)) != "" || top.name == "tspan" {
				top.children = append(top.children, &node{name: "#", text: string(token)})
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
}

// rule matches one rule of a style sheet, such as "selector { declarations }".
var rule = regexp.MustCompile(`([.\w]+)\s*\{([^{}]*)\}`)

// rules returns the declarations of each selector, ".class" or "element".
func rules(style string, dark bool) map[string]map[string]string {
	light, inDark, _ := strings.Cut(style, "@media (prefers-color-scheme: dark)")
	if dark {
		light += strings.TrimLeft(inDark, " {\n")
	}
	all := map[string]map[string]string{}
	for _, m := range rule.FindAllStringSubmatch(light, -1) {
		if all[m[1]] == nil {
			all[m[1]] = map[string]string{}
		}
		for d := range strings.SplitSeq(m[2], ";") {
			if key, value, ok := strings.Cut(d, ":"); ok {
				all[m[1]][strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
	}
	return all
}

// scale is the number of pixels for one unit of a picture.
const scale = 2

// canvas is a picture while it is drawn.
type canvas struct {
	img      *image.RGBA
	rules    map[string]map[string]string
	boxes    []box
	problems []string
}

// rasterise draws the elements that the pictures of docs have: rect, circle, line, polyline, path with horizontal and
// vertical lines, text, tspan and g.
func rasterise(data []byte, dark bool) (*canvas, error) {
	root, err := parse(data)
	if err != nil {
		return nil, err
	}
	w, h := number(root.own["width"]), number(root.own["height"])
	if sides := strings.Fields(root.own["viewBox"]); len(sides) == 4 {
		w, h = number(sides[2]), number(sides[3])
	}
	c := &canvas{img: image.NewRGBA(image.Rect(0, 0, int(w)*scale, int(h)*scale)), boxes: []box{{0, 0, w, h}}}
	for _, n := range root.children {
		if n.name == "style" {
			c.rules = rules(n.children[0].text, dark)
		}
	}
	return c, c.draw(root, map[string]string{"fill": "#000", "font-size": "16"}, 0, 0)
}

// draw draws an element at an offset.
func (c *canvas) draw(n *node, inherited map[string]string, dx, dy float64) error {
	a := maps.Clone(inherited)
	for _, of := range []map[string]string{n.own, c.rules[n.name], c.rules["."+n.own["class"]]} {
		for _, key := range []string{"fill", "stroke", "stroke-width", "font-size", "font-weight", "font-family",
			"text-anchor"} {
			if of[key] != "" {
				a[key] = of[key]
			}
		}
	}
	at := func(key string, offset float64) float64 { return number(n.own[key]) + offset }
	switch n.name {
	case "defs", "style":
		return nil
	case "g":
		if m := regexp.MustCompile(`^translate\(([-\d.]+),([-\d.]+)\)$`).FindStringSubmatch(n.own["transform"]); m != nil {
			dx, dy = dx+number(m[1]), dy+number(m[2])
		}
	case "rect":
		b := box{left: at("x", dx), top: at("y", dy)}
		b.right, b.bottom = b.left+number(n.own["width"]), b.top+number(n.own["height"])
		if n.own["width"] == "100%" {
			b.right, b.bottom = c.boxes[0].right, c.boxes[0].bottom
		}
		c.boxes = append(c.boxes, b)
		return c.rect(b, number(n.own["rx"]), a)
	case "circle":
		x, y, r := at("cx", dx), at("cy", dy), number(n.own["r"])
		return c.rect(box{x - r, y - r, x + r, y + r}, r, a)
	case "line":
		return c.stroke([]line{{at("x1", dx), at("y1", dy), at("x2", dx), at("y2", dy)}}, n, a)
	case "polyline":
		var lines []line
		points := strings.FieldsFunc(n.own["points"], func(r rune) bool { return r == ' ' || r == ',' })
		for i := 0; i+3 < len(points); i += 2 {
			lines = append(lines, line{number(points[i]) + dx, number(points[i+1]) + dy, number(points[i+2]) + dx,
				number(points[i+3]) + dy})
		}
		return c.stroke(lines, n, a)
	case "path":
		lines, err := linesOf(n.own["d"])
		for i, l := range lines {
			lines[i] = line{l.x1 + dx, l.y1 + dy, l.x2 + dx, l.y2 + dy}
		}
		return errors.Join(err, c.stroke(lines, n, a))
	case "text":
		return c.label(n, a, at("x", dx), at("y", dy))
	}
	for _, child := range n.children {
		if err := c.draw(child, a, dx, dy); err != nil {
			return err
		}
	}
	return nil
}

// rect fills a rectangle with round corners, and draws its border.
func (c *canvas) rect(b box, r float64, a map[string]string) error {
	fill, err := colourOf(a["fill"])
	if err != nil {
		return err
	}
	if a["stroke"] == "" || a["stroke"] == "none" {
		c.round(b, r, fill)
		return nil
	}
	border, err := colourOf(a["stroke"])
	if err != nil {
		return err
	}
	c.contrast(fmt.Sprintf("the border at %.0f, %.0f", b.left, b.top), border, c.at(b.left-1, b.top+r), lineContrast)
	c.round(box{b.left - 0.5, b.top - 0.5, b.right + 0.5, b.bottom + 0.5}, r+0.5, border)
	c.round(box{b.left + 0.5, b.top + 0.5, b.right - 0.5, b.bottom - 0.5}, max(r-0.5, 0), fill)
	return nil
}

// round fills a rectangle with round corners.
func (c *canvas) round(b box, r float64, fill color.RGBA) {
	const k = 0.5523 // makes a quarter of a circle of a cubic curve
	l, t, rt, bt, d := b.left, b.top, b.right, b.bottom, r*(1-k)
	c.fill(fill, func(move, to func(x, y float64), curve func(a, b, c, d, e, f float64)) {
		move(l+r, t)
		to(rt-r, t)
		curve(rt-d, t, rt, t+d, rt, t+r)
		to(rt, bt-r)
		curve(rt, bt-d, rt-d, bt, rt-r, bt)
		to(l+r, bt)
		curve(l+d, bt, l, bt-d, l, bt-r)
		to(l, t+r)
		curve(l, t+d, l+d, t, l+r, t)
	})
}

// fill fills a shape.
func (c *canvas) fill(with color.RGBA, shape func(move, to func(x, y float64), curve func(a, b, c, d, e, f float64))) {
	var around image.Rectangle
	include := func(x, y float64) {
		around = around.Union(image.Rect(int(x*scale)-1, int(y*scale)-1, int(x*scale)+2, int(y*scale)+2))
	}
	shape(include, include, func(a, b, c, d, e, f float64) { include(a, b); include(c, d); include(e, f) })
	around = around.Intersect(c.img.Bounds())
	r := vector.NewRasterizer(around.Dx(), around.Dy())
	x := func(v float64) float32 { return float32(v*scale) - float32(around.Min.X) }
	y := func(v float64) float32 { return float32(v*scale) - float32(around.Min.Y) }
	shape(func(a, b float64) { r.MoveTo(x(a), y(b)) }, func(a, b float64) { r.LineTo(x(a), y(b)) },
		func(a, b, c, d, e, f float64) { r.CubeTo(x(a), y(b), x(c), y(d), x(e), y(f)) })
	r.ClosePath()
	r.Draw(c.img, around, image.NewUniform(with), image.Point{})
}

// stroke draws lines, and the tip of an arrow at the end of the last one.
func (c *canvas) stroke(lines []line, n *node, a map[string]string) error {
	with, err := colourOf(a["stroke"])
	if err != nil {
		return err
	}
	half := 0.5
	if a["stroke-width"] != "" {
		half = number(a["stroke-width"]) / 2
	}
	for i, l := range lines {
		length := math.Hypot(l.x2-l.x1, l.y2-l.y1)
		ux, uy := (l.x2-l.x1)/length, (l.y2-l.y1)/length
		if mx, my := (l.x1+l.x2)/2, (l.y1+l.y2)/2; i == 0 {
			// The point is beside the line, because another line may be under it.
			c.contrast(fmt.Sprintf("the line at %.0f, %.0f", mx, my), with, c.at(mx+uy*4, my-ux*4), lineContrast)
		}
		c.fill(with, func(move, to func(x, y float64), _ func(a, b, c, d, e, f float64)) {
			move(l.x1-uy*half, l.y1+ux*half)
			to(l.x2-uy*half, l.y2+ux*half)
			to(l.x2+uy*half, l.y2-ux*half)
			to(l.x1+uy*half, l.y1-ux*half)
		})
		if i == len(lines)-1 && n.own["marker-end"] != "" {
			c.fill(with, func(move, to func(x, y float64), _ func(a, b, c, d, e, f float64)) {
				move(l.x2+ux, l.y2+uy)
				to(l.x2-ux*8-uy*4, l.y2-uy*8+ux*4)
				to(l.x2-ux*8+uy*4, l.y2-uy*8-ux*4)
			})
		}
	}
	return nil
}

// fonts are the Go fonts.
var fonts = map[string][]byte{"regular": goregular.TTF, "bold": gobold.TTF, "mono": gomono.TTF}

// face returns the font face for the attributes of a text.
func face(a map[string]string) (font.Face, error) {
	name := "regular"
	switch {
	case strings.Contains(a["font-family"], "monospace"):
		name = "mono"
	case a["font-weight"] == "bold":
		name = "bold"
	}
	f, err := opentype.Parse(fonts[name])
	if err != nil {
		return nil, err
	}
	return opentype.NewFace(f, &opentype.FaceOptions{Size: number(a["font-size"]) * scale, DPI: 72})
}

// label draws a text element of the SVG, each part of the text in its own colour.
func (c *canvas) label(n *node, a map[string]string, x, y float64) error {
	with, err := face(a)
	if err != nil {
		return err
	}
	type part struct {
		text string
		fill color.RGBA
	}
	var parts []part
	all := ""
	var collect func(n *node, fill string) error
	collect = func(n *node, fill string) error {
		if n.own["fill"] != "" {
			fill = n.own["fill"]
		}
		for _, child := range n.children {
			if child.name != "#" {
				if err := collect(child, fill); err != nil {
					return err
				}
				continue
			}
			rgb, err := colourOf(fill)
			if err != nil {
				return err
			}
			parts, all = append(parts, part{child.text, rgb}), all+child.text
		}
		return nil
	}
	if err := collect(&node{children: n.children}, a["fill"]); err != nil {
		return err
	}
	width := float64(font.MeasureString(with, all)) / 64 / scale
	switch a["text-anchor"] {
	case "middle":
		x -= width / 2
	case "end":
		x -= width
	}
	around := c.boxes[0]
	for _, b := range c.boxes {
		if b.contains(x, y) && b.right-b.left <= around.right-around.left {
			around = b
		}
	}
	if x+width > around.right {
		c.problems = append(c.problems, fmt.Sprintf("%q ends at %.0f, its box at %.0f", all, x+width, around.right))
	}
	pen := &font.Drawer{Dst: c.img, Face: with, Dot: fixed.Point26_6{X: fixed.Int26_6(x * scale * 64),
		Y: fixed.Int26_6(y * scale * 64)}}
	for _, p := range parts {
		if strings.TrimSpace(p.text) != "" {
			c.contrast(fmt.Sprintf("the text %q", p.text), p.fill,
				c.at(float64(pen.Dot.X)/64/scale-1, y-number(a["font-size"])/3), textContrast)
		}
		pen.Src = image.NewUniform(p.fill)
		pen.DrawString(p.text)
	}
	return nil
}

// at returns the colour of a point.
func (c *canvas) at(x, y float64) color.RGBA {
	return c.img.RGBAAt(max(int(x*scale), 0), max(int(y*scale), 0))
}

// contrast checks that something can be seen in front of its background.
func (c *canvas) contrast(what string, front, behind color.RGBA, least float64) {
	if behind.A == 0 {
		return // before the page is drawn
	}
	a, b := luminance(front), luminance(behind)
	if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < least {
		c.problems = append(c.problems, fmt.Sprintf("the contrast of %s is %.1f, want %.1f", what, got, least))
	}
}

// luminance is the relative luminance of WCAG 2.
func luminance(c color.RGBA) float64 {
	linear := func(v uint8) float64 {
		if s := float64(v) / 255; s > 0.04045 {
			return math.Pow((s+0.055)/1.055, 2.4)
		}
		return float64(v) / 255 / 12.92
	}
	return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
}

// colourOf reads #rgb, #rrggbb, and the few names that the pictures use.
func colourOf(text string) (color.RGBA, error) {
	text = map[string]string{"white": "#ffffff", "black": "#000000", "none": "#00000000"}[text] + text
	hex := strings.TrimPrefix(text, "#")
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	value, err := strconv.ParseUint(hex[:min(len(hex), 6)], 16, 32)
	if err != nil {
		return color.RGBA{}, fmt.Errorf("the colour %q is not known here", text)
	}
	if strings.HasSuffix(text, "none") {
		return color.RGBA{}, nil
	}
	return color.RGBA{uint8(value >> 16), uint8(value >> 8), uint8(value), 0xff}, nil
}
