package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// metric is the declaration of one metric in internal/metrics.
type metric struct {
	name, kind, help string
	labels           []string // variable and constant labels
	note             string   // the comment of the variable
}

// constructors contains the functions that declare a metric, each with the type of the metric.
var constructors = map[string]string{
	"NewGauge": "gauge", "NewGaugeVec": "gauge", "NewCounter": "counter", "NewCounterVec": "counter",
	"NewHistogram": "histogram", "NewHistogramVec": "histogram",
	"NewGaugeFunc": "gauge", "NewCounterFunc": "counter", "NewStates": "gauge",
	"NewCounts": "gauge",
}

// declaredManagerMetrics returns the metrics that the source files of internal/metrics declare, sorted by name.
func declaredManagerMetrics(root string) ([]metric, error) {
	folder := filepath.Join(root, "internal/metrics")
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []metric
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("reading the metrics of %s: %w", file, err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if len(n.Values) == 1 {
					if m, is := parseMetric(n.Values[0]); is {
						_, m.note = splitComment(n.Names[0].Name, oneLine(n.Doc.Text()))
						all = append(all, m)
						return false
					}
				}
			case *ast.CallExpr:
				if m, is := parseMetric(n); is {
					all = append(all, m)
					return false
				}
			}
			return true
		})
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// parseMetric parses an expression that declares a metric. parseMetric accepts three forms:
// prometheus.NewX(prometheus.XOpts{…}, []string{labels…}), NewStates and NewCounts with the same arguments and optional
// labels, and NewDesc(name, help, labels, constant labels). parseMetric returns false for any other expression.
func parseMetric(e ast.Expr) (m metric, is bool) {
	call, is := e.(*ast.CallExpr)
	if !is || len(call.Args) == 0 {
		return m, false
	}
	name := ""
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
	case *ast.Ident: // NewStates and NewCounts are declared in internal/metrics itself
		name = f.Name
	}
	if name == "NewDesc" && len(call.Args) >= 3 {
		m.name, m.help, m.kind = stringOf(call.Args[0]), stringOf(call.Args[1]), "gauge"
		m.labels = stringsOf(call.Args[2])
		return m, m.name != ""
	}
	m.kind = constructors[name]
	options, is := call.Args[0].(*ast.CompositeLit)
	if m.kind == "" || !is {
		return m, false
	}
	for _, field := range options.Elts {
		pair, is := field.(*ast.KeyValueExpr)
		if !is {
			continue
		}
		switch fmt.Sprint(pair.Key) {
		case "Name":
			m.name = stringOf(pair.Value)
		case "Help":
			m.help = stringOf(pair.Value)
		case "ConstLabels":
			m.labels = append(m.labels, "server_name") // the only constant label; a test compares it with the registry
		}
	}
	if len(call.Args) > 1 {
		m.labels = append(m.labels, stringsOf(call.Args[1])...)
		for _, optional := range call.Args[2:] {
			m.labels = append(m.labels, stringOf(optional))
		}
	}
	return m, m.name != ""
}

// stringOf returns the value of a string literal, or of several string literals that are joined by +. stringOf returns
// "" for any other expression.
func stringOf(e ast.Expr) string {
	if joined, is := e.(*ast.BinaryExpr); is && joined.Op == token.ADD {
		return stringOf(joined.X) + stringOf(joined.Y)
	}
	lit, is := e.(*ast.BasicLit)
	if !is {
		return ""
	}
	value, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return value
}

// stringsOf returns the values of a list of string literals. stringsOf returns nil for any other expression.
func stringsOf(e ast.Expr) []string {
	list, is := e.(*ast.CompositeLit)
	if !is {
		return nil
	}
	var all []string
	for _, element := range list.Elts {
		all = append(all, stringOf(element))
	}
	return all
}

// metricsPage returns the page of all metrics of the manager.
func metricsPage(root string) (string, error) {
	all, err := declaredManagerMetrics(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head("Metrics of the manager", "internal/metrics"))
	b.WriteString(`[observe.md](../guide/observe.md) describes how metrics are served, and the dashboards and alerts.
Metrics with a label for the runtime (` + "`kyma_name`" + `) grow with the fleet; ` +
		"`--runtime-metrics=false`" + ` switches them off.
The metrics of controller-runtime, client-go and Go are served, too:
` + "`controller_runtime_*`, `workqueue_*`, `rest_client_*`, `go_*`, `process_*`" + `.

| metric | type | labels | |
|---|---|---|---|
`)
	for _, m := range all {
		var labels []string
		for _, l := range m.labels {
			labels = append(labels, "`"+l+"`")
		}
		about := m.help
		if _, cardinality, found := strings.Cut(m.note, "Cardinality: "); found {
			about += " Cardinality: " + cardinality
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(labels, ", "), cell(about))
	}
	return b.String(), nil
}
