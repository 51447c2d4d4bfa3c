package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// logLines is the number of lines of the manager's log that a failure shows. Repeated lines are not counted.
const logLines = 40

// describe returns the description of a failed scenario. The description contains the Kymas, the Manifests, the end of
// the manager's log, and the command that failed.
func (s *scenario) describe() string {
	if s.land == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Minute)
	defer cancel()
	var b strings.Builder
	kcp := s.land.Clients[landscape.ControlPlane]
	for _, list := range []client.ObjectList{&v1beta2.KymaList{}, &v1beta2.ManifestList{}} {
		if err := kcp.List(ctx, list, client.InNamespace(s.land.Namespace())); err != nil {
			fmt.Fprintf(&b, "%v\n", err)
			continue
		}
		switch list := list.(type) {
		case *v1beta2.KymaList:
			for _, k := range list.Items {
				fmt.Fprintf(&b, "--- Kyma %s, deleted %v\n%s", k.Name, k.DeletionTimestamp, text(k.Status))
			}
		case *v1beta2.ManifestList:
			for _, m := range list.Items {
				m.Status.Synced = nil
				fmt.Fprintf(&b, "--- Manifest %s, deleted %v, spec.version %s\n%s", m.Name, m.DeletionTimestamp,
					m.Spec.Version, text(m.Status))
			}
		}
	}
	log, err := os.ReadFile(filepath.Join(s.dir, "manager.log"))
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	lines := condense(string(log))
	fmt.Fprintf(&b, "--- the manager's log, %d kinds of lines, the last of them\n%s\n", len(lines),
		strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
	fmt.Fprintf(&b, "--- what failed\n%s", s.failed)
	return b.String()
}

// condense converts a log in JSON to readable lines: time, message, and the values that identify an object. Of equal
// messages for the same object, it keeps only the last one, with the number of repetitions.
func condense(log string) []string {
	var said []string
	var times, last = map[string]int{}, map[string]string{}
	for line := range strings.Lines(log) {
		var entry struct{ Time, Msg, Namespace, Name, Module, Problem, Error string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			entry.Msg = strings.TrimSpace(line)
		}
		what := strings.Join(slices.DeleteFunc([]string{entry.Msg, entry.Name, entry.Module, entry.Problem,
			entry.Error}, func(s string) bool { return s == "" }), " · ")
		if i := slices.Index(said, what); i >= 0 {
			said = slices.Delete(said, i, i+1)
		}
		said = append(said, what)
		times[what]++
		last[what] = entry.Time
	}
	for i, what := range said {
		said[i] = fmt.Sprintf("%s %dx %s", last[what], times[what], what[:min(len(what), 400)])
	}
	return said
}

// text returns v as YAML.
func text(v any) string {
	data, err := json.Marshal(v)
	if err == nil {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return err.Error() + "\n"
	}
	return string(data)
}
