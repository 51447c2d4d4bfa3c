package klm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// buildOperator builds the operator of a skeleton as if it were a folder here: that has all modules it needs, so none has to be fetched.
func buildOperator(folder, program string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "skeleton", "main.go"): filepath.Join(folder, "main.go")}})
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
