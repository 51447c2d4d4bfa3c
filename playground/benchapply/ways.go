package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/kyma-fleet/lifecycle-manager/apply"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// parallel is the number of concurrent requests of the library and of the loop. 8 is the default of the library.
const parallel = 8

// settle is the pause before each run. During the pause, the API server can finish the work that the previous run has
// caused.
const settle = 300 * time.Millisecond

// bench holds the data that all runs share.
type bench struct {
	cluster    *cluster.Cluster
	kubernetes kubernetes.Interface
	janitor    *apply.Cluster
	dir        string // folder for temporary files
	kubeconfig string // path of the file
	ways       []way
}

// way is one way to install the module.
type way struct {
	name string
	// prepare does the work that is not measured. The result install is a function whose run time is measured. The
	// namespace ns exists before the call of prepare.
	prepare func(ctx context.Context, ns string) (install func() error, err error)
}

func newBench(c *cluster.Cluster, dir string) (*bench, error) {
	b := &bench{cluster: c, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	var err error
	if b.kubernetes, err = kubernetes.NewForConfig(c.Config()); err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if b.janitor, err = apply.New(c.Config(), nil, apply.ClusterOptions{}); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(b.kubeconfig, c.Kubeconfig(), 0o600); err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	library, err := apply.New(b.config("library"), nil, apply.ClusterOptions{MaxConcurrentRequests: parallel})
	if err != nil {
		return nil, err
	}
	loop, err := rest.HTTPClientFor(b.config("loop"))
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	b.ways = []way{
		{"library", func(ctx context.Context, ns string) (func() error, error) {
			return b.prepareLibrary(ctx, library,
				ns)
		}},
		{"loop", func(ctx context.Context, ns string) (func() error, error) {
			return b.prepareConcurrentPatches(ctx,
				loop, ns)
		}},
		{"kubectl", b.prepareKubectl},
		{"helm", b.prepareHelm},
	}
	return b, nil
}

// userAgent returns the User-Agent for one of the four ways of installing, so that the requests of each way can be
// counted.
func userAgent(name string) string { return "bench-" + name }

func (b *bench) config(name string) *rest.Config {
	cfg := b.cluster.Config()
	cfg.UserAgent = userAgent(name)
	return cfg
}

// flags returns the configuration that the command lines of kubectl and Helm would use.
func (b *bench) flags(name, ns string) *genericclioptions.ConfigFlags {
	flags := genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50)
	cache := filepath.Join(b.dir, "cache")
	flags.KubeConfig, flags.Namespace, flags.CacheDir = &b.kubeconfig, &ns, &cache
	flags.WrapConfigFn = func(cfg *rest.Config) *rest.Config {
		cfg.UserAgent = userAgent(name)
		return cfg
	}
	return flags
}

// measureInstall installs the module once in its own namespace, measures this installation, and deletes the
// cluster-scoped objects of the module.
func (b *bench) measureInstall(ctx context.Context, w way, ns string) (sample, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if _, err := b.kubernetes.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return sample{}, fmt.Errorf("creating the namespace: %w", err)
	}
	install, err := w.prepare(ctx, ns)
	if err != nil {
		return sample{}, err
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return sample{}, context.Cause(ctx)
	}
	mark := b.cluster.Mark()
	start := time.Now()
	if err := install(); err != nil {
		return sample{}, err
	}
	s := sample{took: time.Since(start), byVerb: map[string]int{}}
	for _, r := range b.cluster.Requests(mark) {
		if r.UserAgent == userAgent(w.name) {
			s.requests++
			s.byVerb[r.Verb]++
		}
	}
	return s, b.checkAndDeleteClusterScoped(ctx, ns)
}

// waitTimeout is the maximum time for which a run waits until the CRDs of the previous run are deleted.
const waitTimeout = 2 * time.Second

