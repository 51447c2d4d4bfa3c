package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	podresource "k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

const (
	refreshInterval = 10 * time.Second // interval for mounted Secrets, ConfigMaps and tokens
	tokenSeconds    = 3607             // validity of the token of a pod, the same as with a kubelet
	minProbeTimeout = 10               // seconds; the default of a probe is 1, too short for a busy machine
	probeInterval   = 200 * time.Millisecond
	logTail         = 1024 // bytes of output in the message of a failed container
)

// writeAndRefreshPodFiles writes the files of a pod with processes: its volumes and its kubeconfig.
// writeAndRefreshPodFiles retries until it succeeds. writeAndRefreshPodFiles returns false if the pod ends first. After
// success, a goroutine keeps the files up to date.
func (p *pod) writeAndRefreshPodFiles() (isWritten bool) {
	object := p.current()
	if !slices.ContainsFunc(slices.Concat(p.init, p.main),
		func(c *container) bool { return p.node.isProcess(c.spec) }) {
		return true
	}
	f := &files{pod: p, tokens: map[string]token{}}
	for {
		err := f.writeVolumesAndKubeconfig(p.dead)
		if err == nil {
			break
		}
		p.warn("FailedMount", "%v", err)
		p.changeContainers(func() {
			for _, c := range slices.Concat(p.init, p.main) {
				c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating",
					Message: err.Error()}}
			}
		})
		if !sleepUnlessDone(p.dead, minBackOff) {
			return false
		}
	}
	p.node.wg.Go(func() {
		for sleepUnlessDone(p.dead, refreshInterval) {
			if err := f.writeVolumesAndKubeconfig(p.dead); err != nil && p.dead.Err() == nil {
				p.warn("FailedMount", "refreshing files of pod %s: %v", object.Name, err)
			}
		}
	})
	return true
}

// removeFiles removes the files of the pod. The logs of the pod are kept.
func (p *pod) removeFiles() { _ = os.RemoveAll(p.dir) }

func (n *node) isProcess(c *corev1.Container) bool {
	_, ok := n.host.options.Images[imageRepository(c.Image)]
	return ok
}

// runAsProcess runs a container as a process once, and returns when the process has ended.
func (p *pod) runAsProcess(ctx context.Context, c *container, image Image) end {
	command, err := p.command(ctx, c, image)
	for err != nil {
		p.changeContainers(func() {
			c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError",
				Message: err.Error()}}
		})
		if !sleepUnlessDone(ctx, minBackOff) {
			return end{code: 1, reason: "Error", message: err.Error()}
		}
		command, err = p.command(ctx, c, image)
	}
	name := filepath.Join(p.node.logs, logName(p.current().Namespace, p.current().Name, c.spec.Name))
	//nolint:gosec // the path is made of our own folder and checked names
	output, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return end{code: 128, reason: "StartError", message: err.Error()}
	}
	defer output.Close() //nolint:errcheck // the process has written all; there is nothing left to lose
	command.Stdout, command.Stderr = output, output
	if err := p.node.host.forks.startAsGroupLeader(command); err != nil {
		return end{code: 128, reason: "StartError", message: err.Error()}
	}
	p.setRunning(c, c.spec.ReadinessProbe == nil || c.spec.ReadinessProbe.HTTPGet == nil)
	exited := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { p.runHTTPReadinessProbe(exited, c) })
	wg.Go(func() { p.terminateWhenDone(ctx, exited, c, command.Process.Pid) })
	err = command.Wait()
	close(exited)
	wg.Wait()
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // kills remaining processes in the group of the process
	return processResult(err, command.ProcessState, name)
}

// processResult returns the result of a process. If the process failed, the result has the last lines of its output.
func processResult(err error, state *os.ProcessState, log string) end {
	if err == nil {
		return end{reason: "Completed"}
	}
	e := end{code: 128, reason: "Error", message: err.Error()}
	if state != nil {
		e.code = int32(state.ExitCode()) //nolint:gosec // an exit code fits
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			//nolint:gosec // a signal's number fits
			e.code, e.signal = 128+int32(status.Signal()), int32(status.Signal())
		}
	}
	if text := lastLinesWithin(log, logTail); text != "" {
		e.message = text
	}
	return e
}

// lastLinesWithin returns the complete lines in the last maxBytes bytes of a file, or "" if there are none.
func lastLinesWithin(name string, maxBytes int64) string {
	file, err := os.Open(name) //nolint:gosec // the path is made of our own folder and checked names
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // only read
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from := max(info.Size()-maxBytes, 0)
	data, err := io.ReadAll(io.NewSectionReader(file, from, maxBytes))
	if err != nil {
		return ""
	}
	if from > 0 {
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			data = data[i+1:]
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(data), "?"))
}

