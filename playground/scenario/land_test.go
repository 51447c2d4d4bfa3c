package scenario

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
	"github.com/kyma-fleet/lifecycle-manager/render"
)

func (s *scenario) up(c *call) error {
	if err := s.bringUp(landscape.Options{Runtimes: c.args, InCluster: c.has("in-cluster"), Ingress: c.has("ingress"),
		NoLeaderElection: !c.has("elect"), LongTimeouts: true, ManagerArgs: c.flags["manager"]}); err != nil {
		return err
	}
	s.setAddresses(c)
	return nil
}

func (s *scenario) register(c *call) error {
	if err := c.want(2, 2, "register RUNTIME CHANNEL"); err != nil {
		return err
	}
	if err := s.land.Register(s.ctx, c.args[0], c.args[1]); err != nil {
		return err
	}
	where, key := s.land.DesiredKymaKey(c.args[0])
	return s.poll(func(ctx context.Context) (bool, string) {
		err := s.land.Clients[where].Get(ctx, key, &v1beta2.Kyma{})
		return err == nil, fmt.Sprint(err)
	})
}

func (s *scenario) kyma(c *call) error {
	if err := c.want(2, 2, "kyma NAME CHANNEL"); err != nil {
		return err
	}
	k := &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Name: c.args[0], Namespace: s.land.Namespace()},
		Spec: v1beta2.KymaSpec{Channel: c.args[1]}}
	return s.land.Clients[landscape.ControlPlane].Create(s.ctx, k)
}

func (s *scenario) access(c *call) error {
	if err := c.want(2, 2, "access RUNTIME KUBECONFIG"); err != nil {
		return err
	}
	kubeconfig, err := s.kubeconfig(c.args[0], c.args[1])
	if err != nil {
		return err
	}
	if in := c.flag("namespace"); in != "" {
		return s.land.Clients[landscape.ControlPlane].Create(s.ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: c.args[0], Namespace: in,
				Labels: map[string]string{v1beta2.LabelKymaName: c.args[0]}},
			Data: map[string][]byte{"config": kubeconfig}})
	}
	return s.land.SetAccessSecret(s.ctx, c.args[0], kubeconfig)
}

// kubeconfig returns a kubeconfig of the given sort for a runtime.
func (s *scenario) kubeconfig(name, sort string) ([]byte, error) {
	sort, of, _ := strings.Cut(sort, "=")
	switch sort {
	case "empty":
		return nil, nil
	case "garbage":
		return []byte("no: [kubeconfig"), nil
	case "other":
		name, sort = of, "good"
	}
	runtime := s.land.Clusters[name]
	if runtime == nil {
		return nil, fmt.Errorf("there is no cluster %q", name)
	}
	if sort == "gate" {
		gate, err := s.land.Gate(name)
		if err != nil {
			return nil, err
		}
		return gate.Kubeconfig()
	}
	if sort == "user" {
		return s.land.CreateAdmin(s.ctx, name, of)
	}
	config, err := clientcmd.Load(runtime.Kubeconfig())
	if err != nil {
		return nil, err
	}
	context := config.Contexts[config.CurrentContext]
	user, cluster := config.AuthInfos[context.AuthInfo], config.Clusters[context.Cluster]
	switch sort {
	case "good":
	case "exec":
		*user = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			Args:            []string{"-c", "touch " + s.dir + "/exec-was-run"},
		}}
	case "file":
		user.ClientKeyData, user.ClientKey = nil, "/etc/ssl/private/key.pem"
	case "bad-token":
		*user = clientcmdapi.AuthInfo{Token: "nobody-knows-this"}
	case "bad-ca":
		cluster.CertificateAuthorityData = s.land.Clusters[landscape.ControlPlane].Config().CAData
	default:
		return nil, fmt.Errorf("%q is no sort of kubeconfig", sort)
	}
	return clientcmd.Write(*config)
}

