package ocmaccess

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/content"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

func TestAccess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("open-sesame\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, input string
		args          []string
		login         string // user:password; "" for the logins of docker login
		want          string // the error
	}{
		"None": {reason: "docker login"},
		"File": {
			reason: "the line break is not part of the password",
			args:   []string{"--username=kim", "--password-file=" + file},
			login:  "kim:open-sesame",
		},
		"Input": {
			reason: "from standard input",
			input:  "secret\n",
			args:   []string{"--username=kim", "--password-file=-"},
			login:  "kim:secret",
		},
		"NoPassword": {
			reason: "one flag without the other",
			args:   []string{"--username=kim"},
			want:   "must be given together",
		},
		"NoUser": {
			reason: "the other without the one",
			args:   []string{"--password-file=-"},
			want:   "must be given together",
		},
		"NoFile": {
			reason: "a file that does not exist",
			args:   []string{"--username=kim", "--password-file=" + file + "x"},
			want:   "--password-file: open ",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var flags Flags
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.Register(f)
			if err := f.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			access, err := flags.Access(&console.App{Streams: console.Streams{In: strings.NewReader(c.input)}})
			if c.want != "" {
				if console.ExitCode(err) != console.ExitUsage || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v", c.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if access.Keychain != nil {
				login, err := access.Keychain.Resolve(nil)
				if err != nil {
					t.Fatal(err)
				}
				var config *authn.AuthConfig
				if config, err = login.Authorization(); err != nil {
					t.Fatal(err)
				}
				got = config.Username + ":" + config.Password
			}
			if got != c.login {
				t.Errorf("%s: %q, want %q", c.reason, got, c.login)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	of := func(code string) error {
		return fmt.Errorf("copying: %w", &ocm.Error{Ref: "registry.example.com/modules:1.0.0",
			Code: code, Problem: "a problem"})
	}
	finding := content.Finding{Where: "module-config.yaml:2", What: "unknown key"}
	cases := map[string]struct {
		reason string
		err    error
		code   int
		want   string
	}{
		"None": {"no error", nil, console.ExitOK, ""},
		"Explained": {"an error with a code is not changed", console.Fail(console.ExitUsage, "--key"),
			console.ExitUsage, "--key"},
		"Unauthorized": {"how to log in, and where", of(ocm.RegistryUnauthorized), console.ExitForbidden,
			"log in with docker login registry.example.com, or give --username"},
		"NotFound": {"an artifact that does not exist", of(ocm.ArtifactNotFound), console.ExitNotFound, "a problem"},
		"Unreachable": {"a registry that does not answer", of(ocm.RegistryUnreachable),
			console.ExitCluster, "a problem"},
		"Reference": {"a reference that cannot be parsed", of(ocm.InvalidReference), console.ExitUsage, "a problem"},
		"Exists":    {"another artifact exists", of(ocm.ArtifactExists), console.ExitFailed, "or give --overwrite"},
		"NoVersion": {"a place without the version", fmt.Errorf("opening: %w", &storage.NotFound{}),
			console.ExitNotFound, "opening"},
		"NoFile": {"a file that does not exist", fmt.Errorf("reading: %w", os.ErrNotExist),
			console.ExitNotFound, "reading"},
		"OneProblem":  {"one problem is one line", author.Problems{finding}, console.ExitFailed, "unknown key"},
		"TwoProblems": {"several are counted", author.Problems{finding, finding}, console.ExitFailed, "2 errors:\n  "},
		"Other":       {"all others", errors.New("odd"), console.ExitFailed, "odd"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := ExplainWithExitCode(c.err)
			if console.ExitCode(err) != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: exit code %d, want %d: %v", c.reason, console.ExitCode(err), c.code, err)
			}
		})
	}
}