// logName returns the name of the file with the output of a container.
func logName(namespace, pod, container string) string {
	return fmt.Sprintf("%s_%s_%s.log", namespace, pod, container)
}

// terminateWhenDone ends a process and its process group when ctx ends. terminateWhenDone sends SIGTERM, and SIGKILL
// after the grace period.
func (p *pod) terminateWhenDone(ctx context.Context, exited <-chan struct{}, c *container, processGroup int) {
	select {
	case <-exited:
		return
	case <-ctx.Done():
	}
	p.changeContainers(func() { c.ready = false })
	_ = syscall.Kill(-processGroup, syscall.SIGTERM)
	timer := time.NewTimer(p.gracePeriod())
	defer timer.Stop()
	select {
	case <-exited:
	case <-timer.C:
		_ = syscall.Kill(-processGroup, syscall.SIGKILL)
	case <-p.shutdownGraceEnd():
		_ = syscall.Kill(-processGroup, syscall.SIGKILL)
	}
}

// shutdownGraceEnd returns a channel that is closed when the time stopGrace has passed after the end of the context
// p.gone, after which the status of the pod is not written any more. When the channel is closed, the node kills the
// process of the pod, even if the grace period of the pod is longer.
func (p *pod) shutdownGraceEnd() <-chan struct{} {
	done := make(chan struct{})
	context.AfterFunc(p.gone, func() { time.AfterFunc(stopGrace, func() { close(done) }) })
	return done
}

// runHTTPReadinessProbe calls an httpGet readiness probe until the process has exited. Until the first success,
// runHTTPReadinessProbe calls the endpoint more often than the probe period, so that the pod becomes ready without a
// delay.
func (p *pod) runHTTPReadinessProbe(exited <-chan struct{}, c *container) {
	probe := c.spec.ReadinessProbe
	if probe == nil || probe.HTTPGet == nil {
		return
	}
	client := &http.Client{
		Timeout: time.Duration(max(probe.TimeoutSeconds, minProbeTimeout)) * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			//nolint:gosec // as a kubelet does: the certificate of a probe's target names no address
			InsecureSkipVerify: true,
		}},
	}
	hosts := []string{loopbackAddress(p.ip), "127.0.0.1"}
	if probe.HTTPGet.Host != "" {
		hosts = []string{probe.HTTPGet.Host}
	}
	good, bad := int32(0), int32(0)
	for {
		if p.probeFirstRespondingHost(client, c.spec, probe.HTTPGet, hosts) {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		p.mu.Lock()
		ready := c.ready
		p.mu.Unlock()
		switch {
		case !ready && good >= max(probe.SuccessThreshold, 1) && p.dead.Err() == nil:
			p.changeContainers(func() { c.ready = true })
		case ready && bad >= max(probe.FailureThreshold, 1):
			p.changeContainers(func() { c.ready = false })
			p.warn("Unhealthy", "Readiness probe of container %s failed", c.spec.Name)
		}
		interval := probeInterval
		if ready {
			interval = time.Duration(max(probe.PeriodSeconds, 1)) * time.Second
		}
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-exited:
			timer.Stop()
			return
		}
	}
}

// probeFirstRespondingHost calls the probe once. A process may listen on the address of its pod or on 127.0.0.1. The
// result of probeFirstRespondingHost is that of the first address that responds.
func (p *pod) probeFirstRespondingHost(client *http.Client, spec *corev1.Container, get *corev1.HTTPGetAction,
	hosts []string) (isSuccess bool) {
	port := get.Port.IntValue()
	if get.Port.Type == intstr.String {
		for _, named := range spec.Ports {
			if named.Name == get.Port.StrVal {
				port = int(named.ContainerPort)
			}
		}
	}
	for _, host := range hosts {
		target := url.URL{Scheme: strings.ToLower(string(get.Scheme)), Host: net.JoinHostPort(host, strconv.Itoa(port)),
			Path: "/"}
		if target.Scheme == "" {
			target.Scheme = "http"
		}
		if path, query, found := strings.Cut(get.Path, "?"); path != "" {
			target.Path = path
			if found {
				target.RawQuery = query
			}
		}
		request, err := http.NewRequestWithContext(p.gone, http.MethodGet, target.String(), nil)
		if err != nil {
			return false
		}
		for _, header := range get.HTTPHeaders {
			request.Header.Add(header.Name, header.Value)
		}
		response, err := client.Do(request)
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		return response.StatusCode >= 200 && response.StatusCode < 400
	}
	return false
}

