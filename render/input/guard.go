package input

import (
	"context"
	"fmt"
)

// RunRecoveringPanic protects the process from libraries that panic on unusual input. RunRecoveringPanic calls the
// function work, which passes external input to a library. If work panics, RunRecoveringPanic returns an error with the
// reason RefusedFeature. If ctx has ended when work returns, RunRecoveringPanic returns an error with the reason
// RenderTimeout.
func RunRecoveringPanic[T any](ctx context.Context, operation string, work func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Operation: operation, Code: RefusedFeature,
				Problem: fmt.Sprintf("it makes the renderer panic: %v", p)}
		} else if ctx.Err() != nil {
			err = &Error{Operation: operation, Code: RenderTimeout,
				Problem: "it did not complete in time: simplify it or allow more time", Cause: context.Cause(ctx)}
		}
	}()
	if ctx.Err() == nil {
		result, err = work()
	}
	return result, err
}
