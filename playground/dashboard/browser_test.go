package dashboard

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/playground/program"
)

var update = flag.Bool("update", false, "take the screenshots of the guide again")

// bin is the folder with the programs under test; set by TestMain.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard()) // of our own clients
	os.Exit(run(m))
}

// run builds the programs and runs the tests.
func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "dashboard-"); err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for programs:", err)
		return 1
	}
	defer os.RemoveAll(bin) //nolint:errcheck // in the folder for temporary files
	if err := program.Build("../..", bin, program.KLM, program.Manager, program.Agent, program.Operator); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

const (
	// deadline is the timeout of every wait. A wait normally takes a few seconds at most.
	deadline = 20 * time.Minute
	// module is the name of the module in the catalog.
	module = "mod"
)

// versions are the contents of the module by version. API servers refuse version 2.0.0, because its Service has an
// invalid type.
var versions = map[string]string{
	"1.0.0": "data: {version: one}",
	"2.0.0": "data: {version: bad}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: mod, namespace: kyma-system}\n" +
		"spec: {type: Nonsense, ports: [{port: 80}]}",
	"2.0.1": "data: {version: good}",
}

// up starts a landscape with two runtimes on which a module is Ready. The first runtime belongs to the rollout stage
// that is called own.
func up(t *testing.T) *landscape.Landscape {
	t.Helper()
	l, err := landscape.Up(t.Context(), landscape.Options{Dir: filepath.Join(bin, t.Name()), Bin: bin,
		Runtimes: []string{"runtime-a", "runtime-b"}, LongTimeouts: true,
		ManagerArgs: []string{"--watch-mode=hub", "--catalog-spread=0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.LogTail(40))
		}
		if err := l.CloseAndRemoveDir(); err != nil {
			t.Errorf("stopping the landscape: %v", err)
		}
	})
	for version, data := range versions {
		manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mod, namespace: kyma-system}\n" + data
		if err := l.PushAndCreateModuleTemplate(t.Context(), landscape.Module{Name: module, Version: version,
			Component: "kyma-project.io/module/mod", Manifest: []byte(manifest)}); err != nil {
			t.Fatal(err)
		}
	}
	move(t, l, "1.0.0")
	for _, name := range l.Runtimes {
		if err := l.Register(t.Context(), name, "regular"); err != nil {
			t.Fatal(err)
		}
		enable(t, l, name)
	}
	return l
}

// enable requests the module in a runtime, as soon as the manager has created the Kyma in the runtime.
func enable(t *testing.T, l *landscape.Landscape, name string) {
	t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for limit := time.Now().Add(deadline); ; {
		err := l.PatchDesiredKymaSpec(t.Context(), name,
			func(s *v1beta2.KymaSpec) { s.Modules = []v1beta2.Module{{Name: module}} })
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
		<-ticker.C
	}
}

// move points the channel regular to a version.
func move(t *testing.T, l *landscape.Landscape, version string) {
	t.Helper()
	if err := l.SetChannels(t.Context(), module, "kyma-project.io/module/mod",
		map[string]string{"regular": version}); err != nil {
		t.Fatal(err)
	}
}

