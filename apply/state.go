package apply

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kyma-fleet/lifecycle-manager/internal/celwork"
)

// State is the state of a module as its custom resource reports it.
type State string

// States that a custom resource can report.
const (
	StateReady      State = "Ready"
	StateProcessing State = "Processing"
	StateWarning    State = "Warning"
	StateError      State = "Error"
	// StateDeleting can only be reported by a custom resource. For a custom resource that reports StateDeleting, the
	// State of the StateResult is Processing, because the custom resource is about to be created again or its deletion
	// is blocked.
	StateDeleting State = "Deleting"
)

// StateRules define how the state of a custom resource is read. With the zero value of StateRules, the state is the
// value of the field .status.state in the custom resource.
type StateRules struct {
	// Expression is a CEL expression over "self", the custom resource. Expression returns a bool or one of the values
	// of State. true means Ready, false means Processing. If Expression reads a field or an item of a list that the
	// custom resource does not have, the state is Processing. If Expression is "", Rules are used.
	Expression string
	// Rules are evaluated in their order. The first rule that matches determines the state. If no rule matches, the
	// state is Processing.
	Rules []StateRule
}

// StateRule maps a value in a custom resource to a state.
type StateRule struct {
	// JSONPath selects the value, in the syntax of kubectl: "status.health",
	// ".status.conditions[?(@.type=="Ready")].status". If JSONPath selects several values, the rule matches if one of
	// the values equals Value.
	JSONPath string
	// Value is the text to which the value that JSONPath selects must be equal: "green", "true", "3".
	Value string
	// State is the state of the custom resource if the selected value equals Value.
	State State
}

// StateResult is the state of one custom resource.
type StateResult struct {
	// State is Ready, Processing, Warning or Error.
	State State
	// Message names the custom resource and contains the message in its status. Message is one line of at most about 2
	// KiB. Message is "" if the state is Ready. Message stays the same as long as the object reports the same state and
	// message.
	Message string
}

// StateEvaluator determines the states of custom resources. StateEvaluator compiles rules once and caches at most 512
// compiled rules. The zero value is ready to use and safe for concurrent use. One StateEvaluator is enough for a
// process.
type StateEvaluator struct {
	mu       sync.Mutex
	env      *cel.Env                 // for all expressions; created with the first expression; guarded by mu
	limiter  *celwork.Limiter         // makes programs; created with env; guarded by mu
	programs map[string]*stateProgram // by key; guarded by mu
	order    []string                 // keys of programs, oldest first; guarded by mu
}

// maxPrograms, maxExpression, maxRules and maxCost, together with package celwork, limit the memory and the processor
// time that the state rules of modules need. maxCost is measured in the cost units of CEL. The evaluation of a hundred
// conditions costs about a thousand cost units of CEL. An evaluation that reaches maxCost takes about 50 ms.
const (
	maxPrograms   = 512
	maxExpression = 8 << 10
	maxRules      = 64
	maxCost       = 100_000
)

// Validate checks rules. If the rules are invalid, Validate returns an error with reason StateRuleInvalid, which
// contains the invalid expression, path or state.
func (s *StateEvaluator) Validate(rules StateRules) error {
	_, err := s.compiledRules(rules)
	return err
}

// Evaluate returns the state of a custom resource. The parameter ref is the reference with which messages name the
// custom resource. Evaluate uses the first row that matches in the table below.
//
//	is being deleted               Processing
//	Expression                     the result of the expression
//	Rules                          the state of the first rule that matches, else Processing
//	.status.state Ready … Error    the same state
//	.status.state Deleting         Processing
//	.status.state is missing       Processing, because the operator has not reconciled the custom resource yet
//	any other .status.state        Warning, because the value is not a valid state
//
// If the rules are invalid, Evaluate returns an error with reason StateRuleInvalid. Evaluate also returns this error
// for rules that Validate accepts but that fail on the present content of the custom resource, for example because a
// field has a type that does not fit, or because the evaluation would exceed a limit. Without rules, Evaluate returns a
// state for any content.
func (s *StateEvaluator) Evaluate(ref Ref, cr *unstructured.Unstructured, rules StateRules) (StateResult, error) {
	program, err := s.compiledRules(rules)
	if err != nil {
		return StateResult{}, err
	}
	if at := cr.GetDeletionTimestamp(); at != nil {
		return StateResult{StateProcessing, ref.String() + " is being deleted" + statusMessageSuffix(cr)}, nil
	}
	switch {
	case program.expression != nil:
		return program.evaluateExpression(ref, cr)
	case len(program.rules) > 0:
		return program.evaluateRules(ref, cr)
	}
	state, _, _ := unstructured.NestedString(cr.Object, "status", "state")
	if state == "" {
		return StateResult{StateProcessing, ref.String() + " has no state yet: its operator has not reconciled it"}, nil
	}
	return stateResultFor(ref, cr, state), nil
}

