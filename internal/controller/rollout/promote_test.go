package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/controller/rollout/gate"
)

// promoted returns a fleet in which version 2.0.0 of channel fast may be promoted to channel regular. The promotion has
// the given mode and, if the parameter webhook is not empty, a webhook as its gate.
func promoted(t *testing.T, mode v1beta2.PromotionMode, webhook string) *fleet {
	t.Helper()
	all := objects(2)
	release := all[0].(*v1beta2.ModuleReleaseMeta)
	release.Spec.Channels = []v1beta2.ChannelVersion{{Channel: "regular", Version: "1.0.0"}}
	m := all[4].(*v1beta2.Manifest) // of runtime-1, which follows channel fast
	m.Labels[v1beta2.LabelChannel] = "fast"
	m.Spec.Version, m.Status = "2.0.0", manifestStatus("2.0.0", v1beta2.StateReady)
	policy := onePolicy()
	policy.Spec.Channels = []string{"regular"}
	policy.Spec.Promotion = &v1beta2.RolloutPromotion{From: "fast", To: "regular", Mode: mode,
		After: &metav1.Duration{Duration: -time.Second}}
	if webhook != "" {
		policy.Spec.Promotion.Webhook = &v1beta2.WebhookGate{URL: webhook}
	}
	f := newFleet(t, append(all, policy)...)
	f.Live = f.control
	return f
}

// own applies the channels of the release with the given field manager, which then owns them.
func (f *fleet) own(manager, fast, regular string) {
	f.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "keda", "namespace": namespace},
		"spec": map[string]any{"channels": []any{map[string]any{"channel": "fast", "version": fast},
			map[string]any{"channel": "regular", "version": regular}}}}}
	u.SetGroupVersionKind(v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta))
	if err := f.control.Apply(f.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager),
		client.ForceOwnership); err != nil {
		f.Fatal(err)
	}
}

func (f *fleet) promotion() *v1beta2.ChannelPromotion {
	f.Helper()
	p := f.status().Promotion
	if p == nil {
		f.Fatal("channel regular has no promotion")
	}
	return p
}

// TestPropose checks that a proposal causes an event and one notification of the webhook, and moves no channel. A
// webhook that does not answer delays no reconcile.
func TestPropose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests, answer := atomic.Int32{}, make(chan string)
		f := promoted(t, v1beta2.PromotionPropose, gateHost+"/hook")
		f.gates.Client = &http.Client{Transport: answering(func(r *http.Request) string {
			requests.Add(1)
			select {
			case text := <-answer:
				return text
			case <-r.Context().Done():
				return ""
			}
		})}
		go func() { _ = f.notifier.Start(t.Context()) }()
		recorder := events.NewFakeRecorder(10)
		f.Events = recorder
		f.own("argocd", "2.0.0", "1.0.0") // an owner does not matter
		passes := func() *v1beta2.ChannelPromotion {
			t.Helper()
			f.pass()
			synctest.Wait()
			begin := time.Now()
			f.pass()
			if waited := time.Since(begin); waited > 0 {
				t.Errorf("the reconcile took %s", waited)
			}
			return f.promotion()
		}
		if p := passes(); p.State != v1beta2.PromotionProposed || p.WebhookError == "" || requests.Load() > 0 {
			t.Fatalf("the address is not allowed: %+v, %d requests", p, requests.Load())
		}
		if len(recorder.Events) != 1 {
			t.Errorf("%d events", len(recorder.Events))
		}
		f.gates.Allow = []string{gateHost}
		time.Sleep(gate.NotificationRetryInterval)
		passes()
		time.Sleep(time.Minute) // beyond the timeout of the request
		if p := passes(); p.WebhookError == "" || requests.Load() != 1 {
			t.Fatalf("the webhook does not answer: %+v, %d requests", p, requests.Load())
		}
		time.Sleep(gate.NotificationRetryInterval)
		passes()
		answer <- "{}"
		if p := passes(); p.Notified != "2.0.0" || p.WebhookError != "" || requests.Load() != 2 {
			t.Fatalf("it works: %+v, %d requests", p, requests.Load())
		}
		before := f.release(t.Context())
		passes()
		if is := f.release(t.Context()); is.ResourceVersion != before.ResourceVersion || requests.Load() != 2 ||
			is.Spec.Channels[1].Version != "1.0.0" && is.Spec.Channels[0].Version != "1.0.0" {
			t.Errorf("a proposal is repeated, or moves something: %d requests, %+v", requests.Load(), is.Spec)
		}
	})
}

// TestApply checks that the manager moves a channel by a promotion only if klm is the field manager that owns the entry
// of the channel. If another field manager owns the entry of the channel, the entry is not changed, and the status of
// the promotion has the reason code PromotionNotOwned.
func TestApply(t *testing.T) {
	f := promoted(t, v1beta2.PromotionApply, "")
	f.own("argocd", "2.0.0", "1.0.0")
	f.pass()
	if p := f.promotion(); p.State != v1beta2.PromotionWaiting ||
		p.Blockers[0].Code != v1beta2.ReasonPromotionNotOwned {
		t.Fatalf("owned by another: %+v", p)
	}
	if v, _ := f.release(t.Context()).ChannelVersion("regular"); v != "1.0.0" {
		t.Fatalf("it is moved to %s", v)
	}
	f = promoted(t, v1beta2.PromotionApply, "")
	f.own("klm", "2.0.0", "1.0.0")
	f.Live = ownedByKlm{f.control}
	var sent []client.ApplyOption
	var body *unstructured.Unstructured
	f.Client = interceptor.NewClient(f.control.(client.WithWatch), interceptor.Funcs{Apply: func(_ context.Context,
		_ client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		data, err := json.Marshal(o)
		body = &unstructured.Unstructured{}
		sent = options
		return errors.Join(err, json.Unmarshal(data, &body.Object))
	}})
	f.pass()
	if p := f.promotion(); p.State != v1beta2.PromotionApplying || body == nil {
		t.Fatalf("%+v, sent %v", p, body)
	}
	channels, _, _ := unstructured.NestedSlice(body.Object, "spec", "channels")
	want := []any{map[string]any{"channel": "regular", "version": "2.0.0"}}
	if diff := cmp.Diff(want, channels); diff != "" ||
		body.GetResourceVersion() != f.release(t.Context()).ResourceVersion ||
		len(body.Object["spec"].(map[string]any)) != 1 {
		t.Errorf("the request is %v: -want +got:\n%s", body.Object, diff)
	}
	o := client.ApplyOptions{}
	o.ApplyOptions(sent)
	if o.FieldManager != "lifecycle-manager-promotion-regular" || o.Force == nil || !*o.Force {
		t.Errorf("options %+v", o)
	}
}

// ownedByKlm reads releases in which klm owns the channel regular. ownedByKlm sets the managed fields itself, because
// the fake API server does not know that spec.channels is a list map with the key channel.
type ownedByKlm struct{ client.Reader }

func (r ownedByKlm) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, o, options...)
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "klm", FieldsV1: metav1.NewFieldsV1(
		`{"f:spec":{"f:channels":{"k:{\"channel\":\"regular\"}":{"f:version":{}}}}}`)}})
	return err
}
