package loop

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// The following constants limit the length of texts in conditions and events, in bytes. The CRDs allow 32,768 bytes for
// the text of a condition.
const (
	// MessageLimit is the limit for the text of one error.
	MessageLimit = 1024
	// SummaryLimit is the limit for a text that combines several texts.
	SummaryLimit = 4096
	// moduleMessages is the limit for the texts of all modules of a Kyma together. etcd stores at most 1.5 MiB for an
	// object.
	moduleMessages = 256 << 10
	// minModuleMessage is the limit for the text of a module of a Kyma with very many modules.
	minModuleMessage = 256
)

// ClipLine returns a text in a form for conditions and events: one line of at most [MessageLimit] bytes, without
// control characters and terminal escape sequences. ClipLine is needed because errors of runtimes and registries can
// contain any text.
func ClipLine(message string) string { return text.ClipLine(message, MessageLimit) }

// ClipLineTo is like [ClipLine], with another limit in bytes, see [text.ClipLine].
func ClipLineTo(message string, limit int) string { return text.ClipLine(message, limit) }

// Message returns the text of an error for a condition or event, see [ClipLine]. If the error consists of joined
// errors, each error is shortened and listed once. The text lists as many errors as [SummaryLimit] allows, and ends
// with the number of the other errors.
func Message(err error) string {
	if err == nil {
		return ""
	}
	var texts []string
	for _, e := range flattenJoined(err) {
		if text := ClipLine(e.Error()); text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return JoinWithinLimit(texts)
}

// JoinWithinLimit joins texts with "; " into one line of at most [SummaryLimit] bytes. If the limit does not allow all
// texts, the line ends in "and N more".
func JoinWithinLimit(texts []string) string {
	const room = len("; and 1000000 more")
	var b strings.Builder
	for i, text := range texts {
		if i > 0 && b.Len()+len("; ")+len(text) > SummaryLimit-room {
			fmt.Fprintf(&b, "; and %d more", len(texts)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(ClipLineTo(text, SummaryLimit-room))
	}
	return b.String()
}

// flattenJoined returns the errors that errors.Join has joined, even if errors were joined several times. If err is not
// a joined error, flattenJoined returns only err.
func flattenJoined(err error) []error {
	many, ok := err.(interface{ Unwrap() []error }) // a joined error that is wrapped has additional text
	if !ok || err.Error() != errors.Join(many.Unwrap()...).Error() {
		return []error{err}
	}
	var all []error
	for _, e := range many.Unwrap() {
		all = append(all, flattenJoined(e)...)
	}
	return all
}

// clipStatus shortens the texts in the status of an object, so that the API server does not refuse the status because
// of a text that is too long.
func clipStatus(o client.Object) {
	var conditions []metav1.Condition
	switch o := o.(type) {
	case *v1beta2.Kyma:
		conditions = o.Status.Conditions
		o.Status.LastOperation.Operation = ClipLineTo(o.Status.LastOperation.Operation, SummaryLimit)
		limit := min(SummaryLimit, max(minModuleMessage, moduleMessages/max(1, len(o.Status.Modules))))
		for i := range o.Status.Modules {
			o.Status.Modules[i].Message = ClipLineTo(o.Status.Modules[i].Message, limit)
		}
		if o.Status.Agent != nil {
			o.Status.Agent.Message = ClipLineTo(o.Status.Agent.Message, SummaryLimit)
		}
	case *v1beta2.Manifest:
		conditions = o.Status.Conditions
		o.Status.LastOperation.Operation = ClipLineTo(o.Status.LastOperation.Operation, SummaryLimit)
	case *v1beta2.Watcher:
		conditions = o.Status.Conditions
	}
	for i := range conditions {
		conditions[i].Message = ClipLineTo(conditions[i].Message, SummaryLimit)
	}
}
