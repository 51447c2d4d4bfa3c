package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// These constants are the names of the cookies. With https, the names of the cookies get the prefix __Host-. Browsers
// accept a cookie with the prefix __Host- only from the host itself, and only if the path of the cookie is /.
const (
	sessionCookie = "klm-session"
	attemptCookie = "klm-signin-" // followed by the state of the attempt
)

// maxCookie limits the size of a cookie. Browsers silently drop cookies that are larger than 4,096 bytes, including
// name and attributes.
const maxCookie = 3800

// name returns the name of a cookie, with the prefix __Host- if the dashboard uses https.
func (s *SignIn) name(cookie string) string {
	if s.secure {
		return "__Host-" + cookie
	}
	return cookie
}

// cookie returns a cookie without value.
func (s *SignIn) cookie(name string, lifetime time.Duration) http.Cookie {
	//nolint:gosec // Secure if browsers reach the dashboard by https
	return http.Cookie{Name: s.name(name), Path: "/", MaxAge: int(lifetime.Seconds()), Secure: s.secure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode}
}

// sealer encrypts cookies, and authenticates each cookie together with its name.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte) (sealer, error) {
	const size = 32
	if len(key) != size {
		return sealer{}, fmt.Errorf("the key of cookies has %d bytes: it needs %d", len(key), size)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, fmt.Errorf("preparing the key of cookies: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return sealer{}, fmt.Errorf("preparing the key of cookies: %w", err)
	}
	return sealer{aead: aead}, nil
}

// write sets the cookie c with an encrypted value.
//
//nolint:gosec // the caller sets all attributes
func (s sealer) write(w http.ResponseWriter, c http.Cookie, value any) error {
	plain, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding a cookie: %w", err)
	}
	//nolint:gosec // no nonce: the AEAD makes a random one
	c.Value = base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(c.Name)))
	if len(c.Value) > maxCookie {
		return fmt.Errorf("your name and groups do not fit into a cookie (%d bytes, more than %d): let the provider "+
			"send only the groups of the dashboard", len(c.Value), maxCookie)
	}
	http.SetCookie(w, &c)
	return nil
}

// read finds the cookie of the request by its name, and decrypts the cookie into the parameter value.
func (s sealer) read(r *http.Request, name string, value any) error {
	c, err := r.Cookie(name)
	if err != nil {
		return err
	}
	if len(c.Value) > maxCookie {
		return errors.New("the cookie is too long")
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return fmt.Errorf("decoding a cookie: %w", err)
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return fmt.Errorf("decrypting a cookie: %w", err)
	}
	return json.Unmarshal(plain, value)
}

// drop removes a cookie from the browser.
//
//nolint:gosec // the caller sets all attributes
func (sealer) drop(w http.ResponseWriter, c http.Cookie) {
	c.MaxAge = -1
	http.SetCookie(w, &c)
}
