// Package celwork limits the work of evaluations of CEL expressions.
//
// # Use
//
//	limiter, err := celwork.NewLimiter(env)
//	program, err := limiter.Program(ast, cel.CostLimit(100_000))
//	value, err := program.Eval(map[string]any{"self": object})
//
// # How it works
//
// The expressions come from teams who publish modules. CEL has a limit for the cost of an evaluation, but CEL adds the
// cost of a call only after the call: the last call may allocate gigabytes, or compare the items of a list for hours.
// CEL also does not count the content of items, and a few nested literals such as [x, x] result in a list whose
// comparison never ends. Package celwork computes the work of each call from its arguments, and refuses the call before
// it begins if the evaluation would exceed the limit.
//
// # What it does not do
//
// The package does not replace the cost limit of CEL. Functions whose work is proportional to the size of their
// arguments have no limit beyond the cost limit, because the limited calls and literals also limit the size of values.
package celwork

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// maxWork is the limit of one evaluation: the number of values that function calls and literals process, where
// bytesPerWork bytes of text count as one value. Because literals count too, the values of an evaluation have at most
// maxWork values more than its variables.
const maxWork = 1_000_000

// bytesPerWork is the number of bytes of text that count as one value, as in the cost model of CEL.
const bytesPerWork = 10

// workLeftVariable is the variable of an evaluation that contains the rest of maxWork, as *int. An expression cannot
// read the variable, because its name is no identifier of CEL.
const workLeftVariable = "@workLeft"

// callWork has the functions that need a limit beyond the cost limit of CEL. The value returns an upper limit of the
// work of a call. If this limit is more than the parameter left, any number above left may be returned instead.
var callWork = map[string]func(args []ref.Val, left int) int{
	operators.Add:       additionWork,
	operators.Equals:    equalityWork,
	operators.NotEquals: equalityWork,
	operators.In: func(args []ref.Val, left int) int {
		return (itemCount(args[1]) + 1) * workOf(args[0], left)
	},
	"distinct": func(args []ref.Val, left int) int { // compares each item with all others
		return (itemCount(args[0])/2 + 1) * workOf(args[0], left)
	},
	"flatten": func(args []ref.Val, left int) int {
		depth := types.Int(1)
		if len(args) > 1 {
			depth, _ = args[1].(types.Int)
		}
		return workOf(args[0], left) * int(max(1, min(depth, maxWork)))
	},
	"format": func(args []ref.Val, left int) int {
		const perVerb = 400 / bytesPerWork // the longest number, with a precision of 100
		return textWork(args[0]) + perVerb*strings.Count(textOf(args[0]), "%") + 3*workOf(args[1], left)
	},
	"indexOf": searchWork,
	"join": func(args []ref.Val, left int) int {
		work := workOf(args[0], left)
		if len(args) > 1 {
			work += itemCount(args[0]) * len(textOf(args[1])) / bytesPerWork
		}
		return work
	},
	"lastIndexOf": searchWork,
	"matches": func(args []ref.Val, _ int) int {
		steps := len(textOf(args[1])) / 4 // a regular expression has a step for about four bytes
		if strings.Contains(textOf(args[1]), "{") {
			steps *= 150 // x{1000} has 1000 steps, and Go refuses more repetitions
		}
		return textWork(args[0]) * (steps + 1)
	},
	"replace": func(args []ref.Val, _ int) int {
		count := strings.Count(textOf(args[0]), textOf(args[1]))
		if len(args) > 3 {
			if most, ok := args[3].(types.Int); ok && most >= 0 {
				count = min(count, int(most))
			}
		}
		return textWork(args[0]) + count*len(textOf(args[2]))/bytesPerWork
	},
	"sets.contains":   setsWork,
	"sets.equivalent": setsWork,
	"sets.intersects": setsWork,
	"sort":            sortWork,
	sortByFunction:    sortWork,
}

// sortByFunction is the function that the macro sortBy calls with a list and the keys of its items.
const sortByFunction = "@sortByAssociatedKeys"