// checkAndDeleteClusterScoped checks that the module is installed, and deletes its cluster-scoped objects: CRDs,
// webhooks, and roles with their bindings. Objects that are not deleted would slow down all later runs. The namespace
// stays, because its objects do not slow down other runs. An API server takes some time to delete new CRDs.
// checkAndDeleteClusterScoped waits for that, but not longer than waitTimeout.
func (b *bench) checkAndDeleteClusterScoped(ctx context.Context, ns string) error {
	rendered, err := renderBundle(ns)
	if err != nil {
		return err
	}
	refs, err := b.janitor.DesiredInventory(ctx, apply.Set{Bundle: rendered})
	if err != nil {
		return err
	}
	var outside []apply.Ref
	for _, ref := range refs {
		if _, err := b.janitor.Get(ctx, ref); err != nil {
			return fmt.Errorf("checking what was installed: %w", err)
		}
		if ref.Namespace == "" {
			outside = append(outside, ref)
		}
	}
	var asked apply.DeletionProgress
	for end := time.Now().Add(waitTimeout); ; {
		left, err := b.janitor.Delete(ctx, outside, &asked)
		if err != nil || left.Done() || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// renderBundle renders the module for one run.
func renderBundle(ns string) (*render.Bundle, error) {
	list, err := render.Parse([]byte(moduleYAML(ns, ns)))
	if err != nil {
		return nil, err
	}
	if len(list) != objects {
		return nil, fmt.Errorf("the module has %d objects, want %d", len(list), objects)
	}
	return render.Build(list, render.Options{})
}

// prepareLibrary returns a function that installs the module with package apply, see way.prepare.
func (b *bench) prepareLibrary(ctx context.Context, c *apply.Cluster, ns string) (func() error, error) {
	rendered, err := renderBundle(ns)
	if err != nil {
		return nil, err
	}
	return func() error {
		var done apply.Progress
		result, err := c.Apply(ctx, apply.Set{Bundle: rendered}, &done)
		if err != nil {
			return err
		}
		if len(result.Applied) != objects {
			return fmt.Errorf("only %d objects were applied: %v, %v", len(result.Applied),
				result.Failed, result.Waiting)
		}
		return nil
	}, nil
}

// prepareConcurrentPatches returns a function that applies all objects with concurrent requests, see way.prepare.
func (b *bench) prepareConcurrentPatches(ctx context.Context, client *http.Client, ns string) (func() error, error) {
	rendered, err := renderBundle(ns)
	if err != nil {
		return nil, err
	}
	type patch struct {
		url  string
		body []byte
	}
	patches := make([]patch, len(rendered.Objects))
	for i, o := range rendered.Objects {
		ref := apply.Ref{Group: o.GVK.Group, Version: o.GVK.Version, Kind: o.GVK.Kind}
		resource, namespaced, err := b.janitor.Resource(ctx, ref)
		if err != nil {
			return nil, err
		}
		path, namespace := "/api/", ""
		if resource.Group != "" {
			path = "/apis/" + resource.Group + "/"
		}
		path += resource.Version + "/"
		if namespaced {
			namespace = o.Namespace
			path += "namespaces/" + namespace + "/"
		}
		query := url.Values{"fieldManager": {apply.DefaultOwner}, "force": {"true"}}
		patches[i] = patch{b.cluster.ServerURL() + path + resource.Resource + "/" + o.Name + "?" + query.Encode(),
			o.AppendJSON(nil, namespace, render.Overlay{})}
	}
	send := func(p patch) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPatch, p.url, bytes.NewReader(p.body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
		// The apply library sends the same header.
		req.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return err
		}
		if res.StatusCode > 299 {
			return fmt.Errorf("%s: %s", p.url, res.Status)
		}
		return nil
	}
	return func() error {
		var (
			next  atomic.Int64
			group sync.WaitGroup
			errs  = make([]error, len(patches))
		)
		for range parallel {
			group.Go(func() {
				for i := next.Add(1) - 1; i < int64(len(patches)); i = next.Add(1) - 1 {
					errs[i] = send(patches[i])
				}
			})
		}
		group.Wait()
		return errors.Join(errs...)
	}, nil
}

// prepareKubectl returns a function that runs kubectl apply, see way.prepare.
func (b *bench) prepareKubectl(ctx context.Context, ns string) (func() error, error) {
	file := filepath.Join(b.dir, ns+".yaml")
	if err := os.WriteFile(file, []byte(moduleYAML(ns, ns)), 0o600); err != nil {
		return nil, fmt.Errorf("writing the module: %w", err)
	}
	var said bytes.Buffer
	command := cmd.NewKubectlCommand(cmd.KubectlOptions{
		ConfigFlags: b.flags("kubectl", ns),
		IOStreams:   genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: io.Discard, ErrOut: &said},
	})
	command.SetArgs([]string{"apply", "--server-side", "--force-conflicts", "-f", file})
	return func() (err error) {
		defer os.Remove(file) //nolint:errcheck // the folder goes anyway
		type fatal struct{ message string }
		cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(fatal{message}) })
		defer func() {
			if f, ok := recover().(fatal); ok {
				err = fmt.Errorf("kubectl: %s %s", f.message, said.String())
			}
		}()
		return command.ExecuteContext(ctx)
	}, nil
}

// prepareHelm returns a function that installs the module as a release of Helm, see way.prepare.
func (b *bench) prepareHelm(ctx context.Context, ns string) (func() error, error) {
	file := &common.File{Name: "templates/module.yaml",
		Data: []byte(moduleYAML("{{ .Release.Namespace }}", "{{ .Release.Name }}"))}
	one := &chart.Chart{Metadata: &chart.Metadata{APIVersion: chart.APIVersionV2, Name: "module", Version: "1.0.0"},
		Templates: []*common.File{file}}
	return func() error {
		cfg := action.NewConfiguration()
		if err := cfg.Init(b.flags("helm", ns), ns, "secret"); err != nil {
			return err
		}
		install := action.NewInstall(cfg)
		install.ReleaseName, install.Namespace, install.WaitStrategy, install.Timeout = ns, ns,
			kube.HookOnlyStrategy, time.Minute
		_, err := install.RunWithContext(ctx, one, map[string]any{})
		return err
	}, nil
}