// stateResultFor returns the StateResult for a state that is given as text, such as "Ready". The state comes from
// .status.state, from an expression or from a rule.
func stateResultFor(ref Ref, cr *unstructured.Unstructured, word string) StateResult {
	switch state := State(word); state {
	case StateReady:
		return StateResult{State: StateReady}
	case StateProcessing, StateWarning, StateError:
		return StateResult{state, ref.String() + " is in state " + word + statusMessageSuffix(cr)}
	case StateDeleting:
		return StateResult{StateProcessing, ref.String() + " is in state " + word + statusMessageSuffix(cr)}
	default:
		return StateResult{StateWarning, ref.String() + " reports the unknown state " + strconv.Quote(
			clipMessage(word)) + statusMessageSuffix(cr)}
	}
}

// statusMessageSuffix returns a message from the status of a custom resource: the message of the first condition that
// is not True. If every condition is True, statusMessageSuffix returns the field status.description of the custom
// resource.
func statusMessageSuffix(cr *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedFieldNoCopy(cr.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		c, _ := c.(map[string]any)
		if message, _ := c["message"].(string); c["status"] != "True" && message != "" {
			return ": " + clipMessage(message)
		}
	}
	if text, _, _ := unstructured.NestedString(cr.Object, "status", "description"); text != "" {
		return ": " + clipMessage(text)
	}
	return ""
}

// stateProgram is the compiled form of StateRules.
type stateProgram struct {
	expression *celwork.Program
	source     string
	rules      []StateRule
	problem    string // why the rules are invalid

	mu    sync.Mutex
	paths []*jsonpath.JSONPath // compiled paths of rules; an evaluation changes them; guarded by mu
}

// compiledRules returns the compiled rules. If the cache contains the rules, compiledRules takes them from the cache.
func (s *StateEvaluator) compiledRules(rules StateRules) (*stateProgram, error) {
	key := rules.key()
	s.mu.Lock()
	p, ok := s.programs[key]
	s.mu.Unlock()
	if !ok {
		p = s.compile(rules)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.programs == nil {
			s.programs = map[string]*stateProgram{}
		}
		if s.programs[key] == nil {
			s.order = append(s.order, key)
		}
		s.programs[key] = p
		if len(s.order) > maxPrograms {
			delete(s.programs, s.order[0])
			s.order = slices.Delete(s.order, 0, 1)
		}
	}
	if p.problem != "" {
		return nil, ruleError(Ref{}, p.problem)
	}
	return p, nil
}

func ruleError(ref Ref, problem string) *Error {
	return &Error{Operation: "reading the state of the custom resource", Ref: ref,
		Message: clipMessage(problem), reason: StateRuleInvalid}
}

// key returns the key of the rules in the cache.
func (r StateRules) key() string {
	var b strings.Builder
	b.WriteString(strconv.Quote(r.Expression))
	for _, rule := range r.Rules {
		fmt.Fprintf(&b, ",%q %q %q", rule.JSONPath, rule.Value, rule.State)
	}
	return b.String()
}

