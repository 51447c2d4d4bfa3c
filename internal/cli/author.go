package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/pflag"

	"github.com/kyma-fleet/lifecycle-manager/internal/author"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry"
)

// aboutPlaces is the part of the help that verbs with places share.
const aboutPlaces = `
A PLACE is a registry, host[:port][/path], with http:// before it if it has no TLS; or a Common Transport Format archive: a path that
begins with a dot or a slash, or ends with .ctf, .tgz or .tar. //COMPONENT:VERSION after it names one component version in it. Logins are
those of docker login, unless --username says otherwise.`

// entrance is how a verb gets into registries.
type entrance struct {
	username, passwordFile string
}

func (e *entrance) register(f *pflag.FlagSet) {
	f.StringVar(&e.username, "username", "", "user of the registry; empty: those of docker login")
	f.StringVar(&e.passwordFile, "password-file", "", "file with the password or token of --username; - reads it from standard input")
}

// access returns the logins.
func (e *entrance) access(a *app) (author.Access, error) {
	switch {
	case e.username == "" && e.passwordFile == "":
		return author.Access{}, nil
	case e.username == "" || e.passwordFile == "":
		return author.Access{}, fail(exitUsage, "--username and --password-file need each other")
	}
	password, err := a.secret(e.passwordFile)
	if err != nil {
		return author.Access{}, err
	}
	return author.Access{Keychain: oneLogin{authn.FromConfig(authn.AuthConfig{Username: e.username, Password: string(password)})}}, nil
}

// secret reads a file with one secret, without the end of its line.
func (a *app) secret(file string) ([]byte, error) {
	data, err := a.readInput("--password-file", file)
	return bytes.TrimRight(data, "\r\n"), err
}

// oneLogin is a keychain with one login. Who has it asks only the registries that it is for.
type oneLogin struct{ authn.Authenticator }

// Resolve implements [authn.Keychain].
func (l oneLogin) Resolve(authn.Resource) (authn.Authenticator, error) { return l.Authenticator, nil }

// open finds a place.
func (a *app) openPlace(reference string, access author.Access, create bool) (*author.Place, error) {
	p, err := author.Open(reference, access, create)
	return p, explainAuthor(err)
}

// explainAuthor gives an error of a build or a place its exit code, and says how to log in.
func explainAuthor(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*problem](err); ok {
		return err
	}
	if problems, ok := errors.AsType[author.Problems](err); ok {
		if len(problems) == 1 {
			return fail(exitFailed, "%s", problems[0])
		}
		return fail(exitFailed, "%s:\n  %s", number(len(problems), "error"), strings.ReplaceAll(problems.Error(), "\n", "\n  "))
	}
	if _, ok := errors.AsType[*author.NotFound](err); ok || errors.Is(err, os.ErrNotExist) {
		return fail(exitNotFound, "%v", err)
	}
	e, ok := errors.AsType[*registry.Error](err)
	if !ok {
		return fail(exitFailed, "%v", err)
	}
	switch e.Reason() {
	case registry.RegistryUnauthorized:
		host, _, _ := strings.Cut(e.Ref, "/")
		return fail(exitForbidden, "%v; log in with docker login %s, or give --username and --password-file", err, host)
	case registry.ArtifactNotFound:
		return fail(exitNotFound, "%v", err)
	case registry.RegistryUnreachable:
		return fail(exitCluster, "%v", err)
	case registry.InvalidReference:
		return fail(exitUsage, "%v", err)
	case registry.ArtifactExists:
		return fail(exitFailed, "%v, or give --overwrite", err)
	}
	return fail(exitFailed, "%v", err)
}

// findingList shows findings.
type findingList []author.Finding

func (l findingList) show(p *page) {
	for _, f := range l {
		p.line("%-7s  %s", f.Level, f)
	}
}

// tell shows findings that do not stop a verb, as progress.
func (a *app) tell(findings []author.Finding) {
	for _, f := range findings {
		fmt.Fprintf(a.Err, "  %s: %s\n", f.Level, f)
	}
}

// copies is what a verb has brought somewhere.
type copies struct {
	To       string          `json:"to"`
	Versions []author.Copied `json:"versions"`
}

func (c copies) names() []string {
	var names []string
	for _, v := range c.Versions {
		names = append(names, v.Name+":"+v.Version)
	}
	return names
}

func (c copies) show(p *page) {
	for _, v := range c.Versions {
		how := "is there now"
		if !v.New {
			how = "was there already"
		}
		p.line("%s:%s %s: %s@%s", v.Name, v.Version, how, c.To, v.Digest)
		if v.Signatures > 0 {
			p.line("  with %s of cosign", number(v.Signatures, "artefact"))
		}
		for _, i := range v.Images {
			how := "is there now"
			if !i.New {
				how = "was there already"
			}
			p.line("  image %s %s: %s", i.Image, how, i.At)
		}
		what := "it"
		if len(v.Images) > 0 {
			what = "it and its images"
		}
		if v.Was != "" {
			p.line("  its descriptor says now where to find %s; before, its digest was %s", what, v.Was)
		}
		c.showOldNames(p, v)
	}
}

// showOldNames tells which objects ask for images by names that lead elsewhere.
func (copies) showOldNames(p *page, v author.Copied) {
	for i, old := range v.OldNames {
		if i == 0 {
			p.line("  what is installed asks for these by the names of before: let the container runtimes of clusters look for them elsewhere (a registry mirror)")
		}
		if old.At == "" {
			p.line("    %s: %s, which is no resource of the component and was not copied", old.Object, old.Image)
		} else {
			p.line("    %s: %s, which is %s now", old.Object, old.Image, old.At)
		}
	}
}

// readInput reads a small file that a flag names, or standard input.
func (a *app) readInput(flag, file string) ([]byte, error) {
	const most = 1 << 20
	from := a.In
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // the user names the file
		if err != nil {
			return nil, fail(exitUsage, "%s: %v", flag, err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, most))
	if err != nil {
		return nil, fail(exitUsage, "%s: %v", flag, err)
	}
	return data, nil
}
