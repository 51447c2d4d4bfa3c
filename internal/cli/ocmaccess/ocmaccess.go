package ocmaccess

import (
	"bytes"
	"errors"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
)

// PlaceHelp is the help text about PLACE, which is an argument of several commands.
const PlaceHelp = `
A PLACE is a registry, host[:port][/path], with http:// before it if it has no TLS; or a Common Transport Format archive: a path that
begins with a dot or a slash, or ends with .ctf, .tgz or .tar. //COMPONENT:VERSION after it names one component version in it. Logins are
those of docker login, unless --username is given.`

// Flags are the flags of all commands that log in to registries.
type Flags struct {
	username, passwordFile string
}

// Register adds the flags to f.
func (e *Flags) Register(f *pflag.FlagSet) {
	f.StringVar(&e.username, "username", "", "user of the registry; empty: the logins of docker login")
	f.StringVar(&e.passwordFile, "password-file", "",
		"file with the password or token of --username; - reads it from standard input")
}

// Access returns the login that the flags contain. If no login is given by flags, Access returns the logins of docker
// login.
func (e *Flags) Access(a *console.App) (storage.Access, error) {
	switch {
	case e.username == "" && e.passwordFile == "":
		return storage.Access{}, nil
	case e.username == "" || e.passwordFile == "":
		return storage.Access{}, console.Fail(console.ExitUsage,
			"--username and --password-file must be given together")
	}
	password, err := readPassword(a, e.passwordFile)
	if err != nil {
		return storage.Access{}, err
	}
	return storage.Access{Keychain: oneLogin{authn.FromConfig(
		authn.AuthConfig{Username: e.username, Password: string(password)})}}, nil
}

// readPassword reads a password from a file and removes line breaks at its end.
func readPassword(a *console.App, file string) ([]byte, error) {
	data, err := a.ReadInput("--password-file", file)
	return bytes.TrimRight(data, "\r\n"), err
}

// oneLogin is a keychain that returns the same login for all registries. The login is only sent to registries that the
// user has named in the same command as the flags with the login.
type oneLogin struct{ authn.Authenticator }

// Resolve implements [authn.Keychain].
func (l oneLogin) Resolve(authn.Resource) (authn.Authenticator, error) { return l.Authenticator, nil }

// Open opens a registry or an archive. If the archive does not exist and create is true, Open creates the archive.
func Open(reference string, access storage.Access, create bool) (*storage.Place, error) {
	p, err := storage.Open(reference, access, create)
	return p, ExplainWithExitCode(err)
}

// ExplainWithExitCode adds the exit code of klm to an error of the Go packages author and registry. If a login is
// missing, ExplainWithExitCode adds an instruction to log in.
func ExplainWithExitCode(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*console.Problem](err); ok {
		return err
	}
	if problems, ok := errors.AsType[author.Problems](err); ok {
		if len(problems) == 1 {
			return console.Fail(console.ExitFailed, "%s", problems[0])
		}
		return console.Fail(console.ExitFailed, "%s:\n  %s", console.Count(len(problems), "error"),
			strings.ReplaceAll(problems.Error(), "\n", "\n  "))
	}
	if _, ok := errors.AsType[*storage.NotFound](err); ok || errors.Is(err, os.ErrNotExist) {
		return console.Fail(console.ExitNotFound, "%v", err)
	}
	e, ok := errors.AsType[*ocm.Error](err)
	if !ok {
		return console.Fail(console.ExitFailed, "%v", err)
	}
	switch e.Reason() {
	case ocm.RegistryUnauthorized:
		host, _, _ := strings.Cut(e.Ref, "/")
		return console.Fail(console.ExitForbidden,
			"%v; log in with docker login %s, or give --username and --password-file", err, host)
	case ocm.ArtifactNotFound:
		return console.Fail(console.ExitNotFound, "%v", err)
	case ocm.RegistryUnreachable, ocm.EgressRefused:
		return console.Fail(console.ExitCluster, "%v", err)
	case ocm.InvalidReference:
		return console.Fail(console.ExitUsage, "%v", err)
	case ocm.ArtifactExists:
		return console.Fail(console.ExitFailed, "%v, or give --overwrite", err)
	}
	return console.Fail(console.ExitFailed, "%v", err)
}
