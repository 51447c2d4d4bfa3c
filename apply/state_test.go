package apply

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var thingRef = Ref{Group: "example.com", Version: "v1", Kind: "Thing", Namespace: "mod", Name: "default"}

func customResource(t testing.TB, status string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("{apiVersion: example.com/v1, kind: Thing, metadata: {name: default}, "+status+"}"),
		&u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestEvaluate(t *testing.T) {
	rules := []StateRule{{"status.health", "red", StateError}, {".status.health", "green", StateReady},
		{`{.status.conditions[?(@.type=="Ready")].status}`, "True", StateReady},
		{"status.replicas", "3", StateWarning}}
	tests := map[string]struct {
		reason  string
		rules   StateRules
		cr      string
		want    State
		message string // "" for none, else a part of it
	}{
		"Ready": {reason: "the contract", rules: StateRules{}, cr: `status: {state: Ready}`, want: StateReady},
		"Warning": {
			reason:  "with its first condition that is not true",
			rules:   StateRules{},
			cr:      `status: {state: Warning, conditions: [{status: "True", message: good}, {status: "False", message: "no disk"}]}`,
			want:    StateWarning,
			message: "Thing.example.com mod/default is in state Warning: no disk",
		},
		"Error": {
			reason:  "with its description",
			rules:   StateRules{},
			cr:      `status: {state: Error, description: "it burns"}`,
			want:    StateError,
			message: "is in state Error: it burns",
		},
		"Processing": {
			reason:  "nothing to say",
			rules:   StateRules{},
			cr:      `status: {state: Processing}`,
			want:    StateProcessing,
			message: "is in state Processing",
		},
		"Deleting": {
			reason:  "it will come back, or block",
			rules:   StateRules{},
			cr:      `status: {state: Deleting}`,
			want:    StateProcessing,
			message: "is in state Deleting",
		},
		"None": {
			reason:  "its operator has not reconciled it",
			rules:   StateRules{},
			cr:      `spec: {}`,
			want:    StateProcessing,
			message: "has no state yet",
		},
		"Unknown": {
			reason:  "it breaks the contract",
			rules:   StateRules{},
			cr:      `status: {state: Fine}`,
			want:    StateWarning,
			message: `reports the unknown state "Fine"`,
		},
		"Odd": {
			reason:  "a state that is no text",
			rules:   StateRules{},
			cr:      `status: {state: 3, conditions: [3, {status: 4, message: 5}]}`,
			want:    StateProcessing,
			message: "has no state yet",
		},
		"Long": {
			reason:  "messages are bounded",
			rules:   StateRules{},
			cr:      `status: {state: Error, description: "` + strings.Repeat("x", 5000) + `"}`,
			want:    StateError,
			message: "x…",
		},

		"RuleFirst": {
			reason:  "the first that matches wins",
			rules:   StateRules{Rules: rules},
			cr:      `status: {health: red, replicas: 3}`,
			want:    StateError,
			message: "is in state Error",
		},
		"RuleSecond": {
			reason: "then the next",
			rules:  StateRules{Rules: rules},
			cr:     `status: {health: green, replicas: 3}`,
			want:   StateReady,
		},
		"RuleFilter": {
			reason: "a path with a filter",
			rules:  StateRules{Rules: rules},
			cr:     `status: {conditions: [{type: Ready, status: "True"}]}`,
			want:   StateReady,
		},
		"RuleNumber": {
			reason:  "numbers are compared as text",
			rules:   StateRules{Rules: rules},
			cr:      `status: {replicas: 3}`,
			want:    StateWarning,
			message: "is in state Warning",
		},
		"RuleNone": {
			reason:  "the value is in the message",
			rules:   StateRules{Rules: rules},
			cr:      `status: {health: yellow}`,
			want:    StateProcessing,
			message: `matches none of the state rules yet: status.health is "yellow"`,
		},
		"RuleMissing": {
			reason:  "a missing value, too",
			rules:   StateRules{Rules: rules[:1]},
			cr:      `spec: {}`,
			want:    StateProcessing,
			message: `status.health is missing`,
		},
		"RuleDeleting": {
			reason:  "a rule can result in Deleting",
			rules:   StateRules{Rules: []StateRule{{"status.health", "red", StateDeleting}}},
			cr:      `status: {health: red}`,
			want:    StateProcessing,
			message: `is in state Deleting`,
		},

		"ExprTrue": {
			reason: "true is Ready",
			rules:  StateRules{Expression: `self.status.ready == self.spec.replicas`},
			cr:     `{spec: {replicas: 2}, status: {ready: 2}}`,
			want:   StateReady,
		},
		"ExprFalse": {
			reason:  "false is not yet",
			rules:   StateRules{Expression: `self.status.ready > 2`},
			cr:      `status: {ready: 2, description: "one more"}`,
			want:    StateProcessing,
			message: `: "self.status.ready > 2" is not true yet: one more`,
		},
		"ExprWord": {
			reason:  "a word is that state",
			rules:   StateRules{Expression: `has(self.status.bad) ? 'Error' : 'Ready'`},
			cr:      `status: {bad: 1}`,
			want:    StateError,
			message: "is in state Error",
		},
		"ExprMissing": {
			reason:  "a missing field is expected to be set later",
			rules:   StateRules{Expression: `self.status.ready > 2`},
			cr:      `spec: {}`,
			want:    StateProcessing,
			message: `has no status yet`,
		},
		"ExprOptional": {
			reason:  "optional fields",
			rules:   StateRules{Expression: `self.?status.?ready.orValue(0) > 2`},
			cr:      `spec: {}`,
			want:    StateProcessing,
			message: `is not true yet`,
		},
		"ExprOver": {
			reason: "it precedes rules",
			rules:  StateRules{Expression: `true`, Rules: rules},
			cr:     `status: {health: red}`,
			want:   StateReady,
		},
		"ExprIndex": {
			reason:  "an item that is missing is expected to be added later",
			rules:   StateRules{Expression: `self.status.conditions[0].status == 'True'`},
			cr:      `status: {conditions: []}`,
			want:    StateProcessing,
			message: `has no item 0 of a list yet`,
		},
		"ExprIndexComputed": {
			reason:  "an item of a list that the expression computes",
			rules:   StateRules{Expression: `self.status.conditions.filter(c, c.type == 'Ready')[0].status == 'True'`},
			cr:      `status: {conditions: [{type: Installed, status: "True"}]}`,
			want:    StateProcessing,
			message: `has no item 0 of a list yet`,
		},
		"ExprIndexSum": {
			reason:  "an item of a list that the expression puts together",
			rules:   StateRules{Expression: `(self.status.a + self.status.b)[1] == 'ok'`},
			cr:      `status: {a: [ok], b: []}`,
			want:    StateProcessing,
			message: ` of a list yet`,
		},
		"ExprLibraries": {
			reason: "the functions that have a limit of their own",
			rules: StateRules{Expression: `
				self.status.names.distinct().join(',').replace(',', ';', 1) == 'b;a' &&
				dyn(self.status.names.sort()) == ['a', 'b', 'b'] &&
				self.status.names.sortBy(n, n)[0] == 'a' && self.status.names != self.spec &&
				sets.contains(self.status.names, ['a']) && sets.intersects(self.status.names, ['a', 'z']) &&
				sets.equivalent(self.status.names, ['a', 'b']) && 'b' in self.status.names && 'names' in self.status &&
				[[1], [2]].flatten() == [1, 2] && [[[1]]].flatten(2) == [1] && [1] + [2] == [1, 2] &&
				'%s is %d'.format(['a', 1]) == 'a is 1' && 'abc'.matches('^a.{1,2}$') &&
				'abcabc'.indexOf('b') == 1 && 'abcabc'.lastIndexOf('b') == 4 && 1 + 2 == 3 && 'a' + 'b' == 'ab' &&
				self.status == {'names': ['b', 'a', 'b']} && [self.?status.names] == [optional.of(['b', 'a', 'b'])] &&
				self.status.names.map(n, n + n).filter(n, n != 'aa') == ['bb', 'bb']`},
			cr:   `{spec: {}, status: {names: [b, a, b]}}`,
			want: StateReady,
		},
		"ExprList": {
			reason: "lists",
			rules:  StateRules{Expression: `self.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')`},
			cr:     `status: {conditions: [{type: Ready, status: "True"}]}`,
			want:   StateReady,
		},
	}
	var states StateEvaluator
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cr := strings.TrimSuffix(strings.TrimPrefix(tc.cr, "{"), "}")
			if !strings.HasPrefix(tc.cr, "{") {
				cr = tc.cr
			}
			got, err := states.Evaluate(thingRef, customResource(t, cr), tc.rules)
			if err != nil || got.State != tc.want || !strings.Contains(got.Message, tc.message) ||
				(tc.message == "") != (got.Message == "") {
				t.Errorf("%s: got %+v, %v, want %s with %q", tc.reason, got, err, tc.want, tc.message)
			}
			if got.Message != "" && !strings.Contains(got.Message, thingRef.String()) || len(got.Message) > 3000 {
				t.Errorf("the message must name the object and be bounded: %q", got.Message)
			}
		})
	}
	going := customResource(t, `status: {state: Ready}`)
	going.SetDeletionTimestamp(new(metav1.Now()))
	if got, err := states.Evaluate(thingRef, going, StateRules{}); err != nil || got.State != StateProcessing ||
		!strings.Contains(got.Message, "is being deleted") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestStateRulesInvalid(t *testing.T) {
	tests := map[string]struct {
		reason  string
		rules   StateRules
		late    bool // the error occurs only when an object is evaluated
		message string
	}{
		"Syntax": {"the place is told", StateRules{Expression: "self.status. == 3"}, false,
			`expression "self.status. == 3": 1:`},
		"Type": {"a type error at compile time", StateRules{Expression: `1 + 'a' == self.x`},
			false, "no matching overload"},
		"Result": {"a number is no state", StateRules{Expression: "1 + 2"}, false,
			"returns int, want bool or string"},
		"Name": {"only self is known", StateRules{Expression: "object.status.state == 'Ready'"},
			false, "undeclared reference"},
		"Long": {"bounded", StateRules{Expression: "true || '" + strings.Repeat("x", 9000) + "' == ''"}, false,
			"at most 8192"},
		"Word": {"a word that is no state", StateRules{Expression: "'Fine'"}, true,
			`returns "Fine", want one of [Ready`},
		"Dynamic": {"a type that only the object shows", StateRules{Expression: "self.list"}, true,
			"returns list, want bool or string"},
		"Overload": {"types that do not fit", StateRules{Expression: "self.list > 3"}, true, "no such overload"},
		"Cost": {"an expensive expression is stopped",
			StateRules{Expression: "self.list.all(a, self.list.all(b, self.list.all(c, self.list.all(d, a + b + c + " +
				"d >= 0))))"}, true, "cost limit exceeded"},
		"Path": {"the path is named", StateRules{Rules: []StateRule{{"status.x", "", StateReady},
			{"status[", "x", StateReady}}}, false, `rule 2: jsonPath "status["`},
		"NoPath": {"there must be one", StateRules{Rules: []StateRule{{"", "x", StateReady}}}, false,
			"rule 1: jsonPath is empty"},
		"Braces": {"one path a rule", StateRules{Rules: []StateRule{{"{.a}{.b}", "x", StateReady}}}, false,
			"contains braces"},
		"State": {"a mapped state that is none", StateRules{Rules: []StateRule{{"a", "x", "Fine"}}},
			false, `mappedState "Fine"`},
		"Many": {"bounded", StateRules{Rules: make([]StateRule, 65)}, false, "at most 64"},
	}
	cr := customResource(t, "list: ["+strings.TrimSuffix(strings.Repeat("1,", 300), ",")+"]")
	var states StateEvaluator
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second evaluation uses the cache
				start := time.Now()
				_, err := states.Evaluate(thingRef, cr, tc.rules)
				if !reasonIs(err, StateRuleInvalid) || ClassOf(err) != Terminal ||
					!strings.Contains(err.Error(), tc.message) {
					t.Errorf("%s: got %v, want %q", tc.reason, err, tc.message)
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("took %s", took)
				}
			}
			if err := states.Validate(tc.rules); (err == nil) != tc.late {
				t.Errorf("check: got %v", err)
			}
		})
	}
	if err := states.Validate(StateRules{}); err != nil {
		t.Errorf("the zero value is valid: %v", err)
	}
	for i := range maxPrograms + 10 {
		_ = states.Validate(StateRules{Rules: []StateRule{{"a", strings.Repeat("x", i), StateReady}}})
	}
	if len(states.programs) != maxPrograms || len(states.order) != maxPrograms {
		t.Errorf("got %d programs kept and %d in order, want %d", len(states.programs), len(states.order), maxPrograms)
	}
}

