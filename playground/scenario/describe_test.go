package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// logLines is how much of the manager's log a failure shows.
const logLines = 60

// describe returns what there is to see when a scenario has failed: Kymas, Manifests, what each cluster's pods say, and the end of the
// manager's log.
func (s *scenario) describe() string {
	if s.land == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
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
				fmt.Fprintf(&b, "--- Manifest %s, deleted %v, spec.version %s\n%s", m.Name, m.DeletionTimestamp, m.Spec.Version, text(m.Status))
			}
		}
	}
	log, err := os.ReadFile(filepath.Join(s.dir, "manager.log"))
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	fmt.Fprintf(&b, "--- the manager's log, %d lines, the last of them\n%s\n", len(lines), strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
	return b.String()
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
