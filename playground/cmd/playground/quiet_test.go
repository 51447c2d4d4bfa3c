package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDivert checks that only the writes of libraries are diverted.
func TestDivert(t *testing.T) {
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	terminal, discard := create("terminal"), create("discard")
	paths := map[string]string{terminal.Name(): "error\n", discard.Name(): "raw log line\n"}
	stderr, library := terminal, terminal
	redirectLibraryOutput(&stderr, discard)
	for file, text := range map[*os.File]string{library: "raw log line\n", stderr: "error\n"} {
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range paths {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s contains %q (%v), want %q", path, got, err, want)
		}
	}
}
