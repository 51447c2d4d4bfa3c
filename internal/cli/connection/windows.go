package connection

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/channel"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// ManagerDeployment is the name of the Deployment of the manager in the chart.
const ManagerDeployment = "lifecycle-manager"

// Flags of the manager about maintenance windows.
const (
	PolicyFlag     = "maintenance-policy-configmap"
	policyFileFlag = "maintenance-policy-file"
	minWindowFlag  = "min-maintenance-window-size"
)

// RegisterMaintenancePolicyFlag adds the flag that names the ConfigMap with the maintenance policy.
func RegisterMaintenancePolicyFlag(f *pflag.FlagSet, name *string) {
	f.StringVar(name, PolicyFlag, "", "ConfigMap with the maintenance policy; empty: the one that the Deployment of the "+
		"manager names or mounts")
}

// MaintenancePolicy returns the maintenance policy of the manager. The policy is in the ConfigMap with the given name.
// If the parameter "configMap" is "", the Deployment of the manager determines the ConfigMap: by a flag, or by a
// volume. If the policy cannot be determined, the result p is nil, and the result "whyUnknown" contains the reason.
func (c *Cluster) MaintenancePolicy(ctx context.Context, configMap string) (
	p *channel.Policy, whyUnknown string, err error) {
	key, least := channel.PolicyKey, config.DefaultManager().MinMaintenanceWindowSize
	d := &appsv1.Deployment{}
	failed := c.GetJSON(ctx, "/apis/apps/v1/namespaces/"+c.Namespace+"/deployments/"+ManagerDeployment, d)
	if value, found := ManagerFlag(d, minWindowFlag); found {
		if is, err := time.ParseDuration(value); err == nil {
			least = is
		}
	}
	isGiven := configMap != ""
	switch {
	case isGiven:
	case apierrors.IsNotFound(failed):
		return nil, "namespace " + c.Namespace + " has no Deployment " + ManagerDeployment, nil
	case failed != nil:
		return nil, c.Explain(failed, "reading the Deployment of the manager").Error(), nil
	default:
		if configMap, key = maintenancePolicyRef(d); configMap == "" {
			return nil, "the Deployment of the manager neither names nor mounts a ConfigMap with a maintenance policy", nil
		}
	}
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: configMap}, cm); err != nil {
		err = c.Explain(err, "reading ConfigMap "+configMap)
		if isGiven {
			return nil, "", err
		}
		return nil, err.Error(), nil
	}
	if text, found := cm.Data[key]; found && key != channel.PolicyKey {
		cm.Data = map[string]string{channel.PolicyKey: text}
	}
	p, err = channel.PolicyFromConfigMap(cm.Data)
	if err != nil && isGiven {
		return nil, "", console.Fail(console.ExitFailed, "ConfigMap %s: %v", configMap, err)
	}
	if err != nil {
		return nil, "ConfigMap " + configMap + ": " + err.Error(), nil
	}
	p.MinRemaining = least
	return p, "", nil
}

// maintenancePolicyRef returns the name of the ConfigMap with the maintenance policy, and the key in this ConfigMap.
// maintenancePolicyRef takes the name and the key from the flag of the manager, or from the volume that contains the
// file with the policy.
func maintenancePolicyRef(d *appsv1.Deployment) (configMap, key string) {
	if configMap, _ = ManagerFlag(d, PolicyFlag); configMap != "" {
		return configMap, channel.PolicyKey
	}
	file, found := ManagerFlag(d, policyFileFlag)
	if !found {
		file = config.DefaultManager().MaintenancePolicyFile
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		i := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
			return path.Clean(m.MountPath) == path.Dir(file)
		})
		if i < 0 {
			continue
		}
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.Name == container.VolumeMounts[i].Name && v.ConfigMap != nil {
				for _, item := range v.ConfigMap.Items {
					if item.Path == path.Base(file) {
						return v.ConfigMap.Name, item.Key
					}
				}
				return v.ConfigMap.Name, path.Base(file)
			}
		}
	}
	return "", ""
}

// ManagerFlag returns the value of a flag in the Deployment of the manager. If the flag is given several times, the
// last value is used, as in the manager.
func ManagerFlag(d *appsv1.Deployment, name string) (value string, found bool) {
	for _, c := range d.Spec.Template.Spec.Containers {
		for i, arg := range slices.Backward(c.Args) {
			if value, found = strings.CutPrefix(arg, "--"+name+"="); found {
				return value, true
			}
			if arg == "--"+name && i+1 < len(c.Args) {
				return c.Args[i+1], true
			}
		}
	}
	return "", false
}
