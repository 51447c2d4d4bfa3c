package config

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// referenceFlags are the names of all flags of Kyma's lifecycle-manager.
const referenceFlags = `
kubeconfig cert-management metrics-bind-address health-probe-bind-address kyma-skr-listener-bind-address 
pprof-bind-address pprof pprof-server-timeout max-concurrent-kyma-reconciles 
max-concurrent-manifest-reconciles max-concurrent-watcher-reconciles 
max-concurrent-mandatory-modules-reconciles max-concurrent-mandatory-modules-deletion-reconciles 
leader-elect leader-election-lease-duration leader-election-renew-deadline leader-election-retry-period 
kyma-requeue-success-interval kyma-requeue-error-interval kyma-requeue-warning-interval 
kyma-requeue-busy-interval manifest-requeue-success-interval manifest-requeue-error-interval 
manifest-requeue-warning-interval manifest-requeue-busy-interval manifest-requeue-jitter-probability 
manifest-requeue-jitter-percentage mandatory-module-requeue-success-interval 
mandatory-module-deletion-requeue-success-interval watcher-requeue-success-interval 
module-upgrade-rollout-max-delay k8s-client-qps k8s-client-burst k8s-skr-client-qps k8s-skr-client-burst 
enable-webhooks additional-dns-names istio-namespace istio-gateway-name istio-gateway-namespace 
listener-port-overwrite rate-limiter-burst rate-limiter-frequency failure-base-delay failure-max-delay 
cache-sync-timeout log-level sync-namespace self-signed-cert-duration self-signed-cert-renew-before 
self-signed-cert-renew-buffer self-signed-cert-key-size self-signed-cert-issuer-name 
self-signed-cert-issuer-namespace istio-gateway-cert-switch-before-expiration-time 
istio-gateway-server-cert-switch-grace-period istio-gateway-server-cert-expiry-window 
istio-gateway-secret-requeue-success-interval istio-gateway-secret-requeue-error-interval 
drop-crd-stored-version-map skr-watcher-image-name skr-watcher-image-tag skr-watcher-image-registry 
skr-webhook-memory-limits skr-webhook-cpu-limits metrics-cleanup-interval min-maintenance-window-size 
oci-registry-cred-secret oci-registry-host modules-repository-subpath skr-image-pull-secret 
restricted-default-modules
`

func newFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	DefaultManager().Register(f)
	return f
}

// TestFormerFlags checks that every flag of Kyma's lifecycle-manager exists, or is listed with its replacement in
// FormerFlags and in the guide.
func TestFormerFlags(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []*regexp.Regexp
	for _, m := range regexp.MustCompile("`--([^` =]+)").FindAllStringSubmatch(string(guide), -1) {
		patterns = append(patterns, regexp.MustCompile("^"+strings.ReplaceAll(m[1], "…", ".*")+"$"))
	}
	isInGuide := func(name string) bool {
		for _, p := range patterns {
			if p.MatchString(name) {
				return true
			}
		}
		return false
	}
	f, names := newFlags(), strings.Fields(referenceFlags)
	if len(names) < 70 {
		t.Fatalf("%d flags are compared, want those of the reference", len(names))
	}
	for _, name := range names {
		former := FormerFlags[name]
		exists := f.Lookup(name) != nil
		switch {
		case exists && former.Instead != "":
			t.Errorf("--%s exists, and FormerFlags says that it does not", name)
		case !exists && former.Instead == "":
			t.Errorf("--%s does not exist: add it to FormerFlags", name)
		case (former != FormerFlag{}) && !isInGuide(name):
			t.Errorf("--%s is not in docs/guide/migration.md", name)
		}
	}
	for name := range FormerFlags {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
			t.Errorf("FormerFlags has --%s, which is not a flag of the reference", name)
		}
	}
}

