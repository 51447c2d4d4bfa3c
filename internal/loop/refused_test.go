package loop

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// TestRefusedStatus checks that the refusal of a status is written once into the condition Ready, and that the
// condition is removed when a later status is accepted.
func TestRefusedStatus(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Kyma"}, "a", nil)
	invalid.ErrStatus.Message = "\x1b[31mstatus.modules: Too many\nsecond line " + strings.Repeat("x", 10_000)
	large := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
		Code: http.StatusInternalServerError, Message: "etcdserver: request is too large"}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "kymas"}, "a", errors.New("by a policy"))
	cases := map[string]struct {
		reason  string
		refusal error
		shown   bool
	}{
		"Invalid":  {"the CRD does not allow it", invalid, true},
		"TooLarge": {"for the API server", apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		"Etcd":     {"for etcd", large, true},
		"Policy":   {"an admission policy forbids it", forbidden, true},
		"Other":    {"it is sent again", errors.New("connection refused"), false},
		"Conflict": {"another writer was first", apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("x")), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			patches, refuses := 0, true
			server := interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, under client.Client, sub string, o client.Object,
					p client.Patch, opts ...client.SubResourcePatchOption) error {
					patches++
					if data, err := p.Data(o); refuses && (err != nil || strings.Contains(string(data), "huge")) {
						return c.refusal
					}
					return under.SubResource(sub).Patch(ctx, o, p, opts...)
				}})
			reconcileOnce := func() *metav1.Condition {
				k := &v1beta2.Kyma{}
				if err := b.Get(t.Context(), client.ObjectKeyFromObject(b.kyma), k); err != nil {
					t.Fatal(err)
				}
				_, _ = Run(t.Context(), Options{Client: server, Controller: "test", Object: k, Report: func(Outcome) {
					k.Status.State, k.Status.ClusterID = v1beta2.StateReady, "huge"
					meta.SetStatusCondition(&k.Status.Conditions, metav1.Condition{Type: v1beta2.ConditionReady,
						Status: metav1.ConditionTrue, Reason: v1beta2.ReasonReady, Message: "ready"})
				}})
				if err := b.Get(t.Context(), client.ObjectKeyFromObject(b.kyma), k); err != nil {
					t.Fatal(err)
				}
				if k.Status.ClusterID != "" && refuses {
					t.Error("a part of the refused status was saved")
				}
				return meta.FindStatusCondition(k.Status.Conditions, v1beta2.ConditionReady)
			}
			ready := reconcileOnce()
			if (ready != nil) != c.shown {
				t.Fatalf("%s: the condition is %v", c.reason, ready)
			}
			if c.shown && (ready.Reason != v1beta2.ReasonStatusNotSaved || ready.Status != metav1.ConditionFalse ||
				len(ready.Message) > MessageLimit || strings.ContainsAny(ready.Message, "\x1b\n")) {
				t.Errorf("%s: the condition is %v", c.reason, ready)
			}
			before := patches
			if reconcileOnce(); patches != before+1 {
				t.Errorf("%s: the next reconcile sent %d patches, want only the status", c.reason, patches-before)
			}
			refuses = false
			if ready := reconcileOnce(); ready == nil || ready.Reason != v1beta2.ReasonReady {
				t.Errorf("%s: a status that is accepted is not shown: %v", c.reason, ready)
			}
		})
	}
}

// TestClipStatusOfManyModules checks that the status fits into etcd even if many modules have long texts.
func TestClipStatusOfManyModules(t *testing.T) {
	for n, each := range map[int]int{1: SummaryLimit, 64: SummaryLimit, 100: 2621, 500: 524, 1100: minModuleMessage} {
		k := &v1beta2.Kyma{}
		for range n {
			k.Status.Modules = append(k.Status.Modules, v1beta2.ModuleStatus{
				Message: strings.Repeat("\x1b[31m\u202e\xff\nx", 800)})
		}
		clipStatus(k)
		for _, m := range k.Status.Modules {
			if len(m.Message) > each || len(m.Message) < each-4 || strings.ContainsAny(m.Message, "\x1b\n\u202e") {
				t.Fatalf("%d modules: a text of %d bytes, want %d", n, len(m.Message), each)
			}
		}
	}
}
