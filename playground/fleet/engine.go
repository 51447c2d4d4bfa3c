package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
)

// admin is the user of all requests in the handlers.
var admin = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}

var requestInfo = &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api")}

// answer records the answer of a handler.
type answer struct {
	code   int
	header http.Header
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(data)
}

// AddWarning implements warning.Recorder.
func (a *answer) AddWarning(agent, text string) {
	if value, err := net.NewWarningHeader(299, agent, text); err == nil {
		a.header.Add("Warning", value)
	}
}

var _ warning.Recorder = &answer{}

// serveRequest passes a request to the API server's handlers, with one object as their storage. serveRequest returns
// the handlers' answer.
func serveRequest(ctx context.Context, handler http.Handler, t *transaction, method, uri string, header http.Header,
	body []byte) (*answer, error) {
	a := &answer{header: http.Header{}}
	ctx = context.WithValue(ctx, transactionKey{}, t)
	ctx = audit.WithAuditContext(apirequest.WithUser(ctx, admin))
	ctx = warning.WithWarningRecorder(ctx, a)
	req, err := http.NewRequestWithContext(ctx, method, uri, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking the handlers: %w", err)
	}
	req.Header = header
	req.RequestURI = uri
	info, err := requestInfo.NewRequestInfo(req)
	if err != nil {
		return nil, fmt.Errorf("asking the handlers: %w", err)
	}
	handler.ServeHTTP(a, req.WithContext(apirequest.WithRequestInfo(ctx, info)))
	return a, nil
}
