package apply

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	quantity "k8s.io/apimachinery/pkg/api/resource" // resource is a type of this package
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Drifted is an object in the cluster that is missing, or that differs from the object in a Set.
type Drifted struct {
	Ref Ref
	// Missing is true if the object does not exist, or is being deleted.
	Missing bool
	// Fields are the fields that differ, at most ten, sorted: "spec.template.spec.containers[name=manager].image".
	Fields []string
	// Managers are the other field managers that own Fields now, sorted.
	Managers []string
	// Shared is true if the object belongs to another installation, or belonged to another installation that is removed
	// now.
	Shared bool
	// OwnersTurn is true if the owner of a shared object has to correct the difference: another client has changed or
	// removed fields that the owner had applied. If OwnersTurn is true, FindDrift does not change the record of the
	// object in Progress. If the installation that owns the object does not correct the difference, the caller has to
	// call Progress.Forget, so that the next Apply reports the conflict.
	OwnersTurn bool
	// OwnershipUnknown is true if somebody else may own the object, although the inventory contains it: see
	// Ownership.isUnknown. The next Apply reads the object and decides what to do with it, as with any object that
	// existed before the installation: see Adoption.
	OwnershipUnknown bool
}

// String returns a text that names the object and states how the object differs from the Set.
func (d Drifted) String() string {
	if d.Missing {
		return d.Ref.String() + " is missing"
	}
	text := d.Ref.String() + " differs"
	if len(d.Fields) > 0 {
		text += " in " + strings.Join(d.Fields, ", ")
	}
	if len(d.Managers) > 0 {
		text += ", changed by " + strings.Join(d.Managers, ", ")
	}
	return text
}

// maxFields is the maximum number of fields that are reported for an object.
const maxFields = 10

// FindDrift returns the objects of a Set that are missing or differ from the Set. FindDrift sends one GET for each
// object and writes nothing. If the parameter only is not empty, FindDrift compares only the objects to which the Refs
// in this parameter refer. FindDrift relies on the field ownership that the API server records. When another client
// changes or removes a field that we applied, the API server removes the field from our managed fields. Therefore, if a
// field is still in our managed fields, no other client has changed the value that we applied to this field. Fields
// that the Set does not contain (defaults, status, fields of other clients) are never drift. The two items below
// describe how FindDrift compares an object.
//
//   - If the Progress p records that the object was applied with the same content, FindDrift compares only the field
//     ownership and does not read the spec. A Secret is always compared field by field, because the API server records
//     no owner for the keys of stringData.
//   - If the Progress p does not record that the object was applied with the same content, FindDrift compares the field
//     ownership and the value of each field. The field ownership shows which item of a live list corresponds to which
//     item of the Set. Values that the API server writes in another form (quantities, stringData of Secrets) are equal
//     if they have the same meaning.
//
// FindDrift does not send a dry-run PATCH for each object. A dry-run PATCH needs a second request to show whether
// anything would change, needs the right to write, is a write in audit logs, and fails if webhooks do not support it.
//
// FindDrift records the objects without drift in the Progress p, and removes the objects with drift from p. The next
// Apply with the same Progress sends exactly the objects that are not recorded, and so corrects the drift. The Progress
// may be nil. If the credential lacks the right to read an object, the object is treated as not drifted, and FindDrift
// returns the missing rights as one error (see JoinFailures). If an error concerns the whole cluster, for example
// because the cluster is unreachable, FindDrift returns the error and no drift.
func (c *Cluster) FindDrift(ctx context.Context, set Set, p *Progress, only ...Ref) ([]Drifted, error) {
	items, _, err := c.resolveObjects(ctx, set) // Apply reports objects that cannot be applied
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = new(Progress)
	}
	items = slices.DeleteFunc(items, func(it item) bool {
		return it.problem != "" || len(only) > 0 && !slices.ContainsFunc(only, it.ref.SameObject)
	})
	found := make([]*Drifted, len(items))
	errs := make([]error, len(items))
	err = c.forEachConcurrently(len(items), func(i int) error {
		found[i], errs[i] = c.compareObject(ctx, set, &items[i], p)
		return errs[i]
	})
	if err != nil {
		return nil, err
	}
	var (
		drifted []Drifted
		failed  []*Error
	)
	for _, err := range errs {
		if e, ok := errors.AsType[*Error](err); ok {
			failed = append(failed, e)
		}
	}
	for _, d := range found {
		if d != nil && !d.OwnersTurn {
			p.Forget(d.Ref)
			if d.Missing || d.Shared || d.OwnershipUnknown {
				p.markOwnershipUnknown(d.Ref)
			}
		}
		if d != nil {
			drifted = append(drifted, *d)
		}
	}
	return drifted, JoinFailures(failed)
}