// klm runs klm against the control plane, and returns its output.
func klm(t *testing.T, l *landscape.Landscape, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(bin, "klm"), append(args,
		"--kubeconfig="+l.KubeconfigPath(landscape.ControlPlane))...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("klm %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// printed finds the address that klm dashboard prints.
var printed = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S*`)

// serve starts klm dashboard for a landscape, and returns the address that it prints.
func serve(t *testing.T, l *landscape.Landscape, args ...string) string {
	t.Helper()
	address, _ := serveFor(t, l.KubeconfigPath(landscape.ControlPlane), args...)
	return address
}

// serveFor starts klm dashboard, and returns the address that it prints, and its process.
func serveFor(t testing.TB, kubeconfig string, args ...string) (address string, pid int) {
	t.Helper()
	command := exec.Command(filepath.Join(bin, "klm"), append([]string{"dashboard", "--no-open",
		"--kubeconfig=" + kubeconfig}, args...)...)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // ended by the signal
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address := printed.FindString(lines.Text()); address != "" {
			go io.Copy(io.Discard, out) //nolint:errcheck // until the program ends
			return address, command.Process.Pid
		}
	}
	t.Fatalf("klm dashboard has printed no address: %v", lines.Err())
	return "", 0
}

// tab is a tab of a browser. At its end, the test fails if a script has failed, or if the browser has blocked content
// by the content security policy.
type tab struct {
	context.Context
	t    testing.TB
	base string

	mu       sync.Mutex
	problems []string // guarded by mu
}

// chromium returns the path of the browser.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("these tests need chromium: run make chromium, or install it")
	return ""
}

// open starts a browser, and opens an address.
func open(t testing.TB, address string) *tab {
	t.Helper()
	ctx, stopBrowser := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(deadline))...)
	t.Cleanup(stopBrowser)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	b := &tab{Context: ctx, t: t, base: address[:strings.Index(address[len("http://"):], "/")+len("http://")]}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatalf("starting the browser: %v", err)
	}
	call(b, log.Enable, cdp.Empty{})
	b.do(chromedp.Navigate(address))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			t.Errorf("the browser reports: %s", p)
		}
	})
	return b
}

// listen records failures of scripts, and the content that the browser has blocked.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		// Pages that report a problem have an HTTP error status, which the browser logs as a network error.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// do runs actions within the deadline.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, deadline)
	defer stop()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.fail(err)
	}
}

// fail ends the test, and shows the text of the page.
func (b *tab) fail(err error) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, deadline)
	defer stop()
	shown, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	b.t.Fatalf("%v; the page is:\n%s", err, shown)
}

// call sends a command of the debugging protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, deadline)
	defer stop()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
}

// evaluate returns the value of an expression of JavaScript.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, deadline)
	defer stop()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.fail(err)
	}
	return value
}

// to opens a page.
func (b *tab) to(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// until waits until the page contains a text. Each run of white space in the page counts as one space. The test does
// not load the page again, because the page must update itself. While a page is being replaced, it has no text.
func (b *tab) until(text string) {
	b.t.Helper()
	b.untilTrue(text, fmt.Sprintf(
		`!!document.body && document.body.innerText.replace(/\s+/g, " ").includes(%q)`, text))
}

// click clicks the element that an XPath selects, as soon as there is one. The page replaces its elements when
// something changes, so the browser finds and clicks the element in one step.
func (b *tab) click(xpath string) {
	b.t.Helper()
	b.untilTrue(xpath, fmt.Sprintf(`(() => {
		const e = document.evaluate(%q, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue;
		if (!e) return false;
		e.focus();
		e.click();
		return true;
	})()`, xpath))
}

// untilTrue waits until a script returns true. The failure message contains the parameter named what, which describes
// the awaited condition.
func (b *tab) untilTrue(what, script string) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.Context, deadline)
	defer stop()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script))
		if is {
			return
		}
		select {
		case <-ctx.Done():
			b.fail(fmt.Errorf("waiting for %q: %w", what, errors.Join(ctx.Err(), err)))
		case <-ticker.C:
		}
	}
}

// size changes the size of the window and the preferred colours.
func (b *tab) size(width, height int64, scheme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}}})
}

// axe is axe-core.
var axe = sync.OnceValues(func() ([]byte, error) { return os.ReadFile("testdata/axe.min.js") })

// violation is a problem of accessibility.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

// checkAccess fails for each serious problem of accessibility of the page.
func (b *tab) checkAccess(where string) {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	// The script is evaluated by the debugging protocol, so that the content security policy of the page does not apply
	// to it.
	b.do(chromedp.Evaluate[chromedp.Void](string(script)))
	found := evaluate[[]violation](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations)`)
	for _, v := range found {
		if v.Impact != "serious" && v.Impact != "critical" {
			continue
		}
		for _, n := range v.Nodes {
			b.t.Errorf("%s: %s: %s: %s", where, v.ID, v.Help, n.HTML)
		}
	}
}

// screenshot writes a picture of the window into the guide, with -update only: pictures of different machines differ.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	if !*update {
		return
	}
	ctx, stop := context.WithTimeout(b.Context, deadline)
	defer stop()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.fail(err)
	}
	if err := os.WriteFile(filepath.Join("../../docs/images", name), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// withoutScripts switches JavaScript off or on.
func (b *tab) withoutScripts(off bool) {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: off})
}

// source returns the HTML of the page.
func (b *tab) source() string {
	b.t.Helper()
	return evaluate[string](b, `document.documentElement.outerHTML`)
}
