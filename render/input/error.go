package input

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Reasons of an Error. They are stable: conditions and events carry them.
const (
	// InvalidYAML: a document is not YAML or JSON, or not such as an object can be made of.
	InvalidYAML = "InvalidYAML"
	// InvalidObject: a document is not a Kubernetes object that can be applied.
	InvalidObject = "InvalidObject"
	// DuplicateObject: one object is there twice, with different content.
	DuplicateObject = "DuplicateObject"
	// InvalidImage: an image reference cannot be understood, so it cannot be rewritten.
	InvalidImage = "InvalidImage"
	// InvalidArchive: a compressed stream or tar archive is damaged or holds no manifest.
	InvalidArchive = "InvalidArchive"
	// ArchiveTooLarge: an artefact is larger than Limits when unpacked.
	ArchiveTooLarge = "ArchiveTooLarge"
	// UnsafeArchive: an archive has an entry that points out of its folder.
	UnsafeArchive = "UnsafeArchive"
	// InvalidChart: a Helm chart is not complete or not well formed.
	InvalidChart = "InvalidChart"
	// InvalidKustomization: a Kustomize directory cannot be built.
	InvalidKustomization = "InvalidKustomization"
	// TemplateFailed: a template of a chart cannot be parsed or executed.
	TemplateFailed = "TemplateFailed"
	// InvalidValues: values cannot be read, do not fit the chart's schema, or are given to what takes none.
	InvalidValues = "InvalidValues"
	// InvalidConfig: a config layer or client configuration cannot be understood.
	InvalidConfig = "InvalidConfig"
	// KubernetesTooOld: a chart does not support the cluster's version of Kubernetes.
	KubernetesTooOld = "KubernetesTooOld"
	// RefusedFeature: the artefact uses something that is not done here. The package comment lists what and why.
	RefusedFeature = "RefusedFeature"
	// RenderTimeout: rendering was given up because its context ended.
	RenderTimeout = "RenderTimeout"
)

// Error says what is wrong with an artefact, where, and what to do. Its text is one line.
type Error struct {
	// File is the path inside the archive, "" outside an archive.
	File string
	// Document counts from 1 within its file; 0 if the error is not about a document.
	Document int
	// Line counts from 1 within its file; 0 if it is not known.
	Line int
	// Object names the object as "Kind namespace/name", "" if it is not known.
	Object string

	Operation string // "" means reading the artefact
	Code      string
	Problem   string
	Cause     error
}

// Reason is one of the reasons above.
func (e *Error) Reason() string { return e.Code }

// Unwrap returns the cause, if another package saw it first.
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

// oneLine makes of a text with parts that others wrote what fits into a condition.
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

// within completes an error with the archive it happened in.
func InFile(archive string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.File = strings.TrimSuffix(archive+": "+e.File, ": ")
	}
	return err
}
