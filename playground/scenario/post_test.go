package scenario

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// flooders is the number of connections of a flood. A runtime may have one more connection, which its agent uses.
const flooders = 15

// flood is a client that posts the same event repeatedly.
type flood struct {
	done  atomic.Int64 // number of answers
	end   chan struct{}
	group sync.WaitGroup

	mu    sync.Mutex
	codes map[string]int // guarded by mu: answers by status
}

func (s *scenario) certificate(c *call) error {
	const usage = "certificate NAME of=RUNTIME|stranger=COMMON-NAME|expired=COMMON-NAME|nameless"
	if err := c.want(2, 2, usage); err != nil {
		return err
	}
	sort, name, _ := strings.Cut(c.args[1], "=")
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	var made tls.Certificate
	var err error
	switch sort {
	case "of":
		made, err = s.certificateOf(name)
	case "stranger":
		root := &x509.Certificate{
			Subject: pkix.Name{CommonName: "lifecycle-manager"}, NotBefore: template.NotBefore,
			NotAfter: template.NotAfter,
			IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		var authority tls.Certificate
		if authority, err = landscape.SignWith(nil, nil, root); err == nil {
			made, err = landscape.SignWith(authority.Leaf, authority.PrivateKey.(crypto.Signer), template)
		}
	case "expired":
		template.NotAfter = time.Now().Add(-time.Hour)
		made, err = s.land.Sign(s.ctx, template)
	case "nameless":
		made, err = s.land.Sign(s.ctx, template)
	default:
		return fmt.Errorf("usage: %s", usage)
	}
	if err != nil {
		return err
	}
	if s.certificates == nil {
		s.certificates = map[string]tls.Certificate{}
	}
	s.certificates[c.args[0]] = made
	return nil
}

// certificateOf returns the certificate of the agent in a runtime.
func (s *scenario) certificateOf(runtime string) (tls.Certificate, error) {
	from := s.land.Clients[runtime]
	if from == nil {
		return tls.Certificate{}, fmt.Errorf("there is no cluster %q", runtime)
	}
	secret := &corev1.Secret{}
	if err := from.Get(s.ctx, client.ObjectKey{Namespace: v1beta2.RuntimeNamespace, Name: "skr-webhook-tls"},
		secret); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
}

// poster returns an HTTP client that uses the certificate of the flag -as, and the header of the request. With the flag
// -forwarded, the header names a second certificate as the client's.
func (s *scenario) poster(c *call) (*http.Client, http.Header, error) {
	roots, err := s.land.Roots(s.ctx)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}
	if name := c.flag("as"); name != "" {
		own, known := s.certificates[name]
		if !known {
			return nil, nil, fmt.Errorf("there is no certificate %q: make it first", name)
		}
		// The client sends its certificate even if the listener does not accept the certificate's root.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if name := c.flag("forwarded"); name != "" {
		other, known := s.certificates[name]
		if !known {
			return nil, nil, fmt.Errorf("there is no certificate %q: make it first", name)
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate[0]})
		header.Set("X-Forwarded-Client-Cert", `Cert="`+url.PathEscape(string(text))+`"`)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 2 * time.Minute}, header, nil
}

