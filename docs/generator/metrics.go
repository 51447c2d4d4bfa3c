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

// metric is one of internal/metrics as it is declared.
type metric struct {
	name, kind, help string
	labels           []string // variable and constant ones
	note             string   // what its comment says
}

// constructors are how metrics are declared, and what kind they are.
var constructors = map[string]string{
	"NewGauge": "gauge", "NewGaugeVec": "gauge", "NewCounter": "counter", "NewCounterVec": "counter", "NewHistogram": "histogram", "NewHistogramVec": "histogram",
	"NewGaugeFunc": "gauge", "NewCounterFunc": "counter", "NewStates": "gauge",
}

// declaredMetrics returns the metrics of internal/metrics, by name.
func declaredMetrics(root string) ([]metric, error) {
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
					if m, is := metricOf(n.Values[0]); is {
						_, m.note = split(n.Names[0].Name, flat(n.Doc.Text()))
						all = append(all, m)
						return false
					}
				}
			case *ast.CallExpr:
				if m, is := metricOf(n); is {
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

// metricOf reads prometheus.NewX(prometheus.XOpts{…}, []string{labels…}), NewStates likewise, and NewDesc(name, help, labels, constant ones).
func metricOf(e ast.Expr) (m metric, is bool) {
	call, is := e.(*ast.CallExpr)
	if !is || len(call.Args) == 0 {
		return m, false
	}
	name := ""
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
	case *ast.Ident: // NewStates is of the package itself
		name = f.Name
	}
	if name == "NewDesc" && len(call.Args) >= 3 {
		m.name, m.help, m.labels, m.kind = text(call.Args[0]), text(call.Args[1]), texts(call.Args[2]), "gauge"
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
			m.name = text(pair.Value)
		case "Help":
			m.help = text(pair.Value)
		case "ConstLabels":
			m.labels = append(m.labels, "server_name") // the only constant label there is; the test compares it with the registry
		}
	}
	if len(call.Args) > 1 {
		m.labels = append(m.labels, texts(call.Args[1])...)
	}
	return m, m.name != ""
}

func text(e ast.Expr) string {
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

func texts(e ast.Expr) []string {
	list, is := e.(*ast.CompositeLit)
	if !is {
		return nil
	}
	var all []string
	for _, element := range list.Elts {
		all = append(all, text(element))
	}
	return all
}

// metricsPage lists every metric of the manager.
func metricsPage(root string) (string, error) {
	all, err := declaredMetrics(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head("Metrics of the manager", "internal/metrics"))
	b.WriteString(`How they are served, dashboards and alerts: [observe.md](../guide/observe.md). Those with a label for the runtime (` + "`kyma_name`" + `) grow with the fleet;
` + "`--runtime-metrics=false`" + ` switches them off. Those of controller-runtime, client-go and Go (` + "`controller_runtime_*`, `workqueue_*`, `rest_client_*`, `go_*`, `process_*`" + `)
are served too.

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
