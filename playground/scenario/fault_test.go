package scenario

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

func (s *scenario) gate(c *call) error {
	const usage = "gate RUNTIME FAULT REGEXP [N], gate RUNTIME forge REGEXP FORGERY, gate RUNTIME met N, or " +
		"gate RUNTIME open|drop"
	if err := c.want(2, 4, usage); err != nil {
		return err
	}
	if s.land.Clusters[c.args[0]] == nil {
		return fmt.Errorf("there is no cluster %q", c.args[0])
	}
	g, err := s.land.Gate(c.args[0])
	if err != nil {
		return err
	}
	n := 0
	switch what := c.args[1]; {
	case len(c.args) == 2 && (what == "open" || what == "drop"):
		g.Open(what == "drop")
		return nil
	case what == "met" && len(c.args) == 3:
		if n, err = strconv.Atoi(c.args[2]); err != nil {
			return err
		}
		return s.poll(func(context.Context) (bool, string) {
			return g.InjectedCount() >= n, fmt.Sprintf("%d requests met a fault", g.InjectedCount())
		})
	case len(c.args) < 3:
		return fmt.Errorf("usage: %s", usage)
	}
	like, err := regexp.Compile(c.args[2])
	if err == nil && c.args[1] == "forge" && len(c.args) == 4 {
		edit, err := forge(c.args[3])
		if err == nil {
			g.ForgeResponses(like, edit)
		}
		return err
	}
	if err == nil && len(c.args) == 4 {
		n, err = strconv.Atoi(c.args[3])
	}
	if err != nil {
		return err
	}
	g.Inject(landscape.Fault(c.args[1]), like, n)
	return nil
}

// forge returns a function that changes the Kyma in an answer of an API server, as the argument FORGERY of a script
// describes.
func forge(what string) (func(kyma map[string]any), error) {
	what, size, _ := strings.Cut(what, "=")
	n, err := strconv.Atoi(cmp.Or(size, "1"))
	if err != nil {
		return nil, err
	}
	spec := func(kyma map[string]any) map[string]any { return kyma["spec"].(map[string]any) }
	switch what {
	case "modules":
		return func(kyma map[string]any) { spec(kyma)["modules"] = unknownModules("forged", n) }, nil
	case "name":
		return func(kyma map[string]any) {
			spec(kyma)["modules"] = []any{map[string]any{"name": strings.Repeat("x", n)}}
		}, nil
	case "channel":
		return func(kyma map[string]any) {
			spec(kyma)["channel"] = "\x1b[31mred\x00\u202e\n" + strings.Repeat("é", n)
		}, nil
	case "status":
		return func(kyma map[string]any) {
			kyma["status"].(map[string]any)["modules"] = unknownModules("forged", n)
		}, nil
	case "none":
		var answers atomic.Int64
		return func(kyma map[string]any) {
			if answers.Add(1) <= int64(n) {
				delete(spec(kyma), "modules")
			}
		}, nil
	}
	return nil, fmt.Errorf("%q is no forgery", what)
}

// unknownModules returns n modules that no catalog has.
func unknownModules(prefix string, n int) []any {
	var all []any
	for i := range n {
		all = append(all, map[string]any{"name": fmt.Sprintf("%s-%d", prefix, i+1), "state": "Ready"})
	}
	return all
}

func (s *scenario) webhook(c *call) error {
	const usage = "webhook RUNTIME allow|refuse|hang|none"
	if err := c.want(2, 2, usage); err != nil {
		return err
	}
	if s.land.Clusters[c.args[0]] == nil {
		return fmt.Errorf("there is no cluster %q", c.args[0])
	}
	says := landscape.Admission(strings.TrimSuffix(c.args[1], "none"))
	if err := s.land.SetAdmissionWebhook(s.ctx, c.args[0], says); err != nil || says == landscape.Hang {
		return err
	}
	// The API server learns of the new webhook configuration by a watch. A dry run of a ConfigMap shows when the API
	// server uses the new configuration.
	probe := &corev1.ConfigMap{}
	probe.Name, probe.Namespace = "guarded-probe", "default"
	return s.poll(func(ctx context.Context) (bool, string) {
		err := s.land.Clients[c.args[0]].Create(ctx, probe.DeepCopy(), client.DryRunAll)
		return (err != nil) == (says == landscape.Refuse), fmt.Sprint(err)
	})
}