// command returns the command that runs a container as its spec describes.
func (p *pod) command(ctx context.Context, c *container, image Image) (*exec.Cmd, error) {
	env, err := p.environment(ctx, c.spec)
	if err != nil {
		return nil, err
	}
	local := p.containerToHostMapper(c.spec)
	mapping := expansion.MappingFuncFor(env)
	args := slices.Clone(image.Args)
	for _, arg := range slices.Concat(c.spec.Command[min(1, len(c.spec.Command)):], c.spec.Args) {
		args = append(args, local(expansion.Expand(arg, mapping)))
	}
	disableLeaderElection(args)
	//nolint:gosec // running what the host's owner has named is the purpose
	command := exec.Command(image.Command, args...)
	command.Dir = p.dir
	command.Env = slices.Clone(image.Env)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		command.Env = append(command.Env, name+"="+local(env[name]))
	}
	base := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": p.dir, "TMPDIR": p.dir, "HOSTNAME": p.current().Name,
		"KUBECONFIG": filepath.Join(p.dir, "kubeconfig"), "POD_NAMESPACE": p.current().Namespace,
	}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		if _, set := env[name]; !set {
			command.Env = append(command.Env, name+"="+base[name])
		}
	}
	return command, nil
}

// election matches an argument that turns leader election on.
var election = regexp.MustCompile(`^(--?(?:enable-)?leader-elect(?:ion)?)(?:=true)?$`)

// disableLeaderElection turns leader election off in the arguments of a process, unless they name the namespace of the
// lease. controller-runtime reads this namespace from a file that exists only in a container, and does not start
// without it.
func disableLeaderElection(args []string) {
	if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "leader-election-namespace") }) {
		return
	}
	for i, arg := range args {
		args[i] = election.ReplaceAllString(arg, "$1=false")
	}
}

// anyAddress matches an argument or a value that means "listen on this port of all addresses", as in
// "--metrics-bind-address=:8443".
var anyAddress = regexp.MustCompile(`^((?:--?[\w.-]+=)?)(?:0\.0\.0\.0|\[::\])?(:[0-9]+)$`)

// containerToHostMapper returns a function that converts a value for a container into a value for a process on this
// machine. Paths of mounts become paths in the folder of the pod. "All addresses" becomes the address of the pod,
// because all pods share the ports of this machine.
func (p *pod) containerToHostMapper(spec *corev1.Container) func(string) string {
	mounts := slices.Clone(spec.VolumeMounts)
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return len(b.MountPath) - len(a.MountPath) })
	var pairs []string
	for _, mount := range mounts {
		pairs = append(pairs, strings.TrimSuffix(mount.MountPath, "/"),
			filepath.Join(p.dir, "volumes", mount.Name, filepath.FromSlash(mount.SubPath)))
	}
	paths := strings.NewReplacer(pairs...)
	return func(value string) string {
		if m := anyAddress.FindStringSubmatch(value); m != nil {
			return m[1] + loopbackAddress(p.ip) + m[2]
		}
		return paths.Replace(value)
	}
}

// environment returns the environment variables in the spec of the container.
func (p *pod) environment(ctx context.Context, spec *corev1.Container) (map[string]string, error) {
	object := p.current()
	env := map[string]string{}
	for _, source := range spec.EnvFrom {
		values, err := p.unprefixedEnvFrom(ctx, source)
		if err != nil {
			return nil, err
		}
		for key, value := range values {
			env[source.Prefix+key] = value
		}
	}
	for _, variable := range spec.Env {
		from := variable.ValueFrom
		if from == nil {
			env[variable.Name] = expansion.Expand(variable.Value, expansion.MappingFuncFor(env))
			continue
		}
		var value string
		var err error
		found := true
		switch {
		case from.FieldRef != nil:
			value, err = p.fieldValue(object, from.FieldRef.FieldPath, loopbackAddress(p.ip))
		case from.ResourceFieldRef != nil:
			value, err = podresource.ExtractContainerResourceValue(from.ResourceFieldRef, spec)
		case from.ConfigMapKeyRef != nil:
			value, found, err = p.keyValue(ctx, "ConfigMap", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key,
				from.ConfigMapKeyRef.Optional)
		case from.SecretKeyRef != nil:
			value, found, err = p.keyValue(ctx, "Secret", from.SecretKeyRef.Name, from.SecretKeyRef.Key,
				from.SecretKeyRef.Optional)
		}
		if err != nil {
			return nil, fmt.Errorf("setting %s: %w", variable.Name, err)
		}
		if found {
			env[variable.Name] = value
		}
	}
	return env, nil
}

