package fleetlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
)

// maxIncomplete is the maximum number of Kymas that are read one by one, because their rows in the Table lack data.
const maxIncomplete = 200

// ListMatching passes every Kyma that the filters of a listing accept to the callback. ListMatching lists the Kymas
// like [ListBrief] if the fields that ListBrief returns are sufficient for the filters. If the parameter full is true,
// ListMatching lists whole Kymas like [List].
func ListMatching(ctx context.Context, c *connection.Cluster, l *console.Listing, full bool, each func(*Member)) error {
	accepted := func(m *Member) {
		if m.Matches(l) {
			each(m)
		}
	}
	selector := l.Value(console.FilterLabels)
	if full || l.Value(console.FilterReason) != "" { // the reason of any condition is accepted
		_, err := List(ctx, c, selector, accepted)
		return err
	}
	return ListBrief(ctx, c, selector, accepted)
}

// ListMatchingWithMessages passes every Kyma that the filters of a listing accept to the callback.
// ListMatchingWithMessages sends fewer requests than [List], but all fields that a line of klm runtime list shows have
// the same values as with [List]. First, ListMatchingWithMessages requests the columns of all Kymas, like [ListBrief].
// Then ListMatchingWithMessages reads single Kymas whose messages the columns do not contain: the Kymas that are not
// Ready or have a reason. If many Kymas are not Ready or have a reason, ListMatchingWithMessages lists whole Kymas like
// List instead.
func ListMatchingWithMessages(ctx context.Context, c *connection.Cluster, l *console.Listing,
	each func(*Member)) error {
	full := func() error { return ListMatching(ctx, c, l, true, each) }
	if l.Value(console.FilterReason) != "" {
		return full()
	}
	all, incomplete, err := readTables(ctx, c, l.Value(console.FilterLabels), "None")
	if errors.Is(err, errNoColumns) {
		return full()
	}
	if err != nil {
		return err
	}
	var rows []*Member
	for _, m := range all {
		reason, _ := m.Blocker()
		switch {
		case m.Metadata.CreationTimestamp == "": // an older CRD
			return full()
		case !m.Matches(l):
		case m.State() != v1beta2.StateReady || reason != "":
			incomplete = append(incomplete, m.Metadata.Name)
		default:
			rows = append(rows, m)
		}
	}
	if len(incomplete) > maxIncomplete {
		return full()
	}
	read, err := Read(ctx, c, incomplete)
	if err != nil {
		return err
	}
	for _, m := range append(rows, read...) {
		if m.Matches(l) {
			each(m)
		}
	}
	return nil
}

// ListBrief does the same as [List], but requests Kymas as Tables with the columns of kubectl get. An API server
// answers a request for a Table in a fraction of the time that it needs for whole Kymas. The members that ListBrief
// returns have only the condition Ready, and the modules of these members have no messages. If the CRD does not have
// the columns that klm needs, or if many rows lack data, ListBrief lists whole Kymas like [List].
func ListBrief(ctx context.Context, c *connection.Cluster, selector string, each func(*Member)) error {
	return listTables(ctx, c, selector, "None", each)
}

// ListBriefWithLabels does the same as [ListBrief], but its members also have labels and annotations.
func ListBriefWithLabels(ctx context.Context, c *connection.Cluster, selector string, each func(*Member)) error {
	return listTables(ctx, c, selector, "Metadata", each)
}

// listTables reads Kymas as rows of Tables. The parameter include is the query parameter includeObject of the request.
func listTables(ctx context.Context, c *connection.Cluster, selector, include string, each func(*Member)) error {
	all, incomplete, err := readTables(ctx, c, selector, include)
	if errors.Is(err, errNoColumns) || err == nil && len(incomplete) > maxIncomplete {
		_, err := List(ctx, c, selector, each)
		return err
	}
	if err != nil {
		return err
	}
	read, err := Read(ctx, c, incomplete)
	if err != nil {
		return err
	}
	for _, m := range append(all, read...) {
		each(m)
	}
	return nil
}

// CompleteBrief completes members that [ListBrief] has returned: it reads the Kymas again with all fields. A member
// whose state has changed since [ListBrief] stays as it is.
func CompleteBrief(ctx context.Context, c *connection.Cluster, members []*Member) error {
	var names []string
	for _, m := range members {
		names = append(names, m.Metadata.Name)
	}
	full, err := Read(ctx, c, names)
	for _, m := range full {
		i := slices.Index(names, m.Metadata.Name)
		if members[i].State() == m.State() {
			*members[i] = *m
		}
	}
	return err
}

// Read reads the Kymas with the given names, several Kymas at the same time. Kymas that no longer exist are omitted.
func Read(ctx context.Context, c *connection.Cluster, names []string) ([]*Member, error) {
	const parallel = 8
	var mu sync.Mutex
	var all []*Member
	requests, ctx := errgroup.WithContext(ctx)
	requests.SetLimit(parallel)
	for _, name := range names {
		requests.Go(func() error {
			m := &Member{}
			err := c.GetJSON(ctx, pathOf(c, "kymas/"+name, nil), m)
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil {
				return c.Explain(err, "reading Kyma "+name)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, m)
			return nil
		})
	}
	return all, requests.Wait()
}

