package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// stateNew stands for a Kyma that nobody has looked at yet.
const stateNew v1beta2.State = "New"

// chunk is how many Kymas are asked for at once. Larger ones are not faster, and cost memory on both sides.
const chunk = 500

// member is what is read of a Kyma when a whole fleet is listed: times stay text, and what is not here is not kept.
type member struct {
	Metadata memberMeta `json:"metadata"`
	Spec     struct {
		Channel string `json:"channel"`
	} `json:"spec"`
	Status struct {
		State         v1beta2.State  `json:"state"`
		ModulesReady  string         `json:"modulesReady"`
		Modules       []memberModule `json:"modules"`
		LastOperation struct {
			Operation      string `json:"operation"`
			LastUpdateTime string `json:"lastUpdateTime"`
		} `json:"lastOperation"`
		Conditions []memberCondition `json:"conditions"`
		Agent      *struct {
			Heard  bool   `json:"heard"`
			Reason string `json:"reason"`
		} `json:"agent"`
	} `json:"status"`
}

type memberMeta struct {
	Name              string `json:"name"`
	CreationTimestamp string `json:"creationTimestamp"`
	ResourceVersion   string `json:"resourceVersion"`
	Annotations       struct {
		Paused *string `json:"operator.kyma-project.io/paused"`
	} `json:"annotations"`
}

type memberModule struct {
	Name        string        `json:"name"`
	Version     string        `json:"version"`
	Channel     string        `json:"channel"`
	State       v1beta2.State `json:"state"`
	Reason      string        `json:"reason"`
	Message     string        `json:"message"`
	Maintenance bool          `json:"maintenance"`
}

type memberCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// state is the state of the Kyma, stateNew if there is none.
func (m *member) state() v1beta2.State { return cmp.Or(m.Status.State, stateNew) }

// since is when the last operation began to be what it is; zero if that is not known.
func (m *member) since() time.Time { return timeOf(m.Status.LastOperation.LastUpdateTime) }

// isPaused tells whether the runtime as a whole is paused.
func (m *member) isPaused() bool {
	p := m.Metadata.Annotations.Paused
	return p != nil && !strings.EqualFold(strings.TrimSpace(*p), "false")
}

// inTheWay returns why the Kyma is not Ready; "" if it is. The worst module goes before what concerns the Kyma as a whole.
func (m *member) inTheWay() (reason, message string) {
	worst := -1
	for i := range m.Status.Modules {
		if e := &m.Status.Modules[i]; e.Reason != "" && (worst < 0 || severity(e.State) > severity(m.Status.Modules[worst].State)) {
			worst = i
		}
	}
	for _, c := range m.Status.Conditions {
		if c.Type == v1beta2.ConditionReady && c.Status != "True" {
			reason, message = c.Reason, strings.TrimPrefix(c.Message, "not ready: ")
		}
	}
	if worst >= 0 && (reason == "" || reason == m.Status.Modules[worst].Reason) {
		e := m.Status.Modules[worst]
		return e.Reason, cmp.Or(e.Message, "module "+e.Name)
	}
	return reason, message
}

// severity orders states: the worst is the highest.
func severity(s v1beta2.State) int {
	switch s {
	case v1beta2.StateError:
		return 6
	case v1beta2.StateWarning:
		return 5
	case v1beta2.StateDeleting:
		return 4
	case v1beta2.StateProcessing:
		return 3
	case stateNew, v1beta2.StateUnknown:
		return 2
	case v1beta2.StateUnmanaged:
		return 1
	}
	return 0
}

// members calls each for every Kyma that the label selector selects; "" selects all. See each.
func (c *cluster) members(ctx context.Context, selector string, each func(*member)) (version string, err error) {
	return list(ctx, c, "kymas", selector, each)
}

// list calls each for every object of a resource of ours; T is the part of an object that is wanted. No more than two chunks are in memory: while
// one is decoded, the next is on its way. It returns the version of the whole list, from which it can be watched.
func list[T any](ctx context.Context, c *cluster, resource, selector string, each func(*T)) (version string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		slice
		err error
	}
	ask := func(next string) <-chan answer {
		answers := make(chan answer, 1)
		path := c.pathOf(resource, url.Values{"limit": {strconv.Itoa(chunk)}, "continue": {next}, "labelSelector": {selector}})
		go func() {
			s, err := c.slice(ctx, path)
			answers <- answer{s, err}
		}()
		return answers
	}
	for answers := ask(""); answers != nil; {
		a := <-answers
		switch {
		case apierrors.IsResourceExpired(a.err):
			return "", fail(exitFailed, "listing %s: they changed for too long while they were read: try again", resource)
		case a.err != nil:
			return "", c.explain(a.err, "listing "+resource)
		}
		version, answers = a.version, nil
		if a.next != "" {
			answers = ask(a.next)
		}
		if err := decodeAll(a.items, each); err != nil {
			return "", fail(exitFailed, "listing %s: %v", resource, err)
		}
	}
	return version, nil
}

// slice reads one chunk.
func (c *cluster) slice(ctx context.Context, path string) (slice, error) {
	body, err := c.stream(ctx, path)
	if err != nil {
		return slice{}, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return slice{}, err
	}
	return split(data)
}

// decodeAll decodes the objects of a chunk on all processors, and calls each for one after the other, in any order.
func decodeAll[T any](items [][]byte, each func(*T)) error {
	var mu sync.Mutex
	var all errgroup.Group
	workers := runtime.GOMAXPROCS(0)
	for n := range workers {
		all.Go(func() error {
			for i := n; i < len(items); i += workers {
				item := new(T)
				if err := json.Unmarshal(lean(items[i]), item); err != nil {
					return err
				}
				mu.Lock()
				each(item)
				mu.Unlock()
			}
			return nil
		})
	}
	return all.Wait()
}

// pathOf is the path of a resource of ours, with a query of which empty values are left out.
func (c *cluster) pathOf(resource string, query url.Values) string {
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	return "/apis/" + v1beta2.GroupVersion.String() + "/namespaces/" + c.namespace + "/" + resource + "?" + query.Encode()
}

// timeOf reads a time of an object; zero if it is none.
func timeOf(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
