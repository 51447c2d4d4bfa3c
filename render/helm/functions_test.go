package helm

import (
	"errors"
	"strings"
	"testing"
	"text/template"
)

// TestInterruptible checks that the calls which interruptible adds to a template change neither the output of the
// template nor its line numbers.
func TestInterruptible(t *testing.T) {
	for _, text := range []string{
		"", "x", "{{ . }}", "{{- . }}", " {{- . -}} ", "{{range $i, $x := .l}}\n  {{$i}}\n{{end}}",
		"a {{- range .l -}}  b {{- . }} c {{- end }} d",
		"{{range .l}}{{/* c */}} x{{else}} none {{end}}", "{{range .n}}{{else}} none {{- end}}",
		"{{range .l}} {{- /* c */ -}} x{{end}}", "{{range .l}}   {{- end}}!",
		"{{range .l}}{{range $.l}} {{- .}}{{end}}{{end}}",
		`{{define "t"}} {{- range .l}} <{{.}}> {{- end}}{{end}}[{{template "t" .}}]`,
		`{{block "b" .}}  {{- .n }} {{end}}`,
		"{{range .l}}{{if .}}\n{{continue}}{{end}}y{{end}}", "{{with .l}}{{range .}}z{{end}}{{end}}",
		`{{range .l}}{{"}}{{range"}}{{end}}`, "{{range .l}}\n{{- \"x\" }}\n\n{{end}}{{ bad }}",
		"{{- /* c */}}\n{{range .l}}{{- /* d */}}\n{{.}}{{end}}",
	} {
		if want, got := execute(text), execute(interruptible(text)); want != got {
			t.Errorf("%q became %q: prints %q, not %q", text, interruptible(text), got, want)
		}
		if strings.Count(text, "\n") != strings.Count(interruptible(text), "\n") {
			t.Errorf("%q: lines have moved", text)
		}
	}
	if got := interruptible("{{ range }}"); got != "{{ range }}" {
		t.Errorf("a template that cannot be parsed became %q", got)
	}
}

// execute returns the output of a template. If the template fails, execute returns the output before the failure.
// execute does not return the error, because the positions in the error differ between the original template and the
// interruptible one.
func execute(text string) string {
	parsed, err := template.New("x").Funcs(template.FuncMap{checkContextName: func() string { return "" },
		"bad": func() (string, error) { return "", errors.New("bad") }}).Parse(text)
	if err != nil {
		return "cannot be parsed"
	}
	var out strings.Builder
	if err := parsed.Execute(&limited{&out, 10_000}, map[string]any{"l": []int{1, 0, 2}, "n": nil,
		"s": "text"}); err != nil {
		return "fails after " + out.String()
	}
	return out.String()
}

// limited is a writer that returns an error when the output is too large.
type limited struct {
	to   *strings.Builder
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errors.New("enough")
	}
	return l.to.Write(p)
}

func FuzzInterruptible(f *testing.F) {
	f.Add("a {{- range .l -}}  b {{- . }} c {{- end }} d")
	f.Add(`{{define "t"}} {{- range .l}} <{{.}}> {{- end}}{{end}}[{{template "t" .}}]`)
	f.Add("{{range .l}} {{- /* c */ -}} x{{else}}{{break}}{{end}}")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "template") && strings.Contains(text, "define") ||
			strings.ContainsAny(text, "0123456789") {
			return // recursion and counting are for the timeout
		}
		if want, got := execute(text), execute(interruptible(text)); want != got {
			t.Errorf("became %q: prints %q, not %q", interruptible(text), got, want)
		}
	})
}
