package manifest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/manifest"
)

// A Repository finds a chart by a range of versions, in a chart repository or in a registry.
func ExampleRepository() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(
			w, "apiVersion: v1\nentries:\n  redis:\n  - {version: 1.2.0, urls: [redis-1.2.0.tgz]}\n  - {version: "+
				"1.10.1, urls: [redis-1.10.1.tgz]}\n  - {version: 2.0.0-rc.1, urls: [redis-2.0.0-rc.1.tgz]}\n")
	}))
	defer server.Close()

	repository := &manifest.Repository{URL: server.URL, Username: "me", Password: "secret"}
	for _, version := range []string{"", "~1.2", ">0.0.0-0", "3.x"} {
		found, err := repository.Find(context.Background(), "redis", version)
		if err != nil {
			fmt.Println(err.(interface{ Reason() string }).Reason())
			continue
		}
		fmt.Println(found.Version)
	}
	// Output:
	// 1.10.1
	// 1.2.0
	// 2.0.0-rc.1
	// ChartNotFound
}

// The example shows the reconcile function of an operator that installs a chart for its own custom resource. If there
// is nothing to do, nothing is written. The tests in playground/library run the code of this example on real API
// servers.
func ExampleInstallOrUpgradeChart() {
	reconcile := func(ctx context.Context, config *rest.Config) (requeue bool, err error) {
		status, err := manifest.InstallOrUpgradeChart(ctx, manifest.InstallInfo{
			ChartInfo: manifest.ChartInfo{
				Path:        "./charts/redis",
				ReleaseName: "cache",
				ConfigFlags: map[string]any{"Namespace": "cache", "CreateNamespace": true},
				SetFlags:    map[string]any{".replica.count": 2},
			},
			ClusterInfo:      manifest.ClusterInfo{Config: config},
			CheckReadyStates: true,
		})
		for _, why := range status.Pending {
			fmt.Println(why)
		}
		return !status.Ready, err
	}
	_ = reconcile
}
