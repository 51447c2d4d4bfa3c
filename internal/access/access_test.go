package access

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

func token(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// TestToken checks that the lifetime and the account of a token are read from the token itself.
func TestToken(t *testing.T) {
	begins, ends := time.Unix(1700000000, 0), time.Unix(1800000000, 0)
	const full = `{"iat":1700000000,"exp":1800000000,"sub":"system:serviceaccount:ops:klm"}`
	cases := map[string]struct {
		reason  string
		config  rest.Config
		want    Lifetime
		account string
	}{
		"Token": {"a token with an end", rest.Config{BearerToken: token(full)}, Lifetime{begins, ends}, "ops/klm"},
		"NoBegin": {"its begin is not known", rest.Config{BearerToken: token(`{"exp":1800000000}`)},
			Lifetime{time.Time{}, ends}, "/"},
		"Endless": {"a token without end",
			rest.Config{BearerToken: token(`{"iat":1700000000,"sub":"system:serviceaccount:ops:klm"}`)}, Lifetime{},
			"ops/klm"},
		"Person":  {"no ServiceAccount", rest.Config{BearerToken: token(`{"sub":"system:node:a:b"}`)}, Lifetime{}, "/"},
		"Opaque":  {"a token that is no JWT", rest.Config{BearerToken: "abc"}, Lifetime{}, "/"},
		"Garbage": {"a token that does not parse", rest.Config{BearerToken: "a.%.c"}, Lifetime{}, "/"},
		"Wrong":   {"claims of other types", rest.Config{BearerToken: token(`{"sub":1,"exp":"x"}`)}, Lifetime{}, "/"},
		"File": {"the file is replaced in time", rest.Config{BearerToken: token(full), BearerTokenFile: "f"},
			Lifetime{}, "/"},
		"Password": {"no end is known", rest.Config{Username: "a"}, Lifetime{}, "/"},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, LifetimeOf(&c.config)); diff != "" {
			t.Errorf("%s: %s: (-want +got)\n%s", name, c.reason, diff)
		}
		if namespace, account := ServiceAccountOf(&c.config); namespace+"/"+account != c.account {
			t.Errorf("%s: %s: account %s/%s, want %s", name, c.reason, namespace, account, c.account)
		}
	}
}

// TestWarningTime checks that users are warned when a tenth of the lifetime is left, but at most seven days before the
// expiry.
func TestWarningTime(t *testing.T) {
	begins := time.Unix(1700000000, 0)
	for lifetime, want := range map[time.Duration]time.Duration{
		365 * 24 * time.Hour: 7 * 24 * time.Hour,
		20 * 24 * time.Hour:  48 * time.Hour,
		10 * time.Hour:       time.Hour,
	} {
		l := Lifetime{begins, begins.Add(lifetime)}
		if got := l.Ends.Sub(l.WarningTime()); got != want {
			t.Errorf("%s: warned %s before, want %s", lifetime, got, want)
		}
	}
	for _, l := range []Lifetime{{}, {Ends: begins}, {begins, begins}} {
		if got := l.WarningTime(); !got.IsZero() {
			t.Errorf("%v: warned at %s", l, got)
		}
	}
}

// rule parses a rule of a SelfSubjectRulesReview: in text, spaces separate the parts of the rule, and commas separate
// the elements of a part.
func rule(text string) authorizationv1.ResourceRule {
	parts := strings.Split(text, " ")
	r := authorizationv1.ResourceRule{Verbs: strings.Split(parts[0], ","), APIGroups: strings.Split(parts[1], ","),
		Resources: strings.Split(parts[2], ",")}
	if len(parts) > 3 {
		r.ResourceNames = parts[3:]
	}
	return r
}

