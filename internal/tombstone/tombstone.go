// Package tombstone says what a deletion that was given up has left in a runtime: for whoever ends it when the runtime comes back, and for
// people who end it by hand.
//
// # Use
//
//	t := tombstone.Of(kyma, manifests, got)
//	maps, err := t.ConfigMaps("kcp-system")  // write all of them before anything is let go
//	all, err := tombstone.Read(maps)         // the oldest first
//
// # How it works
//
// A tombstone is a ConfigMap with the labels v1beta2.LabelTombstone and v1beta2.LabelKymaName, and JSON under [Key]. It lists objects by
// reference alone, in the order in which they are to go: module by module, of each its custom resource and then its inventory, and at last
// what the runtime got from Lifecycle Manager itself. What does not fit into one ConfigMap is in several, each of which can be read alone.
// Nothing owns a tombstone: it outlives everything that it tells of.
//
// # What it does not do
//
// It talks to nobody, and it holds no credential: the way to the runtime is the access Secret, as long as that is there.
package tombstone

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// Key is where a ConfigMap holds the tombstone, as JSON.
const Key = "tombstone.json"

// Tombstone is what one deletion has left.
type Tombstone struct {
	// Kyma and UID name the Kyma that was given up.
	Kyma string    `json:"kyma"`
	UID  types.UID `json:"uid"`
	// DeletedAt is when its deletion began, SilentSince since when its runtime could not be worked on, GivenUpAt when that was enough.
	DeletedAt   metav1.Time `json:"deletedAt"`
	SilentSince metav1.Time `json:"silentSince"`
	GivenUpAt   metav1.Time `json:"givenUpAt"`
	// Reason and Message say why it could not be worked on.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Modules are what it had, sorted by Manifest.
	Modules []Module `json:"modules,omitempty"`
	// Runtime is what it got apart from modules: the Kyma, the agent, the pull Secret, definitions. What these define goes with them.
	Runtime []v1beta2.Resource `json:"runtime,omitempty"`
}

// Module is what is left of one Manifest.
type Module struct {
	Name     string `json:"name"`
	Manifest string `json:"manifest"`
	// Resource is the module's own custom resource, which goes first; nil if it has none, or it was the user's.
	Resource *v1beta2.Resource `json:"resource,omitempty"`
	// Objects are the inventory. Custom resources of the kinds that it defines go before it.
	Objects []v1beta2.Resource `json:"objects,omitempty"`
}

// Of lists what a Kyma leaves: what its Manifests have recorded, but for modules that were handed over to their user, and what the runtime
// got. Times and reasons are left to the caller.
func Of(k *v1beta2.Kyma, manifests []*v1beta2.Manifest, got []v1beta2.Resource) Tombstone {
	t := Tombstone{Kyma: k.Name, UID: k.UID, Runtime: got}
	if k.DeletionTimestamp != nil {
		t.DeletedAt = *k.DeletionTimestamp
	}
	for _, m := range manifests {
		if m.IsUnmanaged() {
			continue
		}
		module := Module{Name: cmp.Or(m.Labels[v1beta2.LabelModuleName], m.Name), Manifest: m.Name, Objects: m.Status.Synced}
		if cr := m.Spec.Resource; cr != nil && m.Spec.CustomResourcePolicy != v1beta2.Ignore {
			gvk := cr.GroupVersionKind()
			module.Resource = &v1beta2.Resource{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: cr.GetNamespace(), Name: cr.GetName()}
		}
		t.Modules = append(t.Modules, module)
	}
	slices.SortFunc(t.Modules, func(a, b Module) int { return cmp.Compare(a.Manifest, b.Manifest) })
	return t
}

// Count is how many objects are listed.
func (t *Tombstone) Count() int {
	n := len(t.Runtime)
	for _, m := range t.Modules {
		n += len(m.Objects)
		if m.Resource != nil {
			n++
		}
	}
	return n
}

const (
	// mostBytes is what one ConfigMap gets of the 1 MiB that the API server accepts.
	mostBytes = 900 << 10
	// mostObjects is how many objects one piece of a module has at most: with the longest names, that is less than mostBytes.
	mostObjects = 800
	// mostMessage bounds the message, which is in every part.
	mostMessage = 1 << 10
)