// compareObject compares one object of the Set with the live object in the cluster.
func (c *Cluster) compareObject(ctx context.Context, set Set, it *item, p *Progress) (*Drifted, error) {
	known := p.beginComparison(it.ref)
	defer p.endComparison(it.ref)
	byRecord := it.policy.createOnly || known.content == it.content && it.ref.groupKind() != secretKind
	r := request{method: http.MethodGet, path: it.resource.urlPath(it.ref.GVK().GroupVersion(), it.ref.Namespace,
		it.ref.Name), operation: "reading", ref: it.ref}
	if byRecord {
		r.accept = metadataType
	}
	var (
		answer partialObject
		live   map[string]any
	)
	err := c.sendWithinConcurrencyLimit(ctx, &r, func(_ int, body []byte) error {
		if !byRecord {
			if err := utiljson.Unmarshal(body, &live); err != nil {
				return err
			}
		}
		return answer.decode(body, it.ref)
	})
	m := &answer.Metadata
	switch {
	case isNotFoundOrUnserved(err):
		return &Drifted{Ref: it.ref, Missing: true}, nil
	case err != nil:
		return nil, err
	case m.DeletionTimestamp != nil:
		return &Drifted{Ref: it.ref, Missing: true}, nil
	case set.Ownership != nil && set.Ownership.belongsToOther(m):
		return c.compareShared(ctx, set, it, p)
	case it.recorded.Shared && m.Annotations.OwnedBy != set.Ownership.Name: // its owner does not exist any more
		return &Drifted{Ref: it.ref, Shared: true}, nil
	case it.policy.createOnly, byRecord && known.uid == hashText(m.UID) &&
		known.fields == it.ownedFieldsHash(m, set.fieldManager()):
		p.recordNoDrift(it.ref, it.content, m, it.ownedFieldsHash(m, set.fieldManager()))
		return nil, nil
	}
	var wanted map[string]any
	if err := utiljson.Unmarshal(it.object.AppendJSON(nil, it.namespace(), it.overlay(set)), &wanted); err != nil {
		return nil, fmt.Errorf("reading %s of the module: %w", it.ref, err)
	}
	fields := unownedOrChangedFields(wanted, live, m.fieldsOwnedBy(set.fieldManager()), it.policy.ignore, false)
	if len(fields) == 0 && byRecord {
		// The hash of the owned fields differs from the hash in Progress, so our field manager has lost a field. The
		// first call of unownedOrChangedFields, with zeros=false, has not found this field, so the desired value of the
		// field is empty ("", 0 or false): unownedOrChangedFields with zeros=false leaves out fields with empty values.
		fields = unownedOrChangedFields(wanted, nil, m.fieldsOwnedBy(set.fieldManager()), it.policy.ignore, true)
	}
	if len(fields) == 0 && !byRecord {
		p.recordNoDrift(it.ref, it.content, m, it.ownedFieldsHash(m, set.fieldManager()))
		return nil, nil
	}
	return &Drifted{Ref: it.ref, Fields: fields, Managers: otherManagersOf(fields, m, set.fieldManager()),
		OwnershipUnknown: set.Ownership.isUnknown(m, set.fieldManager(), it.recorded, known)}, nil
}

