package versions

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

const (
	digest   = v1beta2.AnnotationContentDigest
	replaced = v1beta2.AnnotationReplacedBy
	accepted = v1beta2.AnnotationAcceptContent
)

func template(annotations map[string]string) *v1beta2.ModuleTemplate {
	t := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "keda-1.0.0", Namespace: "kcp-system",
		Annotations: annotations}}
	t.Spec.Descriptor.Raw = []byte("{}")
	return t
}

// controlPlane is a fake client that counts patches.
type controlPlane struct {
	client.WithWatch
	patches int
	before  func() // called before each patch
}

func newControlPlane(t *testing.T, object *v1beta2.ModuleTemplate) *controlPlane {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &controlPlane{before: func() {}}
	c.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).Build(),
		interceptor.Funcs{Patch: func(ctx context.Context, to client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			c.patches++
			c.before()
			return to.Patch(ctx, o, p, opts...)
		}})
	return c
}

func (c *controlPlane) annotations(t *testing.T) map[string]string {
	t.Helper()
	is := &v1beta2.ModuleTemplate{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kcp-system", Name: "keda-1.0.0"}, is); err != nil {
		t.Fatal(err)
	}
	return is.Annotations
}

func TestCheck(t *testing.T) {
	type annotations = map[string]string
	cases := map[string]struct {
		reason  string
		is      annotations
		found   string
		want    annotations
		patches int
	}{
		"First": {reason: "the first content is recorded",
			found: "a", patches: 1,
			want: annotations{digest: "a"}},
		"Same": {reason: "equal content costs nothing",
			is: annotations{digest: "a"}, found: "a", want: annotations{digest: "a"}},
		"Other": {reason: "other content is noted",
			is: annotations{digest: "a"}, found: "b", patches: 1,
			want: annotations{digest: "a", replaced: "b"}},
		"OtherAgain": {reason: "once",
			is: annotations{digest: "a", replaced: "b"}, found: "b", want: annotations{digest: "a", replaced: "b"}},
		"Third": {reason: "the newest is noted",
			is: annotations{digest: "a", replaced: "b"}, found: "c", patches: 1,
			want: annotations{digest: "a", replaced: "c"}},
		"Former": {reason: "the recorded content is back",
			is: annotations{digest: "a", replaced: "b"}, found: "a", patches: 1,
			want: annotations{digest: "a"}},
		"Accepted": {reason: "accepted content is recorded",
			is: annotations{digest: "a", replaced: "b", accepted: "b"}, found: "b", patches: 1,
			want: annotations{digest: "b", accepted: "b"}},
		"AcceptedOld": {reason: "content that was accepted earlier says nothing about other content",
			is: annotations{digest: "b", accepted: "b"}, found: "c", patches: 1,
			want: annotations{digest: "b", accepted: "b", replaced: "c"}},
		"AcceptedBack": {reason: "the content before it is other content",
			is: annotations{digest: "b", accepted: "b"}, found: "a", patches: 1,
			want: annotations{digest: "b", accepted: "b", replaced: "a"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			object := template(c.is)
			cluster := newControlPlane(t, object)
			r := New(Options{Client: cluster, Live: cluster})
			got, err := r.RecordContentOrReplacement(t.Context(), object, c.found)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, cluster.annotations(t)); diff != "" {
				t.Errorf("%s: %s", c.reason, diff)
			}
			if diff := cmp.Diff(c.want, got.Annotations); diff != "" || cluster.patches != c.patches {
				t.Errorf("%s: %d patches, and the answer differs: %s", c.reason, cluster.patches, diff)
			}
		})
	}
}

// TestConcurrentChecks checks that many concurrent reconciles write the record once, although each has read the
// ModuleTemplate before the write.
func TestConcurrentChecks(t *testing.T) {
	object := template(nil)
	cluster := newControlPlane(t, object)
	r := New(Options{Client: cluster, Live: cluster})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := r.RecordContentOrReplacement(t.Context(), object, "a"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if cluster.patches != 1 {
		t.Errorf("got %d patches, want 1", cluster.patches)
	}
}

// TestOtherReplica checks two replicas that find different content at the same time: the first record decides.
func TestOtherReplica(t *testing.T) {
	object := template(nil)
	cluster := newControlPlane(t, object)
	other := New(Options{Client: cluster, Live: cluster})
	cluster.before = func() {
		cluster.before = func() {}
		if _, err := other.RecordContentOrReplacement(t.Context(), object, "b"); err != nil {
			t.Error(err)
		}
	}
	got, err := New(Options{Client: cluster, Live: cluster}).RecordContentOrReplacement(t.Context(), object, "a")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{digest: "b", replaced: "a"}
	if diff := cmp.Diff(want, got.Annotations); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, cluster.annotations(t)); diff != "" {
		t.Error(diff)
	}
}

// TestCheckFails checks that a version is not treated as recorded if its record could not be written.
func TestCheckFails(t *testing.T) {
	refused := errors.New("refused")
	object := template(nil)
	cluster := newControlPlane(t, object)
	failing := interceptor.NewClient(cluster, interceptor.Funcs{Patch: func(context.Context, client.WithWatch,
		client.Object, client.Patch, ...client.PatchOption) error {
		return refused
	}})
	r := New(Options{Client: failing, Live: failing})
	if _, err := r.RecordContentOrReplacement(t.Context(), object, "a"); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if err := cluster.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if _, err := r.RecordContentOrReplacement(t.Context(), object, "a"); err == nil {
		t.Error("a deleted ModuleTemplate has no record")
	}
}
