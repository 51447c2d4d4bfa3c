package answer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// endless is a response body without an end: it has a fixed beginning, and then repeats another text again and again.
type endless struct {
	begin, repeat string
	sent          int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.begin)
	e.begin = e.begin[n:]
	for e.begin == "" && n < len(p) {
		n += copy(p[n:], e.repeat)
	}
	e.sent += n
	return n, nil
}

// clientFor returns a client for which every request succeeds. The body of each response is a new reader from the
// function from.
func clientFor(from func() io.Reader) *http.Client {
	return &http.Client{Transport: Limit(roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(from()), Request: r}, nil
	}), Options{})}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// get returns the body of an answer; the caller has to close it.
func get(ctx context.Context, t *testing.T, c *http.Client, url string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res.Body
}

// TestAttacks checks how many bytes of an endless answer are read before the answer is refused.
func TestAttacks(t *testing.T) {
	tests := map[string]struct {
		reason        string
		query         string
		begin, repeat string
		most          int // bytes that are read
	}{
		"Structs":    {"empty structs cost a hundred times their text", "", `{"managedFields":[`, `{},`, 1 << 20},
		"Strings":    {"a string costs what it has", "", `{"kind":"`, "x", 49 << 20},
		"Escapes":    {"an escaped quote does not end a string", "", `{"kind":"`, `\"`, 49 << 20},
		"Depth":      {"lists in lists", "", "", "[", 64 << 10},
		"Space":      {"text without a document", "", "", " ", 49 << 20},
		"NoJSON":     {"text that is not JSON", "", "", "<html>", 49 << 20},
		"Event":      {"an event that does not end", "?watch=true", `{"type":"ADDED","object":{"x":"`, "x", 9 << 20},
		"EventOfFew": {"an event with many values", "?watch=1", `{"type":"ADDED","object":[`, "0,", 256 << 10},
		"EventSpace": {"no event at all", "?watch=true", "", "\n", 9 << 20},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // reading large answers takes seconds
				from := &endless{begin: tc.begin, repeat: tc.repeat}
				body := get(t.Context(), t, clientFor(func() io.Reader { return from }), "http://cluster/api"+tc.query)
				defer body.Close()
				_, err := io.Copy(io.Discard, body)
				if !errors.Is(err, ErrTooLarge) || from.sent > tc.most {
					t.Errorf("%s: %d bytes were read, %v, want at most %d and ErrTooLarge", tc.reason, from.sent, err, tc.most)
				}
				if _, again := body.Read(make([]byte, 1)); !errors.Is(again, ErrTooLarge) {
					t.Errorf("%s: the next read: %v", tc.reason, again)
				}
			})
		})
	}
}

// TestUsualAnswers checks that the Transport does not refuse the usual answers of API servers.
func TestUsualAnswers(t *testing.T) {
	object := `{"metadata":{"name":"x","managedFields":[{"fieldsV1":{` + strings.Repeat(`"f:field":{},`, 300) + `"f:a":{}}}],` +
		`"annotations":{"a":"` + strings.Repeat("x", 10<<10) + `"}}}`
	page := `{"kind":"PartialObjectMetadataList","items":[` + strings.Repeat(object+",", 499) + object + `]}`
	large := `{"kind":"CustomResourceDefinition","x":[` + strings.Repeat(`{"type":"string","description":"some text"},`, 30_000) +
		`0]}`
	event := `{"type":"MODIFIED","object":` + object + "}\n"
	for name, tc := range map[string]struct{ query, text string }{
		"Page": {"", page}, "Definition": {"", large}, "Watch": {"?watch=true", strings.Repeat(event, 2000)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // reading large answers takes seconds
				c := clientFor(func() io.Reader { return iotest.HalfReader(strings.NewReader(tc.text)) })
				body := get(t.Context(), t, c, "http://cluster/api"+tc.query)
				defer body.Close()
				if n, err := io.Copy(io.Discard, body); err != nil || int(n) != len(tc.text) {
					t.Errorf("%d of %d bytes were read, %v", n, len(tc.text), err)
				}
			})
		})
	}
}

