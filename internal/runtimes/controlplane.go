package runtimes

import "k8s.io/client-go/rest"

// ForControlPlane returns the options of a Pool with one connection to the control plane, for modules that are
// installed there beside the runtimes. The requests of the Pool are sent as a ServiceAccount in namespace, which the
// manager of cfg may impersonate: modules have only the rights that an administrator has granted to that
// ServiceAccount, and none of the rights of the manager. There is no agent in the control plane, so the Pool watches
// it, unless the runtimes are polled.
func (o Options) ForControlPlane(cfg *rest.Config, namespace, serviceAccount string) Options {
	o.Watch, o.Agents, o.InterestsChanged = o.Watch || o.Agents, false, nil
	o.Cache, o.Live = nil, nil
	o.Self = rest.CopyConfig(cfg)
	o.Self.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + serviceAccount}
	o.ForbiddenAdvice = "grant that right to ServiceAccount " + namespace + "/" + serviceAccount +
		" (chart value controlPlaneModules.rules)"
	return o
}
