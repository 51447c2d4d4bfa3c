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

// Metric returns the sum of all series of a metric of the manager that have all given labels. A label has the form
// name="value". Metric returns 0 if there is no such series.
func (l *Landscape) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	if err := l.createMetricsClient(ctx); err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.MetricsAddress+"/metrics", http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("asking for metrics: %w", err)
	}
	resp, err := l.metrics.Do(req)
	if err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("reading metrics: the manager answered %s", resp.Status)
	}
	var sum float64
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), "} ")
		of, rest, labelled := strings.Cut(series, "{")
		if !labelled {
			of, value, _ = strings.Cut(series, " ")
		}
		if of != name || !containsAll(rest+",", labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("reading metric %s: %w", name, err)
		}
		sum += v
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading metrics: %w", err)
	}
	return sum, nil
}

func containsAll(series string, labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(series, label+",") {
			return false
		}
	}
	return true
}

// createMetricsClient creates a service account that can read metrics, and a client with its token.
func (l *Landscape) createMetricsClient(ctx context.Context) error {
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
	plain := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	authenticated, err := rest.HTTPWrappersForConfig(&rest.Config{BearerToken: config.BearerToken}, plain)
	if err != nil {
		return fmt.Errorf("logging in to the manager's metrics: %w", err)
	}
	l.metrics = &http.Client{Transport: authenticated, Timeout: 10 * time.Second}
	return nil
}
