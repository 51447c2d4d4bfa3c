package helm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// Settings is what a chart is rendered with. The zero value renders it with its own values. For artefacts that are not
// charts, only Namespace and CreateNamespace have an effect.
type Settings struct {
	// Release is the name of the release; "" means the name of the chart.
	Release string
	// Namespace is that of the release; "" means default. Objects without a namespace keep none: the caller applies
	// them to this one.
	Namespace string
	// CreateNamespace adds the Namespace, with the label name=<Namespace>, unless it is default or among the objects.
	CreateNamespace bool
	// Values is a YAML document that overrides the values of the chart. nil or empty means none.
	Values []byte
	// Set are expressions in the syntax of Helm's --set, which override Values in their order: "a.b=1,list={x,y}".
	Set []string
	// DisableHooks leaves out all hooks, and SkipCRDs everything in folders named crds.
	DisableHooks, SkipCRDs bool
	// Capabilities of the cluster.
	Capabilities Capabilities
}

// Capabilities are the properties of a cluster that a chart can read.
type Capabilities struct {
	// KubeVersion is the version of Kubernetes, such as v1.33.4; "" means DefaultKubeVersion.
	KubeVersion string
	// APIVersions are those that the cluster serves, as group/version and as group/version/Kind. nil means group and
	// version of all APIs that are built into Kubernetes.
	APIVersions []string
}

// DefaultKubeVersion is the version that charts read if Capabilities has none.
const DefaultKubeVersion = "v1.37.0"

// Queries about a cluster, as Queries returns them.
const (
	queryVersion = "kubeVersion"     // the version of Kubernetes
	queryRange   = "kubeVersion in " // whether the version is in this range
	queryAPIs    = "apiVersions"     // all API versions
	queryAPI     = "apiVersion "     // whether this API version is served
)

// capabilityUse matches uses of .Capabilities. What follows decides the query; unknown forms query everything.
var capabilityUse = regexp.MustCompile(
	"[.\"`]Capabilities\\b(\\.KubeVersion\\b|\\.HelmVersion\\b|\\.APIVersions\\.Has\\s+(?:\"([^\"\\\\]+)\"|`([^`]+)`))?")

// appendQueries appends the queries in a text of templates.
func appendQueries(queries []string, text []byte) []string {
	for _, m := range capabilityUse.FindAllSubmatch(text, -1) {
		switch what := string(m[1]); {
		case what == ".HelmVersion":
		case what == ".KubeVersion":
			queries = append(queries, queryVersion)
		case what != "":
			queries = append(queries, queryAPI+string(m[2])+string(m[3]))
		default:
			queries = append(queries, queryVersion, queryAPIs)
		}
	}
	return queries
}

// answers returns what the cluster answers to queries.
func (c Capabilities) answers(queries []string) []string {
	var out []string
	for _, q := range queries {
		switch {
		case q == queryVersion:
			out = append(out, c.version())
		case q == queryAPIs:
			out = append(out, strings.Join(slices.Sorted(slices.Values(c.apis())), " "))
		case strings.HasPrefix(q, queryRange):
			out = append(out, strconv.FormatBool(c.inRange(strings.TrimPrefix(q, queryRange))))
		default:
			out = append(out, strconv.FormatBool(slices.Contains(c.apis(), strings.TrimPrefix(q, queryAPI))))
		}
	}
	return out
}

func (c Capabilities) version() string {
	if c.KubeVersion == "" {
		return DefaultKubeVersion
	}
	return c.KubeVersion
}

func (c Capabilities) apis() []string {
	if c.APIVersions == nil {
		return common.DefaultVersionSet
	}
	return c.APIVersions
}

// Digest returns the digest of artefact, settings and the answers of the cluster to queries. artefact is the digest of
// the artefact, queries the result of CapabilityQueries; neither the artefact nor rendering is needed. It is meant for
// Digest of the Options of package render. It is "" if artefact is, and artefact if there are neither settings nor
// queries.
func (s Settings) Digest(artefact string, queries []string) string {
	if artefact == "" || len(queries) == 0 && s.Release == "" && s.Namespace == "" && !s.CreateNamespace &&
		len(s.Values) == 0 && len(s.Set) == 0 &&
		!s.DisableHooks && !s.SkipCRDs {
		return artefact
	}
	sum := sha256.New()
	input.Hash(sum, input.EncodingVersion, artefact, s.Release, s.Namespace, string(s.Values),
		strconv.FormatBool(s.CreateNamespace),
		strconv.FormatBool(s.DisableHooks), strconv.FormatBool(s.SkipCRDs), strconv.Itoa(len(s.Set)))
	input.Hash(sum, s.Set...)
	input.Hash(sum, queries...)
	input.Hash(sum, s.Capabilities.answers(queries)...)
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// values returns the values that override those of the chart.
func (s Settings) values() (map[string]any, error) {
	refuse := func(what string, err error) error {
		return &input.Error{Operation: "reading the values", Code: input.InvalidValues, Problem: what, Cause: err}
	}
	values := map[string]any{}
	if len(bytes.TrimSpace(s.Values)) > 0 {
		if err := input.CheckMap(s.Values); err != nil {
			return nil, refuse("the values document must be one YAML map: correct it", err)
		}
		if err := yaml.Unmarshal(s.Values, &values); err != nil {
			return nil, refuse("the values document cannot be read: correct it", err)
		}
	}
	for _, expression := range s.Set {
		if err := parseSet(expression, values); err != nil {
			return nil, refuse("an override is not of the form path=value,path=value: correct it", err)
		}
	}
	return values, nil
}

// parseSet parses an expression in the syntax of --set.
func parseSet(expression string, into map[string]any) (err error) {
	defer func() {
		if p := recover(); p != nil { // the parser may index out of range
			err = &input.Error{Operation: "reading the values", Code: input.InvalidValues,
				Problem: "the expression makes the parser panic: correct it"}
		}
	}()
	if len(expression) > maxExpressionBytes || largeIndex.MatchString(strings.ReplaceAll(expression, `\`, "")) {
		return &input.Error{Operation: "reading the values", Code: input.InvalidValues,
			Problem: fmt.Sprintf("it has more than %d bytes or an index of more than %d digits: use a values document",
				maxExpressionBytes, maxIndexDigits)}
	}
	return strvals.ParseInto(expression, into)
}

// AddNamespace adds the Namespace to the objects if CreateNamespace is set and they do not contain it.
func (s Settings) AddNamespace(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	if !s.CreateNamespace || s.Namespace == "" || s.Namespace == "default" {
		return objects
	}
	for _, o := range objects {
		if o.GetKind() == "Namespace" && o.GetAPIVersion() == "v1" && o.GetName() == s.Namespace {
			return objects
		}
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": s.Namespace, "labels": map[string]any{"name": s.Namespace}}}}
	return append([]*unstructured.Unstructured{namespace}, objects...)
}
