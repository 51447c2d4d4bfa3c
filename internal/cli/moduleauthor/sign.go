package moduleauthor

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/internal/author/storage"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/ocmaccess"
	"github.com/kyma-fleet/lifecycle-manager/internal/registry/trust"
)

func signCommand(a *console.App) *cobra.Command {
	var e ocmaccess.Flags
	var s storage.SignOptions
	var key, password string
	c := a.Command("sign PLACE[//COMPONENT[:VERSION]] --key FILE",
		"sign component versions in a registry or an archive",
		`An RSA key signs the descriptor (OCM), which covers the digests of all resources and images; klm reads the digests of images that are named by a
tag from their registries, and a missing image is an error. Any other key signs the manifest, as cosign does. --key is a private key in PEM, or
one of cosign.
`+ocmaccess.PlaceHelp, `
klm module sign module.ctf --key signing.pem
klm module sign registry.example.com/modules//kyma-project.io/module/sample:1.0.0 --key cosign.key --key-password-file pass`,
		console.Arguments("PLACE"), func(cmd *cobra.Command, args []string) error {
			switch {
			case key == "":
				return console.Fail(console.ExitUsage, "--key is required: give the file with the private key")
			case s.Kind != "" && s.Kind != trust.KindOCM && s.Kind != trust.KindCosign:
				return console.Fail(console.ExitUsage, "--kind: %q is neither %s nor %s", s.Kind,
					trust.KindOCM, trust.KindCosign)
			}
			text, err := a.ReadInput("--key", key)
			if err != nil {
				return err
			}
			if s.Key, err = trust.ParsePrivateKey(text, func() ([]byte, error) {
				if password == "" {
					return nil, console.Fail(console.ExitUsage, "--key: it is encrypted: give --key-password-file")
				}
				return a.ReadInput("--key-password-file", password)
			}); err != nil {
				return console.Fail(console.ExitUsage, "--key: %v", err)
			}
			access, err := e.Access(a)
			if err != nil {
				return err
			}
			return signModule(cmd.Context(), a, args[0], access, s)
		})
	c.ValidArgsFunction = nil // files
	c.Flags().StringVar(&key, "key", "", "file with the private key (required)")
	c.Flags().StringVar(&password, "key-password-file", "",
		"file with the password of an encrypted key; - reads it from standard input")
	c.Flags().StringVar(&s.Kind, "kind", "",
		"ocm: signature in the descriptor; cosign: signature beside the manifest; empty: ocm for RSA keys, else cosign")
	c.Flags().StringVar(&s.Name, "name", "default",
		"name of a signature in the descriptor; a signature of the same name is replaced")
	console.CompleteFlag(c, "kind", console.FixedNames(trust.KindOCM, trust.KindCosign))
	e.Register(c.Flags())
	return c
}

// signReport is the report of klm module sign.
type signReport []storage.Signed

func (s signReport) Names() []string {
	var names []string
	for _, v := range s {
		names = append(names, v.Name+":"+v.Version)
	}
	return names
}

func (s signReport) Show(p *console.Page) {
	for _, v := range s {
		p.Line("%s:%s is signed (%s): %s", v.Name, v.Version, v.Kind, v.Digest)
	}
}

func signModule(ctx context.Context, a *console.App, reference string, access storage.Access,
	s storage.SignOptions) error {
	p, err := ocmaccess.Open(reference, access, false)
	if err != nil {
		return err
	}
	done, err := storage.Sign(ctx, p, s)
	if err != nil {
		return ocmaccess.ExplainWithExitCode(err)
	}
	return a.Print(signReport(done))
}

