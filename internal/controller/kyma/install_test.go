package kyma

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	fakeregistry "github.com/google/go-containerregistry/pkg/registry"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/kyma/plan"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/internal/runtimes"
)

// kinds returns a scheme with the kinds of this project.
func kinds(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1beta2.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFinalizersOfOthersStay checks that a finalizer is kept if another client adds it between our read and our write
// of the object.
func TestFinalizersOfOthersStay(t *testing.T) {
	const other = "example.com/other"
	cases := map[string]struct {
		reason     string
		object     client.Object
		isDeleting bool
		do         func(ctx context.Context, n *run, read client.Object) error
	}{
		"Adopt": {
			reason: "when ours is added", object: &v1beta2.Kyma{},
			do: func(ctx context.Context, n *run, _ client.Object) error { return n.addFinalizerAndLabel(ctx) },
		},
		"Release": {
			reason: "when ours is removed", object: &v1beta2.Kyma{}, isDeleting: true,
			do: func(ctx context.Context, n *run, _ client.Object) error {
				return n.revokeCertificatesAndRemoveFinalizer(ctx)
			},
		},
		"Mandatory": {
			reason: "when that of the Kyma project is removed", isDeleting: true,
			object: &v1beta2.ModuleReleaseMeta{Spec: v1beta2.ModuleReleaseMetaSpec{
				Mandatory: &v1beta2.MandatoryVersion{Version: "1.0.0"}}},
			do: func(ctx context.Context, n *run, read client.Object) error {
				n.Client = staleList{n.Client, read.(*v1beta2.ModuleReleaseMeta)}
				_, err := n.removeMandatoryFinalizers(ctx)
				return err
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.object.SetNamespace("kcp-system")
			c.object.SetName("a")
			if c.isDeleting {
				c.object.SetFinalizers([]string{v1beta2.FinalizerKyma, v1beta2.FinalizerMandatoryModule})
				c.object.SetDeletionTimestamp(new(metav1.NewTime(time.Now())))
			}
			kcp := fake.NewClientBuilder().WithScheme(kinds(t)).WithObjects(c.object).Build()
			read := c.object.DeepCopyObject().(client.Object)
			if err := kcp.Get(t.Context(), client.ObjectKeyFromObject(read), read); err != nil {
				t.Fatal(err)
			}
			written := read.DeepCopyObject().(client.Object)
			written.SetFinalizers(append(written.GetFinalizers(), other))
			if err := kcp.Update(t.Context(), written); err != nil {
				t.Fatal(err)
			}
			pool, err := runtimes.New(t.Context(), runtimes.Options{Cache: kcp, Live: kcp, Namespace: "kcp-system"})
			if err != nil {
				t.Fatal(err)
			}
			n := &run{Reconciler: testReconciler(t, Options{Client: kcp, Namespace: "kcp-system", Runtimes: pool}),
				now: time.Now()}
			n.kyma, _ = read.(*v1beta2.Kyma)
			err = c.do(t.Context(), n, read)
			if err := kcp.Get(t.Context(), client.ObjectKeyFromObject(read), read); err != nil {
				t.Fatalf("%s: the object is deleted though it had finalizer %s: %v", c.reason, other, err)
			}
			if !slices.Contains(read.GetFinalizers(), other) {
				t.Errorf("%s: the finalizers are %v, %s is lost (%v)", c.reason, read.GetFinalizers(), other, err)
			}
		})
	}
}

// staleList is a client whose List returns an outdated version of the only ModuleReleaseMeta in the cluster.
type staleList struct {
	client.Client

	release *v1beta2.ModuleReleaseMeta
}

func (s staleList) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if releases, ok := list.(*v1beta2.ModuleReleaseMetaList); ok {
		releases.Items = []v1beta2.ModuleReleaseMeta{*s.release.DeepCopy()}
		return nil
	}
	return s.Client.List(ctx, list, opts...)
}

// TestDeleteOnlyTheManifestThatWasRead checks that a Manifest is not deleted if it was created, with the same name,
// after the read.
func TestDeleteOnlyTheManifestThatWasRead(t *testing.T) {
	var preconditions *metav1.Preconditions
	kcp := fake.NewClientBuilder().WithScheme(kinds(t)).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			all := client.DeleteOptions{}
			all.ApplyOptions(opts)
			if preconditions = all.Preconditions; preconditions != nil && preconditions.UID != nil &&
				*preconditions.UID == o.GetUID() {
				return apierrors.NewConflict(v1beta2.GroupVersion.WithResource("manifests").GroupResource(),
					o.GetName(), nil)
			}
			return nil
		},
	}).Build()
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
		Name: "a-keda", UID: types.UID("read")}}
	m.Labels = map[string]string{v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager}
	for name, do := range map[string]func(*run) error{
		"Remove": func(n *run) error { return n.removeUnwantedManifests(t.Context()) },
		"Delete": func(n *run) error { return n.deleteModules(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			n := &run{Reconciler: testReconciler(t, Options{Client: kcp}), kyma: &v1beta2.Kyma{}, now: time.Now()}
			n.manifests, n.modules = map[string]*v1beta2.Manifest{m.Name: m}, []plan.Module{{Manifest: m}}
			if err := do(n); !apierrors.IsConflict(err) {
				t.Errorf("got %v with preconditions %+v, want the conflict of the UID", err, preconditions)
			}
		})
	}
}

