package render_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// A chart is rendered once for all clusters that answer its queries in the same way. The bundle is cached by a digest
// that is known before the rendering.
func Example() {
	ctx := context.Background()
	chart, err := render.LoadFolder(fstest.MapFS{ // os.Root.FS() for a folder; Load for a packaged chart
		"Chart.yaml":  {Data: []byte("apiVersion: v2\nname: shop\nversion: 1.0.0\n")},
		"values.yaml": {Data: []byte("replicas: 1\n")},
		"templates/config.yaml": {Data: []byte(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  replicas: {{ .Values.replicas | quote }}
  monitored: {{ .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" | quote }}
`)},
	}, render.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}

	var cache render.Cache
	for _, serves := range [][]string{{"v1", "apps/v1"}, {"v1", "batch/v1"}, {"v1", "monitoring.coreos.com/v1"}} {
		settings := render.Settings{Release: "corner", Set: []string{"replicas=2"},
			Capabilities: render.Capabilities{APIVersions: serves}}
		options := render.Options{Digest: settings.Digest(chart.Digest(), chart.CapabilityQueries(settings))}
		bundle, err := cache.Get(ctx, options.ResultingBundleDigest(), func() (*render.Bundle, error) {
			fmt.Println("rendering, since", chart.CapabilityQueries(settings), "has a new answer")
			return chart.Render(ctx, settings, options)
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, o := range bundle.Objects {
			fmt.Println(string(o.AppendJSON(nil, "default",
				render.Overlay{Labels: map[string]string{"by": "example"}})))
		}
	}
	// Output: rendering, since [apiVersion monitoring.coreos.com/v1] has a new answer
	// {"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"by":"example"},"name":"corner","namespace":"default"},"data":{"monitored":"false","replicas":"2"}}
	// {"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"by":"example"},"name":"corner","namespace":"default"},"data":{"monitored":"false","replicas":"2"}}
	// rendering, since [apiVersion monitoring.coreos.com/v1] has a new answer
	// {"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"by":"example"},"name":"corner","namespace":"default"},"data":{"monitored":"true","replicas":"2"}}
}

// A config layer contains the settings for the charts of a module.
func ExampleParseInstallConfigs() {
	configs, err := render.ParseInstallConfigs([]byte(`
configs:
- name: redis
  overrides: replica.count=2,auth.enabled=false
  clientConfig: CreateNamespace=true,Namespace=cache,Timeout=10s
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	config := render.FindConfig(configs, "redis")
	settings := config.ApplyTo(render.Settings{Release: "redis"})
	fmt.Println(settings.Namespace, settings.Set, config.Client.Timeout)
	// Output: cache [replica.count=2,auth.enabled=false] 10s
}