// owned is a tree of fields in the format of the API server (FieldsV1). "f:name" is a member, `k:{"name":"x"}` is a
// list item by keys, and `v:"x"` is a list item by value. A node without children means that the whole value at this
// path is owned.
type owned map[string]owned

// comparison collects the paths at which a desired object differs from the owned fields.
type comparison struct {
	fields []string
	lost   int  // the number of fields that are not owned
	zeros  bool // whether desired empty values ("", 0, false) are compared
}

// unownedOrChangedFields returns the paths of those fields of the desired object (parameter wanted) that our field
// manager does not own. The parameter managedFields is the entry of our field manager in the format FieldsV1. If the
// parameter live is not nil, unownedOrChangedFields also returns the paths of fields whose value in the live object
// differs from the desired value. unownedOrChangedFields returns no path that the parameter ignore covers. If the
// parameter comparesZeros is true, a field that our field manager does not own is reported even if its desired value is
// empty ("", 0 or false). unownedOrChangedFields returns at most maxFields paths, sorted. unownedOrChangedFields may
// modify the maps in the parameters wanted and live.
func unownedOrChangedFields(wanted, live map[string]any, managedFields json.RawMessage, ignore []fieldPath,
	comparesZeros bool) []string {
	paths, _ := classifyLostOrChanged(wanted, live, managedFields, ignore, comparesZeros)
	return paths
}

// classifyLostOrChanged returns the same paths as unownedOrChangedFields, and also why the fields differ. The result
// "allLost" is true if our field manager owns none of the returned fields. allLost is false if a field is returned only
// because its live value differs.
func classifyLostOrChanged(wanted, live map[string]any, managedFields json.RawMessage, ignore []fieldPath,
	comparesZeros bool) (
	paths []string, allLost bool) {
	var own owned
	if len(managedFields) == 0 || json.Unmarshal(managedFields, &own) != nil || own == nil {
		own = owned{}
	}
	for _, path := range ignore {
		path.removeFromOwned(own, wanted)
		if live != nil {
			path.removeFromOwned(own, live)
		}
	}
	for _, path := range ignore {
		path.removeFrom(wanted)
		if live != nil {
			path.removeFrom(live)
		}
	}
	wanted = withoutUnownableFields(wanted)
	if live != nil {
		if stringData, ok := wanted["stringData"].(map[string]any); ok && live["kind"] == "Secret" {
			live = maps.Clone(live)
			live["stringData"] = decodedSecretData(live["data"], stringData)
			own["f:stringData"] = ownedLeavesForKeys(stringData) // FieldsV1 does not contain the keys of stringData
		}
	}
	c := comparison{zeros: comparesZeros}
	c.compareMap("", wanted, live, live != nil, own)
	slices.Sort(c.fields)
	return c.fields[:min(len(c.fields), maxFields)], c.lost == len(c.fields)
}

// withoutUnownableFields returns a desired object without the fields for which an API server never records an owner:
// apiVersion, kind, status, metadata.name and metadata.namespace.
func withoutUnownableFields(wanted map[string]any) map[string]any {
	out := maps.Clone(wanted)
	delete(out, "apiVersion")
	delete(out, "kind")
	delete(out, "status")
	metadata, _ := wanted["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	delete(metadata, "name")
	delete(metadata, "namespace")
	out["metadata"] = metadata
	return out
}

// decodedSecretData returns the decoded values of a Secret's data for the keys that were given as stringData.
func decodedSecretData(data any, keys map[string]any) map[string]any {
	out := map[string]any{}
	encoded, _ := data.(map[string]any)
	for key := range keys {
		text, _ := encoded[key].(string)
		if plain, err := base64.StdEncoding.DecodeString(text); err == nil && encoded[key] != nil {
			out[key] = string(plain)
		}
	}
	return out
}

func ownedLeavesForKeys(keys map[string]any) owned {
	own := owned{}
	for key := range keys {
		own["f:"+key] = owned{}
	}
	return own
}

// compare compares one value of the desired object with the fields that our field manager owns. If the parameter
// comparesValues is true, compare also compares the desired value with the live value.
func (c *comparison) compare(path string, wanted, live any, comparesValues bool, own owned) {
	if isNilOrEmptyCollection(wanted) {
		return // the API server may drop an empty value
	}
	if len(own) == 0 { // owned as a whole
		if comparesValues && !liveMatchesWanted(wanted, live) {
			c.fields = append(c.fields, path)
		}
		return
	}
	switch w := wanted.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		c.compareMap(path, w, l, comparesValues, own)
	case []any:
		l, _ := live.([]any)
		c.compareList(path, w, l, comparesValues, own)
	default:
		if comparesValues && !liveMatchesWanted(wanted, live) {
			c.fields = append(c.fields, path)
		}
	}
}

