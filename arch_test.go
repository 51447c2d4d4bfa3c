package lifecyclemanager_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/kyma-fleet/lifecycle-manager"

// rooms lists the layers of the project, and the folders of each layer. A folder with all folders below it is called a
// room; the pattern folder/* means that each folder in it is a room of its own. A package imports only packages of
// lower layers, never of its own layer, so the rooms (groups of folders) of a layer do not depend on each other. The
// folder of a room need not exist yet. The playground, a Go module of its own, is above all layers.
var rooms = []struct {
	height int
	room   string
	reason string
}{
	{0, "api", "clients import it: whatever it needs, they need too"},
	{0, "crds", "one source of the CRDs for manager, landscape and make"},
	{0, "internal/text", "makes texts from outside fit to be shown; every room has such texts"},
	{0, "internal/celwork", "limits the work of expressions, without knowing what they decide"},
	{0, "internal/budget", "limits how often something happens for a runtime, without knowing what"},
	{1, "channel", "a pure library: a decision can be tested by a table"},
	{1, "render", "a pure library: the same bytes in, the same bundle out"},
	{1, "internal/config", "flags are values, not behaviour"},
	{1, "internal/protocol", "what agent and listener say to each other, which is all that they know of each other"},
	{1, "internal/tombstone", "what is left behind, for controllers and people alike"},
	{1, "internal/changelog", "what has changed about a module, for controllers and people alike"},
	{1, "internal/access", "what a credential says about itself, and the rights that it has lost"},
	{1, "internal/dedup", "equal values of cached objects are kept in memory once"},
	{1, "internal/metrics", "one list of all metrics, which anybody may count in"},
	{1, "internal/telemetry", "traces and log lines know passes, not what is done in them"},
	{1, "internal/retry", "a person's request to try again, which every cache of failures has to know"},
	{1, "internal/answer", "limits answers of API servers, without knowing what they mean"},
	{1, "internal/egress", "decides which addresses may be dialled, without knowing what is fetched there"},
	{1, "internal/watch", "lists and watches collections, without knowing their use"},
	{2, "apply", "a library that knows one cluster and no kind of ours"},
	{2, "deploy", "a chart and what it makes; it knows no cluster"},
	{2, "internal/loop", "knows steps, not what they do"},
	{2, "internal/queueing", "orders work on runtimes without doing it"},
	{2, "internal/rollout", "decides whose turn it is, from what others have found out; it makes no request"},
	{2, "internal/shard", "knows names of runtimes, not what is done to them"},
	{2, "internal/registry", "knows artefacts, not what they are for"},
	{3, "manifest", "the door to the libraries, for use without the manager"},
	{3, "internal/author", "what authors of modules do before anybody installs them"},
	{3, "internal/ownership", "decides whose a runtime is, for controllers and people alike"},
	{3, "internal/customresource", "the manager deletes by the same answer that klm shows before"},
	{3, "internal/eventrecorder", "every event in the control plane is recorded here, within the limits of its runtime"},
	{3, "internal/runtimes", "knows many clusters, not what is done there"},
	{3, "internal/backchannel", "knows who calls, not what follows from it"},
	{3, "internal/conversion", "knows the versions of our kinds, not what they are for"},
	{4, "internal/controller/*", "one life each; they meet in the API server only"},
	{4, "internal/agent", "runs in the runtime, without the controllers"},
	{4, "internal/cli", "prints what libraries decide"},
	{5, "internal/manager", "the only one that knows all parts"},
	{6, "cmd/*", "parse, build, run"},
	{6, "docs", "references are written from what there is"},
}

// bannedModules are not imported by any package of either module.
var bannedModules = []struct {
	path      string
	reachable bool // some dependency needs it, so that an import would compile at once; checked against go.sum
	reason    string
}{
	{"github.com/onsi/ginkgo", true, "a second language for tests; write a table with testing and go-cmp"},
	{"github.com/onsi/gomega", true, "a second language for assertions; compare with go-cmp, poll with a deadline"},
	{"github.com/stretchr/testify", true, "prints less than a cmp.Diff and hides which comparison is meant"},
	{"github.com/pkg/errors", true, "frozen; fmt.Errorf with %w and package errors do all of it"},
	{"github.com/golang/mock", false, "mocks test the calls, not the effect; use a real API server or a small fake"},
	{"go.uber.org/mock", false, "mocks test the calls, not the effect; use a real API server or a small fake"},
}

