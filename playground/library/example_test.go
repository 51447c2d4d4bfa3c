package library

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/manifest"
)

// The example installs a chart from a folder. Then somebody changes an object, the check finds the change, and another
// installation reverts it. The uninstallation leaves no object.
func Example() {
	ctx := context.Background()
	info := manifest.InstallInfo{
		ChartInfo: manifest.ChartInfo{
			Path:        "testdata/shop",
			ReleaseName: "corner",
			ConfigFlags: map[string]any{"Namespace": "example", "CreateNamespace": true, "SkipCRDs": true,
				"Wait": true, "Timeout": "1m"},
			SetFlags: map[string]any{".replicas": 2},
		},
		ClusterInfo:      manifest.ClusterInfo{Config: api.Config()},
		CheckReadyStates: true,
	}
	status, err := manifest.InstallOrUpgradeChart(ctx, info)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("installed:", status.Ready)
	for _, object := range status.Objects {
		fmt.Println(" ", object)
	}

	patch := []byte(`{"data":{"greeting":"good bye"}}`)
	_, err = kube.CoreV1().ConfigMaps("example").Patch(ctx, "corner", types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err = manifest.ConsistencyCheck(ctx, info)
	fmt.Println("consistent:", status.Ready, status.Pending, err)

	status, err = manifest.InstallOrUpgradeChart(ctx, info)
	fmt.Println("healed:", status.Ready, err)

	_, err = repeatUntilReady(ctx, func() (manifest.Status, error) { return manifest.UninstallChart(ctx, info) })
	fmt.Println("uninstalled:", err)
	_, err = kube.CoreV1().Namespaces().Get(ctx, "example", metav1.GetOptions{})
	fmt.Println(err)
	// Output:
	// installed: true
	//   Namespace example
	//   ConfigMap example/corner
	//   Service example/corner
	//   Deployment.apps example/corner
	// consistent: false [ConfigMap example/corner differs in data.greeting, changed by somebody] <nil>
	// healed: true <nil>
	// uninstalled: <nil>
	// namespaces "example" not found
}

// Diff shows the changes that an installation would make; a transform changes objects first.
func Example_diff() {
	ctx := context.Background()
	info := shopInfo("preview")
	replicas := func(_ context.Context, _ client.Object, resources *manifest.Resources) error {
		for _, object := range resources.Items {
			if object.GetKind() == "Deployment" {
				return unstructured.SetNestedField(object.Object, int64(3), "spec", "replicas")
			}
		}
		return nil
	}
	if _, err := repeatUntilReady(ctx, func() (manifest.Status, error) {
		return manifest.InstallOrUpgradeChart(ctx,
			info)
	}); err != nil {
		fmt.Println(err)
		return
	}
	changes, err := manifest.Diff(ctx, info, replicas)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range changes {
		fmt.Println(change.Action, change.Ref, change.Fields)
	}
	_, err = repeatUntilReady(ctx, func() (manifest.Status, error) { return manifest.UninstallChart(ctx, info) })
	fmt.Println(err)
	// Output:
	// update Deployment.apps preview/preview [spec.replicas]
	// <nil>
}