func verifyCommand(a *console.App) *cobra.Command {
	var e ocmaccess.Flags
	var keys []string
	var policy string
	var images bool
	c := a.Command("verify PLACE[//COMPONENT[:VERSION]] [--key FILE | --trust-policy FILE]",
		"check component versions and their signatures",
		`Every blob is read and compared with its digest. With --key, a public key, each version has to be signed by one of these keys. With
--trust-policy klm verifies signatures as the manager does; in an archive only the rule with prefix "" applies. Without both, signatures are not
verified. With --images the images, in the archive or in the registries that they name, have to exist and to have the signed digests.
`+ocmaccess.PlaceHelp, `
klm module verify module.ctf
klm module verify registry.example.com/modules//kyma-project.io/module/sample:1.0.0 --key signing.pub
klm module verify registry.example.com/modules//kyma-project.io/module/sample --trust-policy policy.yaml`,
		console.Arguments("PLACE"), func(cmd *cobra.Command, args []string) error {
			access, err := e.Access(a)
			if err != nil {
				return err
			}
			if access.Trust, err = readTrustPolicy(a, keys, policy); err != nil {
				return err
			}
			p, err := ocmaccess.Open(args[0], access, false)
			if err != nil {
				return err
			}
			done, err := storage.Verify(cmd.Context(), p, images)
			if err != nil {
				return ocmaccess.ExplainWithExitCode(err)
			}
			return a.Print(verifyReport(done))
		})
	c.ValidArgsFunction = nil // files
	c.Flags().StringArrayVar(&keys, "key", nil, "file with a public key in PEM; may be repeated")
	c.Flags().BoolVar(&images, "images", false, "also verify the images of each version")
	c.Flags().StringVar(&policy, "trust-policy", "", "file with a trust policy, in the format of the manager")
	e.Register(c.Flags())
	return c
}

// readTrustPolicy returns a trust policy. If the parameter keyFiles is not empty, the policy requires a signature by
// one of the keys in these files. If the parameter policyFile is the path of a file, the policy is read from this file.
// If neither key files nor a policy file are given, the result is nil.
func readTrustPolicy(a *console.App, keyFiles []string, policyFile string) (*trust.Policy, error) {
	switch {
	case len(keyFiles) == 0 && policyFile == "":
		return nil, nil
	case len(keyFiles) > 0 && policyFile != "":
		return nil, console.Fail(console.ExitUsage, "--key and --trust-policy exclude each other")
	case policyFile != "":
		text, err := a.ReadInput("--trust-policy", policyFile)
		if err != nil {
			return nil, err
		}
		t, err := trust.Parse(text)
		if err != nil {
			return nil, console.Fail(console.ExitUsage, "--trust-policy: %v", err)
		}
		return t, nil
	}
	named, names := map[string]string{}, []string{}
	for i, file := range keyFiles {
		text, err := a.ReadInput("--key", file)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(file)
		if _, taken := named[name]; taken {
			name = fmt.Sprintf("%s (%d)", name, i+1)
		}
		named[name], names = string(text), append(names, name)
	}
	text, err := json.Marshal(map[string]any{"keys": named,
		"rules": []any{map[string]any{"prefix": "", "mode": trust.Enforce, "keys": names}}})
	if err != nil {
		return nil, fmt.Errorf("encoding the keys: %w", err)
	}
	t, err := trust.Parse(text)
	if err != nil {
		return nil, console.Fail(console.ExitUsage, "--key: %v", err)
	}
	return t, nil
}

// verifyReport is the report of klm module verify.
type verifyReport []storage.Verified

func (v verifyReport) Names() []string {
	var names []string
	for _, one := range v {
		names = append(names, one.Name+":"+one.Version)
	}
	return names
}

func (v verifyReport) Show(p *console.Page) {
	for _, one := range v {
		switch {
		case one.Problem != "":
			p.Line("%s:%s is complete, but %s", one.Name, one.Version, one.Problem)
		case one.Kind != "":
			p.Line("%s:%s is complete, and signed by %s (%s): %s", one.Name, one.Version, one.Key, one.Kind, one.Digest)
		default:
			p.Line("%s:%s is complete; signatures were not verified: %s", one.Name, one.Version, one.Digest)
		}
		for _, image := range one.Images {
			p.Line("  image %s exists", image)
		}
	}
}
