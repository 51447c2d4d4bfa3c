package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// longTimeout is the Timeout of a Runner in tests that must not reach it, also if the machine is slow.
const longTimeout = 10 * time.Minute

// runner is the Runner that TestMain sets, with longTimeout and otherwise the default limits.
var runner *Runner

// TestMain makes it possible that the test binary also runs as the separate process that renders artefacts.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "probe" {
		probe()
		return
	}
	runner = RunnerOrServe()
	runner.Timeout = longTimeout
	os.Exit(m.Run())
}

// chartOf returns a chart that has the given files. The parameter entries contains the name of a file, the content of
// this file, the name of the next file, and so on.
func chartOf(t testing.TB, entries ...string) *render.Artefact {
	t.Helper()
	files := fstest.MapFS{"Chart.yaml": {Data: []byte("apiVersion: v2\nname: shop\nversion: 1.2.3\n")}}
	for i := 0; i < len(entries); i += 2 {
		files[entries[i]] = &fstest.MapFile{Data: []byte(entries[i+1])}
	}
	return artefactOf(t, files)
}

func artefactOf(t testing.TB, files fstest.MapFS) *render.Artefact {
	t.Helper()
	a, err := render.LoadFolder(files, render.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// reasonOf returns the reason code of an error, or its text if it has no code.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*render.Error](err); ok {
		return e.Reason()
	}
	return fmt.Sprint(err)
}

// TestSameResult compares a rendering in a separate process with a rendering in this process.
func TestSameResult(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	cases := map[string]*render.Artefact{
		"Chart": chartOf(t, "values.yaml", "a: 1.0\n", "templates/a.yaml", object+
			"data: {v: {{ .Values.a | quote }}, w: \"{{ .Capabilities.KubeVersion }}\"}\nbig: 123456789012345678901\n"+
			"text: \"\\u00e9<&>\\n\\ufeff\"\nfloat: 1e30\nempty: {}\nnothing: null\n",
			"templates/b.yaml", "{{ lookup \"v1\" \"Pod\" \"n\" \"p\" }}",
			"crds/c.yaml", "apiVersion: v1\nkind: ThingList\nmetadata: {name: c}\n"),
		"Fails": chartOf(t, "templates/a.yaml", "a: b\n{{ .Values.x.y }}\n"),
		"Kustomize": artefactOf(t, fstest.MapFS{"kustomization.yaml": {Data: []byte("resources: [a.yaml]\nnamePrefix: p-\n")},
			"a.yaml": {Data: []byte(object)}}),
		"KustomizeFails": artefactOf(t, fstest.MapFS{"kustomization.yaml": {Data: []byte("resources: [b.yaml]\n")}}),
	}
	settings := render.Settings{Capabilities: render.Capabilities{KubeVersion: "v1.30.1"}}
	for name, a := range cases {
		t.Run(name, func(t *testing.T) {
			here, errHere := a.Render(t.Context(), settings, render.Options{})
			there, errThere := a.Render(render.WithRunner(t.Context(), runner), settings, render.Options{})
			if fmt.Sprint(errHere) != fmt.Sprint(errThere) || reasonOf(errHere) != reasonOf(errThere) {
				t.Fatalf("errors differ:\n%v\n%v", errHere, errThere)
			}
			if errHere != nil {
				return
			}
			if diff := cmp.Diff(texts(here), texts(there)); diff != "" {
				t.Errorf("the objects differ (-here +there):\n%s", diff)
			}
			if !slices.Equal(here.LeftOut, there.LeftOut) || here.Digest != there.Digest {
				t.Errorf("left out %q and %q, digests %s and %s", here.LeftOut, there.LeftOut, here.Digest, there.Digest)
			}
			outputs, errHere := a.TemplateOutputs(t.Context(), settings)
			same, errThere := a.TemplateOutputs(render.WithRunner(t.Context(), runner), settings)
			if diff := cmp.Diff(outputs, same); diff != "" || errHere != nil || errThere != nil {
				t.Errorf("the outputs of templates differ: %v, %v (-here +there):\n%s", errHere, errThere, diff)
			}
		})
	}
}

func texts(b *render.Bundle) []string {
	var out []string
	for _, o := range b.Objects {
		out = append(out, string(o.AppendJSON(nil, "", render.Overlay{})))
	}
	return out
}

// attack is a template that tries to harm the process that renders it.
type attack struct{ name, template string }

// run renders a template that tries to harm its process, in a separate process.
func (a attack) run(t *testing.T, r *Runner) error {
	t.Helper()
	chart := chartOf(t, "templates/a.yaml", a.template)
	_, _, err := chart.RenderObjects(render.WithRunner(t.Context(), r), render.Settings{})
	return err
}

