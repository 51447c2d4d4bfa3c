package fleetlist

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/watch"
)

// Follower receives the Kymas of a fleet and their changes. The functions of a Follower are never called concurrently.
type Follower struct {
	// Changed receives the same events as the channel of [Watch].
	Changed func(Change)
	// Failed receives the error of a list or a watch. Follow continues after an error of a list or a watch. Opened is
	// called when a watch begins.
	Failed func(error)
	Opened func()
}

// Follow does the same as [Watch], but requests Kymas as Tables with metadata. An API server answers a request for a
// Table in a fraction of the time that it needs for whole Kymas. If the CRD does not have the columns that klm needs,
// Follow reads whole Kymas. If a column in the row of one Kyma is incomplete, Follow reads this Kyma as a whole. Follow
// continues after every failure of a request, and returns when ctx ends.
func Follow(ctx context.Context, c *connection.Cluster, f Follower) error {
	t := &tableFollower{c: c}
	source := watch.Source[Member]{
		List: func(ctx context.Context, o metav1.ListOptions) (watch.Page[Member], error) {
			page, err := t.list(ctx, o)
			if errors.Is(err, errNoColumns) {
				return membersPage(ctx, c, o)
			}
			return page, err
		},
		Watch: t.watch,
	}
	return watch.Run(ctx, watch.Options[Member]{
		Source: source, PageSize: PageSize, MaxObjects: 1_000_000, MaxDelay: 10 * time.Second,
		Page: func(members []Member, first bool) {
			if first {
				f.Changed(Change{Reset: true})
			}
			for i := range members {
				f.Changed(Change{Member: &members[i]})
			}
		},
		Listed: func(bool) { f.Changed(Change{Listed: true}) },
		Opened: f.Opened,
		Event:  func(e watch.Event[Member]) { f.Changed(Change{Member: e.Object, Deleted: e.Deleted}) },
		Failed: func(err error, _ time.Time) error {
			f.Failed(c.Explain(err, "watching the Kymas"))
			return nil
		},
	})
}

// tableFollower reads Kymas as rows of Tables.
type tableFollower struct {
	c *connection.Cluster
	// at[i] is the index that column i of columnNames has in the rows of the last list. It is stored, because the
	// Tables in watch events may have no column definitions. If the CRD does not have the columns of columnNames, at is
	// nil.
	at []int
}

// list reads one page of Kymas with their metadata.
func (t *tableFollower) list(ctx context.Context, o metav1.ListOptions) (page watch.Page[Member], err error) {
	data, err := readAndClose(t.c.OpenTable(ctx, pathOf(t.c, "kymas", listQuery(o.Continue, o.LabelSelector))))
	if err != nil {
		return page, err
	}
	read := &table{}
	if json.Unmarshal(data, read) != nil || read.Metadata.ResourceVersion == "" {
		return page, errNotAList
	}
	if t.at, err = read.columnIndexes(); err != nil {
		return page, err
	}
	page.ResourceVersion, page.Continue = read.Metadata.ResourceVersion, read.Metadata.Continue
	page.Items, err = t.members(ctx, read)
	return page, err
}

// watch opens a watch of Tables, or of whole Kymas if the CRD does not have the columns.
func (t *tableFollower) watch(ctx context.Context, o metav1.ListOptions, opened func(),
	receive func(watch.Received[Member])) error {
	if t.at == nil {
		return watch.JSONWatch[Member](func(ctx context.Context, query url.Values) (io.ReadCloser, error) {
			return t.c.OpenPath(ctx, pathOf(t.c, "kymas", query))
		})(ctx, o, opened, receive)
	}
	get := func(ctx context.Context, query url.Values) (io.ReadCloser, error) {
		return t.c.OpenTable(ctx, pathOf(t.c, "kymas", query))
	}
	return watch.JSONWatch[table](get)(ctx, o, opened, func(r watch.Received[table]) {
		is := watch.Received[Member]{Deleted: r.Deleted, ResourceVersion: r.ResourceVersion}
		if r.Object == nil {
			receive(is)
			return
		}
		members, _ := t.members(ctx, r.Object) // a Kyma that cannot be read has at least its columns
		for i := range members {
			is.Object = &members[i]
			receive(is)
		}
	})
}

// members returns the Kymas in the rows of a Table. If a row lacks modules of its Kyma, members reads the whole Kyma by
// name.
func (t *tableFollower) members(ctx context.Context, read *table) (all []Member, err error) {
	var incomplete []string
	for i := range read.Rows {
		row := &read.Rows[i]
		if row.Object == nil || len(row.Cells) <= max(t.at[columnName], t.at[columnPaused]) {
			return nil, errNotAList
		}
		m, ok := memberOf(row.cellByColumn(t.at))
		m.setMetadata(&row.Object.Metadata)
		if !ok {
			incomplete = append(incomplete, m.Metadata.Name)
		}
		all = append(all, *m)
	}
	if len(incomplete) == 0 {
		return all, nil
	}
	complete, err := Read(ctx, t.c, incomplete)
	if err != nil {
		return all, err
	}
	byName := map[string]*Member{}
	for _, m := range complete {
		byName[m.Metadata.Name] = m
	}
	for i := range all {
		if m := byName[all[i].Metadata.Name]; m != nil {
			all[i] = *m
		}
	}
	return all, nil
}
