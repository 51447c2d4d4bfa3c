package supportdump

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

func TestRedact(t *testing.T) {
	cases := map[string]struct {
		reason      string
		value, want any
	}{
		"Key": {"by the key", map[string]any{"password": "x", "clientSecret": "y", "client-key-data": "z",
			"secretName": "a", "tokenRef": "b"}, map[string]any{"password": text.Hidden, "clientSecret": text.Hidden,
			"client-key-data": text.Hidden, "secretName": "a", "tokenRef": "b"}},
		"Env": {"as containers have it", map[string]any{"name": "DB_PASSWORD", "value": "x"},
			map[string]any{"name": "DB_PASSWORD", "value": text.Hidden}},
		"Kubeconfig": {"by what it looks like", map[string]any{"config": "apiVersion: v1\nkind: Config\nusers: []"},
			map[string]any{"config": text.Hidden}},
		"JWT": {"a token", map[string]any{"x": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVz"},
			map[string]any{"x": text.Hidden}},
		"PEM": {"a key", []any{"-----BEGIN EC PRIVATE KEY-----\nabc"}, []any{text.Hidden}},
		"Argument": {"in a longer text", []any{"--password=x --user=kim"},
			[]any{"--password=" + text.Hidden + " --user=kim"}},
		"Flag": {"the next argument", []any{"--docker-password", "hunter2", "--user", "kim", "--token", "--verbose"},
			[]any{"--docker-password", text.Hidden, "--user", "kim", "--token", "--verbose"}},
		"FlagSigns": {"with any signs in it", []any{"--password=Xy7,9z&Q;'"}, []any{"--password=" + text.Hidden}},
		"FlagOfText": {"of a program in the argument", []any{"--set=db.password=a&b", "-c", "run --token=a,b -v"},
			[]any{"--set=db.password=" + text.Hidden, "-c", "run --token=" + text.Hidden + " -v"}},
		"Quoted": {"a value with spaces", map[string]any{"config.yaml": "password: \"correct horse\"\nuser: kim"},
			map[string]any{"config.yaml": "password: " + text.Hidden + "\nuser: kim"}},
		"URL": {"a login in an address", "https://kim:x@example.com/a", "https://example.com/a"},
		"Text": {"what others wrote", "pull from http://kim:x@example.com/a failed",
			"pull from http://example.com/a failed"},
		"Plain": {"numbers and words stay", map[string]any{"replicas": int64(3), "message": "is Ready", "on": true,
			"none": nil, "secretKeyRef": map[string]any{"name": "n", "key": "k"}},
			map[string]any{"replicas": int64(3), "message": "is Ready", "on": true, "none": nil,
				"secretKeyRef": map[string]any{"name": "n", "key": "k"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, redact("", c.value)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}