// compile compiles rules. If the rules are invalid, the compiled program contains the problem, so that the problem is
// cached, too.
func (s *StateEvaluator) compile(rules StateRules) *stateProgram {
	p := &stateProgram{source: rules.Expression}
	if rules.Expression != "" {
		p.expression, p.problem = s.compileExpression(rules.Expression)
		return p
	}
	if len(rules.Rules) > maxRules {
		return &stateProgram{problem: fmt.Sprintf("there are %d rules, at most %d are allowed",
			len(rules.Rules), maxRules)}
	}
	for i, rule := range rules.Rules {
		path, problem := compileJSONPath(rule.JSONPath)
		if problem == "" && !slices.Contains(allStates, rule.State) {
			problem = fmt.Sprintf("mappedState %q is none of %v", rule.State, allStates)
		}
		if problem != "" {
			return &stateProgram{problem: fmt.Sprintf("rule %d: %s", i+1, problem)}
		}
		p.paths = append(p.paths, path)
	}
	p.rules = slices.Clone(rules.Rules)
	return p
}

var allStates = []State{StateReady, StateProcessing, StateWarning, StateError, StateDeleting}

// celEnvironment returns the CEL environment with "self", the libraries for strings, lists and sets, and optional
// fields. The limiter makes the programs of this environment.
func (s *StateEvaluator) celEnvironment() (env *cel.Env, limiter *celwork.Limiter, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limiter != nil {
		return s.env, s.limiter, nil
	}
	s.env, err = cel.NewEnv(cel.Variable("self", cel.DynType), cel.OptionalTypes(),
		ext.Strings(), ext.Lists(ext.ListsMaxRangeSize(maxCost)), ext.Sets(),
		cel.ParserRecursionLimit(64), cel.ParserExpressionSizeLimit(maxExpression))
	if err != nil {
		return nil, nil, err
	}
	s.limiter, err = celwork.NewLimiter(s.env)
	return s.env, s.limiter, err
}

// compileExpression compiles a CEL expression. problem states why the expression is invalid.
func (s *StateEvaluator) compileExpression(text string) (program *celwork.Program, problem string) {
	if len(text) > maxExpression {
		return nil, fmt.Sprintf("the expression has %d bytes, at most %d are allowed", len(text), maxExpression)
	}
	env, limiter, err := s.celEnvironment()
	if err != nil {
		return nil, "preparing CEL: " + err.Error()
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		var parts []string
		for _, e := range issues.Errors()[:min(len(issues.Errors()), 3)] {
			parts = append(parts, fmt.Sprintf("%d:%d %s", e.Location.Line(), e.Location.Column()+1, e.Message))
		}
		return nil, fmt.Sprintf("expression %q: %s", clipExpression(text), strings.Join(parts, "; "))
	}
	if kind := ast.OutputType(); !kind.IsAssignableType(cel.BoolType) && !kind.IsAssignableType(cel.StringType) {
		return nil, fmt.Sprintf("expression %q returns %s, want bool or string", clipExpression(text), kind)
	}
	program, err = limiter.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, fmt.Sprintf("expression %q: %s", clipExpression(text), err)
	}
	return program, ""
}

// evaluateExpression returns the result of the CEL expression.
func (p *stateProgram) evaluateExpression(object Ref, cr *unstructured.Unstructured) (StateResult, error) {
	out, err := p.expression.Eval(map[string]any{"self": cr.Object})
	if err != nil {
		if missing := missingField(err, out); missing != "" {
			return StateResult{StateProcessing, object.String() + " has no " + missing +
				" yet, from which its state is read" + statusMessageSuffix(cr)}, nil
		}
		return StateResult{}, ruleError(object, fmt.Sprintf("expression %q: %s", clipExpression(p.source), err))
	}
	switch result := out.Value().(type) {
	case bool:
		if result {
			return StateResult{State: StateReady}, nil
		}
		return StateResult{StateProcessing, fmt.Sprintf("%s: %q is not true yet%s", object,
			clipMessage(p.source), statusMessageSuffix(cr))}, nil
	case string:
		if !slices.Contains(allStates, State(result)) {
			return StateResult{}, ruleError(object, fmt.Sprintf("expression %q returns %q, want one of %v",
				clipExpression(p.source), clipExpression(result), allStates))
		}
		return stateResultFor(object, cr, result), nil
	default:
		return StateResult{}, ruleError(object, fmt.Sprintf("expression %q returns %s, want bool or string",
			clipExpression(p.source), out.Type().TypeName()))
	}
}