// TestRecursion renders templates that overflow the stack; Go cannot recover from this.
func TestRecursion(t *testing.T) {
	const cycle = `{{ $d := dict }}{{ $_ := set $d "x" $d }}`
	const crashed, failed = render.RenderCrashed, render.TemplateFailed
	for _, c := range []struct {
		attack
		want string
	}{
		{attack{"Print", cycle + `a: {{ $d }}`}, crashed},
		{attack{"Printf", cycle + `{{ printf "%#v" $d }}`}, crashed},
		{attack{"ToString", cycle + `{{ toString $d }}`}, crashed},
		{attack{"Quote", cycle + `{{ quote $d }}`}, crashed},
		{attack{"Squote", cycle + `{{ squote $d }}`}, crashed},
		{attack{"Cat", cycle + `{{ cat "a" $d }}`}, crashed},
		{attack{"Join", cycle + `{{ join "," (list $d $d) }}`}, crashed},
		{attack{"Merge", cycle + `{{ merge (dict) $d (dict "x" $d) }}`}, crashed},
		{attack{"Template", `{{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" . }}`}, failed},
		{attack{"Brackets", `{{ ` + strings.Repeat("(", 100_000) + `1` + strings.Repeat(")", 100_000) + ` }}`}, failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.run(t, &Runner{Timeout: longTimeout})
			if reasonOf(err) != c.want || c.want == crashed && !strings.Contains(err.Error(), "recurse without end") {
				t.Error(err)
			}
		})
	}
}

// TestMemory renders templates that allocate memory without limit.
func TestMemory(t *testing.T) {
	const text = `{{ $x := repeat 100000 "a" }}`
	for _, a := range []attack{
		{"Replace", text + `{{ replace "a" $x $x }}`},
		{"Join", text + `{{ join $x (splitList "" $x) }}`},
		{"RegexReplaceAll", text + `{{ regexReplaceAll "a" $x $x }}`},
		{"Cat", text + `{{ range until 40 }}{{ $x = cat $x $x }}{{ end }}`},
		{"Printf", text + `{{ range until 40 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`},
		{"B64enc", text + `{{ range until 100 }}{{ $x = b64enc $x }}{{ end }}`},
		{"SplitList", text + `{{ $l := list }}{{ range until 1000 }}{{ $l = append $l (splitList "" $x) }}{{ end }}`},
		{"WrapWith", text + `{{ wrapWith 1 $x $x }}`},
		{"Concat", `{{ $l := list 1 2 3 }}{{ range until 40 }}{{ $l = concat $l $l }}{{ end }}`},
	} {
		t.Run(a.name, func(t *testing.T) {
			if err := a.run(t, &Runner{Timeout: longTimeout, Memory: 64 << 20}); reasonOf(err) != render.RenderMemory {
				t.Error(err)
			}
		})
	}
}

// TestDeadlineBeforeStart checks the reason if the time is over before the process is started.
func TestDeadlineBeforeStart(t *testing.T) {
	a := attack{"", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"}
	if err := a.run(t, &Runner{Timeout: time.Nanosecond}); reasonOf(err) != render.RenderTimeout {
		t.Error(err)
	}
}

// TestDeadline renders templates that would run for hours.
func TestDeadline(t *testing.T) {
	loop := func(what string) string {
		return `{{ $x := repeat 10000 "a" }}{{ $l := until 10000 }}{{ $d := dict "a" "b" }}` +
			`{{ range $l }}{{ range $l }}{{ range $l }}{{ $_ := ` + what + ` }}{{ end }}{{ end }}{{ end }}`
	}
	for _, a := range []attack{
		{"Range", `{{ range until 10000 }}{{ range until 10000 }}{{ range until 10000 }}{{ end }}{{ end }}{{ end }}`},
		{"Tpl", `{{ tpl "{{ range until 9999 }}{{ range until 9999 }}{{ range until 9999 }}{{ end }}{{ end }}{{ end }}" . }}`},
		{"Include", `{{ define "t" }}{{ if lt (len .) 60 }}{{ include "t" (append . 1) }}{{ include "t" (append . 2) }}` +
			`{{ end }}{{ end }}{{ include "t" list }}`},
		{"DeepCopy", `{{ $d := dict }}{{ $_ := set $d "x" $d }}{{ deepCopy $d }}`},
		{"Uniq", `{{ uniq (until 100000) }}`},
		{"Without", `{{ $l := until 10000 }}{{ range $l }}{{ $_ := without $l 1 2 3 4 5 6 7 8 9 }}{{ end }}` + loop(`1`)},
		{"Regex", `{{ $x := repeat 1000000 "a" }}{{ range until 1000 }}` +
			`{{ $_ := regexMatch "(((a{0,9}){0,9}){0,9})*b" $x }}{{ end }}`},
		{"Password", `{{ range until 10000 }}{{ $_ := derivePassword 1 "long" "p" "u" "e" }}{{ end }}`},
		{"ToYaml", loop(`toYaml $l`)},
		{"FromJson", loop(`fromJson (toJson $d)`)},
		{"SortAlpha", loop(`sortAlpha $l`)},
		{"Sha256", loop(`sha256sum $x`)},
		{"SemverCompare", loop(`semverCompare ">=1.0.0 <2.0.0 || >3.0.0" "1.2.3"`)},
		{"Merge", loop(`merge (dict) $d`)},
		{"DateInZone", loop(`htmlDateInZone 0 "Europe/Berlin"`)},
	} {
		t.Run(a.name, func(t *testing.T) {
			if err := a.run(t, &Runner{Timeout: 300 * time.Millisecond}); reasonOf(err) != render.RenderTimeout {
				t.Error(err)
			}
		})
	}
}

// TestLiteral renders with a Runner that its user has made without RunnerOrServe.
func TestLiteral(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), longTimeout)
	defer cancel()
	chart := chartOf(t, "templates/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	ctx = render.WithRunner(ctx, &Runner{Timeout: longTimeout, Memory: 1 << 30})
	if objects, _, err := chart.RenderObjects(ctx, render.Settings{}); err != nil || len(objects) != 1 {
		t.Errorf("got %d objects, %v", len(objects), err)
	}
	servesRequests.Store(false)
	defer servesRequests.Store(true)
	if _, _, err := chart.RenderObjects(ctx, render.Settings{}); err == nil ||
		!strings.Contains(err.Error(), "does not call process.RunnerOrServe") {
		t.Errorf("a program that does not serve requests must not be started: %v", err)
	}
}

