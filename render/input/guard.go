package input

import (
	"context"
	"fmt"
)

// Guard protects the process from libraries that panic on unusual input. Guard calls the function work, which passes
// external input to a library. If work panics, Guard returns an error with the reason RefusedFeature. If ctx has ended
// when work returns, Guard returns an error with the reason RenderTimeout.
func Guard[T any](ctx context.Context, doing string, work func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Operation: doing, Code: RefusedFeature,
				Problem: fmt.Sprintf("it makes the renderer panic: %v", p)}
		} else if ctx.Err() != nil {
			err = &Error{Operation: doing, Code: RenderTimeout,
				Problem: "it did not complete in time: simplify it or allow more time", Cause: context.Cause(ctx)}
		}
	}()
	if ctx.Err() == nil {
		result, err = work()
	}
	return result, err
}
