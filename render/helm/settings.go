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

// Settings are the inputs for rendering a chart. With the zero value of Settings, a chart is rendered with the values
// from its file values.yaml. For artefacts that are not charts, only Namespace and CreateNamespace have an effect.
type Settings struct {
	// Release is the name of the release; "" means the name of the chart.
	Release string
	// Namespace is the namespace of the release; "" means default. Objects without a namespace are rendered without a
	// namespace; the caller applies them to the namespace of the release.
	Namespace string
	// CreateNamespace adds the Namespace as an object, with the label name=<Namespace>. The Namespace is not added if
	// its name is default, or if the rendered objects already contain it.
	CreateNamespace bool
	// Values is a YAML document that overrides the values of the chart. nil or empty means no overrides.
	Values []byte
	// Set lists expressions in the syntax of Helm's --set, for example "a.b=1,list={x,y}". The expressions in Set
	// override Values. If two expressions in Set set the same value, the later one in the list overrides the earlier
	// one.
	Set []string
	// DisableHooks leaves out all hooks. SkipCRDs leaves out all objects in folders named crds.
	DisableHooks, SkipCRDs bool
	// Capabilities are the properties of the cluster.
	Capabilities Capabilities
}

// Capabilities are the properties of a cluster that a chart can read.
type Capabilities struct {
	// KubeVersion is the version of Kubernetes, such as v1.33.4; "" means DefaultKubeVersion.
	KubeVersion string
	// APIVersions lists the API versions that the cluster serves, as group/version and as group/version/Kind. nil means
	// the groups and versions of all APIs that are built into Kubernetes.
	APIVersions []string
}

// DefaultKubeVersion is the Kubernetes version that charts read if Capabilities.KubeVersion is "".
const DefaultKubeVersion = "v1.37.0"

// A query asks for a property of the cluster on which the rendering of a chart depends. Each query that the function
// CapabilityQueries returns is equal to queryVersion or queryAPIs, or begins with queryRange or queryAPI.
const (
	queryVersion = "kubeVersion"     // the version of Kubernetes
	queryRange   = "kubeVersion in " // whether the version is in this range
	queryAPIs    = "apiVersions"     // all API versions
	queryAPI     = "apiVersion "     // whether this API version is served
)

// capabilityUse matches uses of .Capabilities in a template. The text after .Capabilities determines which property of
// the cluster the template reads. If appendCapabilityQueries does not know the text after .Capabilities, the template
// may read any property. Therefore appendCapabilityQueries then adds queries for all properties.
var capabilityUse = regexp.MustCompile(
	"[.\"`]Capabilities\\b(\\.KubeVersion\\b|\\.HelmVersion\\b|\\.APIVersions\\.Has\\s+(?:\"([^\"\\\\]+)\"|`([^`]+)`))?")

// appendCapabilityQueries appends a query for each property of the cluster that the template code in a text can read.
func appendCapabilityQueries(queries []string, text []byte) []string {
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

// answers returns the answer of the cluster to each query as a text: the version of Kubernetes, the list of API
// versions, or "true" or "false" for a query that asks whether something holds.
func (c Capabilities) answers(queries []string) []string {
	var out []string
	for _, q := range queries {
		switch {
		case q == queryVersion:
			out = append(out, c.version())
		case q == queryAPIs:
			out = append(out, strings.Join(slices.Sorted(slices.Values(c.apisOrDefault())), " "))
		case strings.HasPrefix(q, queryRange):
			out = append(out, strconv.FormatBool(c.inRange(strings.TrimPrefix(q, queryRange))))
		default:
			out = append(out, strconv.FormatBool(slices.Contains(c.apisOrDefault(), strings.TrimPrefix(q, queryAPI))))
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

func (c Capabilities) apisOrDefault() []string {
	if c.APIVersions == nil {
		return common.DefaultVersionSet
	}
	return c.APIVersions
}

// Digest returns one digest of three inputs: the artefact, the settings, and the answers of the cluster to queries. The
// argument artefactDigest is the digest of the artefact. The argument queries is the result of CapabilityQueries. To
// compute its result, Digest needs only the digest of the artefact. Digest neither reads nor renders the artefact. The
// caller sets the returned digest in the field Digest of the Options in package render. If the argument artefactDigest
// is "", Digest returns "". If there are neither settings nor queries, Digest returns the argument artefactDigest.
func (s Settings) Digest(artefactDigest string, queries []string) string {
	if artefactDigest == "" || len(queries) == 0 && s.Release == "" && s.Namespace == "" && !s.CreateNamespace &&
		len(s.Values) == 0 && len(s.Set) == 0 &&
		!s.DisableHooks && !s.SkipCRDs {
		return artefactDigest
	}
	sum := sha256.New()
	input.Hash(sum, input.EncodingVersion, artefactDigest, s.Release, s.Namespace, string(s.Values),
		strconv.FormatBool(s.CreateNamespace),
		strconv.FormatBool(s.DisableHooks), strconv.FormatBool(s.SkipCRDs), strconv.Itoa(len(s.Set)))
	input.Hash(sum, s.Set...)
	input.Hash(sum, queries...)
	input.Hash(sum, s.Capabilities.answers(queries)...)
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// Overrides returns the values that override the values of the chart: first Values, and then Set.
func (s Settings) Overrides() (map[string]any, error) {
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
		if p := recover(); p != nil { // the parser may panic because an index is out of range
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

// PrependNamespaceObject adds the Namespace to the objects if CreateNamespace is set and the objects do not contain it
// yet.
func (s Settings) PrependNamespaceObject(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
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
