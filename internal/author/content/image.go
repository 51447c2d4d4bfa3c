package content

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// podPaths contains the path of the pod spec in an object, by kind.
var podPaths = map[string][]string{
	"Deployment": {"spec", "template", "spec"}, "StatefulSet": {"spec", "template", "spec"},
	"DaemonSet":  {"spec", "template", "spec"},
	"ReplicaSet": {"spec", "template", "spec"}, "Job": {"spec", "template", "spec"},
	"CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
	"Pod":     {"spec"},
}

// ContainersOf returns the containers of a workload. Init containers are first.
func ContainersOf(o *unstructured.Unstructured) []map[string]any {
	path, runs := podPaths[o.GetKind()]
	if group := o.GroupVersionKind().Group; !runs || group != "" && group != "apps" && group != "batch" {
		return nil
	}
	var all []map[string]any
	for _, field := range []string{"initContainers", "containers"} {
		list, _, _ := unstructured.NestedSlice(o.Object, append(slices.Clone(path), field)...)
		for _, c := range list {
			if container, ok := c.(map[string]any); ok {
				all = append(all, container)
			}
		}
	}
	return all
}

// ImagesOf returns the images of all workloads, sorted and without duplicates. The result includes the images of
// containers, and the images in environment variables. The value of an environment variable counts as an image in two
// cases: the name of the variable ends in IMAGE, or the value has the form of an image reference with a path and a tag
// or digest. The value localhost:8080, for example, has no path, so it is no image.
func ImagesOf(objects []*unstructured.Unstructured) (images []string, findings []Finding) {
	for _, o := range objects {
		for _, c := range ContainersOf(o) {
			where := fmt.Sprintf("%s, container %v", KindAndNameOf(o), c["name"])
			image, _ := c["image"].(string)
			if problem := imageProblem(image); problem != "" {
				findings = append(findings, Finding{Error, where, fmt.Sprintf("image %q: %s", image, problem)})
			} else {
				images = append(images, image)
			}
			found, more := imagesInEnv(c, where)
			images, findings = append(images, found...), append(findings, more...)
		}
	}
	slices.Sort(images)
	return slices.Compact(images), findings
}

func imagesInEnv(container map[string]any, where string) (images []string, findings []Finding) {
	env, _ := container["env"].([]any)
	for _, e := range env {
		variable, _ := e.(map[string]any)
		key, _ := variable["name"].(string)
		value, _ := variable["value"].(string)
		named := strings.HasSuffix(strings.ToUpper(key), "IMAGE")
		if value == "" || !named && !looksLikeImage(value) {
			if tag := value[strings.LastIndex(value, ":")+1:]; isLatestOrMain(tag) && imageForm.MatchString(value) {
				findings = append(findings, Finding{Warning, where,
					fmt.Sprintf(
						"environment variable %s=%q: if that is an image, name the variable …_IMAGE, and give it a "+
							"version", key, value)})
			}
			continue
		}
		if problem := imageProblem(value); problem != "" {
			findings = append(findings, Finding{Error, where,
				fmt.Sprintf("image %q in environment variable %s: %s", value, key, problem)})
			continue
		}
		images = append(images, value)
	}
	return images, findings
}

var imageForm = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*:\w[\w.-]*$`)

// looksLikeImage reports whether a text has the form of an image reference with a path, and a tag or a digest.
func looksLikeImage(text string) bool {
	const longest = 256
	if len(text) > longest || strings.ContainsAny(text, " \t\n") || strings.Contains(text, "://") ||
		strings.HasPrefix(text, "/") {
		return false
	}
	last := text[strings.LastIndex(text, "/")+1:]
	if last == text || !strings.ContainsAny(last, ":@") {
		return strings.Contains(text, "@sha256:")
	}
	_, err := name.ParseReference(text)
	return err == nil
}

func isLatestOrMain(tag string) bool {
	return strings.EqualFold(tag, "latest") || strings.EqualFold(tag, "main")
}

// imageProblem returns what is wrong with an image reference, or "" if nothing is wrong.
func imageProblem(image string) string {
	if image == "" {
		return "it is missing"
	}
	ref, err := name.ParseReference(image)
	if err != nil {
		repository, digest, pinned := strings.Cut(image, "@")
		switch _, inner := name.ParseReference(repository); {
		case pinned && inner == nil:
			return fmt.Sprintf("the digest %q is none: sha256: and 64 hexadecimal digits", digest)
		case strings.ToLower(repository) != repository:
			return "repositories have no capital letters"
		}
		return "this is no reference of an image: host/path:tag"
	}
	tag, ok := ref.(name.Tag)
	switch last := image[strings.LastIndex(image, "/")+1:]; {
	case !ok:
		return ""
	case isLatestOrMain(tag.TagStr()) && strings.Contains(last, ":"):
		return fmt.Sprintf("the tag %s moves, so the running version is unknown: use a version or a digest",
			tag.TagStr())
	case !strings.Contains(last, ":"):
		return "without a tag it means latest, which moves, so the running version is unknown: use a version or " +
			"a digest"
	}
	return ""
}

// KindAndNameOf returns the kind, the namespace and the name of an object, for messages.
func KindAndNameOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// JoinFirst joins the first 12 strings, and appends how many further strings there are.
func JoinFirst(all []string, between string) string {
	const most = 12
	all = slices.Compact(all)
	if len(all) <= most {
		return strings.Join(all, between)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], between), len(all)-most)
}
