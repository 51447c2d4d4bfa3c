package backchannel

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel/clientcert"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// small is a small certificate that is the same in each run of the fuzzer. A new certificate in each run would look
// like new coverage to the fuzzer.
const small = "MIHFMHmgAwIBAgIBATAFBgMrZXAwDDEKMAgGA1UEAxMBYTAgFw0yMzExMTQyMjEzMjBaGA8yMDk2MTAwMjA3MDY0MFowDDEKMAgGA1UEAxMBYTAqMAUGAytlcAMhALLVgy0ZlRrAgA9sKyY5nFOglaSVJUV/2nUBqYPM7jnjMAUGAytlcANBAPEUV6IDIf/Y0EqsTYi57cyn/vCXUbeyW3BxkzMQg+kXtHwwr1EWkIm9Isrd7SmW8iJgysVQurXRvKeO+dMtgAw="

// FuzzHeader parses fuzzed headers with which an ingress passes the client certificate on. If ParseHeader accepts a
// header, FormatHeader must be able to write its certificates to a header that ParseHeader accepts again.
func FuzzHeader(f *testing.F) {
	der, err := base64.StdEncoding.DecodeString(small)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(clientcert.FormatHeader([][]byte{der}))
	f.Add(`Chain=a;Cert="%41";By=x`)
	f.Add(`By=x;Hash=1;Subject="CN=\"a\";Cert=b",Cert=-----BEGIN%20`)
	f.Add(`Cert="%`)
	f.Add(`;,=;Cert`)
	f.Fuzz(func(t *testing.T, header string) {
		c, between, err := clientcert.ParseHeader(header)
		if err != nil {
			return
		}
		chain := [][]byte{c.Raw}
		for _, b := range between {
			chain = append(chain, b.Raw)
		}
		again, more, err := clientcert.ParseHeader(clientcert.FormatHeader(chain))
		if err != nil || !again.Equal(c) || len(more) > len(between) {
			t.Errorf("read %q, but not what was written of it: %v", header, err)
		}
	})
}

// FuzzRequest posts fuzzed bodies. The answer must have the right status, and the body must never be delivered for
// another runtime than the runtime in the certificate.
func FuzzRequest(f *testing.F) {
	ca := newRoot(f, "ca")
	header := clientcert.FormatHeader(ca.issue(f, certRequest{name: "a"}).Certificate)
	e := &testListener{fleet: map[string]Runtime{}, uids: map[string]string{}, events: map[string][]protocol.Event{}}
	e.add("a")
	l, err := New(Options{
		ForwardedAddress: "127.0.0.1:0", ForwardedFrom: []string{"192.0.2.0/24"}, Limits: Limits{Rate: 1e9},
		Roots: trustIn(ca), Lookup: e.lookup, Deliver: func(kyma string, _ protocol.Event) { e.events[kyma] = nil },
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(eventPath, []byte(recorded))
	f.Add(heartbeatPath, []byte(`{"boot":"x","sequence":18446744073709551615,"pending":0,"problem":"p"}`))
	f.Add("/v2/other/event", []byte(`{"boot":"y","sequence":3,"began":true,"watchedGvk":{"kind":"Kyma"}}`))
	f.Add("/v2//event", []byte("[[[["))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.URL.Path = path
		r.Header.Set(clientcert.Header, header)
		l.tracker.forget("kyma-a") // this test is not about rate limits
		w := httptest.NewRecorder()
		l.serve(w, l.fromAddress(r, "192.0.2.1"))
		switch w.Code {
		case 200:
			if path != eventPath && path != heartbeatPath {
				t.Errorf("%q was taken", path)
			}
		case 400, 404, 413:
			if strings.Count(w.Body.String(), "\n") != 1 && !strings.Contains(w.Body.String(), "JSON") {
				t.Errorf("the answer is %q", w.Body)
			}
		default:
			t.Errorf("answer %d %q", w.Code, w.Body)
		}
		delete(e.events, "kyma-a")
		if len(e.events) > 0 {
			t.Errorf("delivered for others: %v", e.events)
		}
	})
}
