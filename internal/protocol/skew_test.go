package protocol

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestSkew checks that agents and managers of other versions can read the messages of this version. The variable named
// formerly has messages of a former version, with all their fields. The test checks that this version reads the
// messages of the former version without a loss. The test also checks that this version writes messages with the same
// keys, so that the former version can read messages of this version. A field that a later version adds must be
// ignored.
//
// If a new field is added, the test needs no new line. If the test fails, a field was renamed or removed: keep its
// former name.
func TestSkew(t *testing.T) {
	cases := map[string]struct {
		formerly string
		reread   func([]byte) (any, error)
	}{
		"Event": {
			formerly: `{"watched":{"Namespace":"n","Name":"a"},"watchedGvk":{"group":"g","version":"v1","kind":"A"},` +
				`"boot":"b","sequence":7,"resource":"as","deleted":true,"object":{"name":"a","uid":"u"}}`,
			reread: func(b []byte) (any, error) { return ParseEvent(b) },
		},
		"Begin": {
			formerly: `{"watched":{"Namespace":"","Name":""},"watchedGvk":{"group":"","version":"v1","kind":"A"},` +
				`"boot":"b","sequence":1,"resource":"as","began":true,"complete":true,"there":[{"name":"a"}]}`,
			reread: func(b []byte) (any, error) { return ParseEvent(b) },
		},
		"Heartbeat": {
			formerly: `{"boot":"b","version":"1","sequence":3,"pending":2,"lost":true,"watchlist":"w","problem":"p"}`,
			reread:   func(b []byte) (any, error) { return ParseHeartbeat(b) },
		},
		"Watchlist": {
			formerly: `{"watches":[{"manager":"m","group":"g","version":"v1","resource":"as","kind":"A",` +
				`"namespace":"n","name":"a","selector":"x=y","field":"spec"}],"heartbeat":"5s"}`,
			reread: func(b []byte) (any, error) { return ParseWatchlist(b) },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			later := strings.Replace(c.formerly, `{`, `{"later":{"than":["this"]},`, 1)
			for _, body := range []string{c.formerly, later} {
				message, err := c.reread([]byte(body))
				if err != nil {
					t.Fatalf("%s: %v", body, err)
				}
				written, err := json.Marshal(message)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(written, []byte(c.formerly)) {
					t.Errorf("%s is written as\n%s", body, written)
				}
			}
		})
	}
	if HeaderInstance != "X-Listener-Instance" || HeaderNextHeartbeat != "X-Listener-Next" ||
		WatchlistKey != "watches.json" {
		t.Error("a name that agent and listener share was changed")
	}
}
