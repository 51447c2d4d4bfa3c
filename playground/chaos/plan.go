package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// event is a fault or a request of a plan.
type event struct {
	At     time.Duration // since the beginning of the round
	What   string        // name in the table of faults or requests
	Target string        // cluster, module or other object
	Text   string        // of a request, for the log
	For    time.Duration // of a fault; 0 for a fault that has no end, and for a request
	Pick   uint64        // seed of all further choices of a fault

	change *change // of a request
}

// String formats an event for the log.
func (e event) String() string {
	text := e.What + " " + e.Target
	if e.For > 0 {
		text += fmt.Sprintf(" for %.1fs", e.For.Seconds())
	}
	return strings.TrimSpace(text + " " + e.Text)
}

// change is the desired state after a request. Besides want, only the fields that the request changes are set in a
// change.
type change struct {
	modules  []v1beta2.Module          // of a runtime
	channels map[string]string         // of a module
	create   bool                      // the runtime is registered
	remove   bool                      // the Kyma of the runtime is deleted
	want     map[string]map[string]int // versions of all modules of all registered runtimes, after the request
}

// plan has the requests and faults of a round, each sorted by time.
type plan struct {
	requests, faults []event
}

// channelNames are the channels of every module, from the slowest to the fastest. A channel never has a newer version
// than a faster channel.
var channelNames = []string{"regular", "fast", "rapid"}

// model is the desired state of the fleet while a plan is made.
type model struct {
	channels map[string][]int                     // version of each channel, by module
	runtimes map[string]map[string]v1beta2.Module // enabled modules of each registered runtime, by name
	fastest  map[string]int                       // fastest channel that a module has had in a runtime
	ignored  map[string]bool                      // modules of a runtime whose custom resource was never wanted
}

// newPlan makes the plan of a round. Equal arguments lead to equal plans. Only the Kyma of the last runtime is deleted.
//
// The plan never requests an older version than before: a downgrade is refused, and it would depend on the timing
// whether the newer version was installed before. Because the result would depend on the timing, a module never returns
// to a slower channel, and a custom resource that was requested stays requested.
func newPlan(seed, round uint64, span time.Duration, runtimes []string, pace float64) plan {
	m := &model{channels: map[string][]int{}, runtimes: map[string]map[string]v1beta2.Module{},
		fastest: map[string]int{}, ignored: map[string]bool{}}
	for _, module := range append([]string{steady}, varied...) {
		m.channels[module] = []int{1, 1, 2}
	}
	for _, name := range runtimes {
		m.addRuntimeWithSteady(name)
	}
	r := rand.New(rand.NewPCG(seed, 2*round))
	var p plan
	gap := time.Duration(float64(4*time.Second) / pace)
	for at := gap / 4; at < span; at += gap/2 + time.Duration(r.Int64N(int64(gap))) {
		p.requests = append(p.requests, m.randomRequest(r, at, runtimes)...)
	}
	p.faults = planFaults(rand.New(rand.NewPCG(seed, 2*round+1)), span, runtimes, pace)
	return p
}

// initialRequests returns the requests at the beginning of a round: all channels, and all runtimes with module steady.
func initialRequests(runtimes []string) []event {
	m := &model{channels: map[string][]int{}, runtimes: map[string]map[string]v1beta2.Module{}}
	var all []event
	for _, module := range append([]string{steady}, varied...) {
		m.channels[module] = []int{1, 1, 2}
		all = append(all, event{What: "move", Target: module,
			change: &change{channels: m.channelVersions(module), want: map[string]map[string]int{}}})
	}
	for _, name := range runtimes {
		m.addRuntimeWithSteady(name)
		all = append(all, event{What: "create", Target: name,
			change: &change{create: true, modules: m.requestedModules(name), want: m.wantedMajorVersions()}})
	}
	return all
}

func (m *model) addRuntimeWithSteady(name string) {
	m.runtimes[name] = map[string]v1beta2.Module{steady: {Name: steady}}
}