func (s *scenario) withdraw(c *call) error {
	if err := c.want(2, 2, "withdraw CLUSTER USER"); err != nil {
		return err
	}
	admin := s.land.Clients[c.args[0]]
	if err := admin.Delete(s.ctx,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: c.args[1]}}); err != nil {
		return err
	}
	return s.poll(func(ctx context.Context) (bool, string) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:default:" + c.args[1],
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1beta2.GroupVersion.Group,
				Resource: "kymas", Verb: "get"},
		}}
		if err := admin.Create(ctx, review); err != nil {
			return false, err.Error()
		}
		return !review.Status.Allowed, "it is still allowed: " + review.Status.Reason
	})
}

func (s *scenario) cluster(c *call) error {
	if err := c.want(2, 2, "runtime stop|start|slow|mend NAME"); err != nil {
		return err
	}
	runtime := s.land.Clusters[c.args[1]]
	if runtime == nil {
		return fmt.Errorf("there is no cluster %q", c.args[1])
	}
	switch c.args[0] {
	case "stop":
		return runtime.Stop(s.ctx)
	case "start":
		return runtime.Start(s.ctx)
	case "slow":
		runtime.Slow(200 * time.Millisecond)
	case "mend":
		runtime.Mend()
	default:
		return fmt.Errorf("usage: runtime stop|start|slow|mend NAME")
	}
	return nil
}

func (s *scenario) manager(c *call) error {
	if err := c.want(1, 10, "manager kill|stop|former|start [FLAG…]"); err != nil {
		return err
	}
	switch c.args[0] {
	case "kill":
		return s.land.Manager.Kill()
	case "stop":
		return s.land.Manager.Stop()
	case "former":
		return s.startFormer()
	case "start":
		if len(c.args) > 1 {
			s.land.ManagerArgs = c.args[1:]
		}
		return s.land.StartManagerWithoutWait(s.ctx)
	}
	return fmt.Errorf("usage: manager kill|stop|former|start [FLAG…]")
}

// secondUser is the user of the second control plane in runtimes. The user of a request shows which of two control
// planes has sent it.
const secondUser = "second"

func (s *scenario) secondControlPlane(c *call) error {
	const usage = "second up [FLAG…] | register NAME CHANNEL [RUNTIME]"
	if err := c.want(1, 10, usage); err != nil {
		return err
	}
	switch args := c.args[1:]; {
	case c.args[0] == "up":
		var err error
		if s.second, err = s.land.StartExtraControlPlane(s.ctx, "second", args...); err != nil {
			return err
		}
		return publishSample(s.ctx, s.second, c)
	case c.args[0] == "register" && (len(args) == 2 || len(args) == 3):
		name, runtime := args[0], args[len(args)-1]
		if len(args) == 2 {
			runtime = name
		}
		access, err := s.land.Clusters[runtime].AdminKubeconfigAs(secondUser)
		if err != nil {
			return err
		}
		if err := s.second.SetAccessSecret(s.ctx, name, access); err != nil {
			return err
		}
		return s.second.CreateKyma(s.ctx, name, args[1])
	}
	return fmt.Errorf("usage: %s", usage)
}

func (s *scenario) replica(c *call) error {
	if err := c.want(1, 1, "replica start"); err != nil {
		return err
	}
	return s.land.StartReplica(s.ctx)
}

func (s *scenario) agent(c *call) error {
	if err := c.want(2, 2, "agent RUNTIME kill"); err != nil {
		return err
	}
	pods := s.land.Clients[c.args[0]]
	if pods == nil || c.args[1] != "kill" {
		return fmt.Errorf("usage: agent RUNTIME kill")
	}
	return pods.DeleteAllOf(s.ctx, &corev1.Pod{}, client.InNamespace(v1beta2.RuntimeNamespace),
		client.MatchingLabels{"app": "skr-webhook"}, client.GracePeriodSeconds(0))
}

// component returns the component name under which a module of a script is stored in the registry.
func component(c *call, module string) string {
	if module == sample.Module {
		return sample.Component
	}
	if name := c.flag("component"); name != "" {
		return name
	}
	return "kyma-project.io/module/" + module
}

