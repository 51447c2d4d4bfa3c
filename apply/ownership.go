package apply

import (
	"slices"
	"strings"
)

// The annotations of an object in a cluster show to which installation the object belongs.
const (
	// AnnotationOwnedBy is the name of the installation to which the object belongs. The caller of Apply sets
	// AnnotationOwnedBy with Set.Overlay. The key of the annotation is the same as in the lifecycle-manager of the Kyma
	// project.
	AnnotationOwnedBy = "deprecated-operator.kyma-project.io/owned-by"
	// AnnotationCoOwners is a sorted list of the names of other installations that contain the object too, separated by
	// commas. When the owner of the object is uninstalled, the first installation in AnnotationCoOwners becomes the
	// owner.
	AnnotationCoOwners = "operator.kyma-project.io/co-owners"
	// AnnotationAdopted is "true" on an object that existed before the installation. When the installation is removed,
	// an adopted object is released and not deleted.
	AnnotationAdopted = "operator.kyma-project.io/adopted"
)

// Adoption is what Apply does with an object that already exists and was created by another client.
type Adoption string

// The values of type Adoption are also the values of AnnotationAdoption in an object.
const (
	// Adopt applies the object and records that the object existed before: when the installation is removed, the object
	// is released and not deleted.
	Adopt Adoption = "adopt"
	// Refuse leaves the object unchanged, and reports the object as failed with reason AdoptionRefused.
	Refuse Adoption = "refuse"
	// Take applies the object as if the installation had created it: the object is deleted with the installation.
	Take Adoption = "take"
)

// Ownership describes the installation for which objects are applied and deleted, and has functions that find the other
// installations in the cluster. If Ownership is set, Apply changes no object of another installation, and DeleteOwned
// deletes only objects that the installation has created.
type Ownership struct {
	// Name is the value of AnnotationOwnedBy in Set.Overlay.
	Name string
	// Title is the name of the installation in messages: "module keda".
	Title string
	// Adoption is the default for objects without AnnotationAdoption. If Adoption is "", it means Adopt.
	Adoption Adoption
	// IgnoreAdoptionOfObjects means that AnnotationAdoption has no effect: the field Adoption decides for all objects.
	IgnoreAdoptionOfObjects bool
	// Recorded is the inventory of the installation, with the flags of each Ref. If the Ref of an object in Recorded
	// has neither the flag Pending nor the flag Shared, the object belongs to the installation. Apply sends one PATCH
	// for an object of the installation, without reading the object first, unless FindDrift has found that somebody
	// else may own the object.
	Recorded []Ref
	// Find returns the name that messages use for another installation (title), and whether that installation exists.
	// An installation counts as existing if its existence cannot be determined. Find must not send a request to the
	// cluster. If Find is nil, the package assumes that no other installation exists.
	Find func(name string) (title string, exists bool)
	// Wanted returns the name of another installation whose inventory contains the object, or "". Wanted is used only
	// by DeleteOwned and LeaveToUser. If Wanted is nil, no other installation contains the object.
	Wanted func(Ref) string
	// Manager is the field manager of the installation, as in Set.Owner. Manager is used only by DeleteOwned and
	// LeaveToUser.
	Manager string
	// Applied is the Progress of the installation: what the installation has applied. With Applied, DeleteOwned deletes
	// an object without reading it first if nobody has changed the object since it was applied. DeleteOwned removes
	// from Applied the objects that it has deleted or left, so that the next Apply sends them again. Applied may be
	// nil.
	Applied *Progress
	// RecordedAreOwn means that DeleteOwned relies on the inventory: the installation has created each object whose Ref
	// has none of the flags Pending, Adopted and Shared. RecordedAreOwn is needed if Set.Overlay adds no annotation to
	// the objects: an API server records no field manager for an object that is applied with only its name.
	RecordedAreOwn bool
	// Inventory is the object in which the caller stores the inventory, if it is in the cluster. Inventory does not
	// prevent the deletion of its namespace, and is deleted together with the namespace.
	Inventory Ref
}

// titleOfOther returns the title of the installation with the given name, and whether that installation exists, as Find
// does. For the own name, and if Find is nil, titleOfOther returns false.
func (o *Ownership) titleOfOther(name string) (title string, exists bool) {
	if o.Find == nil || name == "" || name == o.Name {
		return "", false
	}
	return o.Find(name)
}

// belongsToOther reports whether the object belongs to another installation that still exists.
func (o *Ownership) belongsToOther(m *metadata) bool {
	_, exists := o.titleOfOther(m.Annotations.OwnedBy)
	return exists
}

// otherInstallationWith returns the name of another installation whose inventory contains the object, or "".
func (o *Ownership) otherInstallationWith(ref Ref) string {
	if o.Wanted == nil {
		return ""
	}
	return o.Wanted(ref)
}

// recordedByIdentity returns the entries of the inventory as a map, by identity of the object.
func (o *Ownership) recordedByIdentity() map[Ref]Ref {
	if o == nil {
		return nil
	}
	entries := make(map[Ref]Ref, len(o.Recorded))
	for _, r := range o.Recorded {
		entries[r.identity()] = r
	}
	return entries
}

