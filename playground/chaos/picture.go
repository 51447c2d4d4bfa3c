package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// picture is the state of all clusters. The key is cluster/key. The value is the content of an object of Lifecycle
// Manager, without fields that differ from run to run; for any other object, the value is nil.
type picture map[string]any

// incidental are the prefixes of the keys of objects that differ from run to run although the desired state is the
// same.
var incidental = []string{"ranges/", "ipaddresses/", "servicecidrs/", "controllerrevisions/", "csinodes/",
	"priorityclasses/", "flowschemas/", "prioritylevelconfigurations/", "configmaps/kube-system/",
	"apiregistration.k8s.io/", "certificatesigningrequests/"}

// catalog is the prefix of the etcd keys of ModuleTemplates and ModuleReleaseMetas. These objects stay in the control
// plane during the whole run, so they are not compared.
const catalog = "operator.kyma-project.io/module"

// takeSnapshot reads the current state of all clusters.
func (r *run) takeSnapshot(ctx context.Context) (picture, error) {
	p := picture{}
	for _, name := range allClusterNames(r.options.Runtimes) {
		objects, err := r.land.Clusters[name].Objects(ctx, func(key string) bool {
			return isObservedKey(name, key) && !slices.ContainsFunc(incidental, func(prefix string) bool {
				return strings.HasPrefix(key, prefix)
			}) && (name != landscape.ControlPlane || !strings.HasPrefix(key, catalog))
		})
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			p[name+"/"+o.Key] = comparedContent(o)
		}
	}
	return p, nil
}

// uncompletedMoves returns the moves of channels that the manager has not recorded as completed, as text. A manager
// that was stopped during a move records the move when it continues, even if all runtimes have the new version already.
func (r *run) uncompletedMoves(ctx context.Context) string {
	var releases v1beta2.ModuleReleaseMetaList
	if err := r.land.Clients[landscape.ControlPlane].List(ctx, &releases); err != nil {
		return err.Error()
	}
	var open []string
	for _, m := range releases.Items {
		for _, c := range m.Spec.Channels {
			if !slices.ContainsFunc(m.Status.Channels, func(s v1beta2.ChannelStatus) bool {
				return s.Channel == c.Channel && s.Version == c.Version && s.Rollout == ""
			}) {
				open = append(open, fmt.Sprintf("the move of %s in channel %s to %s is not recorded as completed",
					m.Name, c.Channel, c.Version))
			}
		}
	}
	return strings.Join(open, "\n")
}

// comparedContent returns the comparable content of an object of ours.
func comparedContent(o cluster.Stored) any {
	if o.Object == nil || o.Cluster == landscape.ControlPlane && o.Object.GetKind() != v1beta2.KindKyma &&
		o.Object.GetKind() != "Manifest" {
		return nil
	}
	if o.Object.GetLabels()[v1beta2.LabelManagedBy] == "" && o.Object.GetKind() != v1beta2.KindKyma ||
		// The namespace of the Kyma keeps its labels when the last Kyma is removed.
		o.Key == "namespaces/"+v1beta2.RuntimeNamespace {
		return nil
	}
	switch u := o.Object.DeepCopy(); {
	case u.GetKind() == v1beta2.KindKyma || u.GetKind() == "Manifest":
		return comparableKymaOrManifest(u)
	case strings.HasSuffix(o.Key, "/shared"): // which of the modules owns it depends on the order
		return steadyParts(u.Object["data"])
	default:
		unstructured.RemoveNestedField(u.Object, "status")
		return steadyParts(u.Object)
	}
}

// comparableKymaOrManifest returns the parts of a Kyma or a Manifest that depend only on the desired state, and not on
// former events.
func comparableKymaOrManifest(u *unstructured.Unstructured) any {
	part := func(fields ...string) any {
		v, _, _ := unstructured.NestedFieldNoCopy(u.Object, fields...)
		return v
	}
	list := func(field string, keep ...string) any {
		var out []string
		entries, _ := part("status", field).([]any)
		for _, e := range entries {
			m, _ := e.(map[string]any)
			var line strings.Builder
			for _, key := range keep {
				fmt.Fprintf(&line, "%s=%v ", key, m[key])
			}
			out = append(out, line.String())
		}
		slices.Sort(out)
		return out
	}
	return steadyParts(map[string]any{
		"labels": u.GetLabels(), "finalizers": u.GetFinalizers(), "spec": u.Object["spec"],
		"state": part("status", "state"), "version": part("status", "version"),
		"digest": part("status", "appliedDigest"), "activeChannel": part("status", "activeChannel"),
		"modules":    list("modules", "name", "channel", "version", "state", "message"),
		"conditions": list("conditions", "type", "status", "reason", "message"),
		"synced":     list("synced", "group", "kind", "namespace", "name", "adopted", "keep", "pending"),
	})
}

// volatile are the fields that differ from run to run.
var volatile = map[string]bool{
	"uid": true, "resourceVersion": true, "creationTimestamp": true, "managedFields": true, "generation": true,
	"observedGeneration": true, "lastTransitionTime": true, "lastUpdateTime": true, "caBundle": true,
	"appliedGeneration": true, "clusterIP": true, "clusterIPs": true, "deployment.kubernetes.io/revision": true,
}

// steadyParts returns v without fields that differ from run to run.
func steadyParts(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, e := range v {
			if !volatile[key] {
				out[key] = steadyParts(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = steadyParts(e)
		}
		return out
	}
	return v
}

// snapshotDiff returns the differences between two pictures as text, at most a few of them.
func snapshotDiff(want, got picture) string {
	const most = 8
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, is := want[key]; !is {
			lines = append(lines, fmt.Sprintf("%s is left over: %.1000v", key, got[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		is, found := got[key]
		if !found {
			lines = append(lines, key+" is missing")
		} else if diff := cmp.Diff(want[key], is); diff != "" {
			lines = append(lines, fmt.Sprintf("%s differs (-undisturbed +disturbed):\n%s", key, diff))
		}
	}
	if n := len(lines); n > most {
		lines = append(lines[:most], fmt.Sprintf("… and %d more", n-most))
	}
	return strings.Join(lines, "\n")
}
