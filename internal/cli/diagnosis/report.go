package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/changelog"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/liveness"
)

// Report is the report of klm why.
type Report struct {
	// Manager is nil in a runtime.
	Manager  *liveness.Report `json:"manager,omitempty"`
	Runtime  string           `json:"runtime"`
	State    v1beta2.State    `json:"state"`
	Since    time.Time        `json:"since,omitzero"`
	Channel  string           `json:"channel"`
	Ready    string           `json:"modulesReady,omitempty"`
	Agent    string           `json:"agent,omitempty"`
	Access   string           `json:"access,omitempty"`
	Modules  []Module         `json:"modules"`
	Blockers []Blocker        `json:"blockers"`
	Events   []eventLine      `json:"events"`
	Detail   *moduleDetail    `json:"detail,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
}

// Module describes one module with its desired, installed and next version.
type Module struct {
	Name      string        `json:"name"`
	Channel   string        `json:"channel,omitempty"`
	Desired   string        `json:"desired,omitempty"`
	Installed string        `json:"installed,omitempty"`
	Next      string        `json:"next,omitempty"`
	State     v1beta2.State `json:"state"`
	Kind      string        `json:"sort,omitempty"` // mandatory, pinned, unmanaged, removing
	// Target is control-plane if the objects of the module are on the control plane. If Target is empty, the objects
	// are in the runtime.
	Target v1beta2.Target `json:"target,omitempty"`
	// Rollout states what the runtime waits for while its channel moves to another version; "" if the runtime does not
	// wait.
	Rollout string `json:"rollout,omitempty"`
	// Withdrawn states that the installed version was withdrawn, why it was withdrawn, and what replaces the version;
	// "" if the version was not withdrawn.
	Withdrawn string `json:"withdrawn,omitempty"`
}

// Blocker is one reason why a runtime or a module does not reach its desired state.
type Blocker struct {
	Object  string    `json:"object"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message"`
	// Remedy is the instruction for the reason; "" if the message has an instruction.
	Remedy string `json:"remedy,omitempty"`
	// NextTry is nil if klm does not know the next try.
	NextTry *NextTry `json:"nextTry,omitempty"`
}

