package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// MaxWatches is the maximum number of entries in a Watchlist.
const MaxWatches = 500

// ParseHeartbeat parses the body of a heartbeat. A heartbeat without a boot ID or with a negative number is an error.
func ParseHeartbeat(body []byte) (Heartbeat, error) {
	var h Heartbeat
	if err := json.Unmarshal(body, &h); err != nil {
		return Heartbeat{}, fmt.Errorf("reading a heartbeat: it is not JSON of the expected form: %w", err)
	}
	if h.BootID == "" {
		return Heartbeat{}, errors.New("reading a heartbeat: boot is missing")
	}
	if h.Pending < 0 {
		return Heartbeat{}, fmt.Errorf("reading a heartbeat: pending is %d, and must not be negative", h.Pending)
	}
	return h, nil
}

// ParseWatchlist parses the watch list in a ConfigMap. The error describes the first invalid entry. If one entry is
// invalid, the whole watch list is invalid: if the agent used only the other entries, nobody would notice that one is
// missing.
func ParseWatchlist(data []byte) (Watchlist, error) {
	var w Watchlist
	if err := json.Unmarshal(data, &w); err != nil {
		return Watchlist{}, fmt.Errorf("reading a watch list: it is not JSON of the expected form: %w", err)
	}
	if len(w.Watches) > MaxWatches {
		return Watchlist{}, fmt.Errorf("reading a watch list: it has %d entries, at most %d are allowed",
			len(w.Watches), MaxWatches)
	}
	if w.HeartbeatInterval.Duration < 0 {
		return Watchlist{}, fmt.Errorf("reading a watch list: heartbeat is %v, and must not be negative",
			w.HeartbeatInterval.Duration)
	}
	seen := map[Watch]int{}
	for n, entry := range w.Watches {
		if err := entry.Validate(); err != nil {
			return Watchlist{}, fmt.Errorf("reading a watch list: watches[%d]: %w", n, err)
		}
		entry = entry.canonical()
		if first, twice := seen[entry]; twice {
			return Watchlist{}, fmt.Errorf("reading a watch list: watches[%d] is the same as watches[%d]: remove one",
				n, first)
		}
		seen[entry] = n
	}
	return w, nil
}

var (
	// The following patterns define the syntax of groups, versions, resources and namespaces.
	word    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	object  = regexp.MustCompile(`^[^/%\s]{1,253}$`)                                // names that the API server accepts
	kind    = regexp.MustCompile(`^[A-Za-z]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)      // kinds in events
	manager = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?$`) // a segment of a path
)

// Validate returns an error if an entry of the watch list is invalid.
func (w Watch) Validate() error {
	if w.Resource == "" {
		return errors.New("resource is missing")
	}
	if w.Version == "" {
		return errors.New("version is missing: enter one, or * for the preferred version of the API server")
	}
	for _, part := range []struct {
		name, value string
		pattern     *regexp.Regexp
	}{
		{"manager", w.Manager, manager}, {"group", w.Group, word},
		{"resource", w.Resource, word}, {"kind", w.Kind, kind},
		{"namespace", w.Namespace, word}, {"name", w.Name, object},
	} {
		if part.value != "" && !part.pattern.MatchString(part.value) {
			return fmt.Errorf("%s %.100q is not a valid name", part.name, part.value)
		}
	}
	if w.Name == "." || w.Name == ".." {
		return fmt.Errorf("name %q is not a valid name", w.Name)
	}
	if w.Version != "*" && !word.MatchString(w.Version) {
		return fmt.Errorf("version %.100q is neither a version nor *", w.Version)
	}
	if !slices.Contains([]Field{FieldAny, FieldSpec, FieldStatus}, w.Field) {
		return fmt.Errorf("field %.100q is neither %q nor %q nor empty", w.Field, FieldSpec, FieldStatus)
	}
	if _, err := labels.Parse(w.Selector); err != nil {
		return fmt.Errorf("selector %.300q: %w", w.Selector, err)
	}
	return nil
}

// canonical returns the entry in the form in which two entries are compared: without the field State, and with the
// default for Manager if the field Manager is empty.
func (w Watch) canonical() Watch {
	if w.State = false; w.Manager == "" {
		w.Manager = ManagerName
	}
	return w
}

// Digest returns a hash of the watch list, as 16 hexadecimal digits. If two watch lists have the same meaning, they
// have the same digest. The order of the entries has no effect on the digest.
func (w Watchlist) Digest() string {
	lines := make([]string, 0, len(w.Watches))
	for _, entry := range w.Watches {
		line, err := json.Marshal(entry.canonical())
		if err != nil {
			panic(err) // strings can always be encoded
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	hash := sha256.New()
	for _, line := range lines {
		_, _ = fmt.Fprintln(hash, line) // it never fails
	}
	_, _ = fmt.Fprintln(hash, w.HeartbeatIntervalOrDefault())
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
