package runtimes

import "k8s.io/client-go/rest"

// ForControlPlane returns the options of a Pool that has one connection to the control plane. The pool for the control
// plane is used for modules that are installed on the control plane. The manager sends the requests of the Pool with
// its own credential in cfg, and impersonates the given ServiceAccount. Because of the impersonation, modules on the
// control plane have only the rights that an administrator has granted to this ServiceAccount, and none of the rights
// of the manager. There is no agent in the control plane. If Options.Agents or Options.Watch is set, the Pool therefore
// watches the control plane itself. If neither is set, the Pool watches nothing, and the control plane is polled like
// the runtimes.
func (o Options) ForControlPlane(cfg *rest.Config, accountNamespace, serviceAccount string) Options {
	o.Watch, o.Agents, o.InterestsChanged = o.Watch || o.Agents, false, nil
	o.Cache, o.Live = nil, nil
	o.Self = rest.CopyConfig(cfg)
	user := "system:serviceaccount:" + accountNamespace + ":" + serviceAccount
	o.Self.Impersonate = rest.ImpersonationConfig{UserName: user}
	o.ForbiddenAdvice = "grant that right to ServiceAccount " + accountNamespace + "/" + serviceAccount +
		" (chart value controlPlaneModules.rules)"
	return o
}
