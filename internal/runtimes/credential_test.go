package runtimes

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// kubeconfig returns a kubeconfig with one cluster and one user. The parameters cluster and user have the fields of the
// cluster and of the user, in the form "key: value, key: value".
func kubeconfig(cluster, user string) string {
	return `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {` + cluster + `}}]
users: [{name: u, user: {` + user + `}}]
`
}

func TestKubeconfig(t *testing.T) {
	const server = `server: "https://127.0.0.1:6443"`
	cases := map[string]struct {
		reason string
		data   string
		code   string // "" if the kubeconfig is valid
		says   string // part of the message
	}{
		"Token":    {"a token is enough", kubeconfig(server, "token: t"), "", ""},
		"Password": {"so is basic authentication", kubeconfig(server, "username: a, password: b"), "", ""},
		"Empty":    {"an empty Secret", " \n", "KubeconfigInvalid", "is empty"},
		"NotYAML":  {"garbage", "{{{{", "KubeconfigInvalid", "is no kubeconfig"},
		"Huge": {"input is bounded", strings.Repeat("#", maxKubeconfigBytes+1),
			"KubeconfigInvalid", "larger than 256 KiB"},
		"NoContext": {"nobody says which", "apiVersion: v1\nkind: Config\n",
			"KubeconfigInvalid", "no current-context"},
		"LostContext": {"a context that is not there", "apiVersion: v1\nkind: Config\ncurrent-context: x\n",
			"KubeconfigInvalid", `"x" does not exist`},
		"NoServer": {"a cluster without server", kubeconfig("", "token: t"), "KubeconfigInvalid", "no server"},
		"NoCredentials": {"a user without credentials would be anonymous", kubeconfig(server, ""),
			"KubeconfigInvalid", "neither token nor"},
		"BadCertificate": {"certificates have to parse",
			kubeconfig(server+`, certificate-authority-data: "Z2FyYmFnZQ=="`, "token: t"),
			"KubeconfigInvalid", "do not parse"},
		"Exec": {"a program is never run",
			kubeconfig(server,
				`exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}`),
			"KubeconfigRefused", "exec plugin"},
		"AuthProvider": {"nor a provider", kubeconfig(server, `auth-provider: {name: gcp}`),
			"KubeconfigRefused", "auth-provider"},
		"TokenFile": {"no file of the manager is read", kubeconfig(server, `tokenFile: /etc/passwd`),
			"KubeconfigRefused", "reference to a file"},
		"CertificateFile": {"no file of the manager is read",
			kubeconfig(server, `client-certificate: /a, client-key: /b`), "KubeconfigRefused", "reference to a file"},
		"AuthorityFile": {"no file of the manager is read", kubeconfig(server+`, certificate-authority: /a`,
			"token: t"), "KubeconfigRefused", "certificate-authority"},
		"Insecure": {"the credential would go to whoever answers", kubeconfig(server+", insecure-skip-tls-verify: true",
			"token: t"), "KubeconfigRefused", "certificate-authority-data"},
		"ServerName": {"a name in the certificate", kubeconfig(server+", tls-server-name: k", "token: t"), "", ""},
		"Proxy": {"a proxy with a password works as in kubectl",
			kubeconfig(server+`, proxy-url: "http://svc:hunter2@proxy:3128"`, "token: t"), "", ""},
		"SocksProxy": {"so does another scheme", kubeconfig(server+`, proxy-url: "socks5://proxy:1080"`, "token: t"),
			"", ""},
		"ProxyScheme": {"the password of a proxy is not shown",
			kubeconfig(server+`, proxy-url: "socks5h://svc:hunter2@proxy:1080"`, "token: t"),
			"KubeconfigInvalid", `proxy-url of cluster "k"`},
		"ProxyEncoding": {"nor one that is not encoded",
			kubeconfig(server+`, proxy-url: "http://svc:hunter2%ss@proxy:3128"`, "token: t"),
			"KubeconfigInvalid", `proxy-url of cluster "k"`},
		"ServerUser": {"messages about the runtime have the server in them",
			kubeconfig(`server: "https://svc:hunter2@127.0.0.1:6443"`, "token: t"),
			"KubeconfigInvalid", `server of cluster "k" contains a user`},
		"ServerHostUser": {"also without a scheme", kubeconfig(`server: "svc:hunter2@127.0.0.1:6443"`, "token: t"),
			"KubeconfigInvalid", `server of cluster "k" contains a user`},
		"ServerEncoding": {"a server that does not parse is not shown",
			kubeconfig(`server: "https://svc:hunter2%ss@127.0.0.1:6443"`, "token: t"),
			"KubeconfigInvalid", `server of cluster "k" is no URL`},
		"UserTwice": {"client-go quotes all users", `apiVersion: v1
kind: Config
users: [{name: u, user: {password: hunter2}}, {name: u, user: {}}]
`, "KubeconfigInvalid", "a name occurs twice"},
		"Anchor": {"the YAML parser quotes the name of an anchor", kubeconfig(server, "username: a, password: *hunter2"),
			"KubeconfigInvalid", "is no kubeconfig"},
		"Key": {"the YAML parser quotes keys", kubeconfig(server, "password: {[hunter2]: a}"),
			"KubeconfigInvalid", "is no kubeconfig"},
		"Line": {"the number of the line helps", "apiVersion: v1\nkind: Config\nusers: [hunter2\n",
			"KubeconfigInvalid", "is no kubeconfig: yaml: line 3: did not find"},
		"Secret": {"the kind is wrong", "apiVersion: v1\nkind: Secret\nstringData: {config: hunter2}\n",
			"KubeconfigInvalid", "not of kind Config"},
		"ExecAndToken": {"a token beside it does not make it better",
			kubeconfig(server, `token: t, exec: {apiVersion: v1, command: x}`), "KubeconfigRefused", "exec plugin"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg, err := ParseKubeconfig([]byte(c.data))
			if c.code == "" {
				if err != nil || cfg.Host != "https://127.0.0.1:6443" {
					t.Fatalf("%s: got %v, %v", c.reason, cfg, err)
				}
				return
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Reason() != c.code || !strings.Contains(e.Message, c.says) {
				t.Fatalf("%s: got %v, want %s with %q", c.reason, err, c.code, c.says)
			}
			if strings.Contains(e.Error(), "\n") {
				t.Errorf("message has more than one line: %q", e.Error())
			}
			if strings.Contains(e.Error(), "hunter2") {
				t.Errorf("%s: the message has a password in it: %q", c.reason, e.Error())
			}
		})
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfig(`server: "https://x"`, "token: t")))
	f.Add([]byte(kubeconfig(`server: "https://x"`, "exec: {command: x}")))
	f.Add([]byte("%ss@proxy:3128"))
	f.Add([]byte("}}, {name: u, user: {a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const password = "hunter2"
		quoted := strconv.Quote("http://svc:" + password + string(data))
		for _, config := range []string{
			kubeconfig(`server: "https://x", proxy-url: `+quoted, "token: "+password),
			kubeconfig("server: "+quoted, "token: "+password),
			kubeconfig(`server: "https://x"`, "password: "+password+", "+string(data)),
		} {
			if _, err := ParseKubeconfig([]byte(config)); err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("the message about %q has the password in it: %v", config, err)
			}
		}
		cfg, err := ParseKubeconfig(data)
		if err != nil {
			return
		}
		if cfg.ExecProvider != nil || cfg.AuthProvider != nil || cfg.BearerTokenFile != "" || cfg.CAFile != "" ||
			cfg.CertFile != "" || cfg.KeyFile != "" {
			t.Errorf("accepted a kubeconfig that runs a program or reads a file: %q", data)
		}
	})
}

