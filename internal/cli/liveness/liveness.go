// Package liveness reports whether a manager works on a control plane.
//
// # Use
//
//	observed := liveness.Read(ctx, c)
//	report := observed.Report(newestChange)
//	report.Show(page)
//
// # How it works
//
// Every manager renews a Lease: the leader renews the Lease of leader election, and with --shards each replica also
// renews a Lease of its own. The version of a replica is a label of its Lease. [Read] lists the Leases of the namespace
// in one request, and reads the Deployment in another. [Observation.Report] is a pure function of these objects. Times
// are compared with the clock of the API server, which its response contains, because the clock of the user may be
// wrong.
//
// # What it does not do
//
// The package connects to no manager. A manager with --leader-elect=false has no Lease, so it is reported as unknown
// and never as not working: see the table at [Observation.Report].
package liveness

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// State is the result of the check whether a manager works.
type State string

// The states.
const (
	Working    State = "Working"
	NotWorking State = "NotWorking"
	Unknown    State = "Unknown"
)

const (
	// deploymentName is the name of the Deployment of the chart.
	deploymentName = "lifecycle-manager"
	// shards is the number of shards if replicas share the runtimes.
	shards = 64
	// tolerance is added to the duration of a Lease: the time of the API server has a resolution of a second, and a
	// renewal may be in flight.
	tolerance = 2 * time.Second
)

// Observation contains the objects that show whether a manager works on a control plane.
type Observation struct {
	namespace  string
	leases     []coordinationv1.Lease
	deployment *appsv1.Deployment // nil if there is none, or if it may not be read
	now        time.Time          // the clock of the API server
	problem    string             // why the Leases cannot be read; "" if they were read
}

// Read reads the Leases and the Deployment in the namespace of the Kymas, where the manager runs. Read does not fail: a
// problem becomes part of the report.
func Read(ctx context.Context, c *connection.Cluster) *Observation {
	o := &Observation{namespace: c.Namespace}
	list := &coordinationv1.LeaseList{}
	now, err := c.GetJSONDated(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+c.Namespace+"/leases?limit=500", list)
	if err != nil {
		o.problem = c.Explain(err, "reading the Leases of the manager").Error()
		return o
	}
	o.leases, o.now = list.Items, now
	d := &appsv1.Deployment{}
	path := "/apis/apps/v1/namespaces/" + c.Namespace + "/deployments/" + deploymentName
	if c.GetJSON(ctx, path, d) == nil { // the Deployment only adds to the report
		o.deployment = d
	}
	return o
}

// Report is the report about the managers.
type Report struct {
	State State `json:"state"`
	// Version is the version of the leader. Version is "" if the leader has not written its version.
	Version string `json:"version,omitempty"`
	// Leader is the pod that holds the Lease of leader election, or that held it last.
	Leader string `json:"leader,omitempty"`
	// LastRenewal is the time of the last renewal of a Lease.
	LastRenewal time.Time `json:"lastHeard,omitzero"`
	// Replicas are the replicas that share the runtimes. Replicas is empty without --shards.
	Replicas []Replica `json:"replicas,omitempty"`
	// UnheldShards is the number of shards that no live replica holds. UnheldShards is 0 without --shards.
	UnheldShards int `json:"unheldShards,omitempty"`
	// Pods describes the pods of the manager's Deployment. Pods is nil if there is no such Deployment, or if the user
	// has no permission to read it.
	Pods *Pods `json:"pods,omitempty"`
	// Message is the reason of a State other than Working, with a remedy.
	Message string `json:"message,omitempty"`

	namespace string
	now       time.Time
}

// Replica is a replica that shares the runtimes with others.
type Replica struct {
	Name        string    `json:"name"`
	Version     string    `json:"version,omitempty"`
	Shards      int       `json:"shards"`
	LastRenewal time.Time `json:"lastHeard,omitzero"`
}

// Pods are the numbers of ready and desired pods of a Deployment.
type Pods struct {
	Ready   int `json:"ready"`
	Desired int `json:"desired"`
}