// send posts one event, and returns the status and the message of the answer.
func (s *scenario) send(by *http.Client, header http.Header, manager string, body []byte) (string, error) {
	to := "https://" + s.land.ListenerAddress + "/v2/" + cmp.Or(manager, "lifecycle-manager") + "/event"
	r, err := http.NewRequestWithContext(s.ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header = header
	answer, err := by.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return strings.TrimSpace(strconv.Itoa(answer.StatusCode) + " " + string(text)), err
}

func (s *scenario) post(c *call) error {
	if err := c.want(1, 1, "post [-as=CERTIFICATE] [-forwarded=CERTIFICATE] [-to=MANAGER] FILE"); err != nil {
		return err
	}
	by, header, err := s.poster(c)
	if err != nil {
		return err
	}
	defer by.CloseIdleConnections()
	answer, err := s.send(by, header, c.flag("to"), []byte(c.script.ReadFile(c.args[0])))
	if err != nil {
		return err
	}
	c.print(answer)
	return nil
}

func (s *scenario) flood(c *call) error {
	if err := c.want(1, 1, "flood -as=CERTIFICATE FILE"); err != nil {
		return err
	}
	body := []byte(c.script.ReadFile(c.args[0]))
	f := &flood{end: make(chan struct{}), codes: map[string]int{}}
	for range flooders {
		by, header, err := s.poster(c)
		if err != nil {
			return err
		}
		f.group.Go(func() {
			defer by.CloseIdleConnections()
			f.run(s.ctx, func() string {
				answer, err := s.send(by, header.Clone(), "", body)
				if err != nil {
					return "none" // the connection was closed
				}
				code, _, _ := strings.Cut(answer, " ")
				return code
			})
		})
	}
	s.floods = append(s.floods, f)
	return nil
}

// run posts events until the flood ends.
func (f *flood) run(ctx context.Context, post func() string) {
	for ctx.Err() == nil {
		select {
		case <-f.end:
			return
		default:
		}
		code := post()
		f.mu.Lock()
		f.codes[code]++
		f.mu.Unlock()
		f.done.Add(1)
	}
}

func (s *scenario) flooded(c *call) error {
	const usage = "flooded N [STATUS=N…]"
	if err := c.want(1, 10, usage); err != nil {
		return err
	}
	n, err := strconv.Atoi(c.args[0])
	if err != nil || len(s.floods) == 0 {
		return fmt.Errorf("usage: %s, after flood", usage)
	}
	least := map[string]int{}
	for _, arg := range c.args[1:] {
		code, times, _ := strings.Cut(arg, "=")
		if least[code], err = strconv.Atoi(times); err != nil {
			return fmt.Errorf("usage: %s", usage)
		}
	}
	f := s.floods[0]
	err = s.poll(func(context.Context) (bool, string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		enough := f.done.Load() >= int64(n)
		for code, times := range least {
			enough = enough && f.codes[code] >= times
		}
		return enough, fmt.Sprintf("%d answers: %v", f.done.Load(), f.codes)
	})
	close(f.end)
	f.group.Wait()
	s.floods = s.floods[1:]
	for _, code := range slices.Sorted(maps.Keys(f.codes)) {
		c.print(fmt.Sprintf("%s %d times", code, f.codes[code]))
	}
	return err
}

func (s *scenario) receive(c *call) error {
	if err := c.want(2, 2, "receive SERVICE PORT"); err != nil {
		return err
	}
	port, err := strconv.Atoi(c.args[1])
	if err != nil {
		return err
	}
	s.land.AddRecordingService(c.args[0], port)
	return nil
}

func (s *scenario) received(c *call) error {
	const usage = "told SERVICE [TEXT]"
	if err := c.want(1, 2, usage); err != nil {
		return err
	}
	var lines []string
	if err := s.poll(func(context.Context) (bool, string) {
		lines = nil
		for _, t := range s.land.Received(c.args[0]) {
			lines = append(lines, receivedLine(t))
		}
		all := strings.Join(lines, "\n")
		return len(c.args) == 1 || strings.Contains(all, c.args[1]), all
	}); err != nil {
		return err
	}
	slices.Sort(lines)
	c.print(slices.Compact(lines)...)
	return nil
}

// receivedLine returns a request to a component as text: the runtime, method and path, and the parts of the body that
// identify the object and its change.
func receivedLine(t landscape.Received) string {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(t.Body, &parts); err != nil {
		return fmt.Sprintf("%s %s %s: no JSON: %s", t.Runtime, t.Method, t.Path, t.Body)
	}
	maps.DeleteFunc(parts, func(name string, _ json.RawMessage) bool {
		return slices.Contains([]string{"boot", "sequence", "object"}, name)
	})
	body, err := json.Marshal(parts)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s %s %s", t.Runtime, t.Method, t.Path, body)
}
