package pageserver

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
)

const host = "127.0.0.1:4711"

func member(i int, version string, state v1beta2.State) *fleetlist.Member {
	m := &fleetlist.Member{}
	m.Metadata.Name, m.Metadata.ResourceVersion, m.Status.State = fmt.Sprintf("runtime-%05d", i), version, state
	return m
}

// indexOf returns an index with n runtimes that are Ready.
func indexOf(n int) *fleetindex.Index {
	x := fleetindex.New()
	for i := range n {
		x.Put(member(i, "1", v1beta2.StateReady))
	}
	x.Publish()
	return x
}

// viewerKey is the key of the viewer in the context of a request.
type viewerKey struct{}

// serverOf returns a test server with the page /page. In this test server, the byte for the cell of a runtime is the
// number of letters in the name of its state.
func serverOf(t *testing.T, x *fleetindex.Index, maxStreams int) *Server {
	t.Helper()
	s, err := New(Options{Index: x, Hosts: []string{host}, MaxStreams: maxStreams, Assets: fstest.MapFS{"a.css": {}},
		Cell: func(m *fleetlist.Member) byte { return byte(len(m.Status.State)) },
		Viewer: func(_ http.ResponseWriter, r *http.Request) *Viewer {
			if v, is := r.Context().Value(viewerKey{}).(*Viewer); is {
				return v
			}
			return &Viewer{}
		}})
	if err != nil {
		t.Fatal(err)
	}
	s.HandleCached("GET /page", func(*Request) *Answer {
		return NewAnswer(http.StatusOK, "text/html", []byte("the page"))
	})
	return s
}

// send sends a request of a viewer to a server, and returns the answer.
func send(s *Server, path string, v *Viewer, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), viewerKey{}, v)))
	return w
}

// TestPages checks that a page is made once for all viewers with the same permissions until the fleet changes, and that
// each viewer gets the page with the viewer's own name.
func TestPages(t *testing.T) {
	x := indexOf(1)
	s := serverOf(t, x, 1)
	now := time.Now()
	s.Now = func() time.Time { return now } // no answer becomes too old
	made := 0
	s.HandleCached("GET /named", func(r *Request) *Answer {
		made++
		a := NewAnswer(http.StatusOK, "text/html", []byte(strings.Repeat("long ", 1000)+"for SECRET"))
		if r.Viewer.Name != "" {
			a.Name = "SECRET"
		}
		return a
	})
	acts := &connection.Cluster{}
	for _, c := range []struct {
		reason string
		viewer *Viewer
		made   int
		want   string
	}{
		{"the first viewer", &Viewer{Name: "ann"}, 1, "for ann"},
		{"another viewer with the same rights", &Viewer{Name: "<b>"}, 1, "for &lt;b&gt;"},
		{"a viewer who may act", &Viewer{Name: "kim", Acts: acts}, 2, "for kim"},
		{"the first viewer again", &Viewer{Name: "ann"}, 2, "for ann"},
	} {
		w := send(s, "/named", c.viewer)
		packed := send(s, "/named", c.viewer, "Accept-Encoding", "gzip")
		in, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(w.Body.String(), c.want) || string(unpacked) != w.Body.String() || made != c.made {
			t.Errorf("%s: made %d times, want %d; the page ends with %q, want %q", c.reason, made, c.made,
				w.Body.String()[max(0, w.Body.Len()-20):], c.want)
		}
	}
	x.Put(member(0, "2", v1beta2.StateError))
	x.Publish()
	if send(s, "/named", &Viewer{Name: "ann"}); made != 3 {
		t.Errorf("after a change of the fleet, the page was made %d times, want 3", made)
	}
}