// eventLine is one event in the report.
type eventLine struct {
	Last    time.Time `json:"last,omitzero"`
	Count   int32     `json:"count,omitempty"`
	Type    string    `json:"type"`
	Object  string    `json:"object"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// moduleDetail has details of one module that come from its Manifest.
type moduleDetail struct {
	Manifest   string             `json:"manifest,omitempty"`
	Component  string             `json:"component,omitempty"`
	Resource   string             `json:"resource,omitempty"`
	Objects    int                `json:"objects"`
	Operation  string             `json:"operation,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Report returns the report of the facts. If module is not "", the report is about that module only.
func (f *Facts) Report(module string) *Report {
	k := f.Kyma
	r := &Report{
		Runtime: k.Name, State: cmp.Or(k.Status.State, console.StateNew),
		Since: k.Status.LastOperation.LastUpdateTime.Time, Channel: connection.WithLastRequest(k).Spec.Channel,
		Ready: k.Status.ModulesReady, Agent: f.AgentText(), Access: f.AccessSecretsText(), Modules: []Module{},
		Blockers: []Blocker{}, Notes: f.Notes,
	}
	if f.Manager != nil {
		r.Manager = f.Manager.Report(f.lastOperationTime())
	}
	for _, m := range f.Modules() {
		if module == "" || m.Name == module {
			r.Modules = append(r.Modules, m)
		}
	}
	r.Blockers = append(r.Blockers, f.RuntimeBlockers()...)
	reported := map[string]bool{}
	for _, b := range r.Blockers {
		reported[b.Message] = true
	}
	for _, b := range f.moduleBlockers() {
		if name, _ := strings.CutPrefix(b.Object, "module "); !reported[b.Message] && (module == "" || name == module) {
			r.Blockers = append(r.Blockers, b)
		}
	}
	r.Events = f.lastEvents(5)
	if m := f.Manifest(module); m != nil {
		d := &moduleDetail{
			Manifest: m.Name, Component: m.OCMComponentName(), Objects: len(m.Status.Synced),
			Operation: m.Status.LastOperation.Operation, Conditions: m.Status.Conditions,
		}
		if cr := m.Spec.Resource; cr != nil {
			d.Resource = fmt.Sprintf("%s %s/%s (%s)", cr.GetKind(), cr.GetNamespace(), cr.GetName(), m.Policy())
		}
		r.Detail = d
	}
	return r
}

// lastOperationTime returns the time of the newest change of the states of the Kyma and its Manifests.
func (f *Facts) lastOperationTime() time.Time {
	newest := f.Kyma.Status.LastOperation.LastUpdateTime.Time
	for i := range f.Manifests {
		if t := f.Manifests[i].Status.LastOperation.LastUpdateTime.Time; t.After(newest) {
			newest = t
		}
	}
	return newest
}

// Modules returns all modules that are requested or installed, sorted by name. Mandatory modules are last.
func (f *Facts) Modules() []Module {
	var all []Module
	requested := connection.WithLastRequest(f.Kyma)
	for _, name := range connection.ModuleNames(f.Kyma) {
		entry, spec := f.Kyma.ModuleStatus(name), requested.Module(name)
		m := Module{Name: name, State: console.StateNew}
		if entry != nil {
			m.State, m.Channel, m.Installed = entry.State, entry.Channel, versionInRuntime(entry)
		}
		if is := f.Manifest(name); is != nil {
			m.Installed, m.Target = statusVersion(is), targetIfControlPlane(is)
		}
		if m.Kind = "removing"; spec != nil {
			f.resolveVersions(&m, requested, spec, entry)
			m.Withdrawn = f.withdrawnText(&m)
		}
		all = append(all, m)
	}
	for i := range f.Manifests {
		if is := &f.Manifests[i]; is.IsMandatory() {
			m := Module{Name: is.ModuleName(), Desired: is.Spec.Version, Installed: statusVersion(is),
				State: cmp.Or(is.Status.State, console.StateNew), Kind: "mandatory", Target: targetIfControlPlane(is)}
			if m.Installed != m.Desired {
				m.Next = m.Desired
			}
			all = append(all, m)
		}
	}
	return all
}

// withdrawnText returns a text if the installed version of a module was withdrawn. The text names the version that
// replaces the withdrawn version.
func (f *Facts) withdrawnText(m *Module) string {
	if f.Catalog == nil || m.Installed == "" {
		return ""
	}
	is, why := false, ""
	if t := f.Catalog.Templates[channel.TemplateName(m.Name, m.Installed)]; t != nil {
		is, why = channel.IsWithdrawn(t)
	}
	if release := f.Catalog.Releases[m.Name]; release != nil && !is {
		for _, w := range release.Status.Withdrawn {
			if w.Version == m.Installed {
				is, why = true, w.Reason
			}
		}
	}
	if !is {
		return ""
	}
	text := fmt.Sprintf("Version %s of module %s, which is installed here, was withdrawn", m.Installed, m.Name)
	if why != "" {
		text += ": " + why
	}
	switch {
	case m.Next != "" && m.Next != m.Installed:
		return text + ". It is being replaced by " + m.Next + "."
	case m.Kind == "pinned":
		return text + ". The runtime has pinned it: pin another version, or follow a channel."
	}
	return text + fmt.Sprintf(". Nothing replaces it by itself: move the channel to a higher version, or take the runtimes "+
		"back (klm rollout history %s, klm rollout undo).", m.Name)
}

// targetIfControlPlane returns control-plane if the objects of a Manifest are on the control plane, and "" otherwise.
func targetIfControlPlane(m *v1beta2.Manifest) v1beta2.Target {
	if target := m.InstalledOrSpecTarget(); target == v1beta2.TargetControlPlane {
		return target
	}
	return ""
}

// versionInRuntime returns the installed version of a module as its status shows it. Before the first installation is
// complete, the status already contains the version that is being installed. versionInRuntime finds out from the
// history of the module whether the first installation is complete.
func versionInRuntime(entry *v1beta2.ModuleStatus) string {
	if c := changelog.Last(entry.History); c != nil && c.Version == entry.Version && c.From == "" &&
		!c.Started.IsZero() && c.Ended.IsZero() {
		return ""
	}
	return entry.Version
}

// resolveVersions sets the desired and the next version of a requested module, as package channel decides. The
// parameter entry may be nil.
func (f *Facts) resolveVersions(m *Module, requested *v1beta2.Kyma, spec *v1beta2.Module, entry *v1beta2.ModuleStatus) {
	request := f.Request(requested, spec, m.Installed)
	if is := f.Manifest(m.Name); is != nil { // the result depends on the version that was requested last
		request.ManifestVersion = cmp.Or(is.Annotations[v1beta2.AnnotationRequestedVersion], is.Spec.Version)
	}
	d := channel.Resolve(f.Catalog.ForResolveWithRollouts(), request)
	if w := d.Turn.Waiting; w != nil {
		m.Rollout = w.Message
	}
	m.Desired, m.Next, m.Channel, m.Kind = d.Version, d.Next, cmp.Or(d.Channel, m.Channel), ""
	// The manager has more information than klm, for example the maintenance windows.
	managerBlocks := entry != nil && entry.Reason != "" && entry.State == v1beta2.StateWarning
	if d.Blocker != nil || managerBlocks {
		m.Next = ""
	}
	if spec.Version != "" {
		m.Kind, m.Channel = "pinned", ""
	}
	if !spec.IsManaged() {
		m.Kind, m.Next = "unmanaged", ""
	}
}

// Request returns the input of [channel.Resolve] for a module. The field SkipWindows makes [channel.Resolve] ignore
// maintenance windows, because only the manager knows them.
func (f *Facts) Request(requested *v1beta2.Kyma, m *v1beta2.Module, installed string) channel.Request {
	w := channel.RequestFor(f.Kyma, requested, m)
	w.Installed, w.ManifestVersion, w.SkipWindows, w.Now = installed, installed, true, f.Now
	if f.Cluster.OwnKyma != "" && !f.Cluster.IsControlPlane() {
		w.Beta, w.Internal = true, true // the catalog copy in a runtime has only modules that the runtime may have
	}
	return w
}

// statusVersion returns the installed version. If no version is installed yet, statusVersion returns the version that
// is being installed.
func statusVersion(m *v1beta2.Manifest) string { return m.Status.Version }

// AgentText returns a text about whether the agent of the runtime is connected, and since when. If klm is connected to
// a runtime, AgentText returns "".
func (f *Facts) AgentText() string {
	if f.Cluster.OwnKyma != "" {
		return ""
	}
	s := f.Kyma.Status.Agent
	since := func(t metav1.Time) string {
		if t.IsZero() {
			return ""
		}
		return " " + (&console.Page{Now: f.Now}).Age(t.Time)
	}
	switch {
	case s == nil:
		return "none: the control plane polls the runtime"
	case s.Connected:
		return "connected for" + since(s.Since) + ", version " + console.OrDash(s.Version)
	}
	return "not connected for" + since(s.Since)
}

// AccessSecretsText returns a text with the names of the access Secrets of the runtime. If klm is connected to a
// runtime, or if the access Secrets cannot be read, AccessSecretsText returns "".
func (f *Facts) AccessSecretsText() string {
	if f.Cluster.OwnKyma != "" || f.NoSecrets {
		return ""
	}
	var all []string
	for i := range f.Secrets {
		all = append(all, f.Secrets[i].Name)
	}
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return "Secret " + strings.Join(all, ", ")
}

// blocker returns the description of a blocker, with the remedy and the next retry. The parameter "state" is the state
// of the blocked object.
func (f *Facts) blocker(object, reason, message string, state v1beta2.State, since time.Time) Blocker {
	return Blocker{Object: object, Reason: reason, Since: since, Message: message,
		Remedy: RemedyFor(reason, message), NextTry: f.nextTry(reason, state, since)}
}

// RuntimeBlockers returns the blockers of the whole runtime. The result contains each reason once.
func (f *Facts) RuntimeBlockers() []Blocker {
	k := f.Kyma
	object := "Kyma " + k.Name
	var all []Blocker
	add := func(reason string, since time.Time, message string) {
		for _, b := range all {
			if b.Reason == reason {
				return
			}
		}
		all = append(all, f.blocker(object, reason, message, k.Status.State, since))
	}
	switch {
	case k.Status.ObservedGeneration == k.Generation || k.SkipsReconciliation():
	case k.Status.State == "":
		add(v1beta2.ReasonNotObserved, time.Time{},
			"the manager has not reconciled the Kyma yet: check that it runs; if many runtimes are New (klm status), "+
				"the Kyma waits, "+
				"because only some of them get their first modules at the same time (--max-new-runtimes)")
	default:
		add(v1beta2.ReasonNotObserved, time.Time{}, fmt.Sprintf(
			"the manager has not reconciled generation %d of the Kyma yet: check that it runs", k.Generation))
	}
	if !k.DeletionTimestamp.IsZero() {
		add("Deleting", k.DeletionTimestamp.Time, fmt.Sprintf("it is being deleted: %s; finalizers: %s",
			console.OrDash(k.Status.LastOperation.Operation), console.OrDash(strings.Join(k.Finalizers, ", "))))
	}
	if b := channel.PauseBlocker(k, ""); b != nil {
		since := time.Time{}
		if c := meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionReady); c != nil && c.Reason == b.Code {
			since = c.LastTransitionTime.Time
		}
		add(b.Code, since, b.Message)
	}
	ofModules := map[string]bool{v1beta2.ReasonReady: true}
	for i := range k.Status.Modules {
		ofModules[k.Status.Modules[i].Reason] = true
	}
	conditions := slices.Clone(k.Status.Conditions)
	slices.SortStableFunc(conditions, func(a, b metav1.Condition) int { // Ready, which sums up the others, comes first
		return cmp.Compare(sortKeyReadyFirst(a.Type), sortKeyReadyFirst(b.Type))
	})
	for _, c := range conditions {
		if reported := ofModules[c.Reason]; c.Status != metav1.ConditionTrue && !reported ||
			c.Reason == v1beta2.ReasonSkipReconciliation {
			add(c.Reason, c.LastTransitionTime.Time, strings.TrimPrefix(c.Message, "not ready: "))
		}
	}
	return all
}

