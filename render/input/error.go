package input

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// Reasons of an Error. The reasons must not change, because conditions and events contain them.
const (
	// InvalidYAML: a document is not YAML or JSON, or cannot be converted to an object.
	InvalidYAML = "InvalidYAML"
	// InvalidObject: a document is not a Kubernetes object that can be applied.
	InvalidObject = "InvalidObject"
	// DuplicateObject: an object is contained more than once, with different content.
	DuplicateObject = "DuplicateObject"
	// InvalidImage: an image reference cannot be parsed, so the image cannot be replaced by the image in another
	// registry.
	InvalidImage = "InvalidImage"
	// InvalidArchive: a compressed stream or tar archive is damaged or contains no manifest.
	InvalidArchive = "InvalidArchive"
	// ArchiveTooLarge: an unpacked artefact exceeds its Limits.
	ArchiveTooLarge = "ArchiveTooLarge"
	// UnsafeArchive: an archive has an entry with a path outside of the archive's folder.
	UnsafeArchive = "UnsafeArchive"
	// InvalidChart: a Helm chart is incomplete or malformed.
	InvalidChart = "InvalidChart"
	// InvalidKustomization: a Kustomize directory cannot be built.
	InvalidKustomization = "InvalidKustomization"
	// TemplateFailed: a template of a chart cannot be parsed or executed.
	TemplateFailed = "TemplateFailed"
	// InvalidValues: the values for a chart cannot be read, do not match the schema of the chart, or are set for an
	// artefact that is not a chart.
	InvalidValues = "InvalidValues"
	// InvalidConfig: a config layer or client configuration is invalid.
	InvalidConfig = "InvalidConfig"
	// KubernetesTooOld: a chart does not support the Kubernetes version of the cluster.
	KubernetesTooOld = "KubernetesTooOld"
	// RefusedFeature: the artefact uses a feature that is not supported. The package comments of helm and kustomize
	// list the refused features and the reasons.
	RefusedFeature = "RefusedFeature"
	// RenderTimeout: rendering was stopped because it took too long, or because its context ended.
	RenderTimeout = "RenderTimeout"
	// RenderMemory: the process that rendered the artefact was ended because it needed too much memory.
	RenderMemory = "RenderMemory"
	// RenderCrashed: the process that rendered the artefact ended without a result, for example because of an endless
	// recursion.
	RenderCrashed = "RenderCrashed"
)

// Error describes a problem of an artefact, its location, and how to correct it. The text of an Error is one line.
type Error struct {
	// File is the path of the file inside the archive. File is "" if the error is not about a file in an archive.
	File string
	// Document is the number of the document in its file. The first document has number 1; 0 means that the error is
	// not about a document.
	Document int
	// Line is the number of the line with the problem, counted from the start of File. The first line has number 1. If
	// the line is not known, Line is 0.
	Line int
	// Object is the kind, the namespace and the name of the object with the problem. If it is not known which object
	// has the problem, Object is "".
	Object string

	Operation string // the operation that failed; "" means reading the artefact
	Code      string
	Problem   string
	Cause     error
}

// Reason returns Code, one of the reason codes above.
func (e *Error) Reason() string { return e.Code }

// Unwrap returns the field Cause, which is the underlying error of another package, or nil.
func (e *Error) Unwrap() error { return e.Cause }

func (e *Error) Error() string {
	var where []string
	if e.File != "" {
		where = append(where, fmt.Sprintf("file %q", e.File))
	}
	if e.Document > 0 {
		where = append(where, fmt.Sprintf("document %d", e.Document))
	}
	if e.Line > 0 {
		where = append(where, fmt.Sprintf("line %d", e.Line))
	}
	if e.Object != "" {
		where = append(where, e.Object)
	}
	problem := e.Problem
	if e.Cause != nil {
		problem += ": " + e.Cause.Error()
	}
	place := strings.Join(where, ", ")
	if place != "" {
		place += ": "
	}
	return text.ClipCollapsingSpaces(cmp.Or(e.Operation, "reading the artefact")+": "+place+problem, messageLimit)
}

// messageLimit is the maximum length of the text of an error, in bytes. The length of the text is limited, because the
// text may quote external input of any size.
const messageLimit = 1000

// InFile adds the path of an archive to an error about a file in this archive.
func InFile(archive string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.File = strings.TrimSuffix(archive+": "+e.File, ": ")
	}
	return err
}
