// Package answer limits the memory that the answers of an API server need. The package is for API servers that the
// manager does not trust, because their administrators determine the content of the answers.
//
// # Use
//
//	http.Client{Transport: answer.Limit(transport, answer.Options{})} // one Transport for each runtime
//
// # How it works
//
// Transport passes requests through unchanged. While the caller reads the body of an answer, Transport counts the bytes
// and the JSON values in it, and fails the read as soon as a limit is exceeded. An answer that is too large is
// therefore refused before structs are made from it. A value of three bytes may need a struct of 300 bytes, so each
// value counts as 100 bytes. The field metadata of an object has more than seven levels of values only in its managed
// fields. Managed fields stay undecoded text, so a value below the seventh level adds only the bytes of its text. These
// are the limits:
//
//	an answer                          at most 3/4 of Memory, with 512 levels of objects and lists
//	an event of a watch                at most Memory/8
//	the answers of one API server      one answer or event larger than 256 KiB at a time; the others wait until it is
//	                                   closed, at most until the deadline of their request
//	large answers of one API server    at most Memory/8 at once, and Rate per second on average
//	events of one API server           at most 50,000 at once, and 1,000 per second on average
//	a redirect                         is an error, because the credential would go to another address
//
// # What it does not do
//
// Transport does not limit the data that the caller keeps after it has closed the body. Transport limits the number of
// events, but not the number of small answers.
package answer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

// ErrTooLarge is the error of a read that would exceed a limit of this package.
var ErrTooLarge = errors.New("the answer is larger than what an API server sends")

// ErrRedirect is the error of a request whose answer is a redirect.
var ErrRedirect = errors.New("the answer is a redirect, which is not followed with a credential")

const (
	// valueCost is the cost of one JSON value, in bytes.
	valueCost = 100
	// smallCost is the maximum cost, in bytes, of an answer that need not wait for other answers.
	smallCost = 256 << 10
	// metadataDepth is the number of levels of metadata that are decoded: list, items, object, metadata, managedFields,
	// entry, fieldsV1.
	metadataDepth = 7
	// maxDepth is the maximum depth of nested objects and lists.
	maxDepth = 512
	// eventBurst is the number of events that all watches of one API server may send at once, and eventRate is the
	// number of events per second after that. Each event is decoded and passed to the subscribers, so 100,000 small
	// events a second would need several processors. If all objects of 50 modules with 500 objects change at once, the
	// watches send 25,000 events; a restart of 500 Deployments causes about 10,000 events.
	eventBurst = 50_000
	eventRate  = 1000
)

// Options are the options of Limit.
type Options struct {
	// Memory is the memory in bytes that all answers of one API server may need at the same time. Default 64 MiB.
	Memory int64
	// Rate is the rate in bytes per second at which large answers of one API server are read. Default Memory/8.
	Rate int64
	// Former is the Transport of a former connection to the same API server, or nil. The new Transport continues the
	// rates of the former one, so that an API server cannot send more by causing new connections. If Former is not nil,
	// Memory and Rate must be the same as those of Former.
	Former *Transport
}

// Transport is an [http.RoundTripper] for one API server. A Transport is safe for concurrent use.
type Transport struct {
	next              http.RoundTripper
	maxAnswer, maxDoc int64
	large             chan struct{} // holds a value while an answer costs more than smallCost
	// pace limits the cost of large answers per second. Decoding an answer needs processor time in proportion to its
	// cost, so no API server can keep the manager from its other work by large answers.
	pace *rate.Limiter
	// events limits the number of events per second. While a watch waits, the API server keeps its further events, or
	// ends the watch.
	events *rate.Limiter
}

// Limit returns a Transport that sends requests through next, and limits the size of each answer and how many large
// answers are read at the same time.
func Limit(next http.RoundTripper, o Options) *Transport {
	memory := cmp.Or(o.Memory, 64<<20)
	t := &Transport{next: next, maxAnswer: memory / 4 * 3, maxDoc: memory / 8, large: make(chan struct{}, 1)}
	if o.Former != nil {
		t.pace, t.events = o.Former.pace, o.Former.events
	} else {
		t.events = rate.NewLimiter(eventRate, eventBurst)
		t.pace = rate.NewLimiter(rate.Limit(cmp.Or(o.Rate, memory/8)), int(memory/8))
	}
	return t
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 300 && res.StatusCode <= 399 && res.Header.Get("Location") != "" {
		_ = res.Body.Close()
		return nil, ErrRedirect
	}
	b := &body{ReadCloser: res.Body, transport: t, ctx: r.Context(), limit: t.maxAnswer}
	b.empty = scanner{counted: maxDepth}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		b.empty.counted = metadataDepth
	}
	b.document = b.empty
	if b.isWatch = r.URL.Query().Get("watch") != ""; b.isWatch {
		b.limit = t.maxDoc
	}
	res.Body = b
	return res, nil
}

