package runtimes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

const (
	// kubeconfigKey is the key of the kubeconfig in an access Secret.
	kubeconfigKey = "config"
	// kymaNameLabel is a label of every access Secret. The value of the label is the name of the Kyma.
	kymaNameLabel = "operator.kyma-project.io/kyma-name"
	// maxKubeconfigBytes is the largest size of a kubeconfig that is parsed.
	maxKubeconfigBytes = 256 << 10
)

// KymaNameIndex is the cache index of access Secrets, Manifests and tombstones by the name of their Kyma. Without the
// index, listing the objects of one Kyma by label took 40 ms with 10,000 Kymas.
const KymaNameIndex = "kyma-name"

// IndexByKyma adds the index KymaNameIndex for the objects of one kind to a cache.
func IndexByKyma(ctx context.Context, indexer client.FieldIndexer, kind client.Object) error {
	return indexer.IndexField(ctx, kind, KymaNameIndex, KymaIndexValues)
}

// KymaIndexValues returns the values under which the index KymaNameIndex contains an access Secret: the name of its
// Kyma.
func KymaIndexValues(o client.Object) []string {
	if name := o.GetLabels()[kymaNameLabel]; name != "" {
		return []string{name}
	}
	return nil
}

// NewSecretMetadata returns an empty object with which only the metadata of Secrets is requested.
func NewSecretMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return m
}

// credential identifies one version of an access Secret. Two connections with equal credentials are interchangeable.
type credential struct {
	secret          string // name of the Secret, "" for the cluster the manager runs on
	uid             string
	resourceVersion string
}

