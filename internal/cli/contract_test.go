package cli

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/json.golden")

// TestJSONContract compares the fields of all structs with JSON tags in the packages of klm with the list in
// testdata/json.golden. Scripts of users read these fields from the output of -o json. If a field is renamed, is
// removed or gets another type, scripts of users fail: announce the change of the field in docs/guide/upgrade.md, and
// then run this test with -update, which rewrites testdata/json.golden. If a struct only gets an additional field, it
// is enough to run this test with -update.
func TestJSONContract(t *testing.T) {
	const golden = "testdata/json.golden"
	var lines []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(path, "fixture/") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, isType := n.(*ast.TypeSpec)
			if !isType {
				return true
			}
			if s, isStruct := spec.Type.(*ast.StructType); isStruct {
				lines = append(lines, jsonFields(t, filepath.Dir(path)+"."+spec.Name.Name, s)...)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 100 {
		t.Errorf("only %d fields were found", len(lines))
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("fields of -o json differ (-want +got):\n%s", diff)
	}
}

// jsonFields returns one line for each field of a struct that has a JSON tag.
func jsonFields(t *testing.T, name string, s *ast.StructType) []string {
	t.Helper()
	var lines []string
	for _, f := range s.Fields.List {
		if f.Tag == nil || !strings.Contains(f.Tag.Value, `json:"`) || strings.Contains(f.Tag.Value, `json:"-"`) {
			continue
		}
		var kind bytes.Buffer
		if err := format.Node(&kind, token.NewFileSet(), f.Type); err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(kind.String(), "{") // fields of a nested struct have lines of their own
		_, tag, _ := strings.Cut(f.Tag.Value, `json:"`)
		tag, _, _ = strings.Cut(tag, `"`)
		lines = append(lines, fmt.Sprintf("%s %s %s", name, tag, strings.TrimSpace(text)))
		if nested, isStruct := elementOf(f.Type).(*ast.StructType); isStruct {
			field, _, _ := strings.Cut(tag, ",")
			lines = append(lines, jsonFields(t, name+"."+field, nested)...)
		}
	}
	return lines
}

// elementOf returns the type of the elements of a list or a pointer, or the type itself.
func elementOf(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.StarExpr:
		return elementOf(e.X)
	case *ast.ArrayType:
		return elementOf(e.Elt)
	}
	return e
}