func (p *pod) unprefixedEnvFrom(ctx context.Context, source corev1.EnvFromSource) (map[string]string, error) {
	var data map[string][]byte
	var err error
	switch {
	case source.ConfigMapRef != nil:
		data, err = p.objectData(ctx, "ConfigMap", source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
	case source.SecretRef != nil:
		data, err = p.objectData(ctx, "Secret", source.SecretRef.Name, source.SecretRef.Optional)
	}
	values := map[string]string{}
	for key, value := range data {
		values[key] = string(value)
	}
	return values, err
}

// fieldValue returns a field of the pod as the downward API does. For the pod IP, fieldValue returns the address on
// which the process can listen.
func (p *pod) fieldValue(object *corev1.Pod, path, ip string) (string, error) {
	switch path {
	case "spec.nodeName":
		return object.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return object.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return p.node.server.ip(), nil
	case "status.podIP", "status.podIPs":
		return ip, nil
	}
	return fieldpath.ExtractFieldPathAsString(object, path)
}

// keyValue returns one value of a ConfigMap or Secret. keyValue returns false if the value is missing and optional.
func (p *pod) keyValue(ctx context.Context, kind, name, key string, optional *bool) (string, bool, error) {
	data, err := p.objectData(ctx, kind, name, optional)
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, p.current().Namespace, name)
	}
	return string(value), ok, nil
}

// objectData returns the content of a ConfigMap or Secret. objectData returns nothing if the object is missing and
// optional.
func (p *pod) objectData(ctx context.Context, kind, name string, optional *bool) (map[string][]byte, error) {
	read := p.configMap
	if kind == "Secret" {
		read = p.secret
	}
	data, err := read(ctx, p.current().Namespace, name)
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	return data, err
}

func (p *pod) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	object, err := p.node.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return object.Data, nil
}