// TestConfirmAccessSecretRemoved checks that an access Secret that is deleted and created again does not count as
// removed, and that a Secret that the cache lacks, but the API server has, does not either.
func TestConfirmAccessSecretRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, cached := newPool(t)
		live := fake.NewClientBuilder().Build()
		pool.opts.Live = live
		confirm := func(why string, want time.Duration) {
			t.Helper()
			_, _ = pool.Get(t.Context(), "a")
			if wait, err := pool.ConfirmAccessSecretRemoved(t.Context(), "a"); err != nil || wait != want {
				t.Errorf("%s: wait %s, %v, want %s", why, wait, err, want)
			}
		}
		confirm("it is missing since now", removalDelay)
		time.Sleep(removalDelay / 2)
		confirm("it is missing for a short time", removalDelay/2)
		again := secret("a", nil)
		if err := cached.Create(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		time.Sleep(removalDelay)
		confirm("it was created again", time.Second)
		if err := cached.Delete(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		confirm("it was deleted again", removalDelay)
		stale := secret("a", nil)
		if err := live.Create(t.Context(), stale); err != nil {
			t.Fatal(err)
		}
		time.Sleep(removalDelay)
		confirm("only the cache lacks it", time.Second)
		if err := live.Delete(t.Context(), stale); err != nil {
			t.Fatal(err)
		}
		confirm("it was removed", 0)
		confirm("the other callers need not ask the API server", 0)
	})
}

// TestMissingSecretsAreBounded checks that requests for many Kymas without an access Secret do not use up memory.
func TestMissingSecretsAreBounded(t *testing.T) {
	p := &Pool{missing: map[string]absence{}}
	for i := range maxMissing + 1 {
		p.noteAccessSecretMissing(strconv.Itoa(i), true)
	}
	if len(p.missing) != 1 {
		t.Errorf("%d missing Secrets are remembered, want 1: the last", len(p.missing))
	}
}
