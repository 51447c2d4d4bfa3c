package process

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlatforms checks the build constraints of the files in this package. For each platform, the files that are
// compiled must define every function that the package uses, and must define it only once. TestPlatforms is fast,
// because it only reads the files of this package and compiles nothing. "make cross" also compiles the dependencies of
// the package for other platforms.
func TestPlatforms(t *testing.T) {
	for _, platform := range []string{"linux/amd64", "linux/arm64", "linux/riscv64", "darwin/arm64", "windows/amd64"} {
		t.Run(platform, func(t *testing.T) {
			c := build.Default
			c.GOOS, c.GOARCH, _ = strings.Cut(platform, "/")
			c.CgoEnabled = false
			found, err := c.ImportDir(".", 0)
			if err != nil {
				t.Fatal(err)
			}
			positions := token.NewFileSet()
			var files []*ast.File
			for _, name := range found.GoFiles {
				file, err := parser.ParseFile(positions, filepath.Join(".", name), nil, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
			}
			check := types.Config{Importer: none{}, Error: func(err error) {
				text := err.Error()
				if strings.Contains(text, "undefined: ") || strings.Contains(text, "redeclared") {
					t.Error(text)
				}
			}}
			_, _ = check.Check("process", positions, files, nil) // Error has received the errors
			for _, name := range []string{"sandboxProcess", "wasKilled"} {
				if !defines(files, name) {
					t.Errorf("%v do not define %s", found.GoFiles, name)
				}
			}
		})
	}
}

// none is an importer for the type checker; it returns an error for every imported package, so that no dependencies are
// compiled.
type none struct{}

func (none) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// defines reports whether one of the files defines a function with this name.
func defines(files []*ast.File, name string) bool {
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == name {
				return true
			}
		}
	}
	return false
}
