package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
	"github.com/kyma-fleet/lifecycle-manager/playground/sample"
)

// setAddresses makes the addresses of the landscape known to the script.
func (s *scenario) setAddresses(c *call) {
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	for name, value := range map[string]string{
		"REGISTRY": s.land.RegistryHost, "REGISTRY_HOST": host(s.land.RegistryHost),
		"LOCKED_REGISTRY": s.land.LockedRegistryHost, "LOCKED_REGISTRY_HOST": host(s.land.LockedRegistryHost),
		"CHARTS": s.land.ChartsURL, "LOCKED_CHARTS": s.land.LockedChartsURL,
	} {
		c.script.Setenv(name, value)
	}
}

// expanded returns a file with $NAME and ${NAME} replaced by the script's variables.
func expanded(c *call, file string) []byte {
	return []byte(os.Expand(c.script.ReadFile(file), c.script.Getenv))
}

func (s *scenario) expand(c *call) error {
	if err := c.want(2, 2, "expand FROM TO"); err != nil {
		return err
	}
	return os.WriteFile(c.script.MkAbs(c.args[1]), expanded(c, c.args[0]), 0o600)
}

func (s *scenario) soon(c *call) error {
	if err := c.want(2, 2, "soon VARIABLE SECONDS"); err != nil {
		return err
	}
	after, err := strconv.Atoi(c.args[1])
	if err != nil {
		return err
	}
	c.script.Setenv(c.args[0], time.Now().Add(time.Duration(after)*time.Second).UTC().Format(time.RFC3339))
	return nil
}

func (s *scenario) pack(c *call) error {
	if err := c.want(2, 2, "pack [-gzip] [-top=NAME] FILE FOLDER"); err != nil {
		return err
	}
	data, err := landscape.Pack(os.DirFS(c.script.MkAbs(c.args[1])), c.flag("top"), c.has("gzip"))
	if err != nil {
		return err
	}
	return os.WriteFile(c.script.MkAbs(c.args[0]), data, 0o600)
}

func (s *scenario) sample(c *call) error {
	if err := c.want(2, 2, "sample VERSION FOLDER"); err != nil {
		return err
	}
	for _, v := range sample.Versions() {
		if v.Version != c.args[0] {
			continue
		}
		folder := c.script.MkAbs(c.args[1])
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, "manifest.yaml"), v.Manifest, 0o600)
	}
	return fmt.Errorf("the sample module has no version %s", c.args[0])
}

func (s *scenario) layer(c *call) error {
	if err := c.want(3, 3, "layer [-tag=TAG] VARIABLE REPOSITORY FILE"); err != nil {
		return err
	}
	digest, err := s.land.PushLayer(s.ctx, c.args[1], c.flag("tag"), []byte(c.script.ReadFile(c.args[2])))
	if err != nil {
		return err
	}
	c.script.Setenv(c.args[0], digest)
	return nil
}

func (s *scenario) chart(c *call) error {
	if err := c.want(1, 1, "chart [-version=VERSION] [-registry=PATH] FOLDER"); err != nil {
		return err
	}
	folder := c.script.MkAbs(c.args[0])
	file := filepath.Join(folder, "Chart.yaml")
	var about map[string]any
	if err := yaml.Unmarshal([]byte(c.script.ReadFile(file)), &about); err != nil {
		return err
	}
	if version := c.flag("version"); version != "" {
		about["version"] = version
		data, err := yaml.Marshal(about)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
	}
	name, version := fmt.Sprint(about["name"]), fmt.Sprint(about["version"])
	archive, err := landscape.Pack(os.DirFS(folder), name, true)
	if err != nil {
		return err
	}
	if path := c.flag("registry"); path != "" {
		return s.land.PushChart(s.ctx, path+"/"+name, version, archive)
	}
	s.land.AddChart(name, version, archive)
	return nil
}

func (s *scenario) playCharts(c *call) error {
	const usage = "charts down|up or charts swap|restore FILE"
	if err := c.want(1, 2, usage); err != nil {
		return err
	}
	switch what, file := c.args[0], c.args[len(c.args)-1]; what {
	case "down", "up":
		s.land.SetChartsDown(what == "down")
	case "swap":
		s.land.SwapChartFile(file, []byte("not: [what it should be"))
	case "restore":
		s.land.SwapChartFile(file, nil)
	default:
		return fmt.Errorf("usage: %s", usage)
	}
	return nil
}

func (s *scenario) manifest(c *call) error {
	if err := c.want(3, 3, "manifest RUNTIME NAME FILE"); err != nil {
		return err
	}
	spec := map[string]any{}
	if err := yaml.Unmarshal(expanded(c, c.args[2]), &spec); err != nil {
		return err
	}
	m := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	m.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("Manifest"))
	m.SetNamespace(s.land.Namespace())
	m.SetName(c.args[1])
	m.SetLabels(map[string]string{v1beta2.LabelKymaName: c.args[0]})
	return s.land.Clients[landscape.ControlPlane].Apply(s.ctx, client.ApplyConfigurationFromUnstructured(m),
		client.FieldOwner("somebody"), client.ForceOwnership)
}

func (s *scenario) login(c *call) error {
	const usage = "login NAME docker|basic [USER PASSWORD]"
	if err := c.want(2, 4, usage); err != nil {
		return err
	}
	user, password := landscape.LoginUser, landscape.LoginPassword
	if len(c.args) == 4 {
		user, password = c.args[2], c.args[3]
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: c.args[0], Namespace: s.land.Namespace(),
		Labels: map[string]string{"login": c.args[0], v1beta2.LabelManagedBy: v1beta2.ManagedByLifecycleManager},
	}}
	switch c.args[1] {
	case "docker":
		secret.Type = corev1.SecretTypeDockerConfigJson
		secret.StringData = map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(
			`{"auths":{%q:{"username":%q,"password":%q}}}`, c.script.Getenv("LOCKED_REGISTRY_HOST"), user, password)}
	case "basic":
		secret.Type = corev1.SecretTypeBasicAuth
		secret.StringData = map[string]string{corev1.BasicAuthUsernameKey: user, corev1.BasicAuthPasswordKey: password}
	default:
		return fmt.Errorf("usage: %s", usage)
	}
	return s.land.Clients[landscape.ControlPlane].Create(s.ctx, secret)
}
