package channel

import (
	"fmt"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// ReplacedContentBlocker returns a Blocker if the content of a version was replaced in the registry, and nil otherwise.
// The annotations of the ModuleTemplate show whether the content was replaced. The annotations have the digests of
// three contents: the content that was recorded first, the content that the registry has now, and the content that a
// person has accepted. The Blocker applies to all runtimes, because the same version must have the same content in all
// of them.
func ReplacedContentBlocker(t *v1beta2.ModuleTemplate, module, version string) *Blocker {
	recorded, found := t.Annotations[v1beta2.AnnotationContentDigest], t.Annotations[v1beta2.AnnotationReplacedBy]
	switch found {
	case "", recorded, t.Annotations[v1beta2.AnnotationAcceptContent]:
		return nil
	}
	return newBlocker(v1beta2.ReasonVersionReplaced, "ModuleTemplate "+t.Name,
		"version %s of module %s was replaced in the registry: its content was %.80s and is %.80s now, and what is installed "+
			"stays as it is; push the former content again and retry, or publish the new content as a new version, or "+
			"accept it for all runtimes in the control plane: %s", version, module, recorded, found,
		annotateCommand("moduletemplate", t.Namespace, t.Name, fmt.Sprintf("%s=%.80s", v1beta2.AnnotationAcceptContent,
			found)))
}
