package source

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/retry"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

// InjectionModule is the only module whose objects may receive data of Secrets of the control plane.
const InjectionModule = "deployer"

// injection is the data of Secrets that the module InjectionModule receives, and the time until which it is cached.
type injection struct {
	render.Injection
	expires time.Time
}

// secretDataToInject returns the data that replaces the data of marked Secrets in the objects of a Manifest. Only the
// module InjectionModule receives data of Secrets. For a Manifest of any module except InjectionModule,
// secretDataToInject returns no data and reads no Secret.
func (f *Finder) secretDataToInject(ctx context.Context, m *v1beta2.Manifest) (*render.Injection, error) {
	if !f.opts.InjectData || m.ModuleName() != InjectionModule {
		return &render.Injection{Annotation: v1beta2.AnnotationInjectData}, nil
	}
	f.mu.Lock()
	known := f.injections[m.Namespace]
	f.mu.Unlock()
	if time.Now().Before(known.expires) && !retry.IsOutdated(ctx, known.expires.Add(-credentialCachePeriod)) {
		return &known.Injection, nil
	}
	var secrets corev1.SecretList
	if err := f.opts.Secrets.List(ctx, &secrets, client.InNamespace(m.Namespace),
		client.MatchingLabels{v1beta2.LabelModuleName: InjectionModule}); err != nil {
		return nil, fmt.Errorf("reading the Secrets of module %s: %w", InjectionModule, err)
	}
	known = injection{injectableSecretData(m.Namespace, secrets.Items), time.Now().Add(credentialCachePeriod)}
	f.mu.Lock()
	defer f.mu.Unlock()
	putBounded(&f.injections, m.Namespace, known)
	return &known.Injection, nil
}

// injectableSecretData returns the data of the Secrets that may be injected. A Secret must have a label that allows the
// injection of its data. Kubeconfigs of runtimes and tokens of service accounts are never injected, even with the
// label.
func injectableSecretData(sourceNamespace string, secrets []corev1.Secret) render.Injection {
	versions := []string{"none"}
	data := map[string]map[string][]byte{}
	for _, s := range secrets {
		if s.Labels[v1beta2.LabelKymaName] != "" || s.Type == corev1.SecretTypeServiceAccountToken {
			continue
		}
		data[s.Name] = s.Data
		versions = append(versions, s.Name+" "+string(s.UID)+" "+s.ResourceVersion)
	}
	slices.Sort(versions)
	return render.Injection{
		Annotation: v1beta2.AnnotationInjectData,
		Version:    strings.Join(versions, ","),
		Data:       data,
		Source: fmt.Sprintf("the Secrets in namespace %s of the control plane with the label %s=%s: create one with "+
			"this name and label, which is neither an access Secret nor a token of a service account",
			sourceNamespace, v1beta2.LabelModuleName, InjectionModule),
	}
}
