package storage

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
)

// RoundTrip answers the requests of a registry client from the archive, for any host. RoundTrip adds the artifacts that
// the client writes to the archive in memory. [Archive.Save] writes the archive to disk.
//
// RoundTrip implements the parts of the OCI distribution specification that the clients in this project use. Deleting
// content is not supported.
func (a *Archive) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		defer request.Body.Close()
	}
	at := strings.TrimPrefix(request.URL.Path, "/v2/")
	folder, reference := path.Split(at)
	repository, isManifest := strings.CutSuffix(folder, "/manifests/")
	switch {
	case at == "":
		return newResponse(request, http.StatusOK, jsonType, memoryBlob("{}"))
	case strings.HasSuffix(at, "/tags/list"):
		return a.serveTags(request, strings.TrimSuffix(at, "/tags/list"))
	case isManifest && request.Method == http.MethodPut:
		return a.storeManifest(request, repository, reference)
	case isManifest:
		return a.serveManifest(request, repository, reference)
	case strings.HasSuffix(folder, "/blobs/uploads/"):
		return a.serveBlobUpload(request, reference)
	case strings.HasSuffix(folder, "/blobs/"):
		a.mu.Lock()
		defer a.mu.Unlock()
		if b, ok := a.blobs[reference]; ok {
			return newResponse(request, http.StatusOK, "application/octet-stream", b, "Docker-Content-Digest",
				reference)
		}
	}
	return notFoundReply(request)
}

const jsonType = "application/json"

func memoryBlob(text string) blob { return blob{data: []byte(text), size: int64(len(text))} }

func notFoundReply(request *http.Request) (*http.Response, error) {
	return newResponse(request, http.StatusNotFound, jsonType, memoryBlob(`{"errors":[]}`))
}

// newResponse returns the response of an archive to a request of the registry client. The parameter header contains a
// name, its value, the next name, its value, and so on.
func newResponse(to *http.Request, code int, mediaType string, b blob, header ...string) (*http.Response, error) {
	r := &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: to,
		Header: http.Header{"Content-Type": {mediaType}}, ContentLength: b.size, Body: http.NoBody,
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if to.Method == http.MethodHead {
		return r, nil
	}
	var err error
	r.Body, err = b.reader()
	return r, err
}

func (a *Archive) serveTags(request *http.Request, repository string) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tags := []string{}
	for _, e := range a.entries {
		if e.Repository == repository && e.Tag != "" {
			tags = append(tags, e.Tag)
		}
	}
	data, err := json.Marshal(map[string]any{"name": repository, "tags": tags})
	if err != nil {
		return nil, err
	}
	return newResponse(request, http.StatusOK, jsonType, memoryBlob(string(data)))
}

func (a *Archive) serveManifest(request *http.Request, repository, reference string) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		if e.Repository == repository && (e.Tag == reference || e.Digest == reference) {
			return newResponse(request, http.StatusOK, e.MediaType, a.blobs[e.Digest], "Docker-Content-Digest",
				e.Digest)
		}
	}
	return notFoundReply(request)
}

// storeManifest stores a manifest. The archive must already have the blobs of the manifest.
func (a *Archive) storeManifest(request *http.Request, repository, reference string) (*http.Response, error) {
	const most = 4 << 20 // bytes; the limit in the distribution specification
	data, err := io.ReadAll(io.LimitReader(request.Body, most+1))
	if err != nil {
		return nil, err
	}
	e := entry{Repository: repository, Tag: reference, Digest: digestOf(data),
		MediaType: request.Header.Get("Content-Type")}
	if strings.Contains(reference, ":") {
		e.Tag = ""
	}
	if len(data) > most || e.Tag == "" && e.Digest != reference {
		return newResponse(request, http.StatusBadRequest, jsonType,
			memoryBlob(`{"errors":[{"code":"MANIFEST_INVALID"}]}`))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addBlob(e.Digest, data)
	named, err := a.blobDigestsRequiredBy(e)
	if err != nil {
		return nil, err
	}
	for _, digest := range named {
		if _, ok := a.blobs[digest]; !ok {
			return newResponse(request, http.StatusBadRequest, jsonType,
				memoryBlob(`{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"`+digest+`"}]}`))
		}
	}
	a.setEntry(e)
	return newResponse(request, http.StatusCreated, jsonType, blob{}, "Docker-Content-Digest", e.Digest)
}

// serveBlobUpload handles the three requests that store a blob: POST starts the upload, PATCH sends the content, and
// PUT sends the digest.
func (a *Archive) serveBlobUpload(request *http.Request, upload string) (*http.Response, error) {
	if request.Method == http.MethodPatch {
		b, digest, err := a.readBlob(request.Body)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.uploads[upload+" "+digest] = b
		return newResponse(request, http.StatusAccepted, jsonType, blob{}, "Location", request.URL.Path)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if request.Method == http.MethodPost {
		a.begun++
		return newResponse(request, http.StatusAccepted, jsonType, blob{}, "Location",
			fmt.Sprintf("%s%d", request.URL.Path, a.begun))
	}
	digest := request.URL.Query().Get("digest")
	b, ok := a.uploads[upload+" "+digest]
	if !ok {
		return newResponse(request, http.StatusBadRequest, jsonType,
			memoryBlob(`{"errors":[{"code":"DIGEST_INVALID","message":"the content is another"}]}`))
	}
	delete(a.uploads, upload+" "+digest)
	if _, there := a.blobs[digest]; !there {
		a.blobs[digest] = b
	}
	return newResponse(request, http.StatusCreated, jsonType, blob{}, "Docker-Content-Digest", digest)
}
