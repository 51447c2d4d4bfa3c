package runtimeadmin

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fixture"
)

const kyma = "/apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system/kymas/default"

// newRuntime starts a runtime with the catalog of package fixture, whose Kyma requests the given modules. A control
// plane immediately installs every requested module in the version of its channel.
func newRuntime(t *testing.T, modules ...v1beta2.Module) *fixture.Server {
	t.Helper()
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "kyma-system"},
		Spec: v1beta2.KymaSpec{Channel: "regular", Modules: modules}}
	objects := []client.Object{k}
	c := fixture.Catalog()
	for _, name := range slices.Sorted(maps.Keys(c.Releases)) {
		c.Releases[name].Namespace = "kyma-system"
		objects = append(objects, c.Releases[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Templates)) {
		c.Templates[name].Namespace = "kyma-system"
		objects = append(objects, c.Templates[name])
	}
	s := fixture.NewServer(t, objects...)
	s.Serves = []string{"kymas", "moduletemplates", "modulereleasemetas"}
	s.Reconcile = func(o *unstructured.Unstructured) *unstructured.Unstructured {
		modules, _, _ := unstructured.NestedSlice(o.Object, "spec", "modules")
		status := []any{}
		for _, m := range modules {
			entry := m.(map[string]any)
			version := map[any]string{"fast": "2.0.0"}[entry["channel"]]
			if pinned, is := entry["version"].(string); is {
				version = pinned
			} else if version == "" {
				version = "1.0.0"
			}
			state := "Ready"
			if entry["managed"] == false {
				state = "Unmanaged"
			}
			status = append(status, map[string]any{"name": entry["name"], "state": state, "version": version})
		}
		_ = unstructured.SetNestedSlice(o.Object, status, "status", "modules")
		return o
	}
	s.Put(s.Object(kyma))
	return s
}

