package klm

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestGuide runs every command of the guide, in its order, as somebody would who follows it with this landscape.
func TestGuide(t *testing.T) {
	l := theLandscape(t)
	page, err := os.ReadFile("../../docs/guide/klm.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, c := range l.Clusters {
		if err := os.WriteFile(dir+"/"+name+".yaml", c.Kubeconfig(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for line := range strings.Lines(string(page)) {
		command, is := strings.CutPrefix(strings.TrimRight(line, "\n"), "    klm ")
		if !is {
			continue
		}
		n++
		shell := exec.Command("sh", "-c", "klm "+command)
		shell.Dir = dir
		shell.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBECONFIG="+fleetKubeconfig(l))
		out, err := shell.CombinedOutput()
		if err != nil {
			t.Fatalf("klm %s: %v\n%s", command, err, out)
		}
		t.Logf("klm %s\n%s", command, out)
	}
	if n < 20 {
		t.Errorf("found %d commands: is it still written as before?", n)
	}
}