// table is one page of a list of Kymas as a Table.
type table struct {
	Metadata struct {
		Continue        string `json:"continue"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	ColumnDefinitions []columnDefinition `json:"columnDefinitions"`
	Rows              []tableRow         `json:"rows"`
}

// tableRow is the row of one Kyma. Object is nil if the request did not ask for the objects.
type tableRow struct {
	Cells  []any `json:"cells"`
	Object *struct {
		Metadata memberMeta `json:"metadata"`
	} `json:"object"`
}

type columnDefinition struct {
	Name string `json:"name"`
}

func (t *table) continueToken() string { return t.Metadata.Continue }

// The columns of Kymas that are read.
const (
	columnName = iota
	columnState
	columnChannel
	columnModules
	columnVersions
	columnReason
	columnMessage
	columnChanged
	columnAgent
	columnPaused
	columnHeartbeat
	columnSkipWindows
	columnKubernetes
	columnCreated
)

// optionalColumns is the index of the first column that an older CRD does not have.
const optionalColumns = columnHeartbeat

// columnNames has the names of the columns in the CRD.
var columnNames = []string{columnName: "Name", columnState: "State", columnChannel: "Channel", columnModules: "Modules",
	columnVersions: "Versions", columnReason: "Reason", columnMessage: "Message", columnChanged: "Changed",
	columnAgent: "Agent", columnPaused: "Paused", columnHeartbeat: "Last Heartbeat",
	columnSkipWindows: "Skip Windows", columnKubernetes: "Kubernetes", columnCreated: "Created"}

// errNoColumns reports that the API server does not return the columns of columnNames.
var errNoColumns = errors.New("the API server does not return the columns of this version of the CRD")

// readTables returns the Kymas whose table rows have all data that klm needs, and the names of the Kymas whose rows
// lack data.
func readTables(ctx context.Context, c *connection.Cluster, selector, include string) (
	complete []*Member, incomplete []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = readPages(c, "kymas", func(next string) (*table, error) {
		query := listQuery(next, selector)
		query.Set("includeObject", include)
		data, err := readAndClose(c.OpenTable(ctx, pathOf(c, "kymas", query)))
		if err != nil {
			return nil, err
		}
		t := &table{}
		if json.Unmarshal(data, t) != nil {
			return nil, errNotAList
		}
		return t, nil
	}, func(t *table) error {
		at, err := t.columnIndexes()
		if err != nil {
			return err
		}
		for _, row := range t.Rows {
			if len(row.Cells) < len(t.ColumnDefinitions) {
				return c.Explain(errNotAList, "listing kymas")
			}
			m, ok := memberOf(row.cellByColumn(at))
			if row.Object != nil {
				m.setMetadata(&row.Object.Metadata)
			}
			if !ok {
				incomplete = append(incomplete, m.Metadata.Name)
				continue
			}
			complete = append(complete, m)
		}
		return nil
	})
	return complete, incomplete, err
}

// columnIndexes returns the index of each column of columnNames; the index of a missing optional column is -1.
func (t *table) columnIndexes() ([]int, error) {
	var at []int
	for column, name := range columnNames {
		i := slices.IndexFunc(t.ColumnDefinitions, func(d columnDefinition) bool { return d.Name == name })
		if i < 0 && column < optionalColumns {
			return nil, errNoColumns
		}
		at = append(at, i)
	}
	return at, nil
}

// cellByColumn returns a function that returns the cell in a given column of the row. indexes[i] is the index of column
// i in the row.
func (r *tableRow) cellByColumn(indexes []int) func(column int) any {
	return func(column int) any {
		if i := indexes[column]; i >= 0 && i < len(r.Cells) {
			return r.Cells[i]
		}
		return nil
	}
}

// setMetadata adds the fields of a Member that come from the metadata of the Kyma.
func (m *Member) setMetadata(of *memberMeta) {
	paused := m.Metadata.Annotations.Paused
	m.Metadata = *of
	m.Metadata.Annotations.Paused = paused
}

// memberOf converts the cells of a row into a Kyma. The result isComplete is false if the cells do not contain all
// modules of the Kyma.
func memberOf(cell func(column int) any) (m *Member, isComplete bool) {
	text := func(column int) string {
		s, _ := cell(column).(string)
		return s
	}
	m = &Member{}
	m.Metadata.Name, m.Spec.Channel = text(columnName), text(columnChannel)
	m.Metadata.CreationTimestamp = text(columnCreated)
	m.Spec.SkipWindows, _ = cell(columnSkipWindows).(bool)
	if paused, isSet := cell(columnPaused).(string); isSet {
		m.Metadata.Annotations.Paused = &paused
	}
	s := &m.Status
	s.State, s.ModulesReady = v1beta2.State(text(columnState)), text(columnModules)
	s.LastOperation.Operation, s.LastOperation.LastUpdateTime = text(columnMessage), text(columnChanged)
	s.KubernetesVersion = text(columnKubernetes)
	if heard, isSet := cell(columnAgent).(bool); isSet {
		s.Agent = &MemberAgent{Heard: heard, LastHeartbeat: text(columnHeartbeat)}
	}
	if reason := text(columnReason); reason != "" && s.State != v1beta2.StateReady {
		s.Conditions = []MemberCondition{{Type: v1beta2.ConditionReady, Status: "False", Reason: reason,
			Message: s.LastOperation.Operation}}
	}
	modules, isComplete := v1beta2.ParseSummary(text(columnVersions))
	ready := 0
	for _, e := range modules {
		s.Modules = append(s.Modules, MemberModule{Name: e.Name, Version: e.Version, Channel: e.Channel,
			State: e.State, Reason: e.Reason, Maintenance: e.Reason == v1beta2.ReasonWaitingForWindow})
		if e.State == v1beta2.StateReady || e.State == v1beta2.StateUnmanaged {
			ready++
		}
	}
	// An older manager does not update the summary of the modules, from which the cell Versions comes. To detect an
	// outdated cell, the number of Ready modules in it is compared with the cell Modules.
	return m, isComplete && (s.ModulesReady == "" && ready == 0 ||
		s.ModulesReady == fmt.Sprintf("%d/%d", ready, len(modules)))
}