// TestCommands checks how each command changes spec.modules, and which input each command refuses without a change.
func TestCommands(t *testing.T) {
	sample := v1beta2.Module{Name: "sample"}
	plain, fast := map[string]any{"name": "sample"}, map[string]any{"name": "sample", "channel": "fast"}
	cases := map[string]struct {
		fixture.Case
		modules []v1beta2.Module // requested before
		want    []any            // requested after; nil for unchanged
	}{
		"Enable": {fixture.Case{Reason: "with the channel of the runtime", Args: "enable sample",
			Want: []string{"module sample 1.0.0 is Ready"}}, nil, []any{plain}},
		"EnableChannel": {fixture.Case{Reason: "with a channel of its own", Args: "enable sample -c fast",
			Want: []string{"module sample 2.0.0 is Ready"}}, nil, []any{fast}},
		"EnableVersion": {fixture.Case{Reason: "pinned", Args: "enable sample --version 2.0.0 --policy Ignore",
			Want: []string{"module sample 2.0.0 is Ready"}}, nil,
			[]any{map[string]any{"name": "sample", "version": "2.0.0", "customResourcePolicy": "Ignore"}}},
		"EnableAgain": {fixture.Case{Reason: "it is enabled already", Args: "enable sample",
			Want: []string{"module sample 1.0.0 is Ready"}}, []v1beta2.Module{sample}, nil},
		"EnableOther": {fixture.Case{Reason: "it is enabled with another channel", Args: "enable sample -c fast",
			Code: console.ExitFailed,
			Want: []string{"module sample is enabled already, with channel regular and policy CreateAndDelete"}},
			[]v1beta2.Module{sample}, nil},
		"EnableBoth": {fixture.Case{Reason: "a channel or a version", Args: "enable sample -c fast --version 1.0.0",
			Code: console.ExitUsage, Want: []string{"exclude each other"}}, nil, nil},
		"EnablePolicy": {fixture.Case{Reason: "a policy that does not exist", Args: "enable sample --policy Never",
			Code: console.ExitUsage, Want: []string{`"Never" is neither CreateAndDelete nor Ignore`}}, nil, nil},
		"UnknownModule": {fixture.Case{Reason: "the error suggests a module", Args: "enable smaple",
			Code: console.ExitNotFound, Want: []string{"did you mean sample?"}}, nil, nil},
		"UnknownChannel": {fixture.Case{Reason: "the error suggests a channel", Args: "enable sample -c fats",
			Code: console.ExitNotFound, Want: []string{`module sample has no channel "fats": did you mean fast?`}}, nil,
			nil},
		"UnknownVersion": {fixture.Case{Reason: "the error suggests a version", Args: "enable sample --version 2.0.1",
			Code: console.ExitNotFound, Want: []string{"did you mean 2.0.0", "--force requests it nevertheless"}}, nil,
			nil},
		"Force": {fixture.Case{Reason: "the catalog is not checked",
			Args: "enable sample --version 9.0.0 --force --no-wait", Want: []string{"module sample is requested"}}, nil,
			[]any{map[string]any{"name": "sample", "version": "9.0.0"}}},
		"SetChannel": {fixture.Case{Reason: "a pinned module follows a channel then",
			Args: "set-channel sample fast", Want: []string{"module sample 2.0.0 is Ready"}},
			[]v1beta2.Module{{Name: "sample", Version: "1.0.0"}}, []any{fast}},
		"Downgrade": {fixture.Case{Reason: "a lower version is refused", Args: "set-channel sample regular",
			Code: console.ExitNotReady, Want: []string{"DowngradeRefused"}},
			[]v1beta2.Module{{Name: "sample", Channel: "fast"}}, nil},
		"AllowDowngrade": {fixture.Case{Reason: "a lower version is allowed", Want: []string{"module sample 1.0.0 is Ready"},
			Args: "set-channel sample regular --allow-downgrade"},
			[]v1beta2.Module{{Name: "sample", Channel: "fast"}},
			[]any{map[string]any{"name": "sample", "channel": "regular"}}},
		"SetVersion": {fixture.Case{Reason: "pinned", Args: "set-version sample 2.0.0",
			Want: []string{"module sample 2.0.0 is Ready"}}, []v1beta2.Module{{Name: "sample", Channel: "regular"}},
			[]any{map[string]any{"name": "sample", "version": "2.0.0"}}},
		"SetLower": {fixture.Case{Reason: "the flag is named", Args: "set-version sample 1.0.0", Code: console.ExitNotReady,
			Want: []string{"DowngradeRefused", "--allow-downgrade does that for this change"}},
			[]v1beta2.Module{{Name: "sample", Channel: "fast"}}, nil},
		"SetLowerAllowed": {fixture.Case{Reason: "it is allowed", Args: "set-version sample 1.0.0 --allow-downgrade",
			Want: []string{"module sample 1.0.0 is Ready"}}, []v1beta2.Module{{Name: "sample", Channel: "fast"}},
			[]any{map[string]any{"name": "sample", "version": "1.0.0"}}},
		"SetDryRun": {fixture.Case{Reason: "nothing is written", Args: "set-version sample 2.0.0 --dry-run",
			Want: []string{"module sample would be requested with version 2.0.0"}}, []v1beta2.Module{sample}, nil},
		"DisableDryRun": {fixture.Case{Reason: "nothing is written", Args: "disable sample --dry-run",
			Want: []string{"Module sample 1.0.0 will be removed", "module sample would be removed"}},
			[]v1beta2.Module{sample}, nil},
		"SetUnknown": {fixture.Case{Reason: "it is not enabled", Args: "set-channel smpl fast",
			Code: console.ExitNotFound, Want: []string{`module "smpl" is not enabled: did you mean sample?`}},
			[]v1beta2.Module{sample}, nil},
		"Unmanage": {fixture.Case{Reason: "its objects stay", Args: "unmanage sample",
			Want: []string{"module sample 1.0.0 is Unmanaged"}}, []v1beta2.Module{sample},
			[]any{map[string]any{"name": "sample", "managed": false}}},
		"Manage": {fixture.Case{Reason: "with another policy", Args: "manage sample --policy Ignore",
			Want: []string{"module sample 1.0.0 is Ready"}}, []v1beta2.Module{{Name: "sample", Managed: new(false)}},
			[]any{map[string]any{"name": "sample", "managed": true, "customResourcePolicy": "Ignore"}}},
		"Disable": {fixture.Case{Reason: "after a confirmation", Args: "disable sample", Input: "yes\n",
			Want: []string{"Module sample 1.0.0 will be removed with all of its objects.", "module sample is removed"}},
			[]v1beta2.Module{sample}, []any{}},
		"DisableNo": {fixture.Case{Reason: "the user does not want it", Args: "disable sample", Input: "no\n",
			Code: console.ExitFailed, Want: []string{"nothing was changed"}}, []v1beta2.Module{sample}, nil},
		"DisableNoWait": {fixture.Case{Reason: "it is only requested", Args: "disable sample --yes --no-wait",
			Want: []string{"the removal of module sample is requested"}}, []v1beta2.Module{sample}, []any{}},
		"DisableAll": {fixture.Case{Reason: "custom resources of users are deleted, too",
			Args: "disable sample --delete-custom-resources", Input: "yes\n",
			Want: []string{"are deleted first, and this cannot be undone", "module sample is removed"}},
			[]v1beta2.Module{sample}, []any{}},
		"DisableUnknown": {fixture.Case{Reason: "nothing is enabled", Args: "disable sample --yes",
			Code: console.ExitNotFound, Want: []string{`module "sample" is not enabled: none exist`}}, nil, nil},
		"List": {fixture.Case{Reason: "reading changes nothing", Args: "list",
			Want: []string{"sample   regular   1.0.0     Ready   yes"}}, []v1beta2.Module{sample}, nil},
		"Why": {fixture.Case{Reason: "nor does this", Args: "why", Want: []string{"Nothing is in the way."}},
			[]v1beta2.Module{sample}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newRuntime(t, c.modules...)
			before, _, _ := unstructured.NestedSlice(s.Object(kyma).Object, "spec", "modules")
			c.Check(t, Commands, s.Kubeconfig)
			if c.want == nil {
				if c.want = before; len(s.Writes()) > 0 {
					t.Errorf("%s: writes %q", c.Reason, s.Writes())
				}
			}
			if left := s.Object(kyma).GetAnnotations()[v1beta2.AnnotationAllowDowngrade]; left != "" {
				t.Errorf("%s: downgrades stay allowed: %q", c.Reason, left)
			}
			got, _, _ := unstructured.NestedSlice(s.Object(kyma).Object, "spec", "modules")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: spec.modules (-want +got):\n%s", c.Reason, diff)
			}
		})
	}
}