func (c *comparison) compareMap(path string, wanted, live map[string]any, comparesValues bool, own owned) {
	for key, w := range wanted {
		at := key
		if path != "" {
			at = path + "." + key
		}
		if isNilOrEmptyCollection(w) {
			continue
		}
		child, ok := own["f:"+key]
		if !ok && !c.zeros && isZero(w) && isZero(live[key]) {
			continue // the API server left the value out, so the value has no owner
		}
		if !ok {
			c.fields, c.lost = append(c.fields, at), c.lost+1
			continue
		}
		c.compare(at, w, live[key], comparesValues, child)
	}
	for name := range own { // remaining owned fields are from content that we applied earlier
		key, ok := strings.CutPrefix(name, "f:")
		if _, wants := wanted[key]; ok && !wants {
			c.fields = append(c.fields, strings.TrimPrefix(path+"."+key, "."))
		}
	}
}

// compareList compares a list whose items are owned separately, by keys or by value.
func (c *comparison) compareList(path string, wanted, live []any, comparesValues bool, own owned) {
	left := maps.Clone(own)
	delete(left, ".")
	// Desired list items that contain all key fields of their list are matched first. The remaining desired items lack
	// key fields, which the API server has set to defaults. Desired items without these key fields are matched by their
	// other key fields with the items that our field manager owns and that are not matched yet.
	items := slices.SortedStableFunc(slices.Values(wanted),
		func(a, b any) int { return cmp.Compare(memberCount(b), memberCount(a)) })
	for _, exact := range []bool{true, false} {
		items = slices.DeleteFunc(items, func(w any) bool {
			name, ok := matchOwnedItem(w, left, exact)
			if !ok {
				return false
			}
			at := path + itemLabel(name)
			l, found := findItem(live, name)
			if comparesValues && !found {
				c.fields = append(c.fields, at)
			} else {
				c.compare(at, w, l, comparesValues, left[name])
			}
			delete(left, name)
			return true
		})
	}
	if len(items) > 0 { // we do not own these items any more
		c.fields, c.lost = append(c.fields, path), c.lost+1
	}
	for name := range left {
		c.fields = append(c.fields, path+itemLabel(name))
	}
}

func memberCount(item any) int {
	m, _ := item.(map[string]any)
	return len(m)
}

// matchOwnedItem finds, among the list items that our field manager owns, the item that corresponds to the desired item
// w. Items are matched by value or by keys. If exact is true, w must contain all keys. If exact is false, a key that is
// missing in w matches any value.
func matchOwnedItem(w any, own owned, exact bool) (pathElement string, found bool) {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if text, ok := strings.CutPrefix(name, "v:"); ok {
			var value any
			if utiljson.Unmarshal([]byte(text), &value) == nil && liveMatchesWanted(w, value) {
				return name, true
			}
			continue
		}
		keys, ok := itemKeys(name)
		item, isMap := w.(map[string]any)
		if !ok || !isMap {
			continue
		}
		fits := true
		for key, value := range keys {
			have, has := item[key]
			if has && !liveMatchesWanted(have, value) || !has && exact {
				fits = false
			}
		}
		if fits {
			return name, true
		}
	}
	return "", false
}