// TestFormerDefaults compares the defaults that the guide states with the defaults of the flags.
func TestFormerDefaults(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	f, n := newFlags(), 0
	row := regexp.MustCompile(`(?m)^\| (` + "`--[^|]+`" + `) \| the defaults are (.+) instead of .* \|$`)
	for _, m := range row.FindAllStringSubmatch(string(guide), -1) {
		names := regexp.MustCompile("`--([^`]+)`").FindAllStringSubmatch(m[1], -1)
		values := strings.FieldsFunc(strings.ReplaceAll(m[2], " and ", ", "), func(r rune) bool {
			return r == ',' || r == ' '
		})
		if len(names) != len(values) {
			t.Errorf("%s has %d flags and %d values", m[0], len(names), len(values))
			continue
		}
		for i, name := range names {
			flag := f.Lookup(name[1])
			if flag == nil {
				t.Errorf("--%s does not exist", name[1])
			} else if flag.DefValue != values[i] && flag.DefValue != values[i]+"0s" {
				t.Errorf("the default of --%s is %s, the guide has %s", name[1], flag.DefValue, values[i])
			}
			n++
		}
	}
	if n < 8 {
		t.Errorf("found %d flags: is the guide still written as before?", n)
	}
}

func TestParse(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		errors []string // one for each line of the error
	}{
		"Valid": {
			reason: "known flags",
			args:   []string{"--log-level=1", "--leader-elect=false", "--namespace", "x"},
		},
		"Negative":   {reason: "a negative number is a value", args: []string{"--log-level", "-5"}},
		"Positional": {reason: "arguments after -- are no flags", args: []string{"--", "--unknown"}},
		"Unknown": {
			reason: "all unknown flags are reported at once, sorted, each with what to do",
			args: []string{"--sync-namespace=x", "--log-level=1", "--istio-gateway-name", "y", "--typo",
				"-leader-elect", "--typo"},
			errors: []string{
				"-leader-elect: write flags with two dashes: --leader-elect",
				"--istio-gateway-name does not exist any more: set --listener-address",
				"--sync-namespace does not exist any more: not needed: it is always kyma-system",
				"--typo is unknown: see --help",
			},
		},
		"Value": {
			reason: "one line for an invalid value",
			args:   []string{"--log-level=x"},
			errors: []string{`invalid argument "x" for "--log-level" flag`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f, out := newFlags(), &strings.Builder{}
			f.SetOutput(out)
			err := parse(f, c.args, out)
			if (err != nil) != (len(c.errors) > 0) {
				t.Fatalf("%s: got %v", c.reason, err)
			}
			if err == nil {
				return
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.errors) {
				t.Fatalf("%s: got %q", c.reason, lines)
			}
			for i, want := range c.errors {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("%s: line %d is %q, want %q", c.reason, i, lines[i], want)
				}
			}
			if strings.Contains(out.String(), "Usage") {
				t.Errorf("%s: the whole usage was printed", c.reason)
			}
		})
	}
}

func TestParseHelp(t *testing.T) {
	for _, arg := range []string{"--help", "-h"} {
		f, out := newFlags(), &strings.Builder{}
		f.SetOutput(out)
		if err := parse(f, []string{arg}, out); !errors.Is(err, pflag.ErrHelp) {
			t.Errorf("%s: got %v", arg, err)
		}
		if !strings.Contains(out.String(), "--oci-registry-host") {
			t.Errorf("%s printed %q", arg, out)
		}
	}
}

// TestLoad checks that the help and the version are written to the output before the configuration is validated.
func TestLoad(t *testing.T) {
	cases := map[string]struct {
		reason, arg, output string
		done, failed        bool
	}{
		"Help":    {"help needs no registry", "--help", "--oci-registry-host", true, false},
		"Version": {"nor does the version", "--version", Version, true, false},
		"Unknown": {"an unknown flag", "--typo", "", false, true},
		"Invalid": {"the registry is missing", "--log-level=1", "", false, true},
		"Valid":   {"a registry is sufficient", "--oci-registry-host=registry.example.com", "", false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f, out, m := pflag.NewFlagSet("manager", pflag.ContinueOnError), &strings.Builder{}, DefaultManager()
			f.SetOutput(out)
			done, err := Load(f, m, &m.Version, []string{c.arg}, out)
			if done != c.done || (err != nil) != c.failed || !strings.Contains(out.String(), c.output) {
				t.Errorf("%s: got %t, %v and output %q", c.reason, done, err, out)
			}
		})
	}
}