// TestManagedFields checks the size that counts for the limit of an answer. If a request is for metadata only, managed
// fields are not decoded, so only the length of their text counts, not each of their values.
func TestManagedFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // reading large answers takes seconds
		object := `{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{` + strings.Repeat(`"f:a":{},`, 2000) + `"f:b":{}}}}]}}`
		page := `{"items":[` + strings.Repeat(object+",", 499) + object + `]}`
		c := clientFor(func() io.Reader { return strings.NewReader(page) })
		for accept, refused := range map[string]bool{
			"application/json": true, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1": false,
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cluster/api", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", accept)
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if errors.Is(err, ErrTooLarge) != refused {
				t.Errorf("%s: %v, want it refused: %t", accept, err, refused)
			}
		}
	})
}

// TestLargeAnswersWait checks that only one large answer is read at a time, and that small answers are not delayed.
func TestLargeAnswersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
		c := clientFor(func() io.Reader { return strings.NewReader(text) })
		first := get(t.Context(), t, c, "http://cluster/first")
		if _, err := io.Copy(io.Discard, first); err != nil {
			t.Fatal(err)
		}
		small := get(t.Context(), t, c, "http://cluster/small")
		if _, err := io.CopyN(io.Discard, small, 1000); err != nil {
			t.Errorf("a small answer: %v", err)
		}
		_ = small.Close()

		ctx, cancel := context.WithCancel(t.Context())
		cancelled := get(ctx, t, c, "http://cluster/cancelled")
		defer cancelled.Close()
		second := get(t.Context(), t, c, "http://cluster/second")
		defer second.Close()
		results := make(chan error, 2)
		go func() { _, err := io.Copy(io.Discard, cancelled); results <- err }()
		synctest.Wait()
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("an answer whose request has ended: %v", err)
		}
		go func() { _, err := io.Copy(io.Discard, second); results <- err }()
		synctest.Wait()
		select {
		case err := <-results:
			t.Errorf("the second large answer did not wait: %v", err)
		default:
		}
		_ = first.Close()
		if err := <-results; err != nil {
			t.Errorf("the second large answer: %v", err)
		}
	})
}

// TestPace checks how fast large answers are read. The rate is common to all answers of an API server, also over
// several connections. The wait ends with the request. Small answers are not delayed.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large, small := `{"a":"`+strings.Repeat("x", 8<<20)+`"}`, `{"a":"`+strings.Repeat("x", 200<<10)+`"}`
		read := func(ctx context.Context, c *http.Client) (time.Duration, error) {
			begin := time.Now()
			body := get(ctx, t, c, "http://cluster/")
			defer body.Close()
			_, err := io.Copy(io.Discard, body)
			return time.Since(begin).Round(100 * time.Millisecond), err
		}
		c := clientFor(func() io.Reader { return strings.NewReader(large) })
		for i, want := range []time.Duration{0, time.Second, time.Second} { // 8 MiB at once
			if took, err := read(t.Context(), c); err != nil || took != want {
				t.Errorf("large answer %d was read in %s, %v, want %s", i, took, err, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if took, err := read(ctx, c); err == nil || took > 200*time.Millisecond {
			t.Errorf("an answer that needs longer than its request may take was read in %s, %v", took, err)
		}
		former := c.Transport.(*Transport)
		again := &http.Client{Transport: Limit(former.next, Options{Former: former})}
		if took, err := read(t.Context(), again); err != nil || took < 500*time.Millisecond {
			t.Errorf("a new connection reads a large answer in %s, %v: it does not continue the rate", took, err)
		}
		other := clientFor(func() io.Reader { return strings.NewReader(small) })
		for range 1000 {
			if took, err := read(t.Context(), other); err != nil || took > 0 {
				t.Fatalf("a small answer was read in %s, %v", took, err)
			}
		}
	})
}