func (p *pod) configMap(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	object, err := p.node.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	maps.Copy(data, object.BinaryData)
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

// files is the writer of the files that the processes of a pod need.
type files struct {
	pod    *pod
	tokens map[string]token // the key is the path in the folder
}

type token struct {
	value string
	renew time.Time
}

// writeVolumesAndKubeconfig writes the volumes and the kubeconfig. writeVolumesAndKubeconfig does not
// writeVolumesAndKubeconfig files that are up to date.
func (f *files) writeVolumesAndKubeconfig(ctx context.Context) error {
	p := f.pod
	for _, dir := range []string{p.dir, p.node.logs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(p.dir) // prevents that a key or path of a volume leads out of the folder
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it after this
	object := p.current()
	for i := range object.Spec.Volumes {
		volume := &object.Spec.Volumes[i]
		dir := filepath.Join("volumes", volume.Name)
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := f.writeVolume(ctx, root, dir, volume); err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", volume.Name, err)
		}
	}
	if err := linkMountsBelowTmp(root, object.Spec.Containers); err != nil {
		return err
	}
	if err := f.writeToken(ctx, root, "token", nil, tokenSeconds); err != nil {
		return err
	}
	config := &rest.Config{
		Host: "https://" + p.node.server.address, BearerTokenFile: filepath.Join(p.dir, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAData: p.node.server.pki.caPEM},
	}
	return replaceFile(root, "kubeconfig", kubeconfig("in-cluster", config, object.Namespace))
}

// linkMountsBelowTmp makes the mounts below /tmp available below the folder of the pod, which is the TMPDIR of its
// processes. Programs such as the webhook server of controller-runtime read files from default paths below TMPDIR.
func linkMountsBelowTmp(root *os.Root, containers []corev1.Container) error {
	for i := range containers {
		for _, mount := range containers[i].VolumeMounts {
			path, ok := strings.CutPrefix(filepath.Clean(mount.MountPath), "/tmp/")
			if !ok {
				continue
			}
			if _, err := root.Lstat(path); err == nil {
				continue
			}
			if err := root.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return err
			}
			up := strings.Repeat("../", strings.Count(path, "/"))
			if err := root.Symlink(filepath.Join(up, "volumes", mount.Name, mount.SubPath), path); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeVolume writes the files of one volume. A volume of a kind that needs a real node is an empty folder.
func (f *files) writeVolume(ctx context.Context, root *os.Root, dir string, v *corev1.Volume) error {
	switch {
	case v.Secret != nil:
		return f.writeKeys(ctx, root, dir, "Secret", v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.ConfigMap != nil:
		return f.writeKeys(ctx, root, dir, "ConfigMap", v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.DownwardAPI != nil:
		return f.writeFields(root, dir, v.DownwardAPI.Items)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			var err error
			switch {
			case source.Secret != nil:
				err = f.writeKeys(ctx, root, dir, "Secret", source.Secret.Name, source.Secret.Items,
					source.Secret.Optional)
			case source.ConfigMap != nil:
				err = f.writeKeys(ctx, root, dir, "ConfigMap", source.ConfigMap.Name,
					source.ConfigMap.Items, source.ConfigMap.Optional)
			case source.DownwardAPI != nil:
				err = f.writeFields(root, dir, source.DownwardAPI.Items)
			case source.ServiceAccountToken != nil:
				t := source.ServiceAccountToken
				var audiences []string
				if t.Audience != "" {
					audiences = []string{t.Audience}
				}
				seconds := int64(tokenSeconds)
				if t.ExpirationSeconds != nil {
					seconds = *t.ExpirationSeconds
				}
				err = f.writeToken(ctx, root, filepath.Join(dir, t.Path), audiences, seconds)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// writeKeys writes all keys or the listed items of a ConfigMap or Secret.
func (f *files) writeKeys(ctx context.Context, root *os.Root, dir, kind, name string,
	items []corev1.KeyToPath, optional *bool) error {
	data, err := f.pod.objectData(ctx, kind, name, optional)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		for key := range data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("%s %q has no key %q", kind, name, item.Key)
		}
		if err := replaceFile(root, filepath.Join(dir, item.Path), value); err != nil {
			return err
		}
	}
	return nil
}

// writeFields writes the fields of the pod that a downwardAPI volume lists.
func (f *files) writeFields(root *os.Root, dir string, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		if item.FieldRef == nil {
			continue
		}
		value, err := f.pod.fieldValue(f.pod.current(), item.FieldRef.FieldPath, loopbackAddress(f.pod.ip))
		if err != nil {
			return err
		}
		if err := replaceFile(root, filepath.Join(dir, item.Path), []byte(value)); err != nil {
			return err
		}
	}
	return nil
}

// writeToken writes a token of the ServiceAccount of the pod. The token is bound to the pod, and is renewed after 80 %
// of its validity.
func (f *files) writeToken(ctx context.Context, root *os.Root, path string, audiences []string, seconds int64) error {
	now := time.Now()
	have := f.tokens[path]
	if now.After(have.renew) {
		object := f.pod.current()
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, ExpirationSeconds: &seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
				Name: object.Name, UID: object.UID},
		}}
		account := object.Spec.ServiceAccountName
		if account == "" {
			account = "default"
		}
		answer, err := f.pod.node.client.CoreV1().ServiceAccounts(object.Namespace).CreateToken(
			ctx, account, request, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("requesting a token for ServiceAccount %s/%s: %w", object.Namespace, account, err)
		}
		life := answer.Status.ExpirationTimestamp.Sub(now)
		have = token{value: answer.Status.Token, renew: now.Add(min(life, time.Duration(seconds)*time.Second) * 8 / 10)}
		f.tokens[path] = have
	}
	return replaceFile(root, path, []byte(have.value))
}

// replaceFile replaces a file atomically, unless the file already has the new content.
func replaceFile(root *os.Root, path string, data []byte) error {
	if have, err := root.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if err := root.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := root.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return root.Rename(path+".new", path)
}

// forker starts all processes from one thread. The operating system kills a process when the thread that started it
// ends. No process therefore outlives its host, however the host ends. The forker keeps its thread until close is
// called, because the Go runtime may end any other thread earlier than the host.
type forker struct {
	requests chan func()
	once     sync.Once
}

func newForker() *forker {
	f := &forker{requests: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for do := range f.requests {
			do()
		}
	}()
	return f
}

// startAsGroupLeader starts the command as the leader of its own process group.
func (f *forker) startAsGroupLeader(command *exec.Cmd) (err error) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(command.SysProcAttr)
	done := make(chan struct{})
	f.requests <- func() {
		defer close(done)
		err = command.Start()
	}
	<-done
	return err
}

// close ends the thread of the forker, which starts all processes. All processes that the forker has started must have
// ended before close is called, because the operating system kills a process when the thread that started it ends.
func (f *forker) close() { f.once.Do(func() { close(f.requests) }) }