// sortKeyReadyFirst returns the sort key of a condition type. Ready is first.
func sortKeyReadyFirst(conditionType string) int {
	if conditionType == v1beta2.ConditionReady {
		return 0
	}
	return 1
}

// moduleBlockers returns the blockers of single modules.
func (f *Facts) moduleBlockers() []Blocker {
	var all []Blocker
	for i := range f.Kyma.Status.Modules {
		e := &f.Kyma.Status.Modules[i]
		if e.Reason == "" && e.Message == "" {
			continue
		}
		since := f.blockedSince(e.Name, e.Reason)
		b := f.blocker("module "+e.Name, e.Reason, cmp.Or(e.Message, "no message"), e.State, since)
		b.Reason = cmp.Or(e.Reason, string(e.State))
		all = append(all, b)
	}
	for i := range f.Manifests {
		m := &f.Manifests[i]
		ready := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady)
		if m.IsMandatory() && ready != nil && ready.Status != metav1.ConditionTrue {
			since := ready.LastTransitionTime.Time
			all = append(all, f.blocker("module "+m.ModuleName(), ready.Reason, ready.Message, m.Status.State, since))
		}
	}
	return all
}

// blockedSince returns the time since which a module has been blocked for a reason. blockedSince looks for the time
// when the module became blocked first in the Manifest of the module, then in events, and then in the Kyma. If none of
// these objects contains the time, blockedSince returns the zero time.
func (f *Facts) blockedSince(module, reason string) time.Time {
	if m := f.Manifest(module); m != nil {
		if c := meta.FindStatusCondition(m.Status.Conditions, v1beta2.ConditionReady); c != nil && c.Reason == reason {
			return c.LastTransitionTime.Time
		}
	}
	var first time.Time
	for i := range f.Events {
		if e := &f.Events[i]; e.Reason == reason && strings.Contains(e.Message, module) {
			if t := eventTime(e); t.After(first) {
				first = t // an event is sent when a blocker begins, so the last event has the time
			}
		}
	}
	if c := meta.FindStatusCondition(f.Kyma.Status.Conditions, v1beta2.ConditionReady); first.IsZero() &&
		c != nil && c.Reason == reason {
		return c.LastTransitionTime.Time
	}
	return first
}