// repeated is a text without an end: each Read returns the same text.
type repeated string

func (r repeated) Read(p []byte) (int, error) { return copy(p, r), nil }

// TestPaceOfEvents checks how many small events of an API server are read: a burst at once, and then a number per
// second, which all watches share, also those of a new connection.
func TestPaceOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const event = `{"type":"ADDED","object":{"metadata":{"name":"a"}}}` + "\n"
		const most = eventBurst + 2*eventRate
		read := func(c *http.Client) int {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
			defer cancel()
			body := get(ctx, t, c, "http://cluster/api?watch=true")
			defer body.Close()
			n, err := io.Copy(io.Discard, body)
			if err == nil {
				t.Errorf("all %d events were read", most)
			}
			return int(n) / len(event)
		}
		c := clientFor(func() io.Reader { return io.LimitReader(repeated(event), int64(most*len(event))) })
		if n := read(c); n < eventBurst+eventRate || n > eventBurst+eventRate+1 {
			t.Errorf("%d events were read within a second, want %d at once and %d more", n, eventBurst, eventRate)
		}
		former := c.Transport.(*Transport)
		again := &http.Client{Transport: Limit(former.next, Options{Former: former})}
		if n := read(again); n < eventRate || n > eventRate+1 {
			t.Errorf("%d events of a new connection were read within a second, want %d", n, eventRate)
		}
	})
}

// TestLargeEvent checks a watch with a large event. The event delays other large answers, which are read one at a time,
// only until the caller has read the event.
func TestLargeEvent(t *testing.T) {
	event := `{"object":"` + strings.Repeat("x", 1<<20) + "\"}\n"
	c := clientFor(func() io.Reader { return strings.NewReader(event + `{"object":0}`) })
	events := get(t.Context(), t, c, "http://cluster/?watch=true")
	defer events.Close()
	d := json.NewDecoder(events)
	for range 2 {
		if err := d.Decode(new(any)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) { // the caller reads on after the large event
		t.Fatal(err)
	}
	// If the watch still counts as a large answer after its large event was read, this other request waits forever.
	other := get(t.Context(), t, c, "http://cluster/other")
	defer other.Close()
	if _, err := io.Copy(io.Discard, other); err != nil {
		t.Error(err)
	}
}

// TestRedirect checks that no request is sent to the target of a redirect.
func TestRedirect(t *testing.T) {
	reached := false
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer target.Close()
	from := httptest.NewServer(http.RedirectHandler(target.URL, http.StatusTemporaryRedirect))
	defer from.Close()
	c := &http.Client{Transport: Limit(http.DefaultTransport, Options{})}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, from.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(r)
	if err == nil {
		_ = res.Body.Close()
	}
	if !errors.Is(err, ErrRedirect) || reached {
		t.Errorf("got %v, the target was reached: %t", err, reached)
	}
}

// FuzzScanner checks that the scanner finds the same ends of documents as a JSON decoder, however the text is split
// into parts.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"\\\"}"}[1,[2]]`, `[{},{"x":[]}] {"y":"\u007d"}`, `{"a":1}}`} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, part int) {
		d := json.NewDecoder(bytes.NewReader(text))
		var want []int64
		for {
			var document json.RawMessage
			if d.Decode(&document) != nil {
				break
			}
			if document[0] == '{' || document[0] == '[' {
				want = append(want, d.InputOffset())
			}
		}
		if len(want) == 0 {
			return
		}
		text = text[:want[len(want)-1]]
		var got []int64
		s := scanner{counted: maxDepth}
		for at := 0; at < len(text); {
			n, ended := s.scan(text[at:min(len(text), at+max(1, part%7))])
			at += n
			if ended {
				got = append(got, int64(at))
				s = scanner{counted: maxDepth}
			}
		}
		if len(got) != len(want) || got[len(got)-1] != want[len(want)-1] {
			t.Errorf("%q ends at %v, want %v", text, got, want)
		}
	})
}