// TestStateExpressionWork evaluates expressions whose calls and literals would need much time or memory. Each of them
// must be refused before it begins, with a message that names the function and the limit.
func TestStateExpressionWork(t *testing.T) {
	items := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	grow := ".replace('', '" + strings.Repeat("x", 100) + "')"
	const literal = "a literal of a list or map"
	cases := map[string]struct{ expression, refused string }{
		"Add":      {"[self.list]" + strings.Repeat(".map(a, a + a)", 12) + " == []", ""},
		"Distinct": {"self.list.distinct() == []", "the function distinct"},
		"Equal":    {"self.list.all(i, self.list == self.list)", "the operator =="},
		"Flatten":  {"[self.list].flatten(1000) == []", "the function flatten"},
		"Format": {"'" + strings.Repeat("%s", 200) + "'.format(" + items(200, "self.text") + ") == ''",
			"the function format"},
		"Growth":      {"['x'" + grow + grow + "].exists(y, y.replace('', y) == '')", "the function replace"},
		"In":          {"self.list.all(i, self.list in [self.list, self.list])", ""},
		"IndexOf":     {"self.text.indexOf(self.text) == 0", "the function indexOf"},
		"Join":        {"self.list.map(i, 'a').join(self.text) == ''", "the function join"},
		"LastIndexOf": {"self.text.lastIndexOf(self.text) == 0", "the function lastIndexOf"},
		"List":        {items(600, "self.text") + " == []", literal},
		"Map":         {"{'a': " + items(300, "self.text") + "} == {}", literal},
		"Matches":     {"self.text.matches('a{1000}b{1000}c{1000}')", "the function matches"},
		"Nested":      {"[1]" + strings.Repeat(".map(a, [a, a])", 25) + " == []", ""},
		"NotEqual":    {"self.list.all(i, !(self.list != self.list))", "the operator !="},
		"Replace":     {"self.text.replace('x', self.text) == ''", "the function replace"},
		"Sets":        {"sets.contains(self.list, self.list)", "the function sets.contains"},
		"Sort":        {"self.list.all(i, self.list.sort() != [])", "the function sort"},
		"SortBy":      {items(100, "self.text") + ".sortBy(i, i) == []", "the function sortBy"},
	}
	var list strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&list, "%d,", i)
	}
	cr := customResource(t, "text: "+strings.Repeat("x", 20_000)+", list: ["+strings.TrimSuffix(list.String(), ",")+"]")
	var states StateEvaluator
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := states.Evaluate(thingRef, cr, StateRules{Expression: c.expression})
			runtime.ReadMemStats(&after)
			if !reasonIs(err, StateRuleInvalid) ||
				!strings.Contains(err.Error(), c.refused+" exceeds the limit of 1000000 values in one evaluation") {
				t.Errorf("got %v, want %q to be refused", err, c.refused)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 200<<20 {
				t.Errorf("%d MiB were allocated", allocated>>20)
			}
		})
	}
}

