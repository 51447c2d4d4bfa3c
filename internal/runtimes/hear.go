package runtimes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A runtime is listened to in one of three ways: by watches of the pool, by an agent that runs there and tells us, or not at all. Followers
// do not notice the difference, except that they have to look for themselves now and then: see PollInterval.

// PollIntervals say how often a runtime is looked at without a reason.
type PollIntervals struct {
	// Watched is for runtimes whose changes are heard of.
	Watched time.Duration
	// Unwatched is for all others.
	Unwatched time.Duration
	// Budget is the number of looks per second at all that are not heard; more of them are looked at less often. 0 is no limit.
	Budget int
}

// Interests returns what the followers of a runtime want to hear of, each once, in stable order.
func (p *Pool) Interests(kyma string) []Interest {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Interest
	if l := p.links[kyma]; l != nil {
		for _, f := range l.followers {
			all = append(all, f.Interests...)
		}
	}
	slices.SortFunc(all, Interest.Compare)
	return slices.Compact(all)
}

// Compare orders interests: by resource, then by what of it.
func (i Interest) Compare(o Interest) int {
	return cmp.Or(cmp.Compare(i.Resource.Group, o.Resource.Group), cmp.Compare(i.Resource.Version, o.Resource.Version), cmp.Compare(i.Resource.Resource, o.Resource.Resource),
		cmp.Compare(i.Kind, o.Kind), cmp.Compare(i.Namespace, o.Namespace), cmp.Compare(i.Name, o.Name), cmp.Compare(i.Labels, o.Labels))
}

// maxShared bounds how many lists of interests are shared: runtimes with the same module have the same ones.
const maxShared = 4096