// findAccessSecretVersion reads the metadata of the access Secret of a Kyma from the cache and returns the credential.
func (p *Pool) findAccessSecretVersion(ctx context.Context, kyma string) (credential, error) {
	if p.opts.Self != nil {
		return credential{uid: "self"}, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := p.opts.Cache.List(ctx, list, client.InNamespace(p.opts.Namespace),
		client.MatchingFields{KymaNameIndex: kyma})
	if err != nil {
		// If the access Secret cannot be read, the reason of the error must not be AccessSecretNotFound, because the
		// runtime may still exist.
		return credential{}, fmt.Errorf("looking for the access Secret of runtime %s: %w", kyma, err)
	}
	p.noteAccessSecretMissing(kyma, len(list.Items) == 0)
	switch len(list.Items) {
	case 0:
		return credential{}, &Error{Code: AccessSecretNotFound, Runtime: kyma, Message: fmt.Sprintf(
			"no access Secret: create a Secret in namespace %s with label %s=%s and the kubeconfig under key %q",
			p.opts.Namespace, kymaNameLabel, kyma, kubeconfigKey)}
	case 1:
		s := list.Items[0]
		return credential{secret: s.Name, uid: string(s.UID), resourceVersion: s.ResourceVersion}, nil
	default:
		var names []string
		for _, s := range list.Items {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		return credential{}, &Error{Code: AccessSecretAmbiguous, Runtime: kyma, Message: fmt.Sprintf(
			"%d access Secrets (%s) carry label %s=%s: delete all but the one that is right",
			len(names), strings.Join(names, ", "), kymaNameLabel, kyma)}
	}
}

// absence is what the pool knows about an access Secret that the cache does not contain.
type absence struct {
	since       time.Time // when a caller has first not found the Secret
	confirmedAt time.Time // when the API server was last asked, and had no Secret either; zero if it was not asked
}

// removalDelay is the time for which an access Secret has to be missing before it counts as removed. A tool may replace
// a Secret by deleting and creating it, and a person may correct its label.
const removalDelay = 30 * time.Second

// maxMissing is the maximum number of missing access Secrets that the pool remembers. When the pool forgets them, each
// has to be missing for removalDelay again.
const maxMissing = 20_000

// noteAccessSecretMissing records whether the cache lacks the access Secret of a Kyma.
func (p *Pool) noteAccessSecretMissing(kyma string, isMissing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !isMissing {
		delete(p.missing, kyma)
	} else if _, known := p.missing[kyma]; !known {
		if len(p.missing) >= maxMissing {
			clear(p.missing) // a Manifest may ask for a Kyma that is deleted, so nothing else would remove its entry
		}
		p.missing[kyma] = absence{since: time.Now()}
	}
}

// ConfirmAccessSecretRemoved decides whether a person has removed the access Secret of a Kyma, after another function
// of the pool has returned an error with the reason AccessSecretNotFound. The Secret counts as removed if it has been
// missing for a while, and the API server does not have it either. If the Secret does not count as removed, wait is the
// time after which the caller has to try again; otherwise wait is 0.
func (p *Pool) ConfirmAccessSecretRemoved(ctx context.Context, kyma string) (wait time.Duration, err error) {
	p.mu.Lock()
	known, isMissing := p.missing[kyma]
	p.mu.Unlock()
	now := time.Now()
	switch {
	case !isMissing:
		return time.Second, nil // the Secret was found in the meantime
	case now.Sub(known.since) < removalDelay:
		return known.since.Add(removalDelay).Sub(now), nil
	case !known.confirmedAt.IsZero() && now.Sub(known.confirmedAt) < removalDelay:
		return 0, nil // the Manifests of a Kyma need no list of their own
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err = p.opts.Live.List(ctx, list, client.InNamespace(p.opts.Namespace), client.MatchingLabels{kymaNameLabel: kyma},
		client.Limit(1))
	if err != nil {
		return 0, fmt.Errorf("verifying that runtime %s has no access Secret: %w", kyma, err)
	}
	if len(list.Items) > 0 {
		return time.Second, nil // the event about the Secret may reach the cache later
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, isMissing = p.missing[kyma]; !isMissing {
		return time.Second, nil
	}
	known.confirmedAt = now
	p.missing[kyma] = known
	return 0, nil
}

// readKubeconfig reads the access Secret of a credential and returns the client configuration in its kubeconfig.
func (p *Pool) readKubeconfig(ctx context.Context, kyma string, c credential) (*rest.Config, error) {
	if p.opts.Self != nil {
		return rest.CopyConfig(p.opts.Self), nil
	}
	var secret corev1.Secret
	if err := p.opts.Live.Get(ctx, client.ObjectKey{Namespace: p.opts.Namespace, Name: c.secret}, &secret); err != nil {
		return nil, fmt.Errorf("reading access Secret %s of runtime %s: %w", c.secret, kyma, err)
	}
	cfg, err := ParseKubeconfig(secret.Data[kubeconfigKey])
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Runtime, e.Message = kyma, fmt.Sprintf("access Secret %s/%s, key %q: %s", p.opts.Namespace,
				c.secret, kubeconfigKey, e.Message)
		}
		return nil, err
	}
	return cfg, nil
}

// ParseKubeconfig parses a kubeconfig that does not come from a trusted source, and returns its client configuration.
// ParseKubeconfig refuses exec plugins, auth providers and references to files, because these would run programs or
// read files in the manager. ParseKubeconfig also refuses insecure-skip-tls-verify. tls-server-name, proxy-url and
// impersonation work as in kubectl. A kubeconfig without a current context, a server or credentials is also an error.
// Errors are of type *[Error]. Errors contain no secret: they are shown in the status of the Kyma and in the log.
// Therefore the server must not contain a user, because messages about the runtime contain the server.
func ParseKubeconfig(data []byte) (*rest.Config, error) {
	invalid := func(format string, args ...any) (*rest.Config, error) {
		return nil, &Error{Code: KubeconfigInvalid, Message: fmt.Sprintf(format, args...)}
	}
	refused := func(what string) (*rest.Config, error) {
		return nil, &Error{Code: KubeconfigRefused,
			Message: what + " is refused: put certificates, keys and tokens inline (kubectl config view --flatten " +
				"--minify)"}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return invalid("is empty: put a kubeconfig there")
	}
	if len(data) > maxKubeconfigBytes {
		return invalid("is larger than %d KiB: put a kubeconfig with one context there (kubectl config view "+
			"--flatten --minify)", maxKubeconfigBytes>>10)
	}
	file, err := clientcmd.Load(data)
	if err != nil {
		return invalid("is no kubeconfig: %s", loadProblem(err))
	}
	if file.CurrentContext == "" {
		return invalid("has no current-context: set one")
	}
	context := file.Contexts[file.CurrentContext]
	if context == nil {
		return invalid("current-context %q does not exist in it", file.CurrentContext)
	}
	cluster, user := file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]
	switch {
	case cluster == nil || cluster.Server == "":
		return invalid("context %q names cluster %q, which has no server in it", file.CurrentContext, context.Cluster)
	case user == nil:
		return invalid("context %q names user %q, which is not in it", file.CurrentContext, context.AuthInfo)
	case user.Exec != nil:
		return refused("the exec plugin of user " + quoteForMessage(context.AuthInfo))
	case user.AuthProvider != nil:
		return refused("the auth-provider of user " + quoteForMessage(context.AuthInfo))
	case user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
		return refused("a reference to a file (client-certificate, client-key or tokenFile) of user " + quoteForMessage(
			context.AuthInfo))
	case cluster.CertificateAuthority != "":
		return refused("a reference to a file (certificate-authority) of cluster " + quoteForMessage(context.Cluster))
	case cluster.InsecureSkipTLSVerify:
		return nil, &Error{Code: KubeconfigRefused, Message: "insecure-skip-tls-verify of cluster " +
			quoteForMessage(context.Cluster) + " is refused, because the credential would go to whoever answers: put " +
			"the certificate authority of the cluster into certificate-authority-data"}
	case !isProxyURL(cluster.ProxyURL):
		return invalid("proxy-url of cluster %q is no URL with the scheme http, https or socks5: correct it, and "+
			"percent-encode special characters of a password in it", context.Cluster)
	case !hasCredential(user):
		return invalid("user %q has neither token nor client certificate nor password", context.AuthInfo)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext,
		&clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return invalid("is no usable kubeconfig: %v", oneLine(err))
	}
	switch server, _, err := rest.DefaultServerUrlFor(cfg); {
	case err != nil:
		return invalid("server of cluster %q is no URL and no host with a port: correct it", context.Cluster)
	case server.User != nil:
		return invalid("server of cluster %q contains a user: put username and password into the user of the "+
			"kubeconfig", context.Cluster)
	}
	if _, err := rest.TLSConfigFor(cfg); err != nil {
		return invalid("holds certificates or keys that do not parse: %v", oneLine(err))
	}
	return cfg, nil
}

// loadProblem returns the text of an error of [clientcmd.Load] without values of the kubeconfig. Most of these errors
// quote values, and one of them quotes all users with their tokens and passwords. Only the errors of the YAML parser
// that begin with the number of a line have constant texts.
func loadProblem(err error) string {
	switch line := oneLine(err); {
	case strings.HasPrefix(line, "yaml: line "):
		return line
	case runtime.IsNotRegisteredError(err):
		return "it is not of kind Config and apiVersion v1"
	}
	return "it is no YAML, a field has a wrong type, or a name occurs twice in a list (kubectl config view shows the " +
		"problem)"
}

// isProxyURL reports whether client-go accepts the proxy-url of a cluster. The errors of client-go about a proxy-url
// quote the URL with its password.
func isProxyURL(proxy string) bool {
	u, err := url.Parse(proxy)
	return proxy == "" || err == nil && slices.Contains([]string{"http", "https", "socks5"}, u.Scheme)
}

func hasCredential(u *clientcmdapi.AuthInfo) bool {
	return u.Token != "" || len(u.ClientCertificateData) > 0 || u.Username != ""
}

func quoteForMessage(s string) string { return fmt.Sprintf("%q", s) }

// oneLine returns the text of a parser error on one line. A long text is cut, because parser errors may quote their
// input.
func oneLine(err error) string {
	const limit = 160
	return text.ClipLine(err.Error(), limit)
}

// newTransport returns the HTTP transport for one runtime. newTransport does not use the transports of client-go,
// because client-go keeps every transport in a global cache forever.
func (p *Pool) newTransport(cfg *rest.Config) (*http.Transport, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	// HTTP/2 pings detect a connection that was cut without notice. Without pings, a watch on a connection that was cut
	// would wait forever.
	idle, pings := 90*time.Second, &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}
	if p.opts.Agents {
		// If agents report changes, the pool runs no watches and sends few requests. Idle connections are therefore
		// closed after 10 seconds, to save file descriptors. A connection gets no pings, because the timers of pings
		// would keep the memory of a closed connection until they expire.
		idle, pings = 10*time.Second, nil
	}
	proxy := http.ProxyFromEnvironment
	if cfg.Proxy != nil {
		proxy = cfg.Proxy // proxy-url in the kubeconfig
	}
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           (&netDialer).DialContext,
		TLSClientConfig:       tlsConfig,
		TLSHandshakeTimeout:   p.opts.Timeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   p.opts.Concurrency,
		IdleConnTimeout:       idle,
		DisableCompression:    true,
		ResponseHeaderTimeout: p.opts.Timeout,

		MaxResponseHeaderBytes: 64 << 10,
		HTTP2:                  pings,
	}, nil
}
