package console

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

// StateNew is the state that klm shows for a Kyma without a status, which no manager has reconciled yet.
const StateNew v1beta2.State = "New"

// Report is the result of a command. With -o json and -o yaml, the value that implements Report is encoded as JSON or
// YAML.
type Report interface {
	// Show writes the report as text for people.
	Show(p *Page)
	// Names returns the lines for -o name. A line is kind/name or a name.
	Names() []string
}

// Print writes a report to Out in the format of --output.
func (a *App) Print(r Report) error {
	text, err := a.format(r)
	if err != nil {
		return err
	}
	if _, err := a.Out.Write([]byte(text)); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// format returns the text of a report, in the form that --output selects.
func (a *App) format(r Report) (string, error) {
	if template, is := a.outputTemplate(config.FormatJSONPath); is {
		text, err := byPath(r, template)
		return withoutControls(text), err
	}
	if template, is := a.outputTemplate(config.FormatCustomColumns); is {
		text, err := a.byColumns(r, template)
		return withoutControls(text), err
	}
	var text []byte
	var err error
	switch a.Config.Output {
	case config.FormatJSON:
		if text, err = json.MarshalIndent(r, "", "  "); err == nil {
			text = append(text, '\n')
		}
	case config.FormatYAML:
		text, err = yaml.Marshal(r)
	case config.FormatName:
		for _, name := range r.Names() {
			text = append(append(text, withoutControls(name)...), '\n')
		}
	default:
		p := a.Page()
		r.Show(p)
		return p.String(), nil
	}
	if err != nil {
		return "", fmt.Errorf("encoding the report: %w", err)
	}
	return string(text), nil
}

// Page returns an empty page with the settings of this invocation.
func (a *App) Page() *Page {
	return &Page{Wide: a.Config.Output == config.FormatWide, colours: !a.Config.NoColor &&
		IsTerminal(a.Out), Now: a.Now()}
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Page collects the text that the report shows to people.
type Page struct {
	strings.Builder
	Wide, colours bool
	Now           time.Time
}

// String returns the text of the page, without control characters in texts of other people.
func (p *Page) String() string { return withoutControls(p.Builder.String()) }

// Line writes a line.
func (p *Page) Line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// Table writes rows under a header. A column whose title begins with the character + is shown only with -o wide. Cells
// that contain a state are coloured.
func (p *Page) Table(header []string, rows [][]string) {
	all := make([][]string, len(rows)+1)
	for column, title := range header {
		title, isWide := strings.CutPrefix(title, "+")
		if isWide && !p.Wide {
			continue
		}
		all[0] = append(all[0], title)
		for i, row := range rows {
			all[i+1] = append(all[i+1], row[column])
		}
	}
	p.Rows(all)
}

// Rows writes cells in columns.
func (p *Page) Rows(rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			cell = withoutControls(cell)
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			cell = withoutControls(cell)
			b.WriteString(p.ColourState(cell) + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+3))
		}
		p.Line("%s", strings.TrimRight(b.String(), " "))
	}
}

// Wrap writes a long text as several lines. Each line begins with indent.
func (p *Page) Wrap(indent, text string) {
	const width = 120
	line := indent
	for word := range strings.FieldsSeq(text) {
		if line != indent && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			p.Line("%s", line)
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	p.Line("%s", line)
}

// Since returns the time that has passed since t, as a suffix such as ", for 5m". Since returns "" for the zero time.
func (p *Page) Since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", for " + p.Age(t)
}

// colours has the ANSI colour code of each state.
var colours = map[v1beta2.State]string{
	v1beta2.StateReady: "32", v1beta2.StateProcessing: "36", v1beta2.StateDeleting: "35",
	v1beta2.StateWarning: "33", v1beta2.StateError: "31", v1beta2.StateUnmanaged: "90", StateNew: "90",
}

// ColourState returns the text in the colour of the state. A text that is not a state is returned unchanged.
func (p *Page) ColourState(text string) string {
	if colour := colours[v1beta2.State(text)]; colour != "" && p.colours {
		return "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	return text
}

// Red returns the text in red, for a report that must not be overlooked.
func (p *Page) Red(text string) string {
	if !p.colours {
		return text
	}
	return "\x1b[31m" + text + "\x1b[0m"
}

// Clip joins a text into one line. If the line is longer than limit characters, Clip cuts the line, unless the user has
// requested -o wide.
func (p *Page) Clip(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if p.Wide || utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit-1]) + "…"
}

// Age returns the time that has passed since t, such as 5m. Age returns "-" for the zero time.
func (p *Page) Age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(p.Now.Sub(t), 0))
}

// FormatUTC returns a time in UTC, such as Sat 28 Nov 22:00. If the time is in another year, the text contains the
// year. FormatUTC returns "now" for the present minute, and "-" for the zero time.
func (p *Page) FormatUTC(t time.Time) string {
	switch t = t.UTC(); {
	case t.IsZero():
		return "-"
	case t.Sub(p.Now).Abs() < time.Minute:
		return "now"
	case t.Year() != p.Now.UTC().Year():
		return t.Format("Mon 2 Jan 2006 15:04")
	}
	return t.Format("Mon 2 Jan 15:04")
}

// Count returns a number with a noun in singular or plural, such as 1 object and 2 objects.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// OrDash returns the text, or "-" if the text is empty.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