// ShareInterests returns a list that is equal to the given one, and the same for all who ask for that: none of them may change it.
func (p *Pool) ShareInterests(interests []Interest) []Interest {
	var key strings.Builder
	for _, i := range interests {
		for _, part := range []string{i.Resource.Group, i.Resource.Version, i.Resource.Resource, i.Kind, i.Namespace, i.Name, i.Labels} {
			key.WriteString(part)
			key.WriteByte(0)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if shared, ok := p.shared[key.String()]; ok {
		return shared
	}
	if p.shared == nil || len(p.shared) >= maxShared {
		p.shared = map[string][]Interest{}
	}
	p.shared[key.String()] = slices.Clip(interests)
	return interests
}

// HasInterests tells whether the follower with a key has said what it wants to hear of.
func (p *Pool) HasInterests(kyma, key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[kyma]
	return l != nil && len(l.followers[key].Interests) > 0
}

// Publish tells the followers of a runtime what somebody there has seen: of an object, to those who are interested in it. With Missed or Listed, all
// who are interested in the Resource of the Interest are told, a moment later: see Options.BatchDelay; if that is empty, all, at once. Whoever
// calls it for one runtime calls it for one thing after the other: they are told in that order.
func (p *Pool) Publish(kyma string, s Event) {
	p.mu.Lock()
	p.linkLocked(kyma).heard = true
	p.mu.Unlock()
	if (s.Missed || s.Listed) && !s.Interest.Resource.Empty() && p.opts.BatchDelay > 0 {
		p.gather(kyma, s)
		return
	}
	p.tellGathered(kyma)
	p.tell(kyma, s)
}

// gather notes how a resource is, or that changes of it were missed, and that followers are to be told. Of one resource, only the last counts.
func (p *Pool) gather(kyma string, s Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[kyma]
	if l == nil {
		return
	}
	l.gathered = slices.DeleteFunc(l.gathered, func(before Event) bool { return before.Interest == s.Interest })
	if l.gathered = append(l.gathered, s); len(l.gathered) == 1 {
		time.AfterFunc(p.opts.BatchDelay, func() { p.tellGathered(kyma) })
	}
}

// tellGathered tells of what was gathered.
func (p *Pool) tellGathered(kyma string) {
	var all []Event
	p.mu.Lock()
	if l := p.links[kyma]; l != nil {
		all, l.gathered = l.gathered, nil
	}
	p.mu.Unlock()
	for _, s := range all {
		p.tell(kyma, s)
	}
}

// tell tells followers at once.
func (p *Pool) tell(kyma string, s Event) {
	type call struct {
		wake func(Event)
		seen Event
	}
	var calls []call
	p.mu.Lock()
	if l := p.links[kyma]; l != nil {
		for _, f := range l.followers {
			if s.Missed && s.Interest.Resource.Empty() {
				calls = append(calls, call{f.Notify, s})
				continue
			}
			for _, i := range f.Interests {
				if i.covers(s) {
					of := s
					of.Interest, of.Objects = i, i.among(s.Objects)
					calls = append(calls, call{f.Notify, of})
				}
			}
		}
	}
	p.mu.Unlock()
	for _, c := range calls {
		c.wake(c.seen)
	}
}

// covers tells whether what was seen is of the interest. Of an object that is gone the labels are the last ones known, or unknown.
func (i Interest) covers(s Event) bool {
	if s.Interest.Resource.Resource == "" { // whoever told knows the kind only
		if i.Resource.Group != s.Interest.Resource.Group || i.Kind != s.Interest.Kind {
			return false
		}
	} else if i.Resource.GroupResource() != s.Interest.Resource.GroupResource() {
		return false
	}
	if s.Object == nil {
		return true
	}
	return i.has(s.Object, s.Deleted)
}

// has tells whether an object is of the interest, by its name and labels.
func (i Interest) has(o *metav1.PartialObjectMetadata, deleted bool) bool {
	return (i.Namespace == "" || i.Namespace == o.Namespace) && (i.Name == "" || i.Name == o.Name) && i.selects(o, deleted)
}

// among returns those of the objects that are of the interest.
func (i Interest) among(objects []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	other := func(o metav1.PartialObjectMetadata) bool { return !i.has(&o, false) }
	if !slices.ContainsFunc(objects, other) {
		return objects
	}
	return slices.DeleteFunc(slices.Clone(objects), other)
}

func (i Interest) selects(o *metav1.PartialObjectMetadata, deleted bool) bool {
	if i.Labels == "" || deleted && o.Labels == nil {
		return true
	}
	selector, err := labels.Parse(i.Labels)
	return err != nil || selector.Matches(labels.Set(o.Labels))
}

// SetAgentConnected says whether the agent of a runtime is heard. When it no longer is, followers are told that they may have missed something: from
// now on they have to look.
func (p *Pool) SetAgentConnected(kyma string, heard bool) {
	p.mu.Lock()
	l := p.linkLocked(kyma)
	was := !l.unheard
	l.unheard = !heard
	p.mu.Unlock()
	if was && !heard {
		p.Publish(kyma, Event{Missed: true})
	}
}

// IsWatched tells whether changes of a runtime are heard of without looking. A runtime with an agent is taken to be heard until SetAgentConnected says
// otherwise.
func (p *Pool) IsWatched(kyma string) bool {
	if p.opts.Watch || !p.opts.Agents {
		return p.opts.Watch
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.links[kyma]
	return l == nil || !l.unheard
}

// UsesInterests tells whether the interests of followers matter to anybody.
func (p *Pool) UsesInterests() bool { return p.opts.Watch || p.opts.Agents }

// PollInterval is how long a follower may wait before it looks at a runtime without a reason. It grows when there is more to look at than the
// budget allows.
func (p *Pool) PollInterval(kyma string) time.Duration {
	looks := p.opts.PollIntervals
	if p.IsWatched(kyma) {
		return looks.Watched
	}
	if looks.Budget <= 0 {
		return looks.Unwatched
	}
	return max(looks.Unwatched, time.Duration(p.unheard())*time.Second/time.Duration(looks.Budget))
}

// unheard returns the number of followers who have to look. It is counted anew every few seconds.
func (p *Pool) unheard() int {
	const valid = 5 * time.Second
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.countedAt) > valid {
		p.countedAt, p.lookers = now, 0
		for _, l := range p.links {
			if l.unheard || !p.opts.Agents {
				p.lookers += len(l.followers)
			}
		}
	}
	return p.lookers
}
