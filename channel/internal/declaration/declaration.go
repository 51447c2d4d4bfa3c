// Package declaration evaluates the ranges of versions and the expressions that a ModuleTemplate declares.
//
// # Use
//
//	is, err := declaration.InRange("1.4.0", ">=1.3.0 <2.0.0")
//	is, err := declaration.EvaluateRisk(`labels["region"] == "eu"`, values)
//
// # How it works
//
// Parsed ranges and compiled expressions are cached, because the same ranges and expressions are evaluated for every
// runtime. The size of the caches, and the cost and the work of an evaluation are limited: the expressions come from
// the teams who publish modules, and are evaluated in the manager.
//
// # What it does not do
//
// The package only evaluates ranges and expressions. Package channel decides which version a runtime gets after the
// evaluation.
package declaration

import (
	"fmt"
	"sync"

	"github.com/Masterminds/semver/v3"
	"github.com/google/cel-go/cel"

	"github.com/kyma-fleet/lifecycle-manager/internal/celwork"
)

const (
	maxRiskCost   = 10000 // in the unit of CEL: some milliseconds
	maxExpression = 1024  // characters of an expression, as in the CRD
	maxPrograms   = 256   // compiled expressions in memory
	maxRanges     = 2048  // parsed ranges in memory
)

// InRange reports whether a version is in a range of versions. A pre-release is in a range if its precedence is in the
// range.
func InRange(version, versionRange string) (bool, error) {
	constraints, err := ranges.get(versionRange)
	if err != nil {
		return false, err
	}
	v, err := semver.StrictNewVersion(version)
	if err != nil {
		return false, fmt.Errorf("%q is not a semantic version", version)
	}
	return constraints.Check(v), nil
}

// ranges is the cache of the parsed ranges of all templates. The ranges are cached because the search for an upgrade
// path checks the same range several times, again for each runtime.
var ranges parsedRanges

type parsedRanges struct {
	mu     sync.Mutex
	parsed map[string]*semver.Constraints // guarded by mu: by text; nil: it is not valid
}

func (p *parsedRanges) get(text string) (*semver.Constraints, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	constraints, known := p.parsed[text]
	if !known {
		if parsed, err := semver.NewConstraint(text); err == nil {
			constraints = parsed
			constraints.IncludePrerelease = true
		}
		if p.parsed == nil || len(p.parsed) >= maxRanges {
			p.parsed = map[string]*semver.Constraints{}
		}
		p.parsed[text] = constraints
	}
	if constraints == nil {
		return nil, fmt.Errorf("%.256q is not a range of versions, such as \">=1.3.0 <2.0.0\"", text)
	}
	return constraints, nil
}

// ValidateRisk checks an expression: it returns an error if the expression is not valid.
func ValidateRisk(expression string) error {
	_, err := risks.compiled(expression)
	return err
}

// EvaluateRisk returns the result of an expression for one runtime.
func EvaluateRisk(expression string, values map[string]any) (bool, error) {
	return risks.evaluate(expression, values)
}

// risks is the cache of the compiled expressions of risks. Compiled expressions are cached, because the same
// expressions are evaluated for every runtime.
var risks = &evaluator{programs: map[string]compiledRisk{}}

type evaluator struct {
	mu       sync.Mutex
	programs map[string]compiledRisk // guarded by mu: by expression
}

type compiledRisk struct {
	program *celwork.Program
	err     error
}

var riskEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{cel.Variable("labels", cel.MapType(cel.StringType, cel.StringType))}
	for _, name := range []string{"kyma", "channel", "installed", "region", "platformRegion", "plan", "provider"} {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	for _, name := range []string{"k8s.major", "k8s.minor"} {
		options = append(options, cel.Variable(name, cel.IntType))
	}
	return cel.NewEnv(append(options, cel.ParserRecursionLimit(64), cel.ParserExpressionSizeLimit(maxExpression))...)
})

var riskLimiter = sync.OnceValues(func() (*celwork.Limiter, error) {
	env, err := riskEnvironment()
	if err != nil {
		return nil, err
	}
	return celwork.NewLimiter(env)
})

func (e *evaluator) compiled(expression string) (*celwork.Program, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, found := e.programs[expression]; found {
		return known.program, known.err
	}
	program, err := compileRisk(expression)
	if len(e.programs) >= maxPrograms {
		clear(e.programs)
	}
	e.programs[expression] = compiledRisk{program, err}
	return program, err
}

func compileRisk(expression string) (*celwork.Program, error) {
	env, err := riskEnvironment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("%.128q is not a valid CEL expression: %w", expression, issues.Err())
	}
	if ast.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("%.128q is not true or false", expression)
	}
	limiter, err := riskLimiter()
	if err != nil {
		return nil, err
	}
	return limiter.Program(ast, cel.CostLimit(maxRiskCost))
}

func (e *evaluator) evaluate(expression string, values map[string]any) (bool, error) {
	program, err := e.compiled(expression)
	if err != nil {
		return false, err
	}
	result, err := program.Eval(values)
	if err != nil {
		return false, err
	}
	is, ok := result.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the result is not true or false")
	}
	return is, nil
}
