package fleetlist

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
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// PageSize is the number of objects in one page of a list. Larger pages are not faster, and need more memory in klm and
// in the API server.
const PageSize = 500

// Member has the fields of a Kyma that are decoded when a whole fleet is listed. Times are kept as text.
type Member struct {
	Metadata memberMeta `json:"metadata"`
	Spec     struct {
		Channel     string `json:"channel"`
		SkipWindows bool   `json:"skipMaintenanceWindows"`
	} `json:"spec"`
	Status struct {
		State         v1beta2.State  `json:"state"`
		ModulesReady  string         `json:"modulesReady"`
		Modules       []MemberModule `json:"modules"`
		LastOperation struct {
			Operation      string `json:"operation"`
			LastUpdateTime string `json:"lastUpdateTime"`
		} `json:"lastOperation"`
		Conditions        []MemberCondition `json:"conditions"`
		KubernetesVersion string            `json:"kubernetesVersion"`
		Agent             *MemberAgent      `json:"agent"`
	} `json:"status"`
}

// MemberAgent is the agent in the status of a Kyma. LastHeartbeat is "" while the agent is connected.
type MemberAgent struct {
	Heard         bool   `json:"heard"`
	Reason        string `json:"reason"`
	LastHeartbeat string `json:"lastHeartbeat"`
}

type memberMeta struct {
	Name              string `json:"name"`
	CreationTimestamp string `json:"creationTimestamp"`
	ResourceVersion   string `json:"resourceVersion"`
	// Labels has the labels of the Kyma. Labels is empty if the Kyma was listed by [ListBrief].
	Labels      map[string]string `json:"labels"`
	Annotations memberAnnotations `json:"annotations"`
}

