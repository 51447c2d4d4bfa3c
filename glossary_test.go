package lifecyclemanager_test

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// glossary gives each concept one word: the word of Kubernetes, controller-runtime, Flux or Cluster API. The field
// named not contains former words for the same concept; identifiers, comments and pages must not use these words.
var glossary = []struct {
	concept string
	use     string
	not     []string
}{
	{"what a runtime is to have", "request", []string{"wish", "wishes", "wished"}},
	{"one run of a reconciler over an object", "reconcile", nil},
	{"the order in which reconciles run", "queue", []string{"hurry", "hurried", "hurries", "hurrying"}},
	{"how many do something at the same time", "admission", []string{"beginnings"}},
	{"a change that this program has sent itself", "own write", []string{"echo", "echoes"}},
	{"what is taken for true until a heartbeat", "assume", []string{"presume", "presumed", "presumes"}},
	{"what a runtime gets for its admin to see", "catalog copy", []string{"bestow", "bestowed"}},
	{"how long something may take", "timeout", []string{"patience", "outwait", "outlast"}},
	{"a part is informed of a change", "notify", []string{"told", "tells", "tell"}},
	{"a removed object", "deleted", []string{"buried", "bury"}},
}

// TestGlossary checks that no former word of the glossary is used: in names of identifiers and files everywhere, in
// comments of the product and of scenarios, and in pages.
func TestGlossary(t *testing.T) {
	old := map[string]string{}
	for _, g := range glossary {
		for _, word := range g.not {
			if other, twice := old[word]; twice {
				t.Errorf("glossary: %q stands for %q and for %q", word, other, g.use)
			}
			old[word] = g.use
		}
	}
	for _, s := range mustSources(t) {
		for _, word := range wordsOf(strings.TrimSuffix(s.name, ".go")) {
			if use := old[word]; use != "" {
				t.Errorf("%s: the file name has %q: use %q", s.path(), word, use)
			}
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			for _, word := range wordsOf(id.Name) {
				if use := old[word]; use != "" {
					t.Errorf("%s: identifier %s has %q: use %q", s.path(), id.Name, word, use)
				}
			}
			return true
		})
		for _, group := range s.Comments {
			for _, word := range plainWords(group.Text()) {
				if use := old[word]; use != "" {
					t.Errorf("%s: a comment has %q: use %q", s.path(), word, use)
				}
			}
		}
	}
	scripts, err := filepath.Glob("playground/*/testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found no scenarios: %v", err)
	}
	comment := regexp.MustCompile(`(?m)^#.*$`)
	for _, script := range scripts {
		commands, _, _ := strings.Cut(readAll(t, script), "\n-- ")
		for _, line := range comment.FindAllString(commands, -1) {
			for _, word := range plainWords(line) {
				if use := old[word]; use != "" {
					t.Errorf("%s: a comment has %q: use %q", script, word, use)
				}
			}
		}
	}
	err = walk(".md", func(page string) error {
		data, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		for _, word := range plainWords(string(data)) {
			if use := old[word]; use != "" {
				t.Errorf("%s has %q: use %q", page, word, use)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wordsOf splits the name of an identifier or file into its words, in lower case.
func wordsOf(name string) []string {
	var words []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	previous := ' '
	for _, r := range name {
		if r == '_' || r == '-' || r == '.' || unicode.IsDigit(r) {
			end()
		} else {
			if unicode.IsUpper(r) && !unicode.IsUpper(previous) {
				end()
			}
			word.WriteRune(r)
		}
		previous = r
	}
	end()
	return words
}

// plainWords returns the words of a text in lower case. Words in code are left out, for example `last-wish`, which is
// the key of an annotation.
func plainWords(text string) []string {
	text = regexp.MustCompile("(?s)```.*?```|`[^`]*`|\\[[^]]*\\]\\([^)]*\\)|\"[^\"]*\"").ReplaceAllString(text, " ")
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) &&
			r != '-' && r != '/' && r != '_'
	})
}

// maxColumns limits the width of a line of Go code; a tab counts as four.
const maxColumns = 120

// TestColumns limits the width of code. Raw strings, directives, and tables in comments may be wider, because they
// cannot be split over several lines.
func TestColumns(t *testing.T) {
	isTable := regexp.MustCompile(`^//(\t|  | \{)`)
	for _, s := range mustSources(t) {
		if strings.HasPrefix(s.name, "zz_generated") {
			continue
		}
		raw := s.rawLines()
		for i, line := range strings.Split(readAll(t, s.path()), "\n") {
			text := strings.TrimSpace(line)
			marker := strings.HasPrefix(text, "// +") || strings.HasPrefix(text, "//go:") ||
				strings.Contains(text, "://") || isTable.MatchString(text)
			if width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); width > maxColumns && !marker &&
				!raw[i+1] {
				t.Errorf("%s:%d has %d columns, %d are allowed", s.path(), i+1, width, maxColumns)
			}
		}
	}
}

// A string literal longer than longString (longTestString in tests) need not be split over several lines, so that it
// can be searched for.
const (
	longString     = maxColumns - 40
	longTestString = 25
)

// rawLines returns the numbers of the lines with a raw string literal, or with a string that contains no space and
// therefore cannot be wrapped.
func (s source) rawLines() map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(s.File, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		if raw := strings.HasPrefix(lit.Value, "`"); raw || len(lit.Value) > longString || s.isTest() &&
			len(lit.Value) > longTestString {
			first := s.positions.Position(lit.Pos()).Line
			for i := range strings.Count(lit.Value, "\n") + 1 {
				lines[first+i] = true
			}
		}
		return true
	})
	return lines
}

// TestSentences: a page of the guide has one sentence on a line, so that a change of a sentence is a change of a line.
func TestSentences(t *testing.T) {
	two := regexp.MustCompile(`[a-z0-9)\x60*"][.!?] +[A-Z\x60"]`)
	item := regexp.MustCompile(`^ *[0-9]+\. `) // of an ordered list
	err := walk(".md", func(page string) error {
		if generated := path.Dir(page) == "docs/reference" && path.Base(page) != "lifecycles.md" &&
			path.Base(page) != "conditions.md"; generated {
			return nil
		}
		code := false
		for i, line := range strings.Split(readAll(t, page), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if code || strings.HasPrefix(line, "    ") || strings.HasPrefix(strings.TrimSpace(line), "|") ||
				strings.HasPrefix(line, "#") {
				continue
			}
			if two.MatchString(item.ReplaceAllString(line, "")) {
				t.Errorf("%s:%d has two sentences on a line", page, i+1)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
