package landscape

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-fleet/lifecycle-manager/render"
)

// scraper is the service account that can read only the metrics of the manager.
const scraper = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: scraper, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lifecycle-manager-metrics-reader}
subjects: [{kind: ServiceAccount, name: scraper, namespace: default}]
`

// Metrics are all series of the manager's metrics at one time.
type Metrics []series

type series struct {
	name, labels string // labels are as in the text format, with a comma after each
	value        float64
}

// Sum returns the sum of all series of a metric that have all given labels. A label has the form name="value". Sum
// returns 0 if there is no such series.
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
	for _, s := range m {
		if s.name == name && containsAll(s.labels, labels) {
			sum += s.value
		}
	}
	return sum
}

// Metric returns the sum of the series of one metric, see [Metrics.Sum]. Metric reads all metrics: use Metrics for
// several of them.
func (l *Landscape) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	m, err := l.Metrics(ctx)
	return m.Sum(name, labels...), err
}

// Metrics reads the metrics of the manager.
func (l *Landscape) Metrics(ctx context.Context) (Metrics, error) {
	if err := l.ensureMetricsClient(ctx); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.MetricsAddress+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}
	resp, err := l.metrics.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading metrics: the manager answered %s", resp.Status)
	}
	var all Metrics
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		text, value, _ := strings.Cut(lines.Text(), "} ")
		name, labels, labelled := strings.Cut(text, "{")
		if !labelled {
			name, value, _ = strings.Cut(text, " ")
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("reading metric %s: %w", name, err)
		}
		all = append(all, series{name, labels + ",", v})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return all, nil
}

func containsAll(series string, labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(series, label+",") {
			return false
		}
	}
	return true
}

// ensureMetricsClient creates a service account that can read metrics, and a client with its token, unless the client
// exists already.
func (l *Landscape) ensureMetricsClient(ctx context.Context) error {
	if l.metrics != nil {
		return nil
	}
	objects, err := render.Parse([]byte(scraper))
	if err != nil {
		return fmt.Errorf("reading the scraper's roles: %w", err)
	}
	for _, o := range objects {
		if err := applyObject(ctx, l.Clients[ControlPlane], o); err != nil {
			return err
		}
	}
	kubeconfig, err := l.Clusters[ControlPlane].TokenKubeconfig(ctx, "default", "scraper")
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the scraper's kubeconfig: %w", err)
	}
	//nolint:gosec // the manager's certificate is its own, and it listens on loopback
	plain := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true}
	authenticated, err := rest.HTTPWrappersForConfig(&rest.Config{BearerToken: config.BearerToken}, plain)
	if err != nil {
		return fmt.Errorf("logging in to the manager's metrics: %w", err)
	}
	l.metrics = &http.Client{Transport: authenticated, Timeout: 10 * time.Minute}
	return nil
}
