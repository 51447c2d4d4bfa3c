package dashboard

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// windows gives each runtime a region with maintenance windows, and adds a freeze to the RolloutPolicy. klm finds the
// maintenance policy by the Deployment of the manager. In the landscape, the manager is a process, so windows creates a
// Deployment without pods for klm.
func windows(t *testing.T, l *landscape.Landscape) {
	t.Helper()
	c, labels := l.Clients[landscape.ControlPlane], map[string]string{"app": "manager"}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "windows", Namespace: l.Namespace()},
			Data: map[string]string{"policy.json": `{"rules":[
				{"match":{"region":"eu"},"windows":[{"days":["Sat"],"begin":"02:00:00Z","end":"06:00:00Z"}]},
				{"match":{"region":"us"},"windows":[{"days":["Sat","Sun"],"begin":"04:00:00Z","end":"10:00:00Z"}]}]}`}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "lifecycle-manager", Namespace: l.Namespace()},
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "none",
						Args: []string{"--maintenance-policy-configmap=windows"}}}}}}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for name, region := range map[string]string{"runtime-a": "eu", "runtime-b": "us"} {
		k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.Namespace()}}
		if err := c.Patch(t.Context(), k, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"kyma-project.io/region":"`+region+`"}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	from := time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339)
	to := time.Now().Add(120 * time.Hour).UTC().Format(time.RFC3339)
	p := &v1beta2.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "standard", Namespace: l.Namespace()}}
	if err := c.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"freezes":[{`+
		`"name":"sale","from":"`+from+`","to":"`+to+`","except":["Emergency"]}]}}`))); err != nil {
		t.Fatal(err)
	}
}

// month checks the pages of the calendar for the present and the next month. The pages must show the same rollouts and
// windows as the output of klm calendar.
func month(t *testing.T, b *tab, l *landscape.Landscape) {
	b.size(1280, 800, "light")
	b.to("/calendar")
	b.until("mod-regular-r3")
	b.until("2 with a maintenance window in this month, 0 with a later one, 0 that need none (any time), 0 without one.")
	out := klm(t, l, "calendar")
	for _, part := range []string{"2 with a maintenance window in this month, 0 with a later one", "2 at 04:00",
		"mod-regular-r3", "Completed"} {
		if !strings.Contains(out, part) {
			t.Errorf("klm calendar has no %q:\n%s", part, out)
		}
	}
	if n := evaluate[int64](b, `document.querySelectorAll(".month rect.level-8").length`); n < 8 {
		t.Errorf("the picture has %d hours in which both windows are open", n)
	}
	b.click(`//a[text()="Next month"]`)
	b.until("This month")
	next := time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).AddDate(0, 1, 0)
	if at := evaluate[string](b, `location.search`); !strings.Contains(at, "month="+next.Format("2006-01")) {
		t.Errorf("the address of the next month is %s", at)
	}
	b.to("/calendar?selector=kyma-project.io/region%3Deu")
	b.until("1 with a maintenance window")
}
