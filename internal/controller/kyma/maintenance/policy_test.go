package maintenance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/loop"
)

const (
	open  = `{"default":{"begin":"2020-01-01T00:00:00Z","end":"2999-01-01T00:00:00Z"}}`
	later = `{"default":{"begin":"2998-01-01T00:00:00Z","end":"2999-01-01T00:00:00Z"}}`
)

// isOpen reports whether a window of the policy in force is open.
func isOpen(p *Policies) bool {
	o, err := p.InForce().CurrentOrNextWindow(nil, time.Now())
	return err == nil && o.IsOpen(time.Now())
}

func TestRefreshFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.json")
	p := New(Options{File: file, MinWindow: time.Minute})
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.RefreshFile(t.Context())
	if policy := p.InForce(); policy != nil || p.Problem() != nil {
		t.Fatalf("a missing file gives %v, %v", policy, p.Problem())
	}
	write(open)
	if !p.RefreshFile(t.Context()) || !isOpen(p) || p.InForce().MinRemaining != time.Minute {
		t.Error("a new policy is not in force")
	}
	if p.RefreshFile(t.Context()) {
		t.Error("an unchanged file counts as changed")
	}
	write(`{"rules":`)
	if !p.RefreshFile(t.Context()) || !isOpen(p) || loop.Reason(p.Problem()) != v1beta2.ReasonInvalidPolicy {
		t.Errorf("a broken policy replaces the previous one, or the problem is not returned: %v", p.Problem())
	}
	write(strings.Repeat(" ", 2<<20) + open)
	if !p.RefreshFile(t.Context()) || !isOpen(p) || p.Problem() == nil {
		t.Error("a file that is too large is parsed")
	}
	write(later)
	if !p.RefreshFile(t.Context()) || isOpen(p) || p.Problem() != nil {
		t.Error("a corrected policy is not in force")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if !p.RefreshFile(t.Context()) || p.InForce() != nil {
		t.Error("a removed policy is still in force")
	}
}

func TestRefreshConfigMap(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "maintenance"},
		Data: map[string]string{channel.PolicyKey: open}}
	c := fake.NewClientBuilder().Build()
	recorded := events.NewFakeRecorder(10)
	p := New(Options{Client: c, Namespace: "kcp-system", ConfigMap: "maintenance", Events: recorded})
	if p.RefreshConfigMap(t.Context()); p.InForce() != nil || p.Problem() != nil {
		t.Fatal("a policy is in force without a ConfigMap")
	}
	if err := c.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	if p.RefreshConfigMap(t.Context()); p.Problem() != nil || !isOpen(p) {
		t.Fatalf("a new policy is not in force: %v", p.Problem())
	}
	cm.Data = map[string]string{channel.PolicyKey: "{"}
	if err := c.Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if p.RefreshConfigMap(t.Context()); p.Problem() == nil || !isOpen(p) {
			t.Error("a broken policy replaces the previous one, or the problem is not returned")
		}
	}
	if len(recorded.Events) != 1 {
		t.Errorf("%d events for one broken version, want one", len(recorded.Events))
	}
}

// TestFirstPolicyIsBroken checks a broken policy when there is no previous policy that could stay in force.
func TestFirstPolicyIsBroken(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "maintenance"},
		Data: map[string]string{channel.PolicyKey: "{"}}
	recorded := events.NewFakeRecorder(10)
	p := New(Options{Client: fake.NewClientBuilder().WithObjects(cm).Build(), Namespace: "kcp-system",
		ConfigMap: "maintenance", Events: recorded})
	p.RefreshConfigMap(t.Context())
	_, err := p.InForce().CurrentOrNextWindow(nil, time.Now())
	for _, text := range []string{p.Problem().Error(), fmt.Sprint(err), <-recorded.Events} {
		if strings.Contains(text, "previous") || !strings.Contains(text, "no maintenance policy is in force") &&
			!strings.Contains(text, "no policy is in force") {
			t.Errorf("got %q, want that no policy is in force", text)
		}
	}
}

// TestIgnoredKeys checks that one event names the keys that have no effect.
func TestIgnoredKeys(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "maintenance"},
		Data: map[string]string{channel.PolicyKey: strings.Replace(open, "{", `{"owner": "me",`, 1)}}
	recorded := events.NewFakeRecorder(10)
	p := New(Options{Client: fake.NewClientBuilder().WithObjects(cm).Build(), Namespace: "kcp-system",
		ConfigMap: "maintenance", Events: recorded})
	p.RefreshConfigMap(t.Context())
	p.RefreshConfigMap(t.Context())
	if !isOpen(p) || p.Problem() != nil || len(recorded.Events) != 1 {
		t.Fatalf("got problem %v and %d events, want a policy in force and one event", p.Problem(), len(recorded.Events))
	}
	if e := <-recorded.Events; !strings.Contains(e, v1beta2.ReasonFieldIgnored) || !strings.Contains(e, `"owner"`) {
		t.Errorf("got event %q", e)
	}
}