// Report returns the report. The parameter "newestStatusChange" is the time of the newest change of a status that klm
// has read, or zero. The first row of this table whose condition is met decides the state in the report:
//
//	1  the Leases cannot be read                                          Unknown
//	2  no manager has ever had a Lease here                               Unknown
//	3  the Lease of the leader or of a replica is valid                   Working
//	4  a status has changed after the last Lease ended                    Unknown: a manager without Lease works
//	5  otherwise                                                          NotWorking
func (o *Observation) Report(newestStatusChange time.Time) *Report {
	r := &Report{State: Unknown, namespace: o.namespace, now: o.now}
	if o.problem != "" {
		r.Message = o.problem
		return r
	}
	if d := o.deployment; d != nil {
		r.Pods = &Pods{Ready: int(d.Status.ReadyReplicas), Desired: 1}
		if d.Spec.Replicas != nil {
			r.Pods.Desired = int(*d.Spec.Replicas)
		}
	}
	ended, live := o.reportLeader(r), false
	live = o.now.Before(ended.Add(tolerance))
	if lastOfReplicas, alive := o.reportReplicas(r); alive {
		live = true
	} else if lastOfReplicas.After(ended) {
		ended = lastOfReplicas
	}
	switch {
	case r.LastRenewal.IsZero():
		r.Message = fmt.Sprintf("namespace %s has no Lease %s: no manager has run there, or one with "+
			"--leader-elect=false, which writes no Lease", o.namespace, v1beta2.LeaderLease)
	case live:
		r.State = Working
	case newestStatusChange.After(ended.Add(tolerance)):
		r.Message = fmt.Sprintf("the last Lease ended %s ago, but a status has changed since then: a manager with "+
			"--leader-elect=false, which writes no Lease, may work", r.ageOf(ended))
	default:
		r.State = NotWorking
		r.Message = fmt.Sprintf("check the manager: kubectl -n %s get deployments,pods -l "+
			"app.kubernetes.io/name=lifecycle-manager; a manager with --leader-elect=false writes no Lease and is not "+
			"seen here", o.namespace)
	}
	return r
}

// DiffersIgnoringTimes reports whether the report differs from an earlier one in any value that is not a time.
func (o *Observation) DiffersIgnoringTimes(before *Observation) bool {
	timeless := func(o *Observation) Report {
		r := *o.Report(time.Time{})
		r.LastRenewal, r.now, r.Message, r.Replicas = time.Time{}, time.Time{}, "", slices.Clone(r.Replicas)
		for i := range r.Replicas {
			r.Replicas[i].LastRenewal = time.Time{}
		}
		return r
	}
	return !reflect.DeepEqual(timeless(o), timeless(before))
}

// reportLeader sets the fields of the report about the leader, and returns the time at which the Lease of the leader
// ends. If there is no Lease of a leader, reportLeader returns the zero time.
func (o *Observation) reportLeader(r *Report) (leaseEnd time.Time) {
	i := slices.IndexFunc(o.leases, func(l coordinationv1.Lease) bool { return l.Name == v1beta2.LeaderLease })
	if i < 0 {
		return time.Time{}
	}
	l := &o.leases[i]
	r.LastRenewal = renewedOrCreatedAt(l)
	if r.Leader = podOf(holderOf(l)); r.Leader == "" {
		return r.LastRenewal // the leader has released its Lease
	}
	r.Version = l.Labels[v1beta2.LabelVersion]
	return endOf(l)
}

// reportReplicas sets the fields of the report about the replicas that share the runtimes. The result "lastLeaseEnd" is
// the time at which the last Lease of the replicas ends. The result "hasValidLease" is true if at least one Lease of a
// replica is still valid.
func (o *Observation) reportReplicas(r *Report) (lastLeaseEnd time.Time, hasValidLease bool) {
	held := map[string]int{}
	for i := range o.leases {
		if l := &o.leases[i]; l.Labels[v1beta2.LabelLease] == v1beta2.LeaseOfShard {
			held[holderOf(l)]++
		}
	}
	inUse := 0
	for i := range o.leases {
		l := &o.leases[i]
		if l.Labels[v1beta2.LabelLease] != v1beta2.LeaseOfReplica {
			continue
		}
		if r.LastRenewal.Before(renewedOrCreatedAt(l)) {
			r.LastRenewal = renewedOrCreatedAt(l)
		}
		if lastLeaseEnd.Before(endOf(l)) {
			lastLeaseEnd = endOf(l)
		}
		if o.now.Before(endOf(l).Add(tolerance)) {
			hasValidLease = true
			inUse += held[holderOf(l)]
			r.Replicas = append(r.Replicas, Replica{podOf(holderOf(l)), l.Labels[v1beta2.LabelVersion],
				held[holderOf(l)], renewedOrCreatedAt(l)})
		}
	}
	slices.SortFunc(r.Replicas, func(a, b Replica) int { return cmp.Compare(a.Name, b.Name) })
	if hasValidLease {
		r.UnheldShards = max(shards-inUse, 0)
	}
	return lastLeaseEnd, hasValidLease
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// podOf returns the name of the pod in the identity of a holder. An identity is [shards_]NAME[_RANDOM].
func podOf(identity string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(identity, "shards_"), "_")
	return name
}

