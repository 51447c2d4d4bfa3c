package declaration

import (
	"runtime"
	"strings"
	"testing"
)

// TestRiskWork evaluates expressions that need much time or memory. Each of them must be refused: a team that publishes
// a module must not be able to stop the manager with an expression.
func TestRiskWork(t *testing.T) {
	values := map[string]any{"kyma": "runtime-a", "channel": "regular", "installed": "1.0.0", "region": "eu",
		"platformRegion": "", "plan": "", "provider": "", "k8s.major": 1, "k8s.minor": 34,
		"labels": map[string]string{"region": "eu"}}
	double := strings.Repeat(".map(a, [a, a])", 40)
	for name, c := range map[string]struct{ reason, expression, refused string }{
		"Equal":    {"each list is twice as large as the one before", "[1]" + double + ".exists(a, a == a)", "exceeds the limit"},
		"NotEqual": {"likewise", "[1]" + double + ".exists(a, a != a)", "exceeds the limit"},
		"Add": {"a list added to itself", "[[1, 2, 3]]" + strings.Repeat(".map(a, a + a)", 40) + " == []",
			"exceeds the limit"},
		"Nested": {"CEL's own limit", "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, " +
			"[1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, a + b + c + d > 0))))", "cost limit exceeded"},
		"Long": {"a long text", "'" + strings.Repeat("x", maxExpression) + "' == ''", "size exceeds limit"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := EvaluateRisk(c.expression, values)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: got %v, want an error with %q", c.reason, err, c.refused)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 200<<20 {
				t.Errorf("%d MiB were allocated", allocated>>20)
			}
		})
	}
	for expression, want := range map[string]bool{
		`labels["region"] == "eu"`:        true,
		`installed in ["1.0.0", "1.0.1"]`: true,
		`k8s.minor < 30`:                  false,
		`labels.exists(key, key.matches("^reg") && labels[key] == "eu")`: true,
	} {
		if is, err := EvaluateRisk(expression, values); err != nil || is != want {
			t.Errorf("%s: got %t (%v), want %t", expression, is, err, want)
		}
	}
}