func (s *scenario) publish(c *call) error {
	if slices.Equal(c.args, []string{sample.Module}) {
		return publishSample(s.ctx, s.land, c)
	}
	if err := s.push(c); err != nil {
		return err
	}
	return s.template(c)
}

// publishSample publishes all versions of the sample module in a control plane, and sets its channels.
func publishSample(ctx context.Context, land *landscape.Landscape, c *call) error {
	versions := sample.Versions()
	for _, v := range versions {
		err := land.PushAndCreateModuleTemplate(ctx, landscape.Module{
			Name: sample.Module, Version: v.Version, Component: sample.Component, Tar: true,
			Manifest: v.Manifest, DefaultCR: v.DefaultCR,
			Manager: &v1beta2.Manager{Group: "apps", Version: "v1", Kind: "Deployment",
				Namespace: sample.Namespace, Name: sample.Operator},
		})
		if err != nil {
			return err
		}
	}
	return land.SetChannels(ctx, sample.Module, component(c, sample.Module),
		map[string]string{"regular": versions[0].Version, "fast": versions[len(versions)-1].Version})
}

// module makes a module out of the arguments MODULE VERSION [FILE].
func (s *scenario) module(c *call) (landscape.Module, error) {
	if err := c.want(2, 3, "[-tar] [-cr=FILE] [-resources=FILE] [-component=NAME] MODULE VERSION [FILE]"); err != nil {
		return landscape.Module{}, err
	}
	m := landscape.Module{Name: c.args[0], Version: c.args[1], Component: component(c, c.args[0]), Tar: c.has("tar")}
	if len(c.args) == 3 {
		m.Manifest = []byte(c.script.ReadFile(c.args[2]))
	}
	if file := c.flag("cr"); file != "" {
		m.DefaultCR = []byte(c.script.ReadFile(file))
	}
	if file := c.flag("resources"); file != "" {
		text := os.Expand(c.script.ReadFile(file), c.script.Getenv)
		if err := yaml.Unmarshal([]byte(text), &m.Resources); err != nil {
			return m, fmt.Errorf("reading %s: %w", file, err)
		}
	}
	return m, nil
}

func (s *scenario) template(c *call) error {
	m, err := s.module(c)
	if err != nil {
		return err
	}
	return s.land.CreateTemplate(s.ctx, m)
}

func (s *scenario) push(c *call) error {
	m, err := s.module(c)
	if err != nil {
		return err
	}
	return s.land.Push(s.ctx, m)
}

func (s *scenario) channels(c *call) error {
	if err := c.want(2, 100, "channels MODULE CHANNEL=VERSION…"); err != nil {
		return err
	}
	channels := map[string]string{}
	for _, arg := range c.args[1:] {
		channel, version, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not CHANNEL=VERSION", arg)
		}
		channels[channel] = version
	}
	return s.land.SetChannels(s.ctx, c.args[0], component(c, c.args[0]), channels)
}

func (s *scenario) playRegistry(c *call) error {
	const usage = "registry down|up or registry swap|restore MODULE:VERSION"
	if err := c.want(1, 2, usage); err != nil {
		return err
	}
	switch c.args[0] {
	case "down", "up":
		s.land.SetRegistryDown(c.args[0] == "down")
		return nil
	case "swap", "restore":
		module, version, ok := strings.Cut(c.args[len(c.args)-1], ":")
		if !ok {
			return fmt.Errorf("usage: %s", usage)
		}
		found, err := s.land.Registry.Component(s.ctx, component(c, module), version)
		if err != nil {
			return err
		}
		var lie []byte
		if c.args[0] == "swap" {
			lie = []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: intruder, namespace: kyma-system}\n")
		}
		s.land.SwapBlob(found.Layers[v1beta2.RawManifest].Ref, lie)
		return nil
	}
	return fmt.Errorf("usage: %s", usage)
}

