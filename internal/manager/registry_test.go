package manager

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestLogin checks that the credentials are sent only to the registry that they belong to, in any spelling of its
// address.
func TestLogin(t *testing.T) {
	cases := map[string]struct {
		reason, entry, asks, want string
	}{
		"Host":   {"a name alone", "registry.example.com", "registry.example.com", "admin"},
		"Port":   {"a name and a port", "registry.example.com:5000", "registry.example.com:5000", "admin"},
		"Path":   {"a path is not part of the name", "registry.example.com/modules", "registry.example.com", "admin"},
		"Scheme": {"as other tools write it", "https://registry.example.com", "registry.example.com", "admin"},
		"Plain": {"a registry without TLS", "http://registry.example.com:5000/modules",
			"registry.example.com:5000", "admin"},
		"Other": {"nobody else gets it", "registry.example.com", "registry.example.org", ""},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "login"},
				Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
					`{"auths":{"` + c.entry + `":{"username":"admin","password":"x"}}}`)},
			}
			k := keychain{reader: fake.NewClientBuilder().WithObjects(secret).Build(),
				key: client.ObjectKeyFromObject(secret)}
			asks, err := name.NewRegistry(c.asks)
			if err != nil {
				t.Fatal(err)
			}
			login, err := k.ResolveContext(t.Context(), asks)
			if err != nil {
				t.Fatal(err)
			}
			got, err := authn.Authorization(t.Context(), login)
			if err != nil || got.Username != c.want {
				t.Errorf("%s: logs in as %q (%v), want %q", c.reason, got.Username, err, c.want)
			}
		})
	}
}
