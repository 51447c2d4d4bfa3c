package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClustersRefuses(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		args   []string
		want   string // in the error
	}{
		"NoFolder": {"there is no good default for where kubeconfigs go", []string{}, `required flag(s) "dir"`},
		"ForeignFolder": {"files of others are not mixed with ours, nor removed",
			[]string{"--dir", foreign}, "letter.txt"},
		"FileForFolder": {"the folder must be one", []string{"--dir", filepath.Join(foreign, "letter.txt")},
			"not a directory"},
		"BadName": {"names become names of files and nodes", []string{"--dir", "new", "--names", "a,B_c"},
			`"B_c"`},
		"NameTwice": {"two clusters cannot have one name", []string{"--dir", "new", "--names", "a,a"}, "twice"},
		"BadImage": {"an image needs a path", []string{"--dir", "new", "--image", "example.com/x"},
			"REPOSITORY=PATH"},
		"NoExecutable": {"the path must be that of a program",
			[]string{"--dir", "new", "--image", "example.com/x=" + filepath.Join(foreign, "letter.txt")},
			"not an executable file"},
		"Argument": {"names are given by a flag", []string{"--dir", "new", "runtime-a"}, "runtime-a"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			command := clustersCommand()
			command.SilenceUsage, command.SilenceErrors = true, true
			command.SetArgs(c.args)
			err := command.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want an error with %q", c.reason, err, c.want)
			}
			if _, err := os.Stat("new/data"); err == nil {
				t.Errorf("%s: the refused command has left files", c.reason)
			}
		})
	}
}
