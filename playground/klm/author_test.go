package klm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/registry/ocm"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// buildOperator builds the operator of a skeleton as if it were a package of this Go module. This Go module requires
// all modules that the operator needs, so none has to be downloaded.
func buildOperator(folder, program string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(
		map[string]any{"Replace": map[string]string{filepath.Join(here, "skeleton", "main.go"): filepath.Join(
			folder, "main.go")}})
	if err != nil {
		return err
	}
	file := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-overlay", file, "-o", program, "./skeleton")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the operator of the skeleton: %w\n%s", err, out)
	}
	return nil
}

// writeKeys writes a new private key to path.pem and its public half to path.pub.
func writeKeys(path, kind string) error {
	var k crypto.Signer
	var err error
	if k, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); kind == "rsa" {
		k, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(path+".pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
		os.WriteFile(path+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600),
	)
}

// publishLayers publishes a component version with layers of any name, the first of them raw-manifest.
func publishLayers(component string, layers []string, path func(string) string) error {
	name, version, _ := strings.Cut(component, ":")
	content := map[string][]byte{}
	for _, layer := range layers {
		resource, file, _ := strings.Cut(layer, "=")
		data, err := os.ReadFile(path(file))
		if err != nil { // a folder
			data, err = landscape.Pack(os.DirFS(path(file)), "", true)
		}
		if err != nil {
			return err
		}
		content[resource] = data
	}
	made, err := ocm.Pack(ocm.Archive{Name: name, Version: version, RawManifest: content["raw-manifest"],
		RepositoryContext: land.up.RegistryHost})
	if err != nil {
		return err
	}
	delete(content, "raw-manifest")
	blobs := map[string][]byte{}
	made, err = made.WithEditedDescriptor(func(d map[string]any) error {
		component := d["component"].(map[string]any)
		for resource, data := range content {
			digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
			blobs[digest] = data
			component["resources"] = append(component["resources"].([]any), map[string]any{
				"name": resource, "version": version, "type": "plainText", "relation": "local",
				"access": map[string]any{"type": "localBlob", "localReference": digest,
					"mediaType": "application/octet-stream"},
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	maps.Copy(made.Blobs, blobs)
	_, err = land.up.Registry.Write(life, made, true)
	return err
}
