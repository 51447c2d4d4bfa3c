package landscape

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// AdmissionWebhook is the name of the webhook that [Landscape.SetAdmissionWebhook] configures.
const AdmissionWebhook = "admission.landscape.example.com"

// Admission is the behaviour of a webhook.
type Admission string

// Behaviours of a webhook.
const (
	// Allow admits every request.
	Allow Admission = "allow"
	// Refuse rejects every request.
	Refuse Admission = "refuse"
	// Hang never responds. The timeout of API servers is one second for a webhook that hangs, and ten seconds for the
	// others.
	Hang Admission = "hang"
)

// SetAdmissionWebhook configures a webhook in a cluster for ConfigMaps whose name begins with "guarded". The parameter
// behaviour decides how the webhook answers. An empty behaviour removes the webhook.
func (l *Landscape) SetAdmissionWebhook(ctx context.Context, cluster string, behaviour Admission) error {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: AdmissionWebhook}}
	c := l.Clients[cluster]
	if behaviour == "" {
		if err := client.IgnoreNotFound(c.Delete(ctx, config)); err != nil {
			return fmt.Errorf("taking the webhook of %s away: %w", cluster, err)
		}
		return nil
	}
	server := httptest.NewUnstartedServer(behaviour)
	server.Config.ErrorLog = discard
	server.StartTLS()
	l.servers = append(l.servers, server)
	timeout := int32(10)
	if behaviour == Hang {
		timeout = 1
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	_, err := controllerutil.CreateOrUpdate(ctx, c, config, func() error {
		config.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
			Name: AdmissionWebhook, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: &timeout,
			SideEffects:   new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: new(admissionregistrationv1.Fail),
			ClientConfig:  admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: authority},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create,
					admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"configmaps"}},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "guarded",
				Expression: `object.metadata.name.startsWith("guarded")`}},
		}}
		return nil
	})
	if err != nil {
		return fmt.Errorf("making a webhook for %s: %w", cluster, err)
	}
	return nil
}

// ServeHTTP handles an AdmissionReview.
func (a Admission) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a == Hang {
		_, _ = io.Copy(io.Discard, r.Body) // the server detects the end of the client only after the body was read
		<-r.Context().Done()
		return
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: a == Allow,
		Result: &metav1.Status{Message: "refused for a test"}}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review) // the API server may have disconnected
}