// eventTime returns the time of the last occurrence of an event.
func eventTime(e *corev1.Event) time.Time {
	t := e.LastTimestamp.Time
	if e.Series != nil && e.Series.LastObservedTime.After(t) {
		t = e.Series.LastObservedTime.Time
	}
	if t.IsZero() {
		t = e.EventTime.Time
	}
	if t.IsZero() {
		t = e.FirstTimestamp.Time
	}
	return t
}

// compareVersions compares two events by the order in which the API server has written them. The timestamps are not
// sufficient for that, because those of events in a runtime have a precision of one second. compareVersions returns 0
// if the order of the events is not known.
func compareVersions(a, b *corev1.Event) int {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return 0
	}
	return order
}

// lastEvents returns at most limit events. The newest event is first. The manager records some events both for the Kyma
// and for the Manifest of the module: the result contains such an event once.
func (f *Facts) lastEvents(limit int) []eventLine {
	events := make([]*corev1.Event, len(f.Events))
	for i := range f.Events {
		events[i] = &f.Events[i]
	}
	slices.SortStableFunc(events, func(a, b *corev1.Event) int {
		return cmp.Or(eventTime(b).Compare(eventTime(a)), compareVersions(b, a), strings.Compare(a.Reason, b.Reason),
			strings.Compare(a.Message, b.Message))
	})
	all := []eventLine{}
	for _, e := range events {
		if of := e.InvolvedObject; of.Kind == "Kyma" && of.UID != f.Kyma.UID {
			continue // the event is about an earlier Kyma with the same name
		}
		count := e.Count
		if e.Series != nil {
			count = e.Series.Count
		}
		all = append(all, eventLine{eventTime(e), count, e.Type, e.InvolvedObject.Kind + " " + e.InvolvedObject.Name,
			e.Reason, e.Message})
	}
	seen := map[string]string{} // objects by reason and message
	all = slices.DeleteFunc(all, func(e eventLine) bool {
		first, found := seen[e.Reason+e.Message]
		if !found {
			seen[e.Reason+e.Message] = e.Object
		}
		return found && first != e.Object
	})
	return all[:min(len(all), limit)]
}

