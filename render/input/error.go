package input

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Reasons of an Error. They are stable: conditions and events contain them.
const (
	// InvalidYAML: a document is not YAML or JSON, or no object can be made of it.
	InvalidYAML = "InvalidYAML"
	// InvalidObject: a document is not a Kubernetes object that can be applied.
	InvalidObject = "InvalidObject"
	// DuplicateObject: an object is contained more than once, with different content.
	DuplicateObject = "DuplicateObject"
	// InvalidImage: an image reference cannot be parsed, so it cannot be rewritten.
	InvalidImage = "InvalidImage"
	// InvalidArchive: a compressed stream or tar archive is damaged or contains no manifest.
	InvalidArchive = "InvalidArchive"
	// ArchiveTooLarge: an unpacked artefact exceeds its Limits.
	ArchiveTooLarge = "ArchiveTooLarge"
	// UnsafeArchive: an archive has an entry with a path outside of its folder.
	UnsafeArchive = "UnsafeArchive"
	// InvalidChart: a Helm chart is incomplete or malformed.
	InvalidChart = "InvalidChart"
	// InvalidKustomization: a Kustomize directory cannot be built.
	InvalidKustomization = "InvalidKustomization"
	// TemplateFailed: a template of a chart cannot be parsed or executed.
	TemplateFailed = "TemplateFailed"
	// InvalidValues: values cannot be read, do not match the schema of the chart, or are given for an artefact without
	// values.
	InvalidValues = "InvalidValues"
	// InvalidConfig: a config layer or client configuration is invalid.
	InvalidConfig = "InvalidConfig"
	// KubernetesTooOld: a chart does not support the cluster's version of Kubernetes.
	KubernetesTooOld = "KubernetesTooOld"
	// RefusedFeature: the artefact uses a feature that is not supported. The comments of packages helm and kustomize
	// list these and why.
	RefusedFeature = "RefusedFeature"
	// RenderTimeout: rendering was stopped because its context ended.
	RenderTimeout = "RenderTimeout"
)

// Error states what is wrong with an artefact, where, and what to do. Its text is one line.
type Error struct {
	// File is the path inside the archive, "" outside of an archive.
	File string
	// Document counts from 1 within its file; 0 if the error is not about a document.
	Document int
	// Line counts from 1 within its file; 0 if it is not known.
	Line int
	// Object is kind, namespace and name of the object, "" if it is not known.
	Object string

	Operation string // what was being done; "" means reading the artefact
	Code      string
	Problem   string
	Cause     error
}

// Reason returns Code, one of the reasons above.
func (e *Error) Reason() string { return e.Code }

// Unwrap returns Cause, the error of another package, if there is one.
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
	text := e.Problem
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	place := strings.Join(where, ", ")
	if place != "" {
		place += ": "
	}
	return oneLine(cmp.Or(e.Operation, "reading the artefact") + ": " + place + text)
}

// oneLine returns a text, parts of which may be from others, on one line that fits into a condition.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > 1000 {
		s = strings.ToValidUTF8(s[:1000], "") + "…"
	}
	return s
}

// InFile adds the archive that contains the file of an error.
func InFile(archive string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.File = strings.TrimSuffix(archive+": "+e.File, ": ")
	}
	return err
}
