package fleetlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
)

// TestFollow checks that Follow reads the Kymas of a list and of a watch from rows of Tables, with their labels. The
// rows of a watch have no column definitions. If the row of a Kyma lacks modules, Follow reads this Kyma by its name.
// If the CRD does not have the columns, Follow reads whole Kymas.
func TestFollow(t *testing.T) {
	row := func(name, state, summary string) string {
		cells, err := json.Marshal([]any{name, state, "regular", "1/1", summary, "", "", "2026-08-01T12:00:00Z", true,
			nil})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"cells":%s,"object":{"metadata":{"name":%q,"resourceVersion":"5","labels":{"of":%q}}}}`,
			cells, name, name)
	}
	columns := func(names []string) string {
		var all []string
		for _, name := range names {
			all = append(all, fmt.Sprintf(`{"name":%q}`, name))
		}
		return strings.Join(all, ",")
	}
	const good = "sample@1.0.0 (regular)"
	for name, c := range map[string]struct {
		columns []string
		want    string
	}{
		"Tables":    {columnNames, "reset a=Ready/1 b=Error/1 listed a=Warning/1 -b"},
		"NoColumns": {columnNames[:3], "reset a=Ready/0 listed a=Deleting/0"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				isTable := strings.Contains(r.Header.Get("Accept"), "as=Table")
				table := func(rows string) string {
					return `{"kind":"Table","metadata":{"resourceVersion":"5"},"rows":[` + rows + `]`
				}
				switch {
				case strings.HasSuffix(r.URL.Path, "/kymas/b"):
					fmt.Fprint(w, `{"metadata":{"name":"b","labels":{"of":"b"}},"status":{"state":"Error",`+
						`"modules":[{"name":"sample"}]}}`)
				case r.URL.Query().Get("watch") == "" && isTable:
					fmt.Fprint(w, table(row("a", "Ready", good)+","+row("b", "Ready", "?"))+
						`,"columnDefinitions":[`+columns(c.columns)+`]}`)
				case r.URL.Query().Get("watch") == "":
					fmt.Fprint(w, `{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a",`+
						`"labels":{"of":"a"}},"status":{"state":"Ready"}}]}`)
				case isTable:
					for _, e := range []string{`{"type":"MODIFIED","object":` + table(row("a", "Warning", good)) + "}}",
						`{"type":"BOOKMARK","object":` + table("") + "}}",
						`{"type":"DELETED","object":` + table(row("b", "Error", good)) + "}}"} {
						fmt.Fprintln(w, e)
					}
				default:
					fmt.Fprintln(w, `{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"6",`+
						`"labels":{"of":"a"}},"status":{"state":"Deleting"}}}`)
				}
				if r.URL.Query().Get("watch") != "" {
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				}
			}))
			defer server.Close()
			cluster, err := connection.New(&rest.Config{Host: server.URL}, "test", "kcp-system")
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			err = Follow(ctx, cluster, Follower{
				Failed: func(err error) { t.Error(err); stop() },
				Opened: func() {},
				Changed: func(ch Change) {
					text := ""
					switch m := ch.Member; {
					case ch.Reset:
						text = "reset"
					case ch.Listed:
						text = "listed"
					case ch.Deleted:
						text = "-" + m.Metadata.Name
					default:
						text = fmt.Sprintf("%s=%s/%d", m.Metadata.Name, m.State(), len(m.Status.Modules))
						if m.Metadata.Labels["of"] != m.Metadata.Name {
							t.Errorf("%s has the labels %v", m.Metadata.Name, m.Metadata.Labels)
						}
					}
					if seen = append(seen, text); len(seen) == len(strings.Fields(c.want)) {
						stop()
					}
				}})
			if got := strings.Join(seen, " "); !errors.Is(err, context.Canceled) || got != c.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
}
