package render

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render/helm"
	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// Runner renders artefacts, for example in another process. Package process implements a Runner.
type Runner interface {
	// Run passes a request to the function HandleRenderRequest, and returns the response of HandleRenderRequest.
	// Because the artefact may have manipulated the response, the response is checked against the same limits as an
	// artefact before it is decoded. If Run returns an *Error, the artefact has a problem. If Run returns an error that
	// is no *Error, the cause is outside of the artefact, for example a process that cannot be started.
	Run(ctx context.Context, request []byte) (response []byte, err error)
}

// runnerKey is the context key under which a Runner is stored.
type runnerKey struct{}

// WithRunner returns a context in which charts and Kustomize directories are rendered by a Runner. Without a Runner in
// the context, RenderObjects renders in the process of the caller. An artefact that is rendered in the process of the
// caller can end the process, for example by an endless recursion, so the caller must trust the artefact.
func WithRunner(ctx context.Context, r Runner) context.Context {
	return context.WithValue(ctx, runnerKey{}, r)
}

// request is the input of a rendering: the files of an artefact and the settings.
type request struct {
	Kind     Kind
	Files    []input.File
	Root     string
	Settings Settings
	Outputs  bool // the response has the outputs of the templates instead of objects
}

// head is the first line of a response. Each further line of the response is the JSON of one rendered object.
type head struct {
	LeftOut []string          `json:"leftOut,omitempty"`
	Outputs map[string]string `json:"outputs,omitempty"`
	Error   *failure          `json:"error,omitempty"`
}

// failure is the JSON form of an Error. The field Cause has only the text of Error.Cause.
type failure struct {
	File, Object, Operation, Code, Problem, Cause string
	Document, Line                                int
}

// runBy renders the artefact with a Runner.
func (a *Artefact) runBy(ctx context.Context, r Runner, settings Settings) ([]*unstructured.Unstructured, []string,
	error) {
	h, rest, err := a.sendToRunner(ctx, r, request{Kind: a.kind, Files: a.files, Root: a.root, Settings: settings})
	if err != nil {
		return nil, nil, err
	}
	objects, err := Parse(rest)
	if err != nil {
		return nil, nil, input.InFile("the result of the rendering", err)
	}
	return objects, h.LeftOut, nil
}

// sendToRunner passes a request to a Runner. sendToRunner returns the first line of the response, and the rest of the
// response.
func (a *Artefact) sendToRunner(ctx context.Context, r Runner, q request) (h head, rest []byte, err error) {
	var question bytes.Buffer
	if err := gob.NewEncoder(&question).Encode(q); err != nil {
		return h, nil, fmt.Errorf("encoding the artefact: %w", err)
	}
	answer, err := r.Run(ctx, question.Bytes())
	if err != nil {
		return h, nil, err
	}
	first, rest, _ := bytes.Cut(answer, []byte("\n"))
	if err := json.Unmarshal(first, &h); err != nil {
		return h, nil, &Error{Operation: "rendering the artefact", Code: RenderCrashed,
			Problem: "the process that rendered it answered with something else than objects: report this", Cause: err}
	}
	if f := h.Error; f != nil {
		e := &Error{File: f.File, Document: f.Document, Line: f.Line, Object: f.Object, Operation: f.Operation,
			Code: f.Code, Problem: f.Problem}
		if f.Cause != "" {
			e.Cause = errors.New(f.Cause)
		}
		return h, nil, e
	}
	return h, rest, nil
}

// HandleRenderRequest renders the artefact of a request and returns the response. A Runner calls the function
// HandleRenderRequest in another process, see Runner.Run.
func HandleRenderRequest(ctx context.Context, encoded []byte) []byte {
	var q request
	if err := gob.NewDecoder(bytes.NewReader(encoded)).Decode(&q); err != nil {
		return response(nil, nil, fmt.Errorf("decoding the request: %w", err))
	}
	a := &Artefact{kind: q.Kind, files: q.Files, root: q.Root}
	if q.Outputs {
		texts, err := helm.TemplateOutputs(ctx, a.files, q.Settings)
		return outputsResponse(texts, err)
	}
	return response(a.renderInProcess(ctx, q.Settings))
}

// outputsResponse encodes the response of the render process to a request for the outputs of templates. The response
// contains either the outputs or an error.
func outputsResponse(texts map[string]string, err error) []byte {
	h := head{Outputs: texts}
	if err != nil {
		h = head{Error: failureOf(err)}
	}
	data, _ := json.Marshal(h) // strings and numbers always encode
	return append(data, '\n')
}

// response returns the encoded result of a rendering.
func response(objects []*unstructured.Unstructured, leftOut []string, err error) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	size := int64(0)
	var body bytes.Buffer
	if err == nil {
		of := json.NewEncoder(&body)
		of.SetEscapeHTML(false)
		for _, o := range objects {
			if err = of.Encode(o.Object); err != nil {
				err = &Error{Code: InvalidObject, Object: input.Describe(o.Object),
					Problem: "its content cannot be written as JSON", Cause: err}
				break
			}
			if size = int64(body.Len()); size > DefaultMaxBytes {
				err = input.CheckSize(size, DefaultMaxBytes)
				break
			}
		}
	}
	h := head{LeftOut: leftOut}
	if err != nil {
		h = head{Error: failureOf(err)}
		body.Reset()
	}
	_ = encoder.Encode(h) // strings and numbers always encode
	return append(out.Bytes(), body.Bytes()...)
}

// failureOf converts an error to the form in which a response contains it.
func failureOf(err error) *failure {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return &failure{Operation: "rendering the artefact", Code: RenderCrashed, Problem: err.Error()}
	}
	f := &failure{File: e.File, Document: e.Document, Line: e.Line, Object: e.Object, Operation: e.Operation,
		Code: e.Code, Problem: e.Problem}
	if e.Cause != nil {
		f.Cause = e.Cause.Error()
	}
	return f
}
