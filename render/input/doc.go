// Package input reads artefacts as their authors made them: it unpacks archives, decodes YAML and JSON documents into
// objects, and reports errors with file, document, line and object. Packages render, helm and kustomize share it. Use
// it through package render.
//
// # How it works
//
// Untar and Decompress unpack in memory and take all files of one artefact off one Budget, made from Limits. Parse
// decodes the stream of documents into object trees under limits of its own: numbers keep their kind and every digit,
// duplicate keys are refused, aliases are bounded, Lists are flattened. Decode and DecodeAll decode documents that are
// not objects. Guard runs a library on such input, so that its panic becomes an Error. Digests are made with Hash and
// EncodingVersion.
//
// # What it does not do
//
// It writes nothing to a disk, fetches nothing, and changes no object.
package input