// Err returns an error if no manager runs on the control plane. If a manager runs, Err returns an error with the
// reasons of all blockers, or nil if there is no blocker.
func (r *Report) Err() error {
	if err := r.Manager.ErrIfNotWorking(); err != nil || len(r.Blockers) == 0 {
		return err
	}
	var reasons []string
	for _, b := range r.Blockers {
		if !slices.Contains(reasons, b.Reason) {
			reasons = append(reasons, b.Reason)
		}
	}
	return console.Fail(console.ExitNotReady, "%s: in the way: %s", r.Runtime, strings.Join(reasons, ", "))
}

// Names returns the lines that -o name prints.
func (r *Report) Names() []string {
	var all []string
	for _, b := range r.Blockers {
		all = append(all, b.Reason)
	}
	return all
}

// Show writes the report as text for people.
func (r *Report) Show(p *console.Page) {
	asOf, column := "", "STATE"
	if r.Manager != nil {
		r.Manager.Show(p)
		p.Line("")
	}
	if old := r.Manager.StalenessText(); old != "" {
		asOf, column = " "+old, "STATE "+strings.ToUpper(old)
	}
	p.Line("%s is %s%s, for %s", r.Runtime, p.ColourState(string(r.State)), asOf, p.Age(r.Since))
	about := []string{"channel " + console.OrDash(r.Channel)}
	if r.Ready != "" {
		about = append(about, r.Ready+" modules ready")
	}
	if r.Agent != "" {
		about = append(about, "agent "+r.Agent)
	}
	if r.Access != "" {
		about = append(about, "access: "+r.Access)
	}
	p.Line("  %s", strings.Join(about, " · "))
	if len(r.Modules) > 0 {
		p.Line("")
		var rows [][]string
		for _, m := range r.Modules {
			remark := m.Kind
			if m.Target == v1beta2.TargetControlPlane {
				remark = strings.TrimPrefix(remark+", on the control plane", ", ")
			}
			rows = append(rows, []string{m.Name, console.OrDash(m.Channel), console.OrDash(m.Desired),
				console.OrDash(m.Installed), console.OrDash(m.Next), string(m.State), remark})
		}
		p.Table([]string{"MODULE", "CHANNEL", "DESIRED", "INSTALLED", "NEXT", column, ""}, rows)
		for _, m := range r.Modules {
			if m.Rollout != "" {
				p.Line("")
				p.Wrap("  ", m.Rollout)
			}
			if m.Withdrawn != "" {
				p.Line("")
				p.Wrap("  ", m.Withdrawn)
			}
		}
	}
	if d := r.Detail; d != nil {
		r.showManifestDetail(p, d)
	}
	p.Line("")
	if len(r.Blockers) == 0 {
		p.Line("Nothing is in the way.")
	} else {
		p.Line("In the way:")
	}
	const limit = 8
	for i, b := range r.Blockers {
		if i == limit && !p.Wide {
			p.Line("  and %d more, see -o wide", len(r.Blockers)-limit)
			break
		}
		p.Line("  %s: %s%s", b.Object, b.Reason, p.Since(b.Since))
		showMessage(p, b.Message)
		if b.Remedy != "" {
			p.Wrap("    ", "what to do: "+b.Remedy)
		}
		if text := r.Next(b); text != "" {
			p.Line("    next: %s", text)
		}
	}
	if len(r.Events) > 0 {
		p.Line("")
		p.Line("Last events:")
		var rows [][]string
		for _, e := range r.Events {
			rows = append(rows, []string{"  " + p.Age(e.Last) + " ago", e.Reason, p.Clip(e.Message, 100)})
		}
		p.Rows(rows)
	}
	for _, n := range r.Notes {
		p.Line("")
		p.Wrap("", "Note: "+n)
	}
}

