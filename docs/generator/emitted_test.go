package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// apiFolder is the folder of the package that lists every reason and event.
const apiFolder = "api/v1beta2"

// code describes a reason or an event: whether a documented constant has its value, and where the source code produces
// and declares this value.
type code struct {
	documented bool     // a constant Reason… or Event… of package v1beta2 has the value
	uses       []string // places in the source that produce the value
	libraries  []string // packages with a constant of their own for the value
}

// codes returns every reason and event by its kind and value, such as "Reason Applying". A use of a constant is a place
// that produces its value. Comparisons, cases of a switch and keys of maps only read the value, so they do not count as
// producing it.
//
// The list of all values is in package v1beta2. A library that must not import package v1beta2 declares its reasons
// itself. The function declaredCodes finds such constants by the comment of their block, which begins with "Reasons of
// an Error".
func codes(t *testing.T) map[string]*code {
	t.Helper()
	files := productFiles(t)
	all := map[string]*code{}
	at := func(key string) *code {
		if all[key] == nil {
			all[key] = &code{}
		}
		return all[key]
	}
	constant := map[string]string{} // kind and value by folder and name of the constant
	for folder, parsed := range files {
		for _, f := range parsed {
			for name, value := range declaredCodes(f.File, folder) {
				kind, _, _ := strings.Cut(name, "=")
				key := kind + " " + value
				constant[folder+"."+strings.TrimPrefix(name, kind+"=")] = key
				if folder == apiFolder {
					at(key).documented = true
				} else {
					at(key).libraries = append(at(key).libraries, folder)
				}
			}
		}
	}
	for folder, parsed := range files {
		for _, f := range parsed {
			produced(f.File, folder, func(name string, pos token.Pos) {
				if key, is := constant[name]; is {
					at(key).uses = append(at(key).uses, f.positions.Position(pos).String())
				}
			})
		}
	}
	return all
}

// goFile is a parsed file of the product.
type goFile struct {
	*ast.File
	positions *token.FileSet
}

// productFiles returns the Go files of the repository by folder, without tests and without this generator.
func productFiles(t *testing.T) map[string][]goFile {
	t.Helper()
	files := map[string][]goFile{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in, _ := filepath.Rel(root, name)
		if entry.IsDir() && (slices.Contains([]string{"playground", "docs", "bin"}, in) ||
			strings.HasPrefix(entry.Name(), ".") && in != "." || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		positions := token.NewFileSet()
		parsed, err := parser.ParseFile(positions, name, nil, parser.ParseComments)
		folder := path.Dir(filepath.ToSlash(in))
		files[folder] = append(files[folder], goFile{parsed, positions})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// declaredCodes returns the values of those constants in a file that are reasons or events. The keys of the map have
// the form "Reason=NAME" or "Event=NAME", where NAME is the name of the constant.
func declaredCodes(f *ast.File, folder string) map[string]string {
	found := map[string]string{}
	for _, d := range f.Decls {
		block, is := d.(*ast.GenDecl)
		if !is || block.Tok != token.CONST {
			continue
		}
		isLibrary := strings.Contains(strings.ToLower(block.Doc.Text()), "reasons of an error")
		for _, spec := range block.Specs {
			c := spec.(*ast.ValueSpec)
			value, is := singleStringLiteral(c.Values)
			name := c.Names[0].Name
			switch {
			case !is || folder != apiFolder && !isLibrary:
			case folder == apiFolder && strings.HasPrefix(name, "Event"):
				found["Event="+name] = value
			case folder != apiFolder || strings.HasPrefix(name, "Reason"):
				found["Reason="+name] = value
			}
		}
	}
	return found
}

// produced calls use for each constant that a file produces: constants in comparisons, in cases of a switch, as keys of
// maps, and in declarations are left out. The arguments of use are the folder and the name of the constant, as one
// name, and its position.
func produced(f *ast.File, folder string, use func(name string, pos token.Pos)) {
	const module = "github.com/kyma-fleet/lifecycle-manager/"
	folders := map[string]string{} // by the name of the import
	for _, i := range f.Imports {
		of, _ := strconv.Unquote(i.Path.Value)
		if in, ours := strings.CutPrefix(of, module); ours {
			name := path.Base(in)
			if i.Name != nil {
				name = i.Name.Name
			}
			folders[name] = in
		}
	}
	reads := map[ast.Node]bool{} // expressions that only read a value
	ast.Inspect(f, func(n ast.Node) bool {
		if reads[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.CaseClause:
			for _, e := range n.List {
				reads[e] = true
			}
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				reads[n.X], reads[n.Y] = true, true
			}
		case *ast.KeyValueExpr:
			reads[n.Key] = true
		case *ast.CallExpr:
			if slices.Contains([]string{"reasonIs", "isReason", "IsReason", "Contains"}, calledName(n)) {
				for _, e := range n.Args {
					reads[e] = true
				}
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				reads[name] = true
			}
		case *ast.SelectorExpr:
			if x, is := n.X.(*ast.Ident); is && folders[x.Name] != "" {
				use(folders[x.Name]+"."+n.Sel.Name, n.Pos())
			}
			reads[n.Sel] = true
		case *ast.Ident:
			use(folder+"."+n.Name, n.Pos())
		}
		return true
	})
}

// calledName returns the name of the called function, without its package or receiver.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// TestReasonsAndEventsAreEmitted compares the lists of reasons and events in package v1beta2 with the source: the
// source produces every reason and event in the lists, and the lists have every reason and event that the source
// produces.
func TestReasonsAndEventsAreEmitted(t *testing.T) {
	all := codes(t)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		c := all[key]
		switch {
		case !c.documented && len(c.uses) > 0:
			t.Errorf("%s of %v is produced and not documented: add it to %s, with its meaning and what to do\n%s",
				key, c.libraries, apiFolder, strings.Join(c.uses, "\n"))
		case !c.documented:
			t.Errorf("%s of %v is neither produced nor documented: remove it", key, c.libraries)
		case len(c.uses) == 0:
			t.Errorf("%s is documented and never produced: remove it from %s", key, apiFolder)
		}
	}
	if len(all) < 100 {
		t.Errorf("found %d reasons and events, want at least 100: is the form of the constants unchanged?", len(all))
	}
}

// TestReasonsAreConstants checks that no reason is written as a literal, because TestReasonsAndEventsAreEmitted finds
// only constants.
func TestReasonsAreConstants(t *testing.T) {
	fields := []string{"Code", "Reason", "reason", "code"}
	literal := func(f goFile, e ast.Expr) {
		lit, is := e.(*ast.BasicLit)
		// A literal in lower case is a label of a metric, not a reason.
		if is && lit.Kind == token.STRING && len(lit.Value) > 2 && unicode.IsUpper(rune(lit.Value[1])) {
			t.Errorf("%s: reason %s is a literal: use a constant of %s", f.positions.Position(e.Pos()), lit.Value,
				apiFolder)
		}
	}
	for _, parsed := range productFiles(t) {
		for _, f := range parsed {
			ast.Inspect(f.File, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.KeyValueExpr:
					if key, is := n.Key.(*ast.Ident); is && slices.Contains(fields, key.Name) {
						literal(f, n.Value)
					}
				case *ast.CallExpr:
					const reason = 3 // the position of the parameter in events.EventRecorder
					if calledName(n) == "Eventf" && len(n.Args) > reason {
						literal(f, n.Args[reason])
					}
				}
				return true
			})
		}
	}
}