// noSuchKeyPattern matches the error that CEL returns for a field that does not exist.
var noSuchKeyPattern = regexp.MustCompile(`^no such key: (\S+)$`)

// noSuchItemPattern matches the errors that CEL returns for a list that has fewer items than an index needs. CEL
// returns the first text for a list of the object, and the second text for a list that the expression has computed.
var noSuchItemPattern = regexp.MustCompile(`^index (?:out of bounds: (\d+)|'(\d+)' out of range in list size '\d+')$`)

// missingField returns the name of the missing field if the evaluation of an expression failed because a field or an
// item of a list is missing. missingField returns "" if the error has another cause.
func missingField(err error, out ref.Val) string {
	text := err.Error()
	if e, ok := out.(*types.Err); ok && e != nil {
		text = e.Error()
	}
	if found := noSuchKeyPattern.FindStringSubmatch(text); found != nil {
		return clipMessage(found[1])
	}
	if found := noSuchItemPattern.FindStringSubmatch(text); found != nil {
		return "item " + found[1] + found[2] + " of a list"
	}
	return ""
}

// compileJSONPath compiles a JSONPath. The expression may have braces and a leading dot, or neither.
func compileJSONPath(text string) (path *jsonpath.JSONPath, problem string) {
	inner := strings.TrimSpace(text)
	if strings.HasPrefix(inner, "{") && strings.HasSuffix(inner, "}") {
		inner = inner[1 : len(inner)-1]
	}
	switch {
	case inner == "":
		return nil, "jsonPath is empty"
	case len(inner) > 1<<10:
		return nil, "jsonPath " + strconv.Quote(clipMessage(inner)) + " is too long"
	case !strings.ContainsAny(inner[:1], ".[$@"):
		inner = "." + inner
	}
	if strings.ContainsAny(inner, "{}") {
		return nil, "jsonPath " + strconv.Quote(inner) + " contains braces"
	}
	path = jsonpath.New("state").AllowMissingKeys(true)
	if err := parseJSONPath(path, "{"+inner+"}"); err != nil {
		return nil, fmt.Sprintf("jsonPath %q: %s", text, err)
	}
	return path, ""
}

// parseJSONPath converts a panic of the JSONPath parser into an error about this path. The parser is a dependency, so
// its panics cannot be fixed here.
func parseJSONPath(path *jsonpath.JSONPath, text string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be parsed: %v", r)
		}
	}()
	return path.Parse(text)
}

// evaluateRules returns the result of the first rule that matches.
func (p *stateProgram) evaluateRules(object Ref, cr *unstructured.Unstructured) (StateResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var seen []string
	for i, rule := range p.rules {
		values, err := findValues(p.paths[i], cr.Object)
		if err != nil {
			return StateResult{}, ruleError(object, fmt.Sprintf("rule %d: jsonPath %q: %s", i+1, rule.JSONPath, err))
		}
		if slices.Contains(values, rule.Value) {
			return stateResultFor(object, cr, string(rule.State)), nil
		}
		text := rule.JSONPath + " is " + strconv.Quote(clipMessage(strings.Join(values, " ")))
		if len(values) == 0 {
			text = rule.JSONPath + " is missing"
		}
		if !slices.Contains(seen, text) {
			seen = append(seen, text)
		}
	}
	return StateResult{StateProcessing, object.String() + " matches none of the state rules yet: " + clipMessage(
		strings.Join(seen, ", ")) + statusMessageSuffix(cr)}, nil
}

// findValues returns the texts of the values that a path selects.
func findValues(path *jsonpath.JSONPath, tree map[string]any) (values []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be evaluated on the object: %v", r)
		}
	}()
	results, err := path.FindResults(tree)
	if err != nil {
		return nil, err
	}
	for _, list := range results {
		for _, value := range list {
			if value.IsValid() && value.CanInterface() && value.Interface() != nil {
				values = append(values, fmt.Sprint(value.Interface()))
			}
		}
	}
	return values, nil
}