// TestStreams checks that a thousand streams get every change, and that a client that reconnects continues after its
// last event.
func TestStreams(t *testing.T) {
	x := indexOf(50)
	s := serverOf(t, x, 1001)
	// With a thousand streams, a busy machine may need long for a write.
	s.writeTimeout, s.streamTimeout = 10*time.Minute, time.Hour
	server := httptest.NewUnstartedServer(s)
	s.Hosts = append(s.Hosts, server.Listener.Addr().String())
	server.Start()
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	transport := &http.Transport{MaxIdleConnsPerHost: 10}
	defer transport.CloseIdleConnections()
	open := func(last string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events", nil)
		if err != nil {
			t.Error(err)
			return nil
		}
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		w, err := transport.RoundTrip(r)
		if err != nil {
			t.Error(err)
		}
		return w
	}
	next := func(in *bufio.Reader) (c change, err error) {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return c, err
			}
			if data, is := strings.CutPrefix(line, "data: "); is {
				return c, json.Unmarshal([]byte(data), &c)
			}
		}
	}
	const streams = 1000
	before := x.Snapshot().Revision
	var opened, received sync.WaitGroup
	for range streams {
		opened.Add(1)
		received.Go(func() {
			w := open("")
			if w == nil {
				opened.Done()
				return
			}
			defer w.Body.Close()
			in := bufio.NewReader(w.Body)
			_, err := in.ReadString('\n') // the stream has begun
			opened.Done()
			c, err2 := next(in)
			if err != nil || err2 != nil || c.Revision != before+1 || len(c.Cells) != 1 || c.All {
				t.Errorf("a stream received %+v, %v, %v", c, err, err2)
			}
		})
	}
	opened.Wait()
	x.Put(member(7, "new", v1beta2.StateError))
	x.Publish()
	received.Wait()

	w := open(fmt.Sprint(before)) // the client was disconnected during the change
	const errorCell = byte(len(v1beta2.StateError))
	if c, err := next(bufio.NewReader(w.Body)); err != nil || c.Revision != before+1 || c.Cells[7] != errorCell {
		t.Errorf("after an interruption: %+v, %v", c, err)
	}
	w.Body.Close()
	w = open("999999") // an ID from another run of the command
	if c, err := next(bufio.NewReader(w.Body)); err != nil || !c.All || len(c.Topics) != 5 {
		t.Errorf("with an unknown position: %+v, %v", c, err)
	}
	w.Body.Close()
}

// TestStreamLimit checks that a page beyond the limit of open streams is shown, but not updated after changes.
func TestStreamLimit(t *testing.T) {
	s := serverOf(t, indexOf(1), 1)
	s.streams <- struct{}{}
	if w := send(s, "/events", &Viewer{}); w.Code != http.StatusServiceUnavailable {
		t.Errorf("beyond the limit: %d %s", w.Code, w.Body)
	}
	if w := send(s, "/page", &Viewer{}); w.Code != http.StatusOK {
		t.Errorf("a page: %d", w.Code)
	}
}

// pipeListener accepts connections in memory, which have no buffer: a write waits until the client reads.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	c, is := <-l
	if !is {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// TestSlowReaders checks that a stream ends if its client does not read, and that such a stream does not delay others.
// TestSlowReaders also checks that every stream ends after a while, so that its viewer is authorized again.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := indexOf(5)
		s := serverOf(t, x, 10)
		listener := make(pipeListener)
		server := &http.Server{Handler: s, ReadHeaderTimeout: time.Second}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = server.Serve(listener) }()
		open := func() (net.Conn, *bufio.Reader) {
			client, connection := net.Pipe()
			listener <- connection
			fmt.Fprintf(client, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", host)
			in := bufio.NewReader(client)
			for line := ""; !strings.HasPrefix(line, "retry:"); {
				var err error
				if line, err = in.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			return client, in
		}
		slow, _ := open()
		good, in := open()
		events := make(chan time.Time, 10)
		go func() {
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					close(events)
					return
				}
				if strings.HasPrefix(line, "data: ") {
					events <- time.Now()
				}
			}
		}()
		synctest.Wait()
		begin := time.Now()
		x.Put(member(3, "new", v1beta2.StateError))
		x.Publish()
		if at := <-events; at.Sub(begin) > 0 {
			t.Errorf("the slow client has delayed the event of another by %s", at.Sub(begin))
		}
		if n := len(s.streams); n != 2 {
			t.Fatalf("%d streams, want 2", n)
		}
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		if n := len(s.streams); n != 1 {
			t.Errorf("after %s there are %d streams, want only that of the good client", writeTimeout, n)
		}
		time.Sleep(streamTimeout)
		synctest.Wait()
		if n := len(s.streams); n != 0 {
			t.Errorf("after %s there are %d streams, so a viewer would keep withdrawn permissions", streamTimeout, n)
		}
		close(listener)
		if err := errors.Join(slow.Close(), good.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		<-ended
	})
}
