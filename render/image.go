package render

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-fleet/lifecycle-manager/render/input"
)

// pullSecretEnv is the name of an environment variable of a module's manager. The value of the environment variable is
// the name of the Secret with which the manager shall pull the images of its own workloads.
const pullSecretEnv = "SKR_IMG_PULL_SECRET"

// reference matches an image reference: [host[:port]/]path[:tag][@digest]. reference captures the last path segment,
// the tag and the digest.
var reference = regexp.MustCompile(
	`^(?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/)?` +
		`(?:[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*/)*([a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)` +
		`(?::(\w[\w.-]{0,127}))?(?:@([a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}))?$`)

// image has the parts of an image reference that are the same in different registries.
type image struct{ name, tag, digest string }

func parseImageNameTagDigest(text string) (image, bool) {
	m := reference.FindStringSubmatch(text)
	if m == nil || len(text) > 512 {
		return image{}, false
	}
	return image{name: m[1], tag: m[2], digest: m[3]}, true
}

// target is one of the image references in Options.Images, which replace images in workloads.
type target struct {
	image
	text string
}

// parseLocalizedImages parses the image references in Options.Images.
func parseLocalizedImages(texts []string) ([]target, error) {
	targets := make([]target, 0, len(texts))
	for _, text := range texts {
		parsed, ok := parseImageNameTagDigest(text)
		if !ok {
			return nil, &Error{Code: InvalidImage,
				Problem: fmt.Sprintf("%q in the list of localized images is not an image reference: "+
					"correct the module's component descriptor", text)}
		}
		targets = append(targets, target{parsed, text})
	}
	return targets, nil
}

// localizedImage returns the image reference to use in a workload: one of the references in targets that is for the
// same image, or the text of the original reference. A reference is for the same image if its last path segment and its
// tag are the same. If neither reference has a tag, their digests must be the same. Of several such references,
// localizedImage returns the one that has the most path segments at its end in common with the original reference, and
// of several with the same number the first, because a module may have images of several teams with the same name.
func localizedImage(targets []target, have image, text string) string {
	best, most := text, 0
	for _, t := range targets {
		if t.name != have.name || t.tag != have.tag || t.tag == "" && t.digest != have.digest {
			continue
		}
		if n := equalTrailingSegments(t.text, text); n > most {
			best, most = t.text, n
		}
	}
	return best
}

// equalTrailingSegments returns the number of path segments at the end of two image references of the same image that
// are the same. The digests do not count. The result is at least 1.
func equalTrailingSegments(a, b string) int {
	a, _, _ = strings.Cut(a, "@")
	b, _, _ = strings.Cut(b, "@")
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	n := 1 // the last segments are those of the same image
	for n < len(x) && n < len(y) && x[len(x)-1-n] == y[len(y)-1-n] {
		n++
	}
	return n
}

// customizeWorkload rewrites the images of a workload and adds the pull secret. If nothing has to change,
// customizeWorkload returns the given object itself; otherwise it returns a changed copy.
func customizeWorkload(in *unstructured.Unstructured, images []target, opts Options) (
	*unstructured.Unstructured, error) {
	kind := in.GroupVersionKind()
	if len(images) == 0 && opts.PullSecret == "" || kind.Group != "apps" || kind.Kind != "Deployment" &&
		kind.Kind != "StatefulSet" {
		return in, nil
	}
	out := &unstructured.Unstructured{Object: deepCopy(in.Object).(map[string]any)}
	spec, ok := nestedMap(out.Object, "spec", "template", "spec")
	if !ok {
		return in, nil // no pod template, so nothing to change; the API server reports the missing field
	}
	if opts.PullSecret != "" {
		addPullSecret(spec, opts.PullSecret)
	}
	for _, field := range []string{"initContainers", "containers"} {
		containers, _ := spec[field].([]any)
		for _, c := range containers {
			container, ok := c.(map[string]any)
			if !ok {
				continue
			}
			if err := localizeImageAndEnv(container, images); err != nil {
				err.Object = input.Describe(out.Object)
				return nil, err
			}
			if opts.PullSecret == "" || field == "initContainers" || !opts.Manager.matches(out) {
				continue
			}
			if err := addPullSecretEnv(container, opts.PullSecret); err != nil {
				err.Object = input.Describe(out.Object)
				return nil, err
			}
		}
	}
	return out, nil
}

// deepCopy copies all maps and lists in a value. The copy shares the strings, numbers and other immutable values with
// the original.
func deepCopy(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for k, v := range value {
			out[k] = deepCopy(v)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, v := range value {
			out[i] = deepCopy(v)
		}
		return out
	}
	return value
}

// nestedMap returns the map at a path of keys.
func nestedMap(tree map[string]any, keys ...string) (map[string]any, bool) {
	for _, key := range keys {
		next, ok := tree[key].(map[string]any)
		if !ok {
			return nil, false
		}
		tree = next
	}
	return tree, true
}

// localizeImageAndEnv rewrites the image of a container, and those values of environment variables that are images.
func localizeImageAndEnv(container map[string]any, targets []target) *Error {
	if len(targets) == 0 {
		return nil
	}
	if text, _ := container["image"].(string); text != "" {
		parsed, ok := parseImageNameTagDigest(text)
		if !ok {
			return &Error{Code: InvalidImage, Problem: fmt.Sprintf(
				"image %q of container %q is not an image reference: correct it in the module's manifest",
				text, container["name"])}
		}
		container["image"] = localizedImage(targets, parsed, text)
	}
	env, _ := container["env"].([]any)
	for _, e := range env {
		variable, _ := e.(map[string]any)
		text, _ := variable["value"].(string)
		// The value of an environment variable is treated as an image only if it has a tag or a digest, because any
		// plain word is a valid image reference.
		if parsed, ok := parseImageNameTagDigest(text); ok && strings.ContainsAny(text, ":@") {
			variable["value"] = localizedImage(targets, parsed, text)
		}
	}
	return nil
}

func addPullSecret(spec map[string]any, name string) {
	secrets, _ := spec["imagePullSecrets"].([]any)
	for _, s := range secrets {
		if secret, _ := s.(map[string]any); secret["name"] == name {
			return
		}
	}
	spec["imagePullSecrets"] = append(secrets, map[string]any{"name": name})
}

func addPullSecretEnv(container map[string]any, secret string) *Error {
	env, _ := container["env"].([]any)
	for _, e := range env {
		variable, _ := e.(map[string]any)
		if variable["name"] != pullSecretEnv {
			continue
		}
		if variable["value"] == secret {
			return nil
		}
		return &Error{Code: InvalidObject, Problem: fmt.Sprintf(
			"container %q sets the environment variable %s, which is reserved: remove it from the module's manifest",
			container["name"], pullSecretEnv)}
	}
	container["env"] = append(env, map[string]any{"name": pullSecretEnv, "value": secret})
	return nil
}

// matches reports whether the workload in the parameter o is the module's manager that m describes. If the receiver m
// is nil, matches returns true for every workload.
func (m *Manager) matches(o *unstructured.Unstructured) bool {
	if m == nil {
		return true
	}
	kind := o.GroupVersionKind()
	return kind.Group == m.Group && kind.Version == m.Version && kind.Kind == m.Kind && o.GetName() == m.Name &&
		(m.Namespace == "" || o.GetNamespace() == "" || o.GetNamespace() == m.Namespace)
}