// WrappedRoundTripper returns the wrapped transport, with which client-go closes idle connections.
func (t *Transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// body is the body of an answer. Only one goroutine reads it. Another one may close it.
type body struct {
	io.ReadCloser
	transport *Transport
	ctx       context.Context // of the request: bounds the wait for other answers
	limit     int64
	isWatch   bool

	empty    scanner // the beginning of a document
	document scanner
	paid     int64 // the part of the document's cost for which wait has waited
	err      error // the limit that was exceeded

	mu      sync.Mutex
	isLarge bool // guarded by mu: this answer occupies transport.large
	closed  bool // guarded by mu
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.document.cost() <= smallCost {
		b.releaseLarge() // the caller has received the large event, because it reads the next one
	}
	n, err := b.ReadCloser.Read(p)
	if b.err = b.countAndWait(p[:n]); b.err != nil {
		return 0, b.err
	}
	return n, err
}

// countAndWait adds the cost of a part of an answer, in bytes of memory, to the cost of the whole answer. If the answer
// becomes large while another answer is large, countAndWait waits until the other one is read. After each event,
// countAndWait waits as long as the rate of events demands.
func (b *body) countAndWait(part []byte) error {
	for len(part) > 0 {
		n, ended := b.document.scan(part)
		part = part[n:]
		if b.document.cost() > b.limit || b.document.depth > maxDepth {
			return fmt.Errorf("%w: more than %d MiB, where each value counts %d bytes, or more than %d levels",
				ErrTooLarge, b.limit>>20, valueCost, maxDepth)
		}
		if b.document.cost() > smallCost {
			if err := b.acquireLarge(); err != nil {
				return err
			}
			if err := b.waitForRate(); err != nil {
				return err
			}
		}
		if ended && b.isWatch {
			b.document, b.paid = b.empty, 0
			if err := b.transport.events.Wait(b.ctx); err != nil {
				return fmt.Errorf("this API server sends more events than are read, %d a second: %w", eventRate,
					err)
			}
		}
	}
	return nil
}

// acquireLarge waits until no other large answer is being read.
func (b *body) acquireLarge() error {
	b.mu.Lock()
	isLarge := b.isLarge
	b.mu.Unlock()
	if isLarge {
		return nil
	}
	select {
	case b.transport.large <- struct{}{}:
	case <-b.ctx.Done():
		return fmt.Errorf("waiting until another large answer of this API server is read: %w", context.Cause(b.ctx))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		<-b.transport.large
		return http.ErrBodyReadAfterClose
	}
	b.isLarge = true
	return nil
}

// waitForRate waits as long as the rate of large answers demands for the new part of the document.
func (b *body) waitForRate() error {
	for cost := b.document.cost(); b.paid < cost; {
		n := min(int(cost-b.paid), b.transport.pace.Burst())
		if err := b.transport.pace.WaitN(b.ctx, n); err != nil {
			return fmt.Errorf("this API server sends more in large answers than is read before the deadline: %.0f MiB a "+
				"second: %w", float64(b.transport.pace.Limit())/(1<<20), err)
		}
		b.paid += int64(n)
	}
	return nil
}

// releaseLarge ends the reading of a large answer, so that another answer may become large.
func (b *body) releaseLarge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isLarge {
		b.isLarge = false
		<-b.transport.large
	}
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.releaseLarge()
	return b.ReadCloser.Close()
}

// scanner counts the bytes and the values of a JSON document. If a text is not JSON, the scanner counts at least its
// bytes.
type scanner struct {
	counted       int // values at deeper levels are not counted
	bytes, values int64
	depth         int
	inString      bool
	escaped       bool // the byte before was a backslash in a string
}

// cost returns the memory that the document may need, in bytes.
func (s *scanner) cost() int64 { return s.bytes + s.values*valueCost }

// countValue counts a value at the present level of nesting.
func (s *scanner) countValue() {
	if s.depth < s.counted {
		s.values++
	}
}

// scan reads text up to the end of the outermost JSON object or list or, if the document continues after text, all of
// text. scan returns the number of bytes read, and whether the document has ended.
func (s *scanner) scan(text []byte) (n int, documentEnded bool) {
	for i, c := range text {
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped, s.inString = c == '\\', c != '"'
		default:
			switch c {
			case '"':
				s.inString = true
			case ',':
				s.countValue()
			case '{', '[':
				s.countValue()
				s.depth++
			case '}', ']':
				if s.depth--; s.depth <= 0 {
					s.depth = 0
					s.bytes += int64(i + 1)
					return i + 1, true
				}
			}
		}
	}
	s.bytes += int64(len(text))
	return len(text), false
}
