package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// series is one line of metrics.
type series struct {
	labels map[string]string
	value  float64
}

// parseMetrics returns the series of a metric in the text format of Prometheus.
func parseMetrics(text []byte, name string) []series {
	var all []series
	for line := range bytes.Lines(text) {
		rest, found := strings.CutPrefix(strings.TrimSpace(string(line)), name)
		if !found || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		s := series{labels: map[string]string{}}
		if rest[0] == '{' {
			rest = parseLabels(rest[1:], s.labels)
		}
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		s.value = v
		all = append(all, s)
	}
	return all
}

// parseLabels parses name="value",… up to the closing brace. parseLabels returns the rest of the text.
func parseLabels(text string, into map[string]string) (remaining string) {
	for text != "" && text[0] != '}' {
		name, rest, found := strings.Cut(text, "=")
		quoted, err := strconv.QuotedPrefix(rest)
		if !found || err != nil {
			return ""
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return ""
		}
		into[name] = value
		text = strings.TrimPrefix(rest[len(quoted):], ",")
	}
	return strings.TrimPrefix(text, "}")
}

// sumOfSeries returns the sum of the selected series of a metric. The function which() selects series by their labels.
// If this function is nil, all series are selected.
func sumOfSeries(all []series, which func(labels map[string]string) bool) float64 {
	total := 0.0
	for _, s := range all {
		if which == nil || which(s.labels) {
			total += s.value
		}
	}
	return total
}

// readMetrics reads the metrics of a process that serves them without authentication.
func readMetrics(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}
	// Without the header Accept-Encoding, the manager would spend processor time on compressing metrics for the
	// benchmark.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading metrics: the manager answered %s", resp.Status)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return text, nil
}