func (s *scenario) refuse(c *call) error {
	if err := c.want(2, 2, "refuse [-reason=REASON] KIND EXPRESSION"); err != nil {
		return err
	}
	kind, known := kinds[c.args[0]]
	if !known || kind.Group != v1beta2.GroupVersion.Group {
		return fmt.Errorf("%q is no kind of ours", c.args[0])
	}
	rule := func(group, version, resource string, operation admissionregistrationv1.OperationType,
	) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{operation},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version},
					Resources: []string{resource}},
			}}
	}
	status := strings.ToLower(kind.Kind) + "s/status"
	reason := metav1.StatusReason(cmp.Or(c.flag("reason"), string(metav1.StatusReasonInvalid)))
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: refusing(c.args[0])},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
					rule(kind.Group, kind.Version, status, admissionregistrationv1.Update),
					rule("", "v1", "configmaps", admissionregistrationv1.Create), // for the probe
				}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: fmt.Sprintf("request.kind.kind == %q ? (%s) : object.metadata.name != %q", kind.Kind, c.args[1],
					refusing(c.args[0])),
				Message: "refused for a test", Reason: &reason,
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}
	for _, o := range []client.Object{policy, binding} {
		if err := s.land.Clients[landscape.ControlPlane].Create(s.ctx, o); err != nil {
			return err
		}
	}
	return s.awaitRefusal(c.args[0], true)
}

func (s *scenario) accept(c *call) error {
	if err := c.want(1, 1, "accept KIND"); err != nil {
		return err
	}
	is := metav1.ObjectMeta{Name: refusing(c.args[0])}
	for _, o := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: is},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: is}} {
		if err := s.land.Clients[landscape.ControlPlane].Delete(s.ctx, o); err != nil {
			return err
		}
	}
	return s.awaitRefusal(c.args[0], false)
}

// refusing returns the name of the admission policy that refuses statuses of a kind. The policy also refuses a
// ConfigMap with the same name, so that awaitRefusal can find out whether the policy is applied.
func refusing(kind string) string { return "refuse-" + kind }

// awaitRefusal waits until the API server applies the policy of a kind, or does not apply it any more.
func (s *scenario) awaitRefusal(kind string, want bool) error {
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: refusing(kind), Namespace: metav1.NamespaceDefault}}
	return s.poll(func(ctx context.Context) (bool, string) {
		err := s.land.Clients[landscape.ControlPlane].Create(ctx, probe.DeepCopy(), client.DryRunAll)
		return (err != nil) == want, fmt.Sprint(err)
	})
}

func (s *scenario) printEvents(c *call) error {
	if err := c.want(1, 1, "events OBJECT"); err != nil {
		return err
	}
	o, err := s.object(c.args[0])
	if err != nil {
		return err
	}
	list := &corev1.EventList{}
	if err := o.client.List(s.ctx, list, client.InNamespace(o.key.Namespace)); err != nil {
		return err
	}
	counts := map[string]int{}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == o.gvk.Kind && e.InvolvedObject.Name == o.key.Name {
			counts[e.Type+" "+e.Reason] += occurrences(&e)
		}
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprint(what, " ", counts[what]))
	}
	c.print(lines...)
	return nil
}

// occurrences returns how often an event has occurred.
func occurrences(e *corev1.Event) int {
	if e.Series != nil {
		return int(e.Series.Count)
	}
	return max(int(e.Count), 1)
}

func (s *scenario) event(c *call) error {
	if err := c.want(2, 2, "event OBJECT REGEXP"); err != nil {
		return err
	}
	o, err := s.object(c.args[0])
	if err != nil {
		return err
	}
	like, err := regexp.Compile(c.args[1])
	if err != nil {
		return err
	}
	return s.poll(func(ctx context.Context) (bool, string) {
		list := &corev1.EventList{}
		if err := o.client.List(ctx, list, client.InNamespace(o.key.Namespace)); err != nil {
			return false, err.Error()
		}
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == o.gvk.Kind && e.InvolvedObject.Name == o.key.Name {
				line := e.Type + " " + e.Reason + " " + e.Message
				if occurrences(&e) > 1 {
					line += " (repeated)"
				}
				if like.MatchString(line) {
					return true, ""
				}
				all = append(all, line)
			}
		}
		return false, fmt.Sprintf("events of it: %q", all)
	})
}