// bannedCalls lists functions that only tests and the listed packages may call.
var bannedCalls = []struct {
	pkg, name string
	allowed   []string // folders; each must still need the permission
	reason    string
}{
	{"os", "Getenv", []string{"internal/config"},
		"one place reads the environment, so that one list names every setting"},
	{"os", "LookupEnv", nil, "one place reads the environment, so that one list names every setting"},
	{"time", "Sleep", nil, "a sleeping worker serves nobody: come back later, or select on a timer and the context"},
	{"context", "Background", []string{"cmd/runtime-watcher", "playground/cmd/playground", "render/process"},
		"take the caller's context; only main starts one"},
	{"context", "TODO", nil, "take the caller's context; only main starts one"},
}

// source is one Go file.
type source struct {
	*ast.File
	positions *token.FileSet
	folder    string // relative to the root of the repository, "." for the root itself
	name      string
	lines     int
}

func (s source) path() string { return path.Join(s.folder, s.name) }
func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }
func (s source) isPlayground() bool {
	return s.folder == "playground" || strings.HasPrefix(s.folder, "playground/")
}

// imports returns the paths that the file imports.
func (s source) imports() []string {
	var paths []string
	for _, spec := range s.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// sources returns every Go file of the two Go modules: the product and the playground.
var sources = sync.OnceValues(func() ([]source, error) {
	var all []source
	positions := token.NewFileSet()
	err := walk(".go", func(file string) error {
		parsed, err := parser.ParseFile(positions, file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		folder, name := path.Split(file)
		all = append(all, source{File: parsed, positions: positions, folder: path.Clean(folder), name: name,
			lines: positions.File(parsed.FileStart).LineCount()})
		return nil
	})
	return all, err
})

// walk calls visit for every file of the repository with this ending, but not for hidden and built ones.
func walk(ending string, visit func(file string) error) error {
	return fs.WalkDir(os.DirFS("."), ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") && p != "."
		if entry.IsDir() && (hidden || p == "bin" || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || hidden || !strings.HasSuffix(p, ending) {
			return nil
		}
		return visit(p)
	})
}

func mustSources(t *testing.T) []source {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// roomOf returns the room that contains the folder (an entry of the variable rooms), and the number of the room's
// layer.
func roomOf(folder string) (room string, height int, found bool) {
	for _, r := range rooms {
		parent, isRow := strings.CutSuffix(r.room, "/*")
		rest, inside := strings.CutPrefix(folder, parent+"/")
		switch {
		case isRow && inside:
			first, _, _ := strings.Cut(rest, "/")
			return parent + "/" + first, r.height, true
		case !isRow && (inside || folder == r.room):
			return r.room, r.height, true
		}
	}
	return "", 0, false
}

func TestLayers(t *testing.T) {
	for _, s := range mustSources(t) {
		if s.isPlayground() || s.isTest() || s.folder == "." {
			continue
		}
		room, height, found := roomOf(s.folder)
		if !found {
			t.Errorf("%s is in no room: give %s a line in the table rooms, or put it where it belongs", s.path(),
				s.folder)
			continue
		}
		for _, imported := range s.imports() {
			target, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			other, below, found := roomOf(target)
			switch {
			case !found:
				t.Errorf("%s imports %s, which is in no room", s.path(), target)
			case other == room || below < height:
			case below == height:
				t.Errorf("%s imports %s: they are side by side at height %d. Move what both need below them, or pass "+
					"it as a value", s.path(), target, height)
			default:
				t.Errorf("%s (height %d) imports %s (height %d): dependencies go down only",
					s.path(), height, target, below)
			}
		}
	}
}

// TestForeignImports checks the packages that may import only some of the other Go modules.
func TestForeignImports(t *testing.T) {
	cases := map[string]struct {
		reason  string
		in      func(source) bool
		allowed func(imported string) bool
	}{
		"Kubernetes": {
			"k8s.io/kubernetes is no library: it is slow to build and its API has no promise, so only the " +
				"playground has it",
			func(s source) bool { return !s.isPlayground() },
			func(p string) bool { return !isOf(p, "k8s.io/kubernetes") },
		},
		"API": {
			"clients import the kinds, and must not get our dependencies with them",
			func(s source) bool { return isOf(s.folder, "api") && !s.isTest() },
			func(p string) bool { return isStandard(p) || isOf(p, "k8s.io/apimachinery") || isOf(p, module+"/api") },
		},
		"Pure": {
			"channel and render decide and encode; whatever talks to a network is given to them as a value",
			func(s source) bool { return (isOf(s.folder, "channel") || isOf(s.folder, "render")) && !s.isTest() },
			func(p string) bool {
				return !isOf(p, "k8s.io/client-go") && !isOf(p, "sigs.k8s.io/controller-runtime") && !isOf(p, "net")
			},
		},
		"Libraries": {
			"the libraries are for use outside of this manager, so they do not know its frame",
			func(s source) bool { return (isOf(s.folder, "apply") || isOf(s.folder, "render")) && !s.isTest() },
			func(p string) bool {
				return p == module+"/internal/text" || p == module+"/internal/celwork" ||
					!isOf(p, module+"/internal") && !isOf(p, "sigs.k8s.io/controller-runtime")
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			seen := false
			for _, s := range mustSources(t) {
				if !c.in(s) {
					continue
				}
				seen = true
				for _, imported := range slices.DeleteFunc(s.imports(), c.allowed) {
					t.Errorf("%s imports %s: %s", s.path(), imported, c.reason)
				}
			}
			if !seen {
				t.Error("the rule is about no file any more: mend or remove it")
			}
		})
	}
}

func TestBannedModules(t *testing.T) {
	sums := readAll(t, "go.sum", "playground/go.sum")
	linter := readAll(t, ".golangci.yml")
	for _, ban := range bannedModules {
		if reachable := strings.Contains(sums, ban.path+" ") ||
			strings.Contains(sums, ban.path+"/v"); reachable != ban.reachable {
			t.Errorf("ban of %s: reachable is %t, but by go.sum it is %t", ban.path, ban.reachable, reachable)
		}
		if !strings.Contains(linter, "pkg: "+ban.path+"\n") {
			t.Errorf("%s is banned here, but not in .golangci.yml (depguard), where an editor would tell", ban.path)
		}
		for _, s := range mustSources(t) {
			for _, imported := range s.imports() {
				if isOf(imported, ban.path) {
					t.Errorf("%s imports %s: %s", s.path(), imported, ban.reason)
				}
			}
		}
	}
	if sum := readAll(t, "go.sum"); strings.Contains(sum, "k8s.io/kubernetes ") {
		t.Error("go.sum has k8s.io/kubernetes, which only playground/go.sum should have")
	}
	if mod := readAll(t, "playground/go.mod"); !strings.Contains(mod, "k8s.io/kubernetes ") {
		t.Error("the playground does not need k8s.io/kubernetes any more: remove the rules about it")
	}
}

func TestBannedCalls(t *testing.T) {
	for _, ban := range bannedCalls {
		needed := map[string]bool{}
		for _, s := range mustSources(t) {
			if s.isTest() || !calls(s, ban.pkg, ban.name) {
				continue
			}
			if slices.Contains(ban.allowed, s.folder) {
				needed[s.folder] = true
				continue
			}
			t.Errorf("%s uses %s.%s: %s", s.path(), ban.pkg, ban.name, ban.reason)
		}
		for _, folder := range ban.allowed {
			if !needed[folder] {
				t.Errorf("%s may use %s.%s and does not: take the permission back", folder, ban.pkg, ban.name)
			}
		}
	}
}

// TestPureLibraries checks that pure libraries read no clock and start no goroutine.
func TestPureLibraries(t *testing.T) {
	for _, s := range mustSources(t) {
		if s.isTest() || !isOf(s.folder, "channel") && !isOf(s.folder, "render") {
			continue
		}
		if calls(s, "time", "Now") {
			t.Errorf("%s reads the clock: take the time as a parameter", s.path())
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine: the caller decides what runs when", s.path())
			}
			return true
		})
	}
}

// TestInit checks that no package does work in a function init, because a program should be what its function main
// builds. Only registering kinds with a scheme is allowed in init, because the libraries of Kubernetes expect this.
func TestInit(t *testing.T) {
	for _, s := range mustSources(t) {
		for _, d := range s.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Name.Name != "init" {
				continue
			}
			for _, statement := range f.Body.List {
				registers := false
				ast.Inspect(statement, func(n ast.Node) bool {
					if sel, ok := n.(*ast.SelectorExpr); ok {
						on, _ := sel.X.(*ast.Ident)
						registers = registers || sel.Sel.Name == "AddToScheme" || sel.Sel.Name == "Register" &&
							on != nil && on.Name == "SchemeBuilder"
					}
					return true
				})
				if !registers {
					t.Errorf("%s has an init that does more than registering kinds: build it in main", s.path())
				}
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	comments, names := map[string]string{}, map[string]string{}
	for _, s := range mustSources(t) {
		if s.isTest() {
			continue
		}
		names[s.folder] = s.Name.Name
		comments[s.folder] += s.Doc.Text()
	}
	for folder, name := range names {
		start := "Package " + name + " "
		if name == "main" {
			start = "Command " + path.Base(folder) + " "
		}
		if !strings.HasPrefix(comments[folder], start) {
			t.Errorf("%s needs a package comment that begins with %q and says what it is, how to use it, how it "+
				"works and what it does not do", folder, start)
		}
	}
}

// TestNames refuses folder names such as util, which say nothing about the content, because such folders grow without
// limit.
func TestNames(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "pkg", "lib", "base",
		"types", "service", "services"}
	for _, s := range mustSources(t) {
		if slices.Contains(vague, s.Name.Name) || slices.Contains(vague, path.Base(s.folder)) {
			t.Errorf("%s: name the package for what it is about", s.path())
		}
		stem := strings.TrimSuffix(strings.TrimSuffix(s.name, ".go"), "_test")
		if slices.Contains(vague, stem) {
			t.Errorf("%s: name the file for the verb or noun one would look for", s.path())
		}
	}
}

// TestMains: what a program does must be reachable by a test, so main only parses, builds and runs.
func TestMains(t *testing.T) {
	const limit = 60
	lines := map[string]int{}
	for _, s := range mustSources(t) {
		if isOf(s.folder, "cmd") && !s.isTest() {
			lines[s.folder] += s.lines
		}
	}
	for folder, n := range lines {
		if n > limit {
			t.Errorf("%s has %d lines, %d are allowed: move what is more than parse, build and run to where it can "+
				"be tested", folder, n, limit)
		}
	}
}

func TestMakefile(t *testing.T) {
	const limit = 80
	lines := strings.Split(strings.TrimSuffix(readAll(t, "Makefile"), "\n"), "\n")
	if len(lines) > limit {
		t.Errorf("the Makefile has %d lines, %d are allowed: what is more belongs into a Go program", len(lines), limit)
	}
	target := regexp.MustCompile(`^([a-z][a-z-]*):([^=]|$)`)
	found := 0
	for _, line := range lines {
		m := target.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		found++
		if _, help, ok := strings.Cut(line, " ## "); !ok || help == "" {
			t.Errorf("target %s has no line of help (## …), so `make help` does not show it", m[1])
		}
	}
	if found < 10 {
		t.Errorf("found %d targets: is the pattern still right?", found)
	}
}

// TestWithoutRace checks that the packages that `make test` tests without -race have no goroutines, not even in tests.
func TestWithoutRace(t *testing.T) {
	m := regexp.MustCompile(`serial=\$\$\(go list ([^)]*)\)`).FindStringSubmatch(readAll(t, "Makefile"))
	if m == nil {
		t.Fatal("the Makefile does not list the packages without -race: mend or remove this test")
	}
	for pattern := range strings.FieldsSeq(m[1]) {
		folder, withBelow := strings.CutSuffix(path.Clean(pattern), "/...")
		seen := false
		for _, s := range mustSources(t) {
			if s.folder != folder && (!withBelow || !isOf(s.folder, folder)) {
				continue
			}
			seen = true
			if concurrency := concurrencyOf(s); concurrency != "" {
				t.Errorf("%s has %s, so %s needs -race: take %s out of the serial packages in the Makefile",
					s.path(), concurrency, s.folder, pattern)
			}
		}
		if !seen {
			t.Errorf("the serial packages in the Makefile are %s, where there is no package", pattern)
		}
	}
}

// concurrencyOf returns the first part of a file by which it may run code in several goroutines, or "" if there is no
// such part.
func concurrencyOf(s source) (found string) {
	for _, imported := range s.imports() {
		switch imported {
		case "net/http/httptest", "testing/synctest", "golang.org/x/sync/errgroup":
			return "an import of " + imported
		}
	}
	ast.Inspect(s.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = "a go statement"
		case *ast.SelectorExpr: // methods of sync.WaitGroup, testing.T and testing.B, and functions of time and context
			if slices.Contains([]string{"Go", "Parallel", "RunParallel", "AfterFunc"}, n.Sel.Name) {
				found = "a call of " + n.Sel.Name
			}
		}
		return found == ""
	})
	return found
}