// TestOutput checks that the output of a process is limited while it is read.
func TestOutput(t *testing.T) {
	a := attack{"", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: {{ repeat 100000 \"a\" }}}\n"}
	if err := a.run(t, &Runner{Timeout: longTimeout, MaxOutput: 50_000}); reasonOf(err) != render.ArchiveTooLarge {
		t.Error(err)
	}
}

// TestCancelled checks that the end of the caller's context is not reported as a problem of the artefact.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := &Runner{}
	chart := chartOf(t, "templates/a.yaml",
		`{{ range until 10000 }}{{ range until 10000 }}{{ range until 10000 }}{{ end }}{{ end }}{{ end }}`)
	_, _, err := chart.RenderObjects(render.WithRunner(ctx, r), render.Settings{})
	if _, ofArtefact := errors.AsType[*render.Error](err); ofArtefact || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	slot <- struct{}{} // as if another rendering were running
	defer func() { <-slot }()
	_, _, err = chart.RenderObjects(render.WithRunner(ctx, r), render.Settings{})
	if _, ofArtefact := errors.AsType[*render.Error](err); ofArtefact || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestSealed checks which operations are forbidden in a process that renders.
func TestSealed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux enforces these limits")
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "probe")
	c.Env = []string{}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "environment 0\nread refused\nwrite refused\nlisten refused\ndial refused\nexec refused\nsignal refused\n" +
		"Seccomp:2 NoNewPrivs:1\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
}

// probe limits this process, tries the forbidden operations, and prints for each of them whether it was possible or
// refused.
func probe() {
	fmt.Println("environment", len(os.Environ()))
	status, err := os.Open("/proc/self/status")
	if err == nil {
		err = sandboxProcess(256<<20, 10)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	report := func(what string, err error) {
		if err == nil {
			fmt.Println(what, "possible")
			return
		}
		fmt.Println(what, "refused")
	}
	_, err = os.ReadFile("/etc/passwd")
	report("read", err)
	report("write", os.WriteFile(path.Join(os.TempDir(), "probe"), []byte("x"), 0o600))
	_, err = net.Listen("tcp", "127.0.0.1:0")
	report("listen", err)
	_, err = net.Dial("tcp", "127.0.0.1:1")
	if err != nil && strings.Contains(err.Error(), "connection refused") {
		err = nil // the request was sent
	}
	report("dial", err)
	report("exec", exec.Command("/proc/self/exe", "-h").Run())
	parent, err := os.FindProcess(os.Getppid())
	if err == nil {
		err = parent.Signal(syscall.Signal(0))
	}
	report("signal", err)
	text := make([]byte, 8192)
	n, _ := status.Read(text)
	var facts []string
	for _, name := range []string{"Seccomp:", "NoNewPrivs:"} {
		for line := range strings.SplitSeq(string(text[:n]), "\n") {
			if value, ok := strings.CutPrefix(line, name); ok {
				facts = append(facts, name+strings.TrimSpace(value))
			}
		}
	}
	fmt.Println(strings.Join(facts, " "))
}

// BenchmarkRender measures the rendering of a small chart in this process, and in a separate process.
func BenchmarkRender(b *testing.B) {
	chart := chartOf(b, "templates/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	for name, ctx := range map[string]context.Context{
		"Here": b.Context(), "Process": render.WithRunner(b.Context(), runner)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := chart.Render(ctx, render.Settings{}, render.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
