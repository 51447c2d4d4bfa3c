package pageserver

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Answer is the answer to a request for a page; the same answer can be sent several times.
type Answer struct {
	status        int
	kind, tag     string
	plain, packed []byte // packed is compressed; nil if the answer is too short for that
	made          time.Time
	// IsPersonal is true if the answer must not be kept for other viewers or later requests.
	IsPersonal bool
	// Name is the placeholder for the viewer's name in the body of the answer. When the answer is sent to a viewer, the
	// placeholder is replaced by the name of this viewer. If Name is "", the body of the answer has no placeholder for
	// the viewer's name. The placeholder must be secret, so that no other text can contain it.
	Name string
}

// NewAnswer returns an answer with a body.
func NewAnswer(status int, contentType string, body []byte) *Answer {
	return &Answer{status: status, kind: contentType, plain: body, packed: gzipIfLarge(body)}
}

// Problem returns an answer that contains only a text about a problem.
func Problem(status int, message string) *Answer {
	return &Answer{status: status, kind: "text/plain; charset=utf-8", plain: []byte(message + "\n"), IsPersonal: true}
}

// SetETag adds an ETag, so that the body is not sent again to a client that already has the body.
func (a *Answer) SetETag() *Answer {
	sum := sha256.Sum256(a.plain)
	a.tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	return a
}

// gzipIfLarge compresses data. If compression saves too little, gzipIfLarge returns nil.
func gzipIfLarge(data []byte) []byte {
	const worth = 1024
	if len(data) < worth {
		return nil
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil
	}
	if _, err = z.Write(data); err != nil || z.Close() != nil {
		return nil
	}
	return out.Bytes()
}

// Write sends the answer to the viewer who sent the request.
func (a *Answer) Write(w http.ResponseWriter, r *Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	if a.tag != "" {
		h.Set("ETag", a.tag)
		h.Set("Cache-Control", "private, no-cache")
		if r.Header.Get("If-None-Match") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	plain, packed := a.plain, a.packed
	if a.Name != "" {
		plain = bytes.ReplaceAll(plain, []byte(a.Name), []byte(html.EscapeString(r.Viewer.Name)))
		packed = nil
	}
	data := plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		if a.Name != "" {
			packed = gzipIfLarge(plain)
		}
		if packed != nil {
			data = packed
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("Content-Length", fmt.Sprint(len(data)))
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(data) // the client may have gone
	}
}

// answerCache keeps the answers about one snapshot. The zero value is empty.
type answerCache struct {
	mu       sync.Mutex
	revision uint64
	answers  map[string]*Answer
}

const (
	// maxAnswers is the maximum number of kept answers. maxAnswerAge is the time for which an answer is kept. A page
	// shows the age of its data, so an answer that is kept for longer would show a wrong age.
	maxAnswers   = 200
	maxAnswerAge = 5 * time.Second
)

func (c *answerCache) get(revision uint64, key string, now time.Time) *Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.answers[key]; c.revision == revision && a != nil && now.Sub(a.made) < maxAnswerAge {
		return a
	}
	return nil
}

func (c *answerCache) put(revision uint64, key string, a *Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.IsPersonal || revision < c.revision {
		return
	}
	if revision > c.revision || c.answers == nil || len(c.answers) >= maxAnswers {
		c.revision, c.answers = revision, map[string]*Answer{}
	}
	c.answers[key] = a
}
