package storage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// okConfig is a valid module-config with its manifest.
const okConfig = `name: example.com/module/widget
version: 2.0.1
manifest: manifest.yaml
repository: https://example.com/widget
documentation: https://example.com/widget/docs
team: example/blue
icons:
  - name: icon
    link: https://example.com/icon.svg
`

const okWorkload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: widget, namespace: kyma-system}
spec:
  template:
    spec:
      containers:
        - name: manager
          image: IMAGE
          env:
            - {name: KEY, value: "VALUE"}
`

// writeModule creates a folder with a module and returns the path of the config.
func writeModule(t *testing.T, config, image, env string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"module-config.yaml": config,
		"manifest.yaml":      strings.NewReplacer("IMAGE", image, "VALUE", env).Replace(okWorkload),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "module-config.yaml")
}
