// Package input reads artefacts: it unpacks archives, decodes YAML and JSON documents into objects, and reports errors
// with file, document, line and object. Packages render, helm and kustomize share this package. All other packages must
// use package render instead.
//
// # How it works
//
// Untar and Decompress unpack in memory. All files of one artefact share one Budget, which is created from Limits.
// Parse decodes a stream of YAML documents into object trees, and limits the number and the nesting depth of their
// values. Numbers keep their type and every digit, duplicate keys are refused, aliases are limited, and a List is
// replaced by its items. Decode and DecodeAll decode documents that are not objects. RunRecoveringPanic runs a library
// on external input, and converts a panic of the library to an Error. Digests are computed with Hash and
// EncodingVersion.
//
// # What it does not do
//
// The package does not write to a disk, does not download anything, and does not change objects.
package input