// additionWork returns the work of adding lists: without a limit, adding a list to itself a few times would result in a
// list with billions of items. The cost limit of CEL limits the addition of other values.
func additionWork(args []ref.Val, left int) int {
	if _, isList := args[1].(traits.Lister); !isList {
		return 0
	}
	return workOf(args[1], left)
}

// equalityWork returns the work of comparing two values, which ends with the smaller value.
func equalityWork(args []ref.Val, left int) int {
	work := workOf(args[1], left)
	return work + workOf(args[0], min(work, left))
}

// sortWork returns the work of sorting a list, or a list by another list.
func sortWork(args []ref.Val, left int) int {
	keys := args[len(args)-1]
	return (bits.Len(uint(itemCount(keys))) + 1) * workOf(keys, left)
}

// searchWork returns the work of searching a text in another text.
func searchWork(args []ref.Val, _ int) int { return textWork(args[0]) * textWork(args[1]) }

// setsWork returns the work of comparing all items of two lists with each other, in both directions.
func setsWork(args []ref.Val, left int) int {
	return 2 * ((itemCount(args[1])+1)*workOf(args[0], left) + workOf(args[1], left))
}

// workOf returns the work of processing a value with all its content. If the work is more than left, workOf may return
// any number above left, so that its own time is limited.
func workOf(value ref.Val, left int) int {
	work := textWork(value)
	switch value := value.(type) {
	case *types.Optional:
		if value.HasValue() {
			work += workOf(value.GetValue(), left-work)
		}
	case traits.Mapper:
		for it := value.Iterator(); work <= left && it.HasNext() == types.True; {
			key := it.Next()
			work += workOf(key, left-work)
			work += workOf(value.Get(key), left-work)
		}
	case traits.Lister:
		for it := value.Iterator(); work <= left && it.HasNext() == types.True; {
			work += workOf(it.Next(), left-work)
		}
	}
	return work
}

// textWork returns the work of processing a text once. For other values, textWork returns 1.
func textWork(value ref.Val) int { return 1 + len(textOf(value))/bytesPerWork }

// textOf returns the bytes of a text, or "" for other values.
func textOf(value ref.Val) string {
	switch value := value.(type) {
	case types.String:
		return string(value)
	case types.Bytes:
		return string(value)
	}
	return ""
}

// itemCount returns the number of items of a list, or 0 for other values.
func itemCount(value ref.Val) int {
	list, isList := value.(traits.Lister)
	if !isList {
		return 0
	}
	count, _ := list.Size().(types.Int)
	return int(count)
}

// Limiter makes programs whose evaluations are limited. Limiter is safe for concurrent use.
type Limiter struct {
	env   *cel.Env
	limit cel.ProgramOption
}

// NewLimiter returns a Limiter for the expressions of an environment. NewLimiter returns an error if a function of the
// environment has no implementation.
func NewLimiter(env *cel.Env) (*Limiter, error) {
	implementations := map[string]*functions.Overload{}
	for _, function := range env.Functions() {
		overloads, err := function.Bindings()
		if err != nil {
			return nil, err
		}
		for _, o := range overloads {
			implementations[o.Operator] = o
		}
	}
	limit := cel.CustomDecoratorV2(func(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		switch step := step.(type) {
		case interpreter.InterpretableConstructor:
			return &limitedLiteral{step}, nil
		case interpreter.InterpretableCall:
			work := callWork[step.Function()]
			if work == nil {
				return step, nil
			}
			implementation, err := implementationOf(step, implementations)
			return &limitedCall{step, describeFunction(step.Function()), work, implementation}, err
		default:
			return step, nil
		}
	})
	return &Limiter{env, limit}, nil
}

// Program returns the program of an expression that was compiled in the environment of the Limiter. The options should
// have a cost limit.
func (l *Limiter) Program(ast *cel.Ast, options ...cel.ProgramOption) (*Program, error) {
	program, err := l.env.Program(ast, append(slices.Clone(options), l.limit)...)
	if err != nil {
		return nil, err
	}
	return &Program{program}, nil
}

// Program is a compiled expression whose evaluations are limited. Program is safe for concurrent use.
type Program struct{ program cel.Program }

