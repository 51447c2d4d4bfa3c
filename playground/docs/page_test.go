package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write writes a page and reads it. In the parameter text, the fences of code blocks are "~~~", because a raw string in
// Go cannot contain backquotes.
func write(t *testing.T, text string) Page {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "~~~", "```")), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRead(t *testing.T) {
	p := write(t, `A page.

~~~sh
klm status
~~~

~~~output
NAME
~~~

1. A step

   ~~~sh
   for a in b; do
     klm why
   done
   ~~~

    A line of the step.

<!-- not run: nobody has it -->
~~~sh
velero backup
~~~
<!-- run by: docs/clusters_test.go -->
~~~bash
kubectl get kyma
~~~

An end.

    make up
`)
	want := []Block{
		{Kind: "sh", Line: 3, Text: "klm status\n"},
		{Kind: "output", Line: 7, Text: "NAME\n"},
		{Kind: "sh", Line: 13, Text: "for a in b; do\n  klm why\ndone\n"},
		{Kind: "sh", Line: 22, Text: "velero backup\n", NotRun: "nobody has it"},
		{Kind: "bash", Line: 26, Text: "kubectl get kyma\n", RunBy: "docs/clusters_test.go"},
		{Line: 32, Text: "make up\n"},
	}
	if diff := cmp.Diff(want, p.Blocks); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		reason string
		page   string
		want   string // part of the error, "" for none
	}{
		"Same":     {"spaces and times do not matter", "~~~sh\necho 'A   12s'\n~~~\n~~~output\nA 3m\n~~~\n", ""},
		"Nothing":  {"output need not be on the page", "~~~sh\necho A\n~~~\n", ""},
		"Other":    {"what is printed is on the page", "~~~sh\necho A\n~~~\n~~~output\nB\n~~~\n", `line "B" on`},
		"More":     {"all of it", "~~~sh\necho A; echo B\n~~~\n~~~output\nA\n~~~\n", `line "B" on`},
		"Less":     {"and nothing else", "~~~sh\necho A\n~~~\n~~~output\nA\nB\n~~~\n", `line "B" on`},
		"Lines":    {"dots are lines", "~~~sh\nseq 9\n~~~\n~~~output\n1\n…\n8\n…\n~~~\n", ""},
		"Text":     {"dots are text", "~~~sh\necho a-x7-b\n~~~\n~~~output\na-…-b\n~~~\n", ""},
		"Fails":    {"the first failure ends it", "~~~sh\nfalse\ntouch x\n~~~\n", "failed: false"},
		"OneShell": {"a later block knows the variables", "~~~sh\na=1\n~~~\n\n~~~sh\necho $a\n~~~\n~~~output\n1\n~~~\n", ""},
		"Exits":    {"a page cannot end the shell", "~~~sh\nexit 0\n~~~\n", "ended in this block"},
		"NotRun":   {"a marked block is not run", "<!-- not run: why -->\n~~~sh\nfalse\n~~~\n", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := write(t, c.page)
			_, err := p.Run(t.Context(), Shell{Dir: t.TempDir()}, 0, len(p.Blocks))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.reason, err, c.want)
			}
		})
	}
}

// TestUpdate checks that the printed output replaces the output in the page, and that the next run accepts the page.
func TestUpdate(t *testing.T) {
	p := write(t, "~~~sh\necho A\n~~~\n\n~~~output\nB\n~~~\n")
	for _, s := range []Shell{{Dir: t.TempDir(), Update: true}, {Dir: t.TempDir()}} {
		if _, err := p.Run(t.Context(), s, 0, len(p.Blocks)); err != nil {
			t.Error(err)
		}
	}
	data, err := os.ReadFile(p.File)
	if want := "```sh\necho A\n```\n\n```output\nA\n```\n"; err != nil || string(data) != want {
		t.Errorf("%v, the page is %q, want %q", err, data, want)
	}
}
