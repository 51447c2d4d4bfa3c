package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// report is what a verb has found. In the formats for programs it is encoded as it is.
type report interface {
	// show writes it for people.
	show(p *page)
	// names returns what it is about, as kind/name or a name.
	names() []string
}

// print writes a report in the format that was asked for.
func (a *app) print(r report) error {
	var text []byte
	var err error
	switch a.config.Output {
	case config.FormatJSON:
		if text, err = json.MarshalIndent(r, "", "  "); err == nil {
			text = append(text, '\n')
		}
	case config.FormatYAML:
		text, err = yaml.Marshal(r)
	case config.FormatName:
		for _, name := range r.names() {
			text = append(append(text, name...), '\n')
		}
	default:
		p := a.page()
		r.show(p)
		text = []byte(p.String())
	}
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if _, err := a.Out.Write(text); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

func (a *app) page() *page {
	return &page{wide: a.config.Output == config.FormatWide, colours: !a.config.NoColor && isTerminal(a.Out), now: a.now()}
}

// isTerminal tells whether a person sees what is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// page is text for people on its way.
type page struct {
	strings.Builder
	wide, colours bool
	now           time.Time
}

// line writes a line.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// table writes rows under a header. A column whose title begins with + is shown in wide tables only. What states say is coloured.
func (p *page) table(header []string, rows [][]string) {
	all := make([][]string, len(rows)+1)
	for column, title := range header {
		title, isWide := strings.CutPrefix(title, "+")
		if isWide && !p.wide {
			continue
		}
		all[0] = append(all[0], title)
		for i, row := range rows {
			all[i+1] = append(all[i+1], row[column])
		}
	}
	p.rows(all)
}

// rows writes cells in columns.
func (p *page) rows(rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(p.state(cell) + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+3))
		}
		p.line("%s", strings.TrimRight(b.String(), " "))
	}
}

// wrap writes a long text in lines that begin with indent.
func (p *page) wrap(indent, text string) {
	const width = 120
	line := indent
	for word := range strings.FieldsSeq(text) {
		if line != indent && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			p.line("%s", line)
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	p.line("%s", line)
}

// since says since when something is so, with a comma before; "" if that is not known.
func (p *page) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", for " + p.ago(t)
}

// colours of states.
var colours = map[v1beta2.State]string{
	v1beta2.StateReady: "32", v1beta2.StateProcessing: "36", v1beta2.StateDeleting: "35",
	v1beta2.StateWarning: "33", v1beta2.StateError: "31", v1beta2.StateUnmanaged: "90", stateNew: "90",
}

// state returns a state in its colour, and any other text as it is.
func (p *page) state(text string) string {
	if colour := colours[v1beta2.State(text)]; colour != "" && p.colours {
		return "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	return text
}

// clip cuts a text short, unless the page is wide.
func (p *page) clip(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if p.wide || utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// ago says how long ago something was, "-" for never.
func (p *page) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(p.now.Sub(t), 0))
}

// number is a number of things.
func number(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// or returns the text, or a dash for none.
func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