// Eval evaluates the expression with the values of its variables. If the evaluation would exceed the limit, the error
// names the function and the limit. In other cases, the result and the error are those of [cel.Program]: some errors
// are also a result.
func (p *Program) Eval(variables map[string]any) (ref.Val, error) {
	left := maxWork
	all := make(map[string]any, len(variables)+1)
	maps.Copy(all, variables)
	all[workLeftVariable] = &left
	value, _, err := p.program.Eval(all)
	return value, err
}

// implementationOf returns the Go function that a call calls, found in the same way as by CEL.
func implementationOf(call interpreter.InterpretableCall, implementations map[string]*functions.Overload) (
	functions.FunctionOp, error) {
	switch call.Function() {
	case operators.Equals:
		return func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }, nil
	case operators.NotEquals:
		return func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }, nil
	}
	overload := implementations[call.OverloadID()]
	if overload == nil {
		overload = implementations[call.Function()]
	}
	if overload == nil {
		return nil, fmt.Errorf("%s has no implementation", describeFunction(call.Function()))
	}
	return func(args ...ref.Val) ref.Val {
		switch fits := overload.OperandTrait == 0 || args[0].Type().HasTrait(overload.OperandTrait); {
		case fits && len(args) == 1 && overload.Unary != nil:
			return overload.Unary(args[0])
		case fits && len(args) == 2 && overload.Binary != nil:
			return overload.Binary(args[0], args[1])
		case fits && overload.Function != nil:
			return overload.Function(args...)
		}
		return types.NewErr("no such overload: %s", call.Function())
	}, nil
}

// limitedCall is a call that is refused if the evaluation would exceed maxWork.
type limitedCall struct {
	interpreter.InterpretableCall

	name           string // as in messages
	work           func(args []ref.Val, left int) int
	implementation functions.FunctionOp
}

// Exec evaluates the arguments and calls the function.
func (c *limitedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	params := c.Args()
	args := make([]ref.Val, 0, len(params))
	for _, param := range params {
		arg := param.Exec(frame)
		if types.IsUnknownOrError(arg) {
			return arg
		}
		args = append(args, arg)
	}
	spendWork(frame, c.name, func(left int) int { return c.work(args, left) })
	return types.LabelErrNode(c.ID(), c.implementation(args...))
}

// Eval is Exec for the older interface of CEL.
func (c *limitedCall) Eval(variables interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(variables))
}

// limitedLiteral is a literal of a list or map that is refused if the evaluation would exceed maxWork.
type limitedLiteral struct {
	interpreter.InterpretableConstructor
}

// Exec makes the list or map.
func (l *limitedLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := l.InterpretableConstructor.Exec(frame)
	if types.IsUnknownOrError(value) {
		return value
	}
	spendWork(frame, "a literal of a list or map", func(left int) int { return workOf(value, left) })
	return value
}

// Eval is Exec for the older interface of CEL.
func (l *limitedLiteral) Eval(variables interpreter.Activation) ref.Val {
	return l.Exec(interpreter.AsFrame(variables))
}

// spendWork subtracts work from the work that is left for the evaluation. The parameter work returns the work, or any
// number above left. If more work is necessary than is left, spendWork ends the evaluation with an error, in the same
// way in which CEL enforces its cost limit: the program recovers from the panic and returns the error.
func spendWork(frame *interpreter.ExecutionFrame, what string, work func(left int) int) {
	value, _ := frame.ResolveName(workLeftVariable)
	left, ok := value.(*int)
	if ok {
		*left -= work(*left)
	}
	if !ok || *left < 0 {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: fmt.Sprintf(
			"%s exceeds the limit of %d values in one evaluation (%d bytes of text count as one value)",
			what, maxWork, bytesPerWork)})
	}
}

// describeFunction returns a function of CEL as its users write it.
func describeFunction(function string) string {
	if operator, ok := operators.FindReverse(function); ok {
		return "the operator " + operator
	}
	if function == sortByFunction {
		function = "sortBy"
	}
	return "the function " + function
}
