package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kyma-fleet/lifecycle-manager/internal/backchannel"
	"github.com/kyma-fleet/lifecycle-manager/internal/protocol"
)

// Roles of processes. Each role is a subcommand.
const (
	roleListener = "listener"
	roleFlood    = "flood"
	serverName   = "listener.bench"
	floodName    = "flood"
)

// pair is a certificate with its key, in a form that one process can send to another.
type pair struct {
	Certificate []byte
	Key         []byte
}

// order is the input that a process receives when it starts.
type order struct {
	Root    []byte // DER
	Own     pair
	Address string // address of the listener; only for a flood
}

// report holds figures of the listener. The listener sends one report at its start, and one for each request.
type report struct {
	Address   string
	CPU       time.Duration
	Mallocs   uint64
	Bytes     uint64 // allocated bytes since the start
	InUse     uint64 // bytes of heap and stacks in use
	Delivered int64
}

// authority is a certificate authority.
type authority struct {
	root *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a root: %w", err)
	}
	root, err := x509.ParseCertificate(der)
	return &authority{root: root, key: key, next: 2}, err
}

func (a *authority) issue(name string) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making a key: %w", err)
	}
	a.next++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("making a certificate: %w", err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return pair{der, encoded}, nil
}

func (p pair) parseDER() (*tls.Certificate, error) {
	key, err := x509.ParseECPrivateKey(p.Key)
	if err != nil {
		return nil, fmt.Errorf("parsing a key: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{p.Certificate}, PrivateKey: key}, nil
}

// clientConfig returns the TLS configuration of an agent.
func (o order) clientConfig(own pair) (*tls.Config, error) {
	root, err := x509.ParseCertificate(o.Root)
	if err != nil {
		return nil, fmt.Errorf("parsing the root: %w", err)
	}
	certificate, err := own.parseDER()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: serverName,
		Certificates: []tls.Certificate{*certificate}}, nil
}

// process is a child process that runs this program in another role. Requests and answers are JSON objects, one per
// line.
type process struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	answers *json.Decoder
}

// startProcess starts a child process in a role. The process ends when its input ends.
func startProcess(ctx context.Context, role string, o order) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	p := &process{command: exec.CommandContext(ctx, self, role)} //nolint:gosec // it is this program
	p.command.Stderr = os.Stderr
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	p.answers = json.NewDecoder(stdout)
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	if err := json.NewEncoder(p.stdin).Encode(o); err != nil {
		return nil, fmt.Errorf("telling the %s what to do: %w", role, errors.Join(err, p.stop()))
	}
	return p, nil
}

// stop closes the input of a process, and waits until the process has ended.
func (p *process) stop() error {
	_ = p.stdin.Close() // the process ends with its input
	return p.command.Wait()
}

// requestReport requests a report from the listener.
func (p *process) requestReport() (r report, err error) {
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		return r, fmt.Errorf("asking the listener: %w", err)
	}
	if err := p.answers.Decode(&r); err != nil {
		return r, fmt.Errorf("asking the listener: %w", err)
	}
	return r, nil
}

// serve runs the process of the listener.
func serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	input := bufio.NewReader(stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	root, err := x509.ParseCertificate(o.Root)
	if err != nil {
		return fmt.Errorf("parsing the root: %w", err)
	}
	own, err := o.Own.parseDER()
	if err != nil {
		return err
	}
	fleet := map[string]backchannel.Runtime{floodName: {Kyma: floodName}}
	for i := range agents {
		fleet[agentName(i)] = backchannel.Runtime{Kyma: "kyma-" + agentName(i)}
	}
	roots := []*x509.Certificate{root}
	var delivered atomic.Int64
	l, err := backchannel.New(backchannel.Options{
		Address:     "127.0.0.1:0",
		Roots:       func() []*x509.Certificate { return roots },
		Certificate: func() (*tls.Certificate, error) { return own, nil },
		Lookup: func(id protocol.Identity) (backchannel.Runtime, error) {
			if rt, ok := fleet[id.CommonName]; ok {
				return rt, nil
			}
			return backchannel.Runtime{}, errors.New("no such runtime")
		},
		Deliver: func(string, protocol.Event) { delivered.Add(1) },
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.Start(ctx) }()
	for answers := json.NewEncoder(stdout); ; {
		if _, err := input.ReadBytes('\n'); err != nil {
			break // the other process has ended or closed the input
		}
		if err := answers.Encode(reportAfterGC(l, delivered.Load())); err != nil {
			break
		}
	}
	stop()
	return <-done
}

// reportAfterGC returns a report with the resource usage of the listener's process. The memory is measured after a
// garbage collection.
func reportAfterGC(l *backchannel.Listener, delivered int64) report {
	cpu := processorTime()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return report{
		Address: l.TLSAddress(), CPU: cpu, Mallocs: m.Mallocs, Bytes: m.TotalAlloc,
		InUse:     m.HeapAlloc + m.StackInuse,
		Delivered: delivered,
	}
}

// processorTime returns the processor time of this process, in user and system mode.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func agentName(i int) string { return fmt.Sprintf("agent-%d", i) }
