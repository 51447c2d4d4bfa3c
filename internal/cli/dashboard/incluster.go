package dashboard

import (
	"context"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/fleetindex"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/page"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/dashboard/signin"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// clusterOptions are the flags of klm dashboard --in-cluster.
type clusterOptions struct {
	bindAddress, url, clientSecretFile, cookieKeyFile string
	signIn                                            signin.Options
}

// register adds the flags.
func (o *clusterOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.bindAddress, "bind-address", ":8080", "in a cluster: address of the server")
	f.StringVar(&o.url, "url", "",
		"in a cluster: address of the dashboard for browsers, such as https://fleet.example.com")
	f.StringVar(&o.signIn.Issuer, "oidc-issuer", "", "in a cluster: address of the OpenID Connect provider")
	f.StringVar(&o.signIn.ClientID, "oidc-client-id", "", "in a cluster: client of the provider")
	f.StringVar(&o.clientSecretFile, "oidc-client-secret-file", "",
		"in a cluster: file with the secret of the client; empty: a public client")
	f.StringVar(&o.cookieKeyFile, "cookie-key-file", "",
		"in a cluster: file with 32 random bytes that encrypt sessions; another key ends all sessions")
	f.StringVar(&o.signIn.UsernameClaim, "oidc-username-claim", "email",
		"in a cluster: claim with the name of a person")
	f.StringVar(&o.signIn.UsernamePrefix, "oidc-username-prefix", "",
		"in a cluster: prefix of names, as the API server has it")
	f.StringVar(&o.signIn.GroupsClaim, "oidc-groups-claim", "groups", "in a cluster: claim with the groups of a person")
	f.StringVar(&o.signIn.GroupsPrefix, "oidc-groups-prefix", "",
		"in a cluster: prefix of groups, as the API server has it")
	f.DurationVar(&o.signIn.Lifetime, "session-lifetime", 8*time.Hour, "in a cluster: longest session, 1m to 24h")
}

// maxSecretFile is the maximum number of bytes of a file with a secret.
const maxSecretFile = 4096

// complete reads the files that the flags name, and checks the address of the dashboard.
func (o *clusterOptions) complete() (host string, err error) {
	at, err := url.Parse(o.url)
	if err != nil || at.Host == "" || at.Path != "" && at.Path != "/" {
		return "", console.Fail(console.ExitUsage, "--url: %q is not an address such as https://fleet.example.com",
			o.url)
	}
	o.signIn.RedirectURL = strings.TrimSuffix(o.url, "/") + signin.CallbackPath
	if o.signIn.Key, err = readSecretFile("--cookie-key-file", o.cookieKeyFile); err != nil {
		return "", err
	}
	if o.clientSecretFile != "" {
		secret, err := readSecretFile("--oidc-client-secret-file", o.clientSecretFile)
		if err != nil {
			return "", err
		}
		o.signIn.ClientSecret = strings.TrimSpace(string(secret))
	}
	if err := o.signIn.Validate(); err != nil {
		return "", console.Fail(console.ExitUsage, "%v", err)
	}
	return at.Host, nil
}

// readSecretFile reads the secret from the file that a flag names.
func readSecretFile(flag, file string) ([]byte, error) {
	if file == "" {
		return nil, console.Fail(console.ExitUsage, "%s is required in a cluster", flag)
	}
	data, err := os.ReadFile(file) //nolint:gosec // the administrator names the file
	if err != nil {
		return nil, console.Fail(console.ExitFailed, "%s: %v", flag, err)
	}
	if len(data) > maxSecretFile {
		return nil, console.Fail(console.ExitUsage, "%s: %s has %d bytes, more than %d", flag, file, len(data),
			maxSecretFile)
	}
	return data, nil
}