// TestManifestNameOfAnotherModule checks that a module does not take the Manifest of another module over if the names
// of both are cut to the same name, because its objects would replace those of the other module.
func TestManifestNameOfAnotherModule(t *testing.T) {
	const kyma, aws, gcp = "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "example.com/module/cloud-provider-integration-aws",
		"example.com/module/cloud-provider-integration-gcp"
	name := v1beta2.ManifestName(kyma, aws, "aws")
	if other := v1beta2.ManifestName(kyma, gcp, "gcp"); other != name {
		t.Fatalf("the names %s and %s differ", name, other)
	}
	server := httptest.NewServer(fakeregistry.New(fakeregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	artefacts, err := registry.New(registry.Options{Host: server.URL, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := artefacts.Push(t.Context(), ocm.Archive{Name: gcp, Version: "1.0.0",
		RawManifest: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: gcp\n")}); err != nil {
		t.Fatal(err)
	}
	in := metav1.ObjectMeta{Namespace: "kcp-system", Name: name}
	for title, c := range map[string]struct {
		reason     string
		module     string // of the Manifest that exists; "" if there is none
		isDeleting bool
		code       string // of the blocker
		want       string // the module of the Manifest after this
		used       bool
	}{
		"New":      {reason: "the name is free", want: "gcp", used: true},
		"Own":      {reason: "it was created a moment ago", module: "gcp", want: "gcp", used: true},
		"Others":   {reason: "it belongs to aws", module: "aws", code: v1beta2.ReasonModuleConflict, want: "aws"},
		"Deleting": {reason: "the name is free soon", module: "aws", isDeleting: true, want: "aws"},
	} {
		t.Run(title, func(t *testing.T) {
			template := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system",
				Name: "gcp-1.0.0"}}
			template.Spec.Descriptor.Raw = []byte("{}")
			b := fake.NewClientBuilder().WithScheme(kinds(t)).WithObjects(template)
			if c.module != "" {
				m := &v1beta2.Manifest{ObjectMeta: in}
				m.Labels = map[string]string{v1beta2.LabelKymaName: kyma, v1beta2.LabelModuleName: c.module}
				m.Finalizers = []string{v1beta2.FinalizerManifest}
				if c.isDeleting {
					m.DeletionTimestamp = new(metav1.Now())
				}
				b = b.WithObjects(m)
			}
			kcp := b.Build()
			if err := kcp.Get(t.Context(), client.ObjectKeyFromObject(template), template); err != nil {
				t.Fatal(err)
			}
			n := &run{Reconciler: testReconciler(t, Options{Client: kcp, Namespace: "kcp-system", Registry: artefacts}),
				now: time.Now(), kyma: &v1beta2.Kyma{}}
			n.kyma.Namespace, n.kyma.Name = in.Namespace, kyma
			m := plan.Module{Spec: v1beta2.Module{Name: "gcp"}, IsRequested: true, Decision: channel.Decision{
				Module: "gcp", Version: "1.0.0", Component: gcp, Template: template}}
			if err := n.installModule(t.Context(), &m); err != nil {
				t.Fatal(err)
			}
			code := ""
			if m.Decision.Blocker != nil {
				code = m.Decision.Blocker.Code
			}
			is := &v1beta2.Manifest{}
			if err := kcp.Get(t.Context(), client.ObjectKey{Namespace: in.Namespace, Name: name}, is); err != nil {
				t.Fatal(err)
			}
			if code != c.code || is.ModuleName() != c.want || (m.Manifest != nil) != c.used {
				t.Errorf("%s: blocker %q, the Manifest is of module %s, used: %v", c.reason, code, is.ModuleName(),
					m.Manifest != nil)
			}
		})
	}
}

// TestRestoredManifestIsResumed checks that the pause of a Manifest ends although its inventory was lost: the
// controller of Manifests reads the inventory only when the Manifest is not paused any more.
func TestRestoredManifestIsResumed(t *testing.T) {
	m := &v1beta2.Manifest{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "a-keda",
		Annotations: map[string]string{v1beta2.AnnotationPaused: "by Kim", v1beta2.AnnotationRuntimeVersion: "1.0.0"}}}
	kcp := fake.NewClientBuilder().WithScheme(kinds(t)).WithObjects(m).Build()
	key := client.ObjectKeyFromObject(m)
	if err := kcp.Get(t.Context(), key, m); err != nil {
		t.Fatal(err)
	}
	n := &run{Reconciler: testReconciler(t, Options{Client: kcp}), kyma: &v1beta2.Kyma{}, now: time.Now(),
		modules: []plan.Module{{Spec: v1beta2.Module{Name: "keda"}, IsRequested: true, Manifest: m,
			Decision: channel.Decision{Version: "1.0.0"}}}}
	if err := n.writeRequestedManifests(t.Context()); err != nil || n.modules[0].Err != nil {
		t.Fatal(err, n.modules[0].Err)
	}
	is := &v1beta2.Manifest{}
	if err := kcp.Get(t.Context(), key, is); err != nil {
		t.Fatal(err)
	}
	if _, isPaused := is.Annotations[v1beta2.AnnotationPaused]; isPaused || !is.IsRestored() {
		t.Errorf("the annotations are %v, want only that of the restored version", is.Annotations)
	}
}
