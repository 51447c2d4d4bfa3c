package celwork

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// programFor returns the program of an expression that can use the variable self and all libraries with functions in
// callWork.
func programFor(t *testing.T, expression string) (*cel.Env, *Program) {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("self", cel.DynType), cel.OptionalTypes(),
		ext.Strings(), ext.Lists(), ext.Sets())
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := NewLimiter(env)
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := limiter.Program(ast, cel.CostLimit(100_000))
	if err != nil {
		t.Fatal(err)
	}
	return env, program
}

// TestCallWork checks that the functions with a limit exist.
func TestCallWork(t *testing.T) {
	env, _ := programFor(t, "true")
	for function := range callWork {
		if !env.HasFunction(function) {
			t.Errorf("CEL has no function %s", function)
		}
	}
}

// TestEvalParallel checks that each evaluation has a limit of its own, also if several evaluations of one program run
// at the same time.
func TestEvalParallel(t *testing.T) {
	const expression = "self == self && self in [self]"
	_, program := programFor(t, expression)
	list := make([]int, maxWork/6) // two evaluations together exceed the limit
	variables := map[string]any{"self": list}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 3 {
				if value, err := program.Eval(variables); err != nil || value.Value() != true {
					t.Errorf("got %v (%v), want true", value, err)
				}
			}
		})
	}
	group.Wait()
	if len(variables) != 1 {
		t.Errorf("the variables of the caller were changed: %d", len(variables))
	}
	_, err := program.Eval(map[string]any{"self": make([]int, maxWork)})
	if err == nil || !strings.Contains(err.Error(), "the operator == exceeds the limit of 1000000 values") {
		t.Errorf("got %v, want the operator to be refused", err)
	}
}