func (s *scenario) archive(c *call) error {
	if err := c.want(2, 100, "archive FILE NAME=CONTENT…"); err != nil {
		return err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, arg := range c.args[1:] {
		name, file, _ := strings.Cut(arg, "=")
		data := c.script.ReadFile(file)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)),
			Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := w.Write([]byte(data)); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(c.script.MkAbs(c.args[0]), b.Bytes(), 0o600)
}

func (s *scenario) bomb(c *call) error {
	if err := c.want(2, 2, "bomb FILE MIB"); err != nil {
		return err
	}
	size, err := strconv.Atoi(c.args[1])
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	mib := bytes.Repeat([]byte("# nothing to see here, go on reading, please...\n"), 1<<20/48)
	for range size {
		if _, err := w.Write(mib); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(c.script.MkAbs(c.args[0]), b.Bytes(), 0o600)
}

func (s *scenario) enable(c *call) error {
	if err := c.want(2, 5, "enable RUNTIME MODULE [channel=CHANNEL] [version=VERSION] [policy=POLICY]"); err != nil {
		return err
	}
	m := v1beta2.Module{Name: c.args[1]}
	for _, arg := range c.args[2:] {
		switch name, v, _ := strings.Cut(arg, "="); name {
		case "channel":
			m.Channel = v
		case "version":
			m.Version = v
		case "policy":
			m.CustomResourcePolicy = v1beta2.CustomResourcePolicy(v)
		default:
			return fmt.Errorf("%q is none of channel=, version=, policy=", arg)
		}
	}
	return s.land.PatchDesiredKymaSpec(s.ctx, c.args[0], func(spec *v1beta2.KymaSpec) {
		spec.Modules = append(without(spec.Modules, m.Name), m)
	})
}

func (s *scenario) disable(c *call) error {
	if err := c.want(2, 2, "disable RUNTIME MODULE"); err != nil {
		return err
	}
	return s.land.PatchDesiredKymaSpec(s.ctx, c.args[0],
		func(spec *v1beta2.KymaSpec) { spec.Modules = without(spec.Modules, c.args[1]) })
}

func (s *scenario) request(c *call) error {
	const usage = "request RUNTIME PREFIX N"
	if err := c.want(3, 3, usage); err != nil {
		return err
	}
	n, err := strconv.Atoi(c.args[2])
	if err != nil {
		return err
	}
	return s.land.PatchDesiredKymaSpec(s.ctx, c.args[0], func(spec *v1beta2.KymaSpec) {
		spec.Modules = nil
		for i := range n {
			spec.Modules = append(spec.Modules, v1beta2.Module{Name: fmt.Sprintf("%s-%d", c.args[1], i+1)})
		}
	})
}

// without returns all modules except one.
func without(modules []v1beta2.Module, name string) []v1beta2.Module {
	return slices.DeleteFunc(slices.Clone(modules), func(m v1beta2.Module) bool { return m.Name == name })
}

func (s *scenario) apply(c *call) error {
	if err := c.want(2, 2, "apply [-expand] [-as=OWNER] CLUSTER FILE"); err != nil {
		return err
	}
	data := []byte(c.script.ReadFile(c.args[1]))
	if c.has("expand") {
		data = expanded(c, c.args[1])
	}
	objects, err := render.Parse(data)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := s.applyObject(s.land.Clients[c.args[0]], (*unstructured.Unstructured)(o),
			cmp.Or(c.flag("as"), "somebody")); err != nil {
			return err
		}
	}
	return nil
}

// applyObject applies an object as an owner. The API server may serve a new kind only intermittently at first, so
// applyObject repeats the request while the kind is not found.
func (s *scenario) applyObject(to client.Client, o *unstructured.Unstructured, owner string) error {
	var refused error
	err := s.poll(func(ctx context.Context) (bool, string) {
		refused = to.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(owner),
			client.ForceOwnership)
		return !apierrors.IsNotFound(refused), fmt.Sprint(refused)
	})
	if err := cmp.Or(err, refused); err != nil {
		return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}