func renewedOrCreatedAt(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return l.CreationTimestamp.Time
	}
	return l.Spec.RenewTime.Time
}

// endOf returns the time at which a Lease ends if it is not renewed.
func endOf(l *coordinationv1.Lease) time.Time {
	seconds := int32(15)
	if l.Spec.LeaseDurationSeconds != nil {
		seconds = *l.Spec.LeaseDurationSeconds
	}
	return renewedOrCreatedAt(l).Add(time.Duration(seconds) * time.Second)
}

func (r *Report) ageOf(t time.Time) string { return duration.HumanDuration(max(r.now.Sub(t), 0)) }

// StalenessText returns a text about the age of the states in a report of klm, such as "as of 4m ago". StalenessText
// returns "" if a manager works, because then the states in the report are up to date. StalenessText also returns "" if
// klm does not know whether a manager works.
func (r *Report) StalenessText() string {
	if r == nil || r.State != NotWorking {
		return ""
	}
	return "as of " + r.ageOf(r.LastRenewal) + " ago"
}

// ErrIfNotWorking returns an error with the exit code ExitNoManager if no manager works. Commands that print a report
// return this error after the report.
func (r *Report) ErrIfNotWorking() error {
	if r == nil || r.State != NotWorking {
		return nil
	}
	return console.Fail(console.ExitNoManager, "no manager works in namespace %s: the states are %s", r.namespace,
		r.StalenessText())
}

// Show writes the report about the manager at the beginning of the output of a command.
func (r *Report) Show(p *console.Page) {
	first, more := r.Texts()
	switch r.State {
	case Working:
		p.Line("%s", first)
	case NotWorking:
		p.Line("%s", p.Red(first))
		p.Wrap("  ", more)
	default:
		p.Wrap("", first)
	}
}

// Texts returns the first line of the report, and what to do, which is "" if a manager works.
func (r *Report) Texts() (firstLine, advice string) {
	switch r.State {
	case Working:
		return r.workingLine(), ""
	case NotWorking:
		who := "the leader"
		if r.Leader != "" {
			who = "leader " + r.Leader
		}
		if r.Version != "" {
			who += " (version " + r.Version + ")"
		}
		return fmt.Sprintf("NO MANAGER WORKS in namespace %s: %s last renewed its Lease %s ago; all states are %s",
			r.namespace, who, r.ageOf(r.LastRenewal), r.StalenessText()), r.Message + r.readyPodsText("; ")
	}
	return "whether a manager works is unknown: " + r.Message + r.readyPodsText("; "), ""
}

// workingLine returns the line about managers that work.
func (r *Report) workingLine() string {
	who := "manager"
	if versions := r.versions(); len(versions) > 0 {
		who += " " + strings.Join(versions, " and ")
	}
	var parts []string
	if len(r.Replicas) > 0 {
		var each []string
		for _, s := range r.Replicas {
			each = append(each, fmt.Sprintf("%s %d", s.Name, s.Shards))
		}
		parts = append(parts, fmt.Sprintf("%s with shards (%s)", console.Count(len(r.Replicas), "replica"),
			strings.Join(each, ", ")))
	}
	if r.Leader != "" {
		parts = append(parts, "leader "+r.Leader)
	}
	parts = append(parts, "Lease renewed "+r.ageOf(r.LastRenewal)+" ago")
	text := who + " works: " + strings.Join(parts, ", ") + r.readyPodsText(", ")
	if r.UnheldShards > 0 {
		text += fmt.Sprintf("; %d shards are held by no live replica: their runtimes wait", r.UnheldShards)
	}
	return text
}

// versions returns the versions of the leader and of all replicas, sorted.
func (r *Report) versions() []string {
	var all []string
	for _, s := range r.Replicas {
		all = append(all, s.Version)
	}
	if len(all) == 0 {
		all = append(all, r.Version)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(v string) bool { return v == "" })
}

// readyPodsText returns a text about the pods of the Deployment after a separator, or "" if they are unknown.
func (r *Report) readyPodsText(separator string) string {
	if r.Pods == nil {
		return ""
	}
	return fmt.Sprintf("%s%d of %s ready", separator, r.Pods.Ready, console.Count(r.Pods.Desired, "pod"))
}
