package docs

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"
)

// TestDashboard opens the dashboard at the address that make up prints, and finds the runtimes there.
func TestDashboard(t *testing.T) {
	address := theLandscape(t).dashboard
	base, _, found := strings.Cut(address, "?token=")
	if !found {
		t.Fatalf("make up has printed the address %q of the dashboard", address)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(address string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	get(address) // the token becomes a cookie
	limit, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		page := get(base)
		if strings.Contains(page, `href="/runtimes/runtime-a"`) && strings.Contains(page, "actions allowed") {
			return
		}
		select {
		case <-limit.Done():
			t.Fatalf("the dashboard shows no runtime:\n%s", page)
		case <-ticker.C:
		}
	}
}