// TestEvaluateParallel evaluates shared rules concurrently, to find races with the race detector.
func TestEvaluateParallel(t *testing.T) {
	var states StateEvaluator
	cr := customResource(t, `status: {list: [{a: 1}, {a: 2}], ready: true}`)
	done := make(chan error)
	for range 8 {
		go func() {
			var err error
			for range 100 {
				for _, rules := range []StateRules{{Expression: "self.status.ready"},
					{Rules: []StateRule{{"status.list[*].a", "2", StateReady}}}} {
					if v, e := states.Evaluate(thingRef, cr, rules); e != nil || v.State != StateReady {
						err = e
					}
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func FuzzStateRules(f *testing.F) {
	f.Add("self.status.x == 1", "status.x", "1")
	f.Add("'Ready'", `.status.conditions[?(@.type=="Ready")].status`, "True")
	f.Add("self.?a[0]", "..*", "")
	f.Add("", "status[-1:0:0]", "")
	f.Add("", "a[?(@.b==@.c)]", "")
	cr := customResource(f, `status: {x: 1, conditions: [{type: Ready, status: "True"}], a: null, b: [[1], {c: d}, 1.5]}`)
	f.Fuzz(func(t *testing.T, expression, path, value string) {
		var states StateEvaluator
		for _, rules := range []StateRules{{Expression: expression}, {Rules: []StateRule{{path, value, StateReady}}}} {
			v, err := states.Evaluate(thingRef, cr, rules)
			if err != nil && (!reasonIs(err, StateRuleInvalid) || len(err.Error()) > 4<<10) {
				t.Errorf("got %v", err)
			}
			if err == nil && v.State == "" || len(v.Message) > 4<<10 {
				t.Errorf("got %+v", v)
			}
		}
	})
}