func rights(t *testing.T, rules ...string) Rights {
	t.Helper()
	review := authorizationv1.SelfSubjectRulesReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectRulesReview"}}
	for _, text := range rules {
		review.Status.ResourceRules = append(review.Status.ResourceRules, rule(text))
	}
	text, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRights(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var resources = []schema.GroupResource{{Group: "apps", Resource: "deployments"}, {Resource: "configmaps"},
	{Group: "apps", Resource: "deployments"}}

// TestLost checks which rights count as lost.
func TestLost(t *testing.T) {
	all, none := rights(t, "* * *"), rights(t)
	cases := map[string]struct {
		reason      string
		before, now Rights
		want        []string
	}{
		"Unknown":  {"there is nothing to compare with", Rights{}, none, nil},
		"NoAnswer": {"an unknown right is not a lost one", all, Rights{}, nil},
		"Same":     {"nothing has changed", all, all, nil},
		"All": {"the binding is deleted", all, none, []string{"create,delete,get,list,patch configmaps",
			"create,delete,get,list,patch deployments.apps"}},
		"ReadOnly": {"the role is changed", all, rights(t, "get,list,watch * *"),
			[]string{"create,delete,patch configmaps", "create,delete,patch deployments.apps"}},
		"Group": {"one API group", all, rights(t, "* ,batch *"),
			[]string{"create,delete,get,list,patch deployments.apps"}},
		"NotNeeded": {"a resource of no module", rights(t, "* * *", "* x y"), all, nil},
		"NeverHad": {"it was missing before", rights(t, "get  configmaps"),
			rights(t, "get  configmaps", "* b *"), nil},
		"Enumerated": {"the same in other words", rights(t, "create,delete,get,list,patch apps deployments"), all,
			nil},
		"SomeObjects": {"a right for one object is not one for all", rights(t, "get  configmaps one"), none, nil},
	}
	for name, c := range cases {
		if diff := cmp.Diff(c.want, DescribeLostRights(c.before, c.now, resources)); diff != "" {
			t.Errorf("%s: %s: (-want +got)\n%s", name, c.reason, diff)
		}
	}
	var many []schema.GroupResource
	for _, r := range "abcdefgh" {
		many = append(many, schema.GroupResource{Resource: string(r)})
	}
	if got := DescribeLostRights(all, none, many); len(got) != maxLostTexts+1 || got[maxLostTexts] != "and 3 more" {
		t.Errorf("many resources: %q", got)
	}
}

// TestRights checks the methods of Rights.
func TestRights(t *testing.T) {
	if a, b := rights(t, "get,list a b", "* c d"), rights(t, "* c d", "list,get a b", "* c d"); a != b {
		t.Error("equal rules in another order differ")
	}
	if !rights(t, "* * *").IsUnlimited() || rights(t, "* * a").IsUnlimited() || (Rights{}).IsUnlimited() {
		t.Error("wrong rights are unlimited")
	}
	roles := schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}
	if !rights(t, "list,watch rbac.authorization.k8s.io *").MayWatch(roles) ||
		rights(t, "list rbac.authorization.k8s.io *").MayWatch(roles) || (Rights{}).MayWatch(roles) {
		t.Error("wrong rights may watch")
	}
	a, b := rights(t, "get a b"), rights(t, "list a b")
	if both := Union(a, b); both != rights(t, "get a b", "list a b") || Union(both, a) != both {
		t.Error("the union is wrong")
	}
	if Union(Rights{}, a) != a || Union(a, Rights{}) != a {
		t.Error("the union with unknown rights is wrong")
	}
	large := "get a " + strings.Repeat("x", maxRightsBytes*2/3)
	if Union(rights(t, large+"y"), rights(t, large+"z")) != rights(t, large+"z") {
		t.Error("the union is not bounded")
	}
	huge := `{"kind":"SelfSubjectRulesReview","status":{"resourceRules":[{"verbs":["*"],"apiGroups":["` +
		strings.Repeat("x", maxRightsBytes) + `"],"resources":["*"]}]}}`
	for _, answer := range []string{"", "{", "{}", `{"kind":"Status"}`, huge} {
		if r, err := ParseRights([]byte(answer)); err == nil || r.IsKnown() {
			t.Errorf("%.50q: %v, %v", answer, r, err)
		}
	}
	odd, err := ParseRights([]byte(`{"kind":"SelfSubjectRulesReview","status":{"resourceRules":[` +
		`{"verbs":["*"],"apiGroups":["a b"],"resources":["*"]},` +
		`{"verbs":["*"],"apiGroups":["*"],"resources":["*\n* * *"]}]}}`))
	if err != nil || odd != rights(t) {
		t.Errorf("names that no API has: %v, %v", odd, err)
	}
}

// FuzzParseRights checks that ParseRights keeps the size of the parsed rights within maxRightsBytes, whatever an API
// server answers.
func FuzzParseRights(f *testing.F) {
	f.Add([]byte(`{"kind":"SelfSubjectRulesReview","status":{"resourceRules":[{"verbs":["*"],"apiGroups":["*"]}]}}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		r, err := ParseRights(answer)
		if err != nil {
			return
		}
		if len(r.rules.Value()) > maxRightsBytes {
			t.Errorf("%d bytes", len(r.rules.Value()))
		}
		DescribeLostRights(r, Rights{}, resources)
	})
}

// TestCondition has one case for each row of the table at UnhealthyCredentialConditionOrNil.
func TestCondition(t *testing.T) {
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	saved := func(reason string) *metav1.Condition {
		return &metav1.Condition{Type: v1beta2.ConditionCredentialHealthy, Reason: reason, Message: "saved"}
	}
	const reduced, expires = v1beta2.ReasonRightsReduced, v1beta2.ReasonCredentialExpires
	const ends = expires + " the credential in access Secret a expires at 2026-11-23T10:00:00Z: write a new kubeconfig " +
		"into the Secret before"
	all, some, none := rights(t, "* * *"), rights(t, "* apps *"), rights(t)
	soon := Lifetime{now.Add(-99 * time.Hour), now.Add(time.Hour)}
	cases := map[string]struct {
		reason string
		saved  *metav1.Condition
		f      Finding
		want   string // reason and message
	}{
		"Lost": {"row 1", nil, Finding{Had: all, Has: some, Lifetime: soon}, reduced +
			" the credential in access Secret a has lost rights in the runtime (create,delete,get,list,patch " +
			"configmaps): grant them again, or write another kubeconfig into the Secret"},
		"LostBefore": {"row 2: they are still missing", saved(reduced), Finding{Had: some, Has: some, IsFirst: true},
			reduced + " saved"},
		"NotReviewed":  {"row 2: nothing is known yet", saved(reduced), Finding{IsFirst: true}, reduced + " saved"},
		"Granted":      {"row 4: all rights", saved(reduced), Finding{Had: all, Has: all, IsFirst: true}, ""},
		"GrantedSome":  {"row 4: it has got some", saved(reduced), Finding{Had: some, Has: some, IsFirst: false}, ""},
		"GrantedSince": {"row 4: it has got rights", saved(reduced), Finding{Had: Union(none, some), Has: some}, ""},
		"OtherSecret":  {"row 4: another credential", saved(reduced), Finding{Had: none, Has: none}, ""},
		"Expires":      {"row 3", nil, Finding{Lifetime: soon}, ends},
		"ExpiresLater": {"row 4", saved(expires),
			Finding{Lifetime: Lifetime{now.Add(-99 * time.Hour), now.Add(99 * time.Hour)}}, ""},
		"Nothing":        {"row 4", nil, Finding{Had: all, Has: all}, ""},
		"RegainedButEnd": {"row 3", saved(reduced), Finding{Had: all, Has: all, Lifetime: soon}, ends},
	}
	for name, c := range cases {
		c.f.Secret, c.f.Resources = "a", resources
		got := ""
		if is := UnhealthyCredentialConditionOrNil(c.saved, c.f, now); is != nil {
			got = is.Reason + " " + is.Message
		}
		if got != c.want {
			t.Errorf("%s: %s: got %q, want %q", name, c.reason, got, c.want)
		}
	}
}