// coOwners returns the installations in AnnotationCoOwners, except the installation in the parameter without.
func (m *metadata) coOwners(without string) []string {
	var names []string
	for name := range strings.SplitSeq(m.Annotations.CoOwners, ",") {
		if name = strings.TrimSpace(name); name != "" && name != without {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// otherManagers returns the field managers of the object except manager, at most ten, sorted.
func (m *metadata) otherManagers(manager string) []string {
	var names []string
	for _, f := range m.ManagedFields {
		if f.Manager != manager && f.Subresource == "" {
			names = append(names, clipMessage(f.Manager))
		}
	}
	return sortedUniqueAtMostTen(names)
}

// facts are the properties of an existing object that decide how the object is applied or deleted.
type facts struct {
	deleting bool
	// own is true if AnnotationOwnedBy is the name of the installation. other is true if AnnotationOwnedBy is the name
	// of another installation that exists. The fields own and other are both false if the object has no
	// AnnotationOwnedBy, or if the installation in AnnotationOwnedBy does not exist any more.
	own, other bool
	applied    bool     // the field manager of the installation has applied fields; see also Ownership.RecordedAreOwn
	adopted    bool     // the annotation or the inventory shows that the object existed before
	policy     Adoption // used by decideApply
	claimed    bool     // used by decideDelete: another installation that exists contains the object too
}

// factsOf returns what is known about the ownership of an object. The parameter recorded is the entry of the object in
// the inventory, or the zero Ref if the inventory does not contain the object.
func (o *Ownership) factsOf(m *metadata, manager string, recorded Ref) facts {
	return facts{
		deleting: m.DeletionTimestamp != nil,
		own:      m.Annotations.OwnedBy == o.Name,
		other:    o.belongsToOther(m),
		applied:  m.fieldsOwnedBy(manager) != nil,
		adopted:  m.Annotations.Adopted == "true" || recorded.Adopted,
	}
}

// isUnknown reports whether somebody else may own an object that differs from its desired state. The parameter recorded
// is the entry of the object in the inventory, or the zero Ref, and the parameter known is what Progress has recorded
// about the object. isUnknown uses the first row that matches in the table below.
//
//	1  there is no Ownership                                          false: Apply takes over every object
//	2  it is annotated as adopted, and the inventory does not say so  true: the inventory was not saved
//	3  it has our annotation, or fields of our field manager          false
//	4  no field manager is recorded for objects of the installation   false: see RecordedAreOwn
//	5  it has the UID with which this process has applied it          false: somebody has replaced its content
//	6  otherwise                                                      true: somebody has created it again
func (o *Ownership) isUnknown(m *metadata, manager string, recorded Ref, known record) bool {
	switch {
	case o == nil:
		return false
	case m.Annotations.Adopted == "true" && !recorded.Adopted:
		return true
	case m.Annotations.OwnedBy == o.Name, m.fieldsOwnedBy(manager) != nil:
		return false
	case o.RecordedAreOwn && recorded.Name != "" && !recorded.Pending && !recorded.Adopted && !recorded.Shared:
		return false
	}
	// A record without content is of a read, and not of an apply request, except for a doubted record.
	return known.content == 0 && !known.doubted || known.uid != hashText(m.UID)
}

// Met is what Apply did with an object that existed before and was not known to belong to the installation.
type Met string

const (
	metTerminating Met = "terminating"
	metShared      Met = "shared"
	metRefused     Met = "refused"
	// MetOwn means that the object belongs to the installation, although the inventory did not record that.
	MetOwn Met = "own"
	// MetAdopted means that the object was adopted; see Adopt.
	MetAdopted Met = "adopted"
	// MetTaken means that this installation has taken over an object that existed before; see Take.
	MetTaken Met = "taken"
	// MetShared means that the object belongs to another installation, which applies the object with the same content.
	// Apply has added the name of this installation to AnnotationCoOwners of the object.
	MetShared = metShared
)

// decideApply returns what Apply does with an object that exists and is not known to belong to the installation.
// decideApply uses the first row that matches in the table below.
//
//	1  it is being deleted                                                wait
//	2  it belongs to another installation that exists                     share: co-owner, or a conflict
//	3  it has fields of our field manager, and belongs to nobody else     our own
//	4  somebody else made it, and the policy is to refuse                 refuse
//	5  … to take                                                          take
//	6  … to adopt                                                         adopt
//
// An object with fields of our field manager can be missing in the inventory for two reasons. Either the inventory of
// the installation was lost or was not complete when the process ended, or the object was handed over to the user and
// given back to the installation.
func decideApply(f facts) Met {
	switch {
	case f.deleting:
		return metTerminating
	case f.other:
		return metShared
	case f.applied:
		return MetOwn
	case f.policy == Refuse:
		return metRefused
	case f.policy == Take:
		return MetTaken
	default:
		return MetAdopted
	}
}

// removal is one of the ways in which DeleteOwned can treat an object that exists.
type removal string

const (
	removalWait     removal = "wait"     // the object is being deleted
	removalDelete   removal = "delete"   // it is deleted
	removalHandOver removal = "handover" // it is handed over to another installation
	removalRelease  removal = "release"  // our fields and annotations are removed; the object stays
	removalWithdraw removal = "withdraw" // it belongs to another installation; our claim to it is removed
	removalLeave    removal = "leave"    // it is not changed
)

// decideDelete returns what DeleteOwned does with an object that exists. decideDelete uses the first row that matches
// in the table below.
//
//	1  it is being deleted                                            wait
//	2  it belongs to another installation that exists                 withdraw
//	3  neither our annotation nor our field manager is in the object  leave: somebody has created it again
//	4  another installation that exists contains it too               hand over
//	5  it existed before the installation                             release
//	6  otherwise                                                      delete
func decideDelete(f facts) removal {
	switch {
	case f.deleting:
		return removalWait
	case f.other:
		return removalWithdraw
	case !f.own && !f.applied:
		return removalLeave
	case f.claimed:
		return removalHandOver
	case f.adopted:
		return removalRelease
	default:
		return removalDelete
	}
}