// randomRequest returns the next random request of a user. Some actions of a user consist of two requests, so the
// result is a list.
func (m *model) randomRequest(r *rand.Rand, at time.Duration, runtimes []string) []event {
	name := runtimes[r.IntN(len(runtimes))]
	module := varied[r.IntN(len(varied))]
	enabled, is := m.runtimes[name][module]
	switch draw := r.IntN(10); {
	case m.runtimes[name] == nil:
		m.addRuntimeWithSteady(name)
		for _, other := range varied {
			delete(m.fastest, name+"/"+other)
			delete(m.ignored, name+"/"+other)
		}
		return []event{{At: at, What: "create", Target: name,
			change: &change{create: true, modules: m.requestedModules(name), want: m.wantedMajorVersions()}}}
	case draw == 0 && name == runtimes[len(runtimes)-1]:
		delete(m.runtimes, name)
		return []event{{At: at, What: "remove", Target: name, change: &change{remove: true,
			want: m.wantedMajorVersions()}}}
	case draw <= 2:
		return m.advanceRandomChannel(r, at, module)
	case !is:
		return m.enable(r, at, name, module)
	case draw <= 5:
		delete(m.runtimes[name], module)
		return m.requestModules(at, "disable", name, module)
	case enabled.CustomResourcePolicy == v1beta2.Ignore && draw <= 7:
		enabled.CustomResourcePolicy = v1beta2.CreateAndDelete
		m.ignored[name+"/"+module] = false
		m.runtimes[name][module] = enabled
		return m.requestModules(at, "custom-resource", name, module)
	default:
		faster := m.fastest[name+"/"+module] + r.IntN(2)
		if faster >= len(channelNames) {
			return m.advanceRandomChannel(r, at, module)
		}
		m.fastest[name+"/"+module] = faster
		enabled.Channel = channelNames[faster]
		m.runtimes[name][module] = enabled
		return m.requestModules(at, "channel", name, module+" "+enabled.Channel)
	}
}

// enable enables a module in a runtime.
func (m *model) enable(r *rand.Rand, at time.Duration, name, module string) []event {
	key := name + "/" + module
	faster := min(m.fastest[key]+r.IntN(2), len(channelNames)-1)
	m.fastest[key] = faster
	policy := v1beta2.CreateAndDelete
	if ignored, before := m.ignored[key]; ignored || !before && r.IntN(4) == 0 {
		policy = v1beta2.Ignore
	}
	m.ignored[key] = policy == v1beta2.Ignore
	m.runtimes[name][module] = v1beta2.Module{Name: module, Channel: channelNames[faster],
		CustomResourcePolicy: policy}
	return m.requestModules(at, "enable", name, fmt.Sprintf("%s %s %s", module, channelNames[faster], policy))
}

// requestModules returns the request that sets the modules of a runtime to those of the model.
func (m *model) requestModules(at time.Duration, what, name, text string) []event {
	return []event{{At: at, What: what, Target: name, Text: text,
		change: &change{modules: m.requestedModules(name), want: m.wantedMajorVersions()}}}
}

// advanceRandomChannel moves one channel of a module to a newer version, and all faster channels that would be older.
func (m *model) advanceRandomChannel(r *rand.Rand, at time.Duration, module string) []event {
	channel := r.IntN(len(channelNames))
	to := min(m.channels[module][channel]+1, versions)
	moved := slices.Clone(m.channels[module])
	for i := channel; i < len(moved); i++ {
		moved[i] = max(moved[i], to)
	}
	m.channels[module] = moved
	return []event{{At: at, What: "move", Target: module, Text: fmt.Sprint(m.channelVersions(module)),
		change: &change{channels: m.channelVersions(module), want: m.wantedMajorVersions()}}}
}

func (m *model) channelVersions(module string) map[string]string {
	all := map[string]string{}
	for i, name := range channelNames {
		all[name] = semverOfMajor(m.channels[module][i])
	}
	return all
}

func (m *model) requestedModules(name string) []v1beta2.Module {
	return slices.Collect(func(yield func(v1beta2.Module) bool) {
		for _, module := range slices.Sorted(maps.Keys(m.runtimes[name])) {
			if !yield(m.runtimes[name][module]) {
				return
			}
		}
	})
}

// wantedMajorVersions returns the versions that each runtime must have when all requests so far are fulfilled.
func (m *model) wantedMajorVersions() (byRuntimeAndModule map[string]map[string]int) {
	all := map[string]map[string]int{}
	for name, modules := range m.runtimes {
		all[name] = map[string]int{}
		for _, module := range modules {
			all[name][module.Name] = m.channels[module.Name][max(slices.Index(channelNames, module.Channel), 0)]
		}
	}
	return all
}

// planFaults returns random faults until the end of the time span. Faults of the same part of the system do not
// overlap: a fault begins after the earlier faults of this part have ended.
func planFaults(r *rand.Rand, span time.Duration, runtimes []string, pace float64) []event {
	var all []event
	free := map[string]time.Duration{} // time at which a part of the system is free again
	gap := time.Duration(float64(3*time.Second) / pace)
	for at := gap / 2; at < span; at += gap/2 + time.Duration(r.Int64N(int64(gap))) {
		f := faults[r.IntN(len(faults))]
		targets := f.targets(runtimes)
		e := event{At: at, What: f.name, Target: targets[r.IntN(len(targets))], Pick: r.Uint64()}
		if f.longest > 0 {
			e.For = f.shortest + time.Duration(r.Int64N(int64(f.longest-f.shortest)))
			e.For = time.Duration(float64(e.For) / pace).Round(100 * time.Millisecond)
		}
		thing := f.exclusivePart(e.Target)
		if at < free[thing] || at+e.For > span {
			continue
		}
		free[thing] = at + e.For + time.Second
		all = append(all, e)
	}
	return all
}