// memberAnnotations are those annotations of a Kyma that are copied into a Member.
type memberAnnotations struct {
	Paused *string `json:"operator.kyma-project.io/paused"`
	// Deferring contains the annotations that defer updates of the runtime, unparsed. If the last request of the
	// runtime defers updates, Deferring also contains the annotation with this request. Deferring is nil if no updates
	// are deferred, which is the normal case, or if the member was listed by [ListBrief].
	Deferring map[string]string `json:"-"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (a *memberAnnotations) UnmarshalJSON(data []byte) error {
	var all map[string]string
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*a = memberAnnotations{}
	if paused, is := all[v1beta2.AnnotationPaused]; is {
		a.Paused = &paused
	}
	for key, value := range all {
		if key == v1beta2.AnnotationNotBefore || strings.HasPrefix(key, v1beta2.AnnotationNotBeforeModulePrefix) ||
			key == v1beta2.AnnotationLastRequest && strings.Contains(value, `"deferrals"`) {
			if a.Deferring == nil {
				a.Deferring = map[string]string{}
			}
			a.Deferring[key] = value
		}
	}
	return nil
}

// MemberModule is a module in the status of a Kyma.
type MemberModule struct {
	Name        string        `json:"name"`
	Version     string        `json:"version"`
	Channel     string        `json:"channel"`
	State       v1beta2.State `json:"state"`
	Reason      string        `json:"reason"`
	Message     string        `json:"message"`
	Maintenance bool          `json:"maintenance"`
}

// MemberCondition is a condition in the status of a Kyma.
type MemberCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// State returns the state of the Kyma. The result is console.StateNew if the Kyma has no state.
func (m *Member) State() v1beta2.State { return cmp.Or(m.Status.State, console.StateNew) }

// Since returns the time of the last operation in the status of the Kyma. If this time is unknown, Since returns the
// zero time.
func (m *Member) Since() time.Time { return ParseTime(m.Status.LastOperation.LastUpdateTime) }

// IsPaused reports whether the whole runtime is paused.
func (m *Member) IsPaused() bool {
	p := m.Metadata.Annotations.Paused
	return p != nil && !strings.EqualFold(strings.TrimSpace(*p), "false")
}

// Blocker returns the reason why the Kyma is not Ready, or "" if it is Ready. If the Kyma is not Ready because of its
// modules, Blocker returns the reason of the module with the worst state.
func (m *Member) Blocker() (reason, message string) {
	worst := -1
	for i := range m.Status.Modules {
		if e := &m.Status.Modules[i]; e.Reason != "" &&
			(worst < 0 || Severity(e.State) > Severity(m.Status.Modules[worst].State)) {
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

// Severity returns a number that is higher for worse states.
func Severity(s v1beta2.State) int {
	switch s {
	case v1beta2.StateError:
		return 6
	case v1beta2.StateWarning:
		return 5
	case v1beta2.StateDeleting:
		return 4
	case v1beta2.StateProcessing:
		return 3
	case console.StateNew, v1beta2.StateUnknown:
		return 2
	case v1beta2.StateUnmanaged:
		return 1
	}
	return 0
}

// List passes every Kyma that matches the label selector to the callback. The selector "" matches all Kymas. See
// [ListAs].
func List(ctx context.Context, c *connection.Cluster, selector string, each func(*Member)) (
	resourceVersion string, err error) {
	return ListAs(ctx, c, "kymas", selector, each)
}

// ListAs passes every object of a resource of our API group to the callback. The callback is called for one object
// after the other, in an arbitrary order. The type parameter T is a struct with the fields of the object that are
// decoded. At most two pages are in memory, because the next page is requested while one page is decoded. ListAs
// returns the resource version of the list. A watch can start at this resource version.
func ListAs[T any](ctx context.Context, c *connection.Cluster, resource, selector string, each func(*T)) (
	resourceVersion string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = readPages(c, resource, func(next string) (listPage, error) {
		return readPage(ctx, c, pathOf(c, resource, listQuery(next, selector)))
	}, func(p listPage) error {
		resourceVersion = p.version
		if err := decodeUnordered(p.items, each); err != nil {
			return console.Fail(console.ExitFailed, "listing %s: %v", resource, err)
		}
		return nil
	})
	return resourceVersion, err
}

// page is one page of a list.
type page interface {
	continueToken() string // the continue token of the next page; "" if this page is the last one
}

// readPages calls the function take once for each page of a list, in the order of the pages, until this function fails.
// While the function take handles one page, readPages reads the next page.
func readPages[P page](c *connection.Cluster, resource string, read func(next string) (P, error),
	take func(P) error) error {
	type answer struct {
		page P
		err  error
	}
	request := func(next string) <-chan answer {
		answers := make(chan answer, 1)
		go func() {
			p, err := read(next)
			answers <- answer{p, err}
		}()
		return answers
	}
	for answers := request(""); answers != nil; {
		a := <-answers
		switch {
		case apierrors.IsResourceExpired(a.err):
			return console.Fail(console.ExitFailed,
				"listing %s: they changed too much while they were read: try again", resource)
		case a.err != nil:
			return c.Explain(a.err, "listing "+resource)
		}
		answers = nil
		if next := a.page.continueToken(); next != "" {
			answers = request(next)
		}
		if err := take(a.page); err != nil {
			return err
		}
	}
	return nil
}

// readPage requests one page of a list.
func readPage(ctx context.Context, c *connection.Cluster, path string) (listPage, error) {
	data, err := readAndClose(c.OpenPath(ctx, path))
	if err != nil {
		return listPage{}, err
	}
	return splitList(data)
}

// readAndClose returns the body of an answer, and closes the body.
func readAndClose(body io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// decodeUnordered decodes the objects of a page on all processors, and passes each object to the callback. The callback
// is called for one object after the other, in an arbitrary order.
func decodeUnordered[T any](items [][]byte, each func(*T)) error {
	var mu sync.Mutex
	var all errgroup.Group
	workers := runtime.GOMAXPROCS(0)
	for n := range workers {
		all.Go(func() error {
			for i := n; i < len(items); i += workers {
				item := new(T)
				if err := json.Unmarshal(stripManagedFieldsInPlace(items[i]), item); err != nil {
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

// listQuery returns the query for one page. The parameter next is the continue token from the previous page.
func listQuery(next, selector string) url.Values {
	return url.Values{"limit": {strconv.Itoa(PageSize)}, "continue": {next}, "labelSelector": {selector}}
}

// pathOf returns the path of a resource of our API group with a query. Empty values of the query are omitted.
func pathOf(c *connection.Cluster, resource string, query url.Values) string {
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	return "/apis/" + v1beta2.GroupVersion.String() + "/namespaces/" + c.Namespace + "/" +
		resource + "?" + query.Encode()
}

// ParseTime parses a time in an object. ParseTime returns zero if the text is not a time.
func ParseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// ModuleVersion is a version of a module, together with the channel from which runtimes have the version. The channel
// is "" for runtimes that pin the version.
type ModuleVersion struct{ Module, Version, Channel string }
