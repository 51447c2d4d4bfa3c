package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// kubeletUser is the user name of the API server in its requests for logs to a node.
const kubeletUser = "kube-apiserver-kubelet-client"

// logServer is the part of the API of a kubelet that "kubectl logs" needs. logServer responds only to the API server.
type logServer struct {
	node   *node
	port   int
	server *http.Server
}

// startLogs opens a port and serves requests until close is called.
func startLogs(ctx context.Context, n *node) (*logServer, error) {
	cert, key, err := n.server.pki.issueFor(n.name, net.IPv4(127, 0, 0, 1))
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("serving logs: %w", err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(n.server.pki.ca)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serving logs: %w", err)
	}
	l := &logServer{node: n, port: listener.Addr().(*net.TCPAddr).Port}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", l.logs)
	l.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
			ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert},
		BaseContext: func(net.Listener) context.Context { return n.life },
	}
	go func() { _ = l.server.ServeTLS(listener, "", "") }()
	return l, nil
}

func (l *logServer) close() { _ = l.server.Close() }

// logs writes the output of a container: all of it, or the last tailLines lines. With follow, logs also writes new
// output until the pod ends. Other options of "kubectl logs" are not supported. The log file of a container has its
// output before and after all restarts.
func (l *logServer) logs(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != kubeletUser {
		http.Error(w, "only the API server may ask", http.StatusForbidden)
		return
	}
	p := l.node.findPod(r.PathValue("namespace"), r.PathValue("pod"))
	file, err := os.OpenInRoot(l.node.logs, logName(r.PathValue("namespace"),
		r.PathValue("pod"), r.PathValue("container")))
	if errors.Is(err, os.ErrNotExist) {
		_, _ = io.WriteString(w, "this container is simulated, or has not run yet: it has no output\n")
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer file.Close() //nolint:errcheck // only read
	if lines, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
		if err := seekToLastLines(file, lines); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	for {
		if _, err := io.Copy(w, file); err != nil {
			return
		}
		if r.URL.Query().Get("follow") != "true" || p == nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-p.dead.Done():
			p = nil // one more round for the last output of the pod
		default:
			if !sleepUnlessDone(r.Context(), probeInterval) {
				return
			}
		}
	}
}

// seekToLastLines sets the position in the file to the beginning of the last n lines.
func seekToLastLines(file *os.File, n int) error {
	var starts []int64
	position := int64(0)
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadSlice('\n')
		if len(line) > 0 && (position == 0 || len(starts) > 0) {
			starts = append(starts, position)
		}
		position += int64(len(line))
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = reader.ReadSlice('\n')
			position += int64(len(line))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	starts = append(starts, position)
	_, err := file.Seek(starts[max(0, len(starts)-1-max(n, 0))], io.SeekStart)
	return err
}

// findPod returns the pod with this name if it runs on this node, otherwise nil.
func (n *node) findPod(namespace, name string) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if object := p.current(); object.Namespace == namespace && object.Name == name {
			return p
		}
	}
	return nil
}