// TestLifecycles compares the lists of steps in docs/reference/lifecycles.md with the steps of the controllers.
func TestLifecycles(t *testing.T) {
	const page = "docs/reference/lifecycles.md"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " → ") && strings.HasPrefix(line, "    ") {
			documented[strings.TrimSpace(line)] = true
		}
	}
	for _, s := range mustSources(t) {
		if !isOf(s.folder, "internal/controller") || s.isTest() {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			var steps []string
			for _, arg := range call.Args {
				if name := stepName(arg); name != "" {
					steps = append(steps, name)
				}
			}
			if list := strings.Join(steps, " → "); len(steps) > 1 && !documented[list] {
				t.Errorf("%s: %s does not have the list %q", s.path(), page, list)
			} else {
				delete(documented, list)
			}
			return true
		})
	}
	for list := range documented {
		t.Errorf("%s has the list %q, which no controller has", page, list)
	}
}

// stepName returns the name in a literal loop.Step{Name: "…", …}, "" for anything else.
func stepName(e ast.Expr) string {
	lit, ok := e.(*ast.CompositeLit)
	if !ok || len(lit.Elts) == 0 {
		return ""
	}
	if of, ok := lit.Type.(*ast.SelectorExpr); !ok || of.Sel.Name != "Step" {
		return ""
	}
	field, ok := lit.Elts[0].(*ast.KeyValueExpr)
	if !ok {
		return ""
	}
	text, _ := field.Value.(*ast.BasicLit)
	if text == nil {
		return ""
	}
	return strings.Trim(text.Value, `"`)
}

