package text

import "testing"

func TestIsSecretName(t *testing.T) {
	for name, want := range map[string]bool{
		"password": true, "DB_PASSWD": true, "--any-token": true, "clientSecret": true, "client-key-data": true,
		"AWS_SECRET_ACCESS_KEY": true, ".dockerconfigjson": true, "Authorization": true,
		"secretName": false, "tokenRef": false, "--oci-registry-cred-secret": false, "key": false, "": false,
	} {
		if got := IsSensitiveKey(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

func TestIsSecretForm(t *testing.T) {
	for value, want := range map[string]bool{
		"-----BEGIN EC PRIVATE KEY-----\nabc": true, "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVz": true,
		"Bearer abcdefghij": true, "apiVersion: v1\nkind: Config\n": true,
		"-----BEGIN CERTIFICATE-----": false, "kind: ConfigMap": false, "the bearer of news": false, "": false,
	} {
		if got := IsSensitiveValue(value); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
}

func TestWithoutSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"--password=x --user=kim":              "--password=" + Hidden + " --user=kim",
		"pull from http://kim:x@example.com/a": "pull from http://example.com/a",
		"https://kim@example.com":              "https://example.com",
		"mail kim@example.com":                 "mail kim@example.com",
	} {
		if got := WithoutAssignedSecrets(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