// ConfigMaps returns what to write: one ConfigMap, or several if it is much.
func (t Tombstone) ConfigMaps(namespace string) ([]*corev1.ConfigMap, error) {
	if len(t.Message) > mostMessage {
		t.Message = strings.ToValidUTF8(t.Message[:mostMessage], "") + "…"
	}
	pieces := cut(t.Modules)
	part := t
	part.Modules = nil
	header, err := json.Marshal(part) // with what the runtime got, so that there is room for it in each part
	if err != nil {
		return nil, fmt.Errorf("encoding the tombstone of Kyma %s: %w", t.Kyma, err)
	}
	parts, used := []Tombstone{part}, len(header)
	for _, piece := range pieces {
		encoded, err := json.Marshal(piece)
		if err != nil {
			return nil, fmt.Errorf("encoding the tombstone of Kyma %s: %w", t.Kyma, err)
		}
		last := &parts[len(parts)-1]
		if used+len(encoded)+1 > mostBytes && len(last.Modules) > 0 {
			last.Runtime = nil // it goes with the last
			parts = append(parts, part)
			last, used = &parts[len(parts)-1], len(header)
		}
		last.Modules = append(last.Modules, piece)
		used += len(encoded) + 1
	}
	maps := make([]*corev1.ConfigMap, len(parts))
	for i := range parts {
		if maps[i], err = parts[i].configMap(namespace, i); err != nil {
			return nil, err
		}
	}
	return maps, nil
}

// cut divides modules that are too large for one ConfigMap.
func cut(modules []Module) []Module {
	var pieces []Module
	for _, m := range modules {
		if len(m.Objects) <= mostObjects {
			pieces = append(pieces, m)
			continue
		}
		for objects := range slices.Chunk(m.Objects, mostObjects) {
			pieces = append(pieces, Module{Name: m.Name, Manifest: m.Manifest, Resource: m.Resource, Objects: objects})
		}
	}
	return pieces
}

// configMap returns part i.
func (t *Tombstone) configMap(namespace string, i int) (*corev1.ConfigMap, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding the tombstone of Kyma %s: %w", t.Kyma, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: Name(t.Kyma, t.UID, i),
			Labels: map[string]string{
				v1beta2.LabelTombstone: v1beta2.ValueTrue,
				v1beta2.LabelKymaName:  t.Kyma,
				v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager,
			},
		},
		Data: map[string]string{Key: string(data)},
	}, nil
}

// Name returns the name of part i, counted from 0, of the tombstone of a Kyma: tombstone-KYMA-UID[-PART]. A later Kyma of the same name
// has another one.
func Name(kyma string, uid types.UID, i int) string {
	const most = 200 // of 253
	name := "tombstone-" + kyma[:min(len(kyma), most)] + "-" + string(uid)
	if i > 0 {
		name += "-" + strconv.Itoa(i+1)
	}
	return name
}

// Written is a tombstone with the names of its ConfigMaps.
type Written struct {
	Tombstone
	ConfigMaps []string
}

// Read puts tombstones together again, the oldest first. One that cannot be read is left out, and is the error.
func Read(maps []corev1.ConfigMap) ([]Written, error) {
	var all []Written
	var bad error
	maps = slices.SortedFunc(slices.Values(maps), func(a, b corev1.ConfigMap) int { return cmp.Compare(a.Name, b.Name) })
	for i := range maps {
		var t Tombstone
		if err := json.Unmarshal([]byte(maps[i].Data[Key]), &t); err != nil || t.Kyma == "" || t.UID == "" {
			bad = cmp.Or(bad, fmt.Errorf("reading tombstone %s: key %s has no tombstone: correct or delete it", maps[i].Name, Key))
			continue
		}
		at := slices.IndexFunc(all, func(w Written) bool { return w.Kyma == t.Kyma && w.UID == t.UID })
		if at < 0 {
			all = append(all, Written{Tombstone: t, ConfigMaps: []string{maps[i].Name}})
			continue
		}
		all[at].add(t, maps[i].Name)
	}
	slices.SortStableFunc(all, func(a, b Written) int { return a.GivenUpAt.Compare(b.GivenUpAt.Time) })
	return all, bad
}

// add adds another part.
func (w *Written) add(t Tombstone, name string) {
	w.ConfigMaps = append(w.ConfigMaps, name)
	w.Runtime = append(w.Runtime, t.Runtime...)
	for _, m := range t.Modules {
		at := slices.IndexFunc(w.Modules, func(known Module) bool { return known.Manifest == m.Manifest })
		if at < 0 {
			w.Modules = append(w.Modules, m)
			continue
		}
		w.Modules[at].Objects = slices.Concat(w.Modules[at].Objects, m.Objects)
	}
}