// TestPermissions checks that the permission to delete custom resources, or to install a lower version, applies only to
// the change for which the user has given it, even if klm has not waited for the end of that change.
func TestPermissions(t *testing.T) {
	const deleteResources, allowDowngrade = v1beta2.AnnotationDeleteCustomResources, v1beta2.AnnotationAllowDowngrade
	isKept := []string{"or add --delete-custom-resources", "module sample is removed"}
	isDeleted := []string{"are deleted first, and this cannot be undone", "module sample is removed"}
	cases := map[string]struct {
		annotation, before string
		isStuck            bool // the removal does not end
		steps              []fixture.Case
		after              []string // the annotation after each step
	}{
		"Enable": {deleteResources, "warden", false, []fixture.Case{
			{Reason: "klm does not wait", Args: "disable sample --yes --delete-custom-resources --no-wait",
				Want: []string{"remove the module from the annotation " + deleteResources}},
			{Reason: "a new installation", Args: "enable sample", Want: []string{"module sample 1.0.0 is Ready"}},
			{Reason: "another removal", Args: "disable sample", Input: "yes\n", Want: isKept},
		}, []string{"warden,sample", "warden", "warden"}},
		"Left": {deleteResources, "warden, sample", false, []fixture.Case{
			{Reason: "left by another client", Args: "disable sample", Input: "yes\n", Want: isKept},
		}, []string{"warden"}},
		"All": {deleteResources, "*", false, []fixture.Case{
			{Reason: "the question tells the truth", Args: "disable sample", Input: "yes\n", Want: isDeleted},
		}, []string{"*"}},
		"Timeout": {deleteResources, "warden", true, []fixture.Case{
			{Reason: "the removal still needs it", Args: "disable sample --yes --delete-custom-resources --timeout=1ms",
				Code: console.ExitNotReady, Want: []string{"not done after 1ms", "remove the module from the annotation"}},
			{Reason: "taken back", Args: "disable sample --yes --no-wait",
				Want: []string{"the removal of module sample is requested\n"}},
		}, []string{"warden,sample", "warden"}},
		"Downgrade": {allowDowngrade, "warden", false, []fixture.Case{
			{Reason: "klm does not wait", Args: "set-version sample 0.9.0 --allow-downgrade --no-wait --force",
				Want: []string{"remove the module from the annotation " + allowDowngrade}},
			{Reason: "another change", Args: "set-channel sample fast", Want: []string{"module sample 2.0.0 is Ready"}},
			{Reason: "klm does not wait", Args: "set-version sample 0.9.0 --allow-downgrade --no-wait --force"},
			{Reason: "repeated, until it is done", Args: "set-version sample 0.9.0 --allow-downgrade --force",
				Want: []string{"module sample 0.9.0 is Ready"}},
		}, []string{"warden,sample", "warden", "warden,sample", "warden"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newRuntime(t, v1beta2.Module{Name: "sample"})
			s.Patch(t, kyma, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, c.annotation, c.before))
			if c.isStuck {
				s.Reconcile = nil
			}
			for i, step := range c.steps {
				step.Check(t, Commands, s.Kubeconfig)
				if got := s.Object(kyma).GetAnnotations()[c.annotation]; got != c.after[i] {
					t.Errorf("%s: %s: annotation %q, want %q", step.Args, step.Reason, got, c.after[i])
				}
			}
		})
	}
}