// TestLinks checks that links between our pages lead to files that exist, and to headings that exist in these files.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(#[^)]*)?\)`)
	err := walk(".md", func(page string) error {
		data, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			target, anchor := filepath.Join(filepath.Dir(page), m[1]), strings.TrimPrefix(m[2], "#")
			if strings.Contains(m[1], "://") || m[1] == "" && anchor == "" {
				continue
			}
			if m[1] == "" {
				target = page
			}
			text, err := os.ReadFile(target)
			if _, missing := os.Stat(target); missing != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[1])
			} else if anchor != "" && (err != nil || !hasHeading(string(text), anchor)) {
				t.Errorf("%s links to %s%s, but no heading has that anchor", page, m[1], m[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// hasHeading reports whether a Markdown page has a heading with this anchor: its text in lower case, spaces as dashes,
// without punctuation.
func hasHeading(page, anchor string) bool {
	punctuation := regexp.MustCompile(`[^\pL\pN _-]`)
	for line := range strings.Lines(page) {
		level, text, found := strings.Cut(line, " ")
		if !found || strings.Trim(level, "#") != "" {
			continue
		}
		plain := punctuation.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), "")
		if strings.ReplaceAll(plain, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// calls reports whether the file uses the function name of the package with this import path.
func calls(s source, pkg, name string) bool {
	local := ""
	for _, spec := range s.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil && p == pkg {
			local = path.Base(pkg)
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	if local == "" {
		return false
	}
	used := false
	ast.Inspect(s.File, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
			on, _ := sel.X.(*ast.Ident)
			used = used || on != nil && on.Name == local
		}
		return true
	})
	return used
}

// isOf reports whether p is parent or below it.
func isOf(p, parent string) bool { return p == parent || strings.HasPrefix(p, parent+"/") }

// isStandard reports whether an import path is of Go's own library: the others begin with a host.
func isStandard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}

func readAll(t *testing.T, files ...string) string {
	t.Helper()
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
