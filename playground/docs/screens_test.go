package docs

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
)

var update = flag.Bool("update", false, "draw the pictures of the README anew")

const images = "../../docs/images/"

// screens are the pictures of the README, with the commands whose output they show.
var screens = map[string]string{
	"klm-status.svg": "klm status",
	"klm-why.svg":    "klm why runtime-a",
}

// testScreens compares the pictures in the guide with the output of klm while module sample is broken in runtime-a.
// testScreens is the first step of the tour, when the landscape is in its initial state.
func testScreens(t *testing.T) {
	shell := func(command string) string {
		c := exec.Command("bash", "-c", command)
		c.Dir, c.Env = folder, append(os.Environ(), "PATH="+filepath.Join(folder, "bin")+":"+os.Getenv("PATH"),
			"KUBECONFIG=.landscape/control-plane.kubeconfig")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	// state waits for a state of the Kyma. The manager copies the status from the control plane to the runtime.
	state := func(is string) string {
		wait := ` wait kyma --timeout=5m --for=jsonpath='{.status.state}'=` + is
		return `kubectl -n kcp-system` + wait + ` runtime-a && ` +
			`kubectl --kubeconfig .landscape/runtime-a.kubeconfig -n kyma-system` + wait + ` default`
	}
	breaks := `kubectl --kubeconfig .landscape/runtime-a.kubeconfig -n kyma-system patch sample sample --type merge -p `
	// An agent connects some time after the modules are Ready.
	shell(`timeout 300 bash -c 'until klm status | grep -q "2 connected"; do :; done'`)
	shell(breaks + `'{"spec":{"fail":"the disk is full"}}' && ` + state("Error"))
	checkHealth(t, health{"Degraded", "the disk is full", kstatus.FailedStatus}, kstatus.InProgressStatus)
	for file, command := range screens {
		got := "$ " + command + "\n" + shell(command+" || test $? = 3")
		if *update {
			if err := os.WriteFile(images+file, draw(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		data, err := os.ReadFile(images + file)
		if err != nil {
			t.Fatal(err)
		}
		if said, drawn := gist(got), gist(textOf(t, data)); said != drawn {
			t.Errorf("%s says something else than %s by now: run `go test ./docs -run TestGuides -update` in "+
				"playground. It says\n%s\nand is drawn as\n%s", command, file, said, drawn)
		}
	}
	shell(breaks + `'{"spec":{"fail":null}}' && ` + state("Ready"))
	checkHealth(t, health{"Healthy", "", kstatus.CurrentStatus}, kstatus.CurrentStatus)
}

var times = regexp.MustCompile(`(\d+(ms|s|m|h|d))+`)

// gist returns the part of an output that does not differ from run to run.
func gist(screen string) string {
	screen, _, _ = strings.Cut(screen, "Last events")
	return strings.Join(strings.Fields(times.ReplaceAllString(screen, "T")), " ")
}

// textOf returns the lines of a picture.
func textOf(t *testing.T, data []byte) string {
	t.Helper()
	var picture struct {
		Lines []struct {
			Parts []string `xml:"tspan"`
		} `xml:"text"`
	}
	if err := xml.Unmarshal(data, &picture); err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, line := range picture.Lines {
		text += strings.Join(line.Parts, "") + "\n"
	}
	return text
}

// colours are the colours in which the screenshots show certain words of the output.
var colours = []struct {
	word   *regexp.Regexp
	colour string
}{
	{regexp.MustCompile(`^\$.*`), "#8ab4f8"},
	{regexp.MustCompile(`\bReady\b|\bREADY\b`), "#7fd18b"},
	{regexp.MustCompile(`\bError\b|\bERROR\b|\bCustomResourceNotReady\b`), "#ff8a80"},
}

// draw draws a terminal with this text.
func draw(screen string) []byte {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	width := 0
	for _, line := range lines {
		width = max(width, len([]rune(line)))
	}
	const dx, dy, margin = 7.85, 18, 16
	w, h := int(float64(width)*dx)+2*margin, len(lines)*dy+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="Menlo, Consolas, monospace" font-size="13" xml:space="preserve">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#1e2430"/>`+"\n", w, h)
	for i, line := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#dde3ee">`, margin, margin+13+i*dy)
		for line != "" {
			part, colour := line, ""
			for _, c := range colours {
				if at := c.word.FindStringIndex(line); at != nil && at[0] < len(part) {
					part, colour = line[:at[0]], ""
					if at[0] == 0 {
						part, colour = line[:at[1]], fmt.Sprintf(` fill="%s"`, c.colour)
						break
					}
				}
			}
			fmt.Fprintf(&b, `<tspan%s>`, colour)
			_ = xml.EscapeText(&b, []byte(part)) // writing to a builder never fails
			b.WriteString("</tspan>")
			line = line[len(part):]
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