// TestConcurrentEdit checks that a change of another client is kept, because the edit is repeated on the changed Kyma.
func TestConcurrentEdit(t *testing.T) {
	s := newRuntime(t)
	conflicts := 0
	s.Intercept = conflictOnce(s, &conflicts)
	fixture.Case{Reason: "the first patch conflicts", Args: "enable sample --no-wait",
		Want: []string{"module sample is requested"}}.Check(t, Commands, s.Kubeconfig)
	want := []any{map[string]any{"name": "warden"}, map[string]any{"name": "sample"}}
	got, _, _ := unstructured.NestedSlice(s.Object(kyma).Object, "spec", "modules")
	if diff := cmp.Diff(want, got); diff != "" || conflicts != 1 {
		t.Errorf("%d conflicts, spec.modules (-want +got):\n%s", conflicts, diff)
	}
}

// TestNameIn checks that adding or removing the name of a module in an annotation of the Kyma keeps the names of all
// other modules.
func TestNameIn(t *testing.T) {
	k := &v1beta2.Kyma{}
	for _, c := range []struct {
		module  string
		allowed bool
		want    string
		changed bool
	}{
		{"a", true, "a", true}, {"a", true, "a", false}, {"b", true, "a,b", true}, {"a", false, "b", true},
		{"a", false, "b", false}, {"b", false, "", true},
	} {
		changed := setListedModule(k, v1beta2.AnnotationDeleteCustomResources, c.module, c.allowed)
		if got := k.Annotations[v1beta2.AnnotationDeleteCustomResources]; got != c.want || changed != c.changed {
			t.Errorf("%+v: %q, changed %v", c, got, changed)
		}
	}
}

// TestDescribeRemoval checks the text about the removed objects, which depends on whether the module and its custom
// resources are managed.
func TestDescribeRemoval(t *testing.T) {
	resource := &v1beta2.ObjectReference{Kind: "Sample",
		Metadata: v1beta2.ObjectReferenceMeta{Namespace: "kyma-system", Name: "own"}}
	cases := map[string]struct {
		reason string
		module v1beta2.Module
		status v1beta2.ModuleStatus
		want   string
	}{
		"Unmanaged": {"nothing is removed", v1beta2.Module{Managed: new(false)}, v1beta2.ModuleStatus{Version: "1.0.0"},
			"Module sample is unmanaged: its objects stay, and nothing manages them."},
		"Ignore": {"custom resources belong to the admin", v1beta2.Module{CustomResourcePolicy: v1beta2.Ignore},
			v1beta2.ModuleStatus{Version: "1.0.0"},
			"Module sample 1.0.0 will be removed when you have deleted all of its custom resources."},
		"Resource": {"its own custom resource", v1beta2.Module{},
			v1beta2.ModuleStatus{Version: "1.0.0", Resource: resource},
			"Module sample 1.0.0 will be removed with its custom resource Sample kyma-system/own and everything that " +
				"this manages."},
		"Plain": {"only objects", v1beta2.Module{}, v1beta2.ModuleStatus{Version: "1.0.0"},
			"Module sample 1.0.0 will be removed with all of its objects."},
	}
	for name, c := range cases {
		c.module.Name, c.status.Name = "sample", "sample"
		if got := describeRemoval(fixture.Kyma(v1beta2.StateReady, c.module, c.status), "sample"); got != c.want {
			t.Errorf("%s: %s: %q, want %q", name, c.reason, got, c.want)
		}
	}
}

// conflictOnce simulates another client, which requests module warden between the first read and the first patch of the
// tested command.
func conflictOnce(s *fixture.Server, conflicts *int) func(http.ResponseWriter, *http.Request) bool {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch && *conflicts == 0 {
			*conflicts++
			o := s.Object(kyma)
			_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"name": "warden"}}, "spec", "modules")
			s.Put(o)
		}
		return false
	}
}