// findItem finds an item of a live list by its keys. An exact match is sufficient, because an item of a live list
// contains all key fields of the list.
func findItem(live []any, pathElement string) (any, bool) {
	for _, l := range live {
		if found, ok := matchOwnedItem(l, owned{pathElement: nil}, true); ok && found == pathElement {
			return l, true
		}
	}
	return nil, false
}

func itemKeys(pathElement string) (map[string]any, bool) {
	text, ok := strings.CutPrefix(pathElement, "k:")
	var keys map[string]any
	return keys, ok && utiljson.Unmarshal([]byte(text), &keys) == nil
}

// itemLabel returns the part of a path that shows a list item: "[name=manager]".
func itemLabel(pathElement string) string {
	keys, ok := itemKeys(pathElement)
	if !ok {
		return "[" + strings.TrimPrefix(pathElement, "v:") + "]"
	}
	parts := make([]string, 0, len(keys))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		parts = append(parts, fmt.Sprintf("%s=%v", key, keys[key]))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// isNilOrEmptyCollection reports whether the desired value of a field is empty. An empty value is not compared, because
// an API server may leave out the empty field, and other clients may set it.
func isNilOrEmptyCollection(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, member := range v {
			if !isNilOrEmptyCollection(member) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return false
}

// isZero reports whether a value is the zero value that a missing field has.
func isZero(value any) bool {
	switch v := value.(type) {
	case bool:
		return !v
	case string:
		return v == ""
	case int64:
		return v == 0
	case float64:
		return v == 0
	}
	return isNilOrEmptyCollection(value)
}

// liveMatchesWanted reports whether a live value equals the desired value. Members of a live map that the desired map
// does not have are not compared, because the API server adds defaults.
func liveMatchesWanted(wanted, live any) bool {
	switch w := wanted.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return isNilOrEmptyCollection(wanted) && isNilOrEmptyCollection(live)
		}
		for key, value := range w {
			if !isNilOrEmptyCollection(value) && !liveMatchesWanted(value, l[key]) {
				return false
			}
		}
		return true
	case []any:
		l, _ := live.([]any)
		return slices.EqualFunc(w, l, liveMatchesWanted)
	case nil:
		return true
	}
	if wanted == live || isZero(wanted) && isZero(live) {
		return true
	}
	return live != nil && sameQuantity(fmt.Sprint(wanted), fmt.Sprint(live))
}

// sameQuantity compares values that may be numbers or quantities: "1000m" equals 1.
func sameQuantity(a, b string) bool {
	if a == b {
		return true
	}
	x, err := quantity.ParseQuantity(a)
	if err != nil {
		return false
	}
	y, err := quantity.ParseQuantity(b)
	return err == nil && x.Cmp(y) == 0
}

// otherManagersOf returns the other field managers that own the given paths.
func otherManagersOf(fields []string, m *metadata, ourManager string) []string {
	var owners []string
	for _, f := range m.ManagedFields {
		var own owned
		if f.Manager == ourManager && f.Operation == "Apply" || json.Unmarshal(f.FieldsV1, &own) != nil {
			continue
		}
		if slices.ContainsFunc(fields, func(path string) bool { return own.covers(path) }) {
			owners = append(owners, f.Manager)
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

// covers reports whether the tree contains the path, or contains a parent of the path that is owned as a whole.
func (own owned) covers(path string) bool {
	for path != "" {
		if len(own) == 0 {
			return true
		}
		found := false
		for name, child := range own {
			rest, ok := "", false
			if key, isField := strings.CutPrefix(name, "f:"); isField {
				rest, ok = strings.CutPrefix(path, key)
			} else if name != "." {
				rest, ok = strings.CutPrefix(path, itemLabel(name))
			}
			if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				own, path, found = child, strings.TrimPrefix(rest, "."), true
				break
			}
		}
		if !found {
			return false
		}
	}
	return true
}