// runInCluster serves the dashboard for people who sign in, until ctx ends.
func runInCluster(ctx context.Context, a *console.App, o options) error {
	host, err := o.cluster.complete()
	if err != nil {
		return err
	}
	if _, err := connection.Open(a); err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.cluster.bindAddress)
	if err != nil {
		return console.Fail(console.ExitFailed, "--bind-address: %v", err)
	}
	index := fleetindex.New()
	viewers := newViewers(index, o.actions, a.Now)
	pages, err := page.New(page.Options{Index: index, Viewer: viewers.authorize, Hosts: []string{host},
		Program: "klm", SignOut: signin.SignOutPath, WithoutSecrets: true})
	if err != nil {
		return err
	}
	o.cluster.signIn.Client = providerClient
	door := &door{index: index, host: host}
	fmt.Fprintf(a.Out, "The dashboard serves %s at %s\n", o.cluster.url, listener.Addr())
	return serve(ctx, a, listener, index, door, func(ctx context.Context) {
		door.waitForProvider(ctx, a, o.cluster.signIn, pages)
	})
}

// door is the handler of all requests: of probes, of the sign-in, and of the pages for people who have signed in. While
// the OpenID Connect provider does not answer, the handler returns a page which says that nobody can sign in.
type door struct {
	index   *fleetindex.Index
	host    string // the only accepted header Host, but for probes
	signIn  atomic.Pointer[http.Handler]
	problem atomic.Pointer[string] // why nobody can sign in; nil before the first attempt
}

// providerInterval is the time between two attempts to read the configuration of the provider.
const providerInterval = 5 * time.Second

// providerClient sends the requests to the provider. nil means the default of package signin. Tests change
// providerClient.
var providerClient *http.Client

// waitForProvider is a method that tries to read the configuration of the provider, until a try succeeds or ctx ends.
func (d *door) waitForProvider(ctx context.Context, a *console.App, o signin.Options, pages http.Handler) {
	for {
		s, err := signin.New(ctx, o)
		if err == nil {
			handler := s.Protect(pages)
			d.signIn.Store(&handler)
			return
		}
		problem := err.Error()
		if before := d.problem.Swap(&problem); before == nil || *before != problem {
			fmt.Fprintln(a.Err, problem)
		}
		if console.Sleep(ctx, providerInterval) != nil {
			return
		}
	}
}

// maxHost is the maximum number of bytes of a host name in a message.
const maxHost = 100

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch handler := d.signIn.Load(); {
	case r.URL.Path == "/healthz":
		fmt.Fprintln(w, "ok")
	case r.URL.Path == "/readyz" && handler != nil && d.index.Snapshot().Ready:
		fmt.Fprintln(w, "ok")
	case r.URL.Path == "/readyz":
		http.Error(w, "the fleet was not read yet, or the OpenID Connect provider does not answer",
			http.StatusServiceUnavailable)
	case r.Host != d.host: // a host name of somebody else that resolves to this server
		refuse(w, http.StatusMisdirectedRequest, "The dashboard is not at this address",
			"It was asked for as "+text.ClipLine(r.Host, maxHost)+".", "Open https://"+d.host+".")
	case handler != nil:
		(*handler).ServeHTTP(w, r)
	default:
		message := "The configuration of the OpenID Connect provider is being read."
		if problem := d.problem.Load(); problem != nil {
			message = *problem
		}
		refuse(w, http.StatusServiceUnavailable, "Nobody can sign in", message,
			"The dashboard tries again every 5 seconds. Load this page again.")
	}
}

// refusal is the template of the page for a person who gets no access to the dashboard. The page contains no data of
// the fleet.
var refusal = template.Must(template.New("refusal").Parse(`<!doctype html><html lang="en"><meta charset="utf-8">
<title>{{.Title}} · Lifecycle Manager</title><div class="problem"><h1>{{.Title}}</h1><p>{{.Message}}</p>
<p class="remedy">{{.Remedy}}</p></div></html>
`))

// refuse answers with a page that states the problem and the remedy.
func refuse(w http.ResponseWriter, status int, title, message, remedy string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_ = refusal.Execute(w, struct{ Title, Message, Remedy string }{title, message, remedy}) // the client may be gone
}