// showMessage writes the message of a blocker to the page. If the message ends with a command, the command has its own
// line, so that users can copy it.
func showMessage(p *console.Page, message string) {
	const command = ": kubectl "
	if i := strings.LastIndex(message, command); i >= 0 {
		p.Wrap("    ", message[:i+1])
		p.Line("      %s", message[i+2:])
		return
	}
	p.Wrap("    ", message)
}

// Next returns a text about the next retry of a blocker, or "" if no next retry is known.
func (r *Report) Next(b Blocker) string {
	switch {
	case b.NextTry == nil:
		return ""
	case r.Manager.StalenessText() != "":
		return "not before a manager works"
	case b.NextTry.Retry:
		return b.NextTry.When + ", or at once with klm retry " + r.Runtime
	}
	return b.NextTry.When
}

func (r *Report) showManifestDetail(p *console.Page, d *moduleDetail) {
	p.Line("")
	p.Line("  Manifest %s, %s in the runtime, component %s", d.Manifest, console.Count(d.Objects, "object"),
		console.OrDash(d.Component))
	if d.Resource != "" {
		p.Line("  custom resource: %s", d.Resource)
	}
	for _, c := range d.Conditions {
		p.Wrap("  ", fmt.Sprintf("%s=%s%s: %s", c.Type, c.Status, p.Since(c.LastTransitionTime.Time), c.Message))
	}
}
