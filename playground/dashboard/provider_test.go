package dashboard

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// provider is an OpenID Connect provider that signs everybody in as one person.
type provider struct {
	*httptest.Server
	t   *testing.T
	key *ecdsa.PrivateKey

	mu            sync.Mutex
	person, nonce string // guarded by mu
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.send(w, map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize",
			"token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		point, err := key.PublicKey.Bytes() // 4, x, y
		if err != nil {
			t.Error(err)
			return
		}
		half := (len(point) - 1) / 2
		p.send(w, map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "kid": "k",
			"alg": "ES256", "x": encode(point[1 : 1+half]), "y": encode(point[1+half:])}}})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		p.mu.Lock()
		p.nonce = q.Get("nonce")
		p.mu.Unlock()
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"c0de"}, "state": {q.Get("state")}}.Encode(),
			http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		p.send(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": p.token()})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.t.Error(err)
	}
}

// become sets the person who signs in next.
func (p *provider) become(person string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.person = person
}

// token returns a signed ID token of the person, who is in no group.
func (p *provider) token() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	claims, err := json.Marshal(map[string]any{"iss": p.URL, "aud": "klm", "sub": p.person, "nonce": p.nonce,
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "email": p.person, "email_verified": true})
	if err != nil {
		p.t.Error(err)
	}
	text := encode([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, sum[:])
	if err != nil {
		p.t.Error(err)
		return ""
	}
	const half = 32
	signature := make([]byte, 2*half)
	r.FillBytes(signature[:half])
	s.FillBytes(signature[half:])
	return text + "." + encode(signature)
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
