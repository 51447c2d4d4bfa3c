package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

const (
	minBackOff   = time.Second      // delay before the first restart of a container; doubles at each further restart
	maxBackOff   = 30 * time.Second // Kubernetes waits 10 s at first and 5 min at most
	steady       = time.Minute      // after a container has run this long, its delay is minBackOff again
	crashAfter   = 200 * time.Millisecond
	finishAfter  = 100 * time.Millisecond // time that a simulated container of a Job runs
	slowDefault  = 5 * time.Second        // for a "slow-start" image whose tag is not a duration
	retryStatus  = 200 * time.Millisecond
	stopGrace    = 5 * time.Second // grace period of processes when the cluster stops
	defaultGrace = 30 * time.Second
)

// node replaces a kubelet. node is one Node object that is always Ready, and it runs the pods that the scheduler
// assigns to it. Each pod on the node has a goroutine as long as the pod exists.
type node struct {
	name   string
	host   *Host
	dir    string // folder with the files of the pods
	logs   string // folder with the output of the containers
	server *apiServer
	client kubernetes.Interface
	events record.EventRecorder
	output *logServer
	subnet int
	life   context.Context // ends with shutDown: pods then stop without a request to the API server
	end    context.CancelFunc
	wg     sync.WaitGroup
	close  []func()

	mu   sync.Mutex // guards what follows
	pods map[types.UID]*pod
	ips  map[string]types.UID
	next int // where the search for a free address begins
}

// startNode creates the Node and starts to run its pods.
func startNode(ctx, life context.Context, c *Cluster, server *apiServer, subnet int) (*node, error) {
	config, err := server.adminConfig("kubelet")
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return nil, fmt.Errorf("starting the node: %w", err)
	}
	n := &node{
		name: c.name + "-node", host: c.host, dir: filepath.Join(c.dir, "pods"),
		logs:   filepath.Join(c.host.dir, "logs", c.name),
		server: server, client: client, subnet: subnet, pods: map[types.UID]*pod{},
		ips: map[string]types.UID{}, next: 1,
	}
	n.life, n.end = context.WithCancel(life)
	if n.output, err = startLogs(ctx, n); err != nil {
		return nil, fmt.Errorf("starting the node: %w", err)
	}
	n.close = append(n.close, n.output.close)
	if err := n.createOrUpdateNode(ctx); err != nil {
		n.shutDown()
		return nil, fmt.Errorf("starting the node: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(n.life))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	n.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: n.name})
	n.close = append(n.close, broadcaster.Shutdown)

	watch := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", n.name))
	informer := cache.NewSharedInformer(watch, &corev1.Pod{}, 0)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { n.handleUpdate(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { n.handleUpdate(object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			n.handleDelete(object.(*corev1.Pod))
		},
	}); err != nil {
		n.shutDown()
		return nil, fmt.Errorf("starting the node: %w", err)
	}
	n.wg.Go(func() { informer.RunWithContext(n.life) })
	return n, nil
}

// createOrUpdateNode creates or updates the Node. The Node is not updated later and has no lease, because no controller
// here checks the heartbeats of nodes.
func (n *node) createOrUpdateNode(ctx context.Context) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("4000Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("4000Gi"), corev1.ResourcePods: resource.MustParse("10000"),
	}
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus,
		reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason,
			LastHeartbeatTime: now, LastTransitionTime: now}
	}
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
			corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			"node-role.kubernetes.io/playground": "",
		}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
			},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.server.ip()},
				{Type: corev1.NodeHostName, Address: n.name}},
			//nolint:gosec // a port fits
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(
				n.output.port)}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: kubernetesVersion(), OperatingSystem: "linux",
				Architecture: "amd64", OSImage: "playground",
				ContainerRuntimeVersion: "playground://1",
			},
		},
	}
	nodes := n.client.CoreV1().Nodes()
	have, err := nodes.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		have, err = nodes.Get(ctx, n.name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	have.Status = want.Status
	_, err = nodes.UpdateStatus(ctx, have, metav1.UpdateOptions{})
	return err
}

// shutDown stops all pods without a request to the API server, as if the machine were switched off. shutDown returns
// when the processes of the pods have ended.
func (n *node) shutDown() {
	n.end()
	n.wg.Wait()
	for _, f := range n.close {
		f()
	}
}

// handleUpdate processes a new version of a pod from the API server.
func (n *node) handleUpdate(object *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pods[object.UID]; p != nil {
		p.update(object)
		return
	}
	over := object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed
	if n.life.Err() != nil || over && object.DeletionTimestamp == nil {
		return
	}
	p := newPod(n, object)
	n.pods[object.UID] = p
	n.wg.Go(func() {
		if over {
			p.deletePod()
		} else {
			p.run()
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.pods, object.UID)
		for ip, owner := range n.ips {
			if owner == object.UID {
				delete(n.ips, ip)
			}
		}
	})
	p.update(object)
}

// handleDelete removes a pod that the API server has deleted.
func (n *node) handleDelete(object *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pods[object.UID]; p != nil {
		p.stopWithoutStatusWrites()
	}
}

// keepOrAssignPodIP returns an address for a pod. If the pod already has an address, keepOrAssignPodIP returns that
// one.
func (n *node) keepOrAssignPodIP(object *corev1.Pod) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ip := object.Status.PodIP; strings.HasPrefix(ip, fmt.Sprintf("10.%d.", n.subnet)) && n.ips[ip] == "" {
		n.ips[ip] = object.UID
		return ip
	}
	for {
		high, low := n.next>>8, n.next&0xff
		n.next = (n.next + 1) & 0xffff
		ip := fmt.Sprintf("10.%d.%d.%d", n.subnet, high, low)
		// The first and last values of a range could be a network address, the reserved address, or a broadcast
		// address.
		if low > 0 && low < 0xfe && n.ips[ip] == "" {
			n.ips[ip] = object.UID
			return ip
		}
	}
}

// loopbackAddress returns the address on this machine on which the process of a pod listens. For the pod address
// 10.x.y.z, loopbackAddress returns 127.x.y.z. Kubernetes refuses 127.x.y.z in endpoints, so pods cannot have a
// loopback address in their status.
func loopbackAddress(podIP string) string { return "127." + strings.TrimPrefix(podIP, "10.") }

// isPodIP reports whether an address is in the range that nodes of this package give to pods.
func isPodIP(address string) bool {
	ip := net.ParseIP(address).To4()
	return ip != nil && ip[0] == 10 && ip[1] >= 128
}

// pod runs one pod from start to end.
type pod struct {
	node  *node
	uid   types.UID
	ip    string
	start metav1.Time
	dir   string // private folder, created only for pods with processes

	dead    context.Context // ends when the containers must stop: the pod is deleted or gone, or the node shuts down
	die     context.CancelFunc
	gone    context.Context // ends when no status must be written any more
	forget  context.CancelFunc
	changed chan struct{} // has an element when the status may have changed

	mu         sync.Mutex // guards what follows
	object     *corev1.Pod
	init       []*container
	main       []*container
	conditions []corev1.PodCondition // last computed conditions, for their times
}

// container is one container of a pod. The mutex of the pod guards all fields of the container.
type container struct {
	spec     *corev1.Container
	init     bool
	sidecar  bool // an init container that runs as long as the pod
	state    corev1.ContainerState
	last     corev1.ContainerState // the last state before the latest restart
	restarts int32
	ready    bool
	started  bool
}

func newPod(n *node, object *corev1.Pod) *pod {
	p := &pod{node: n, uid: object.UID, object: object, changed: make(chan struct{}, 1)}
	p.gone, p.forget = context.WithCancel(n.life)
	p.dead, p.die = context.WithCancel(p.gone)
	p.dir = filepath.Join(n.dir, fmt.Sprintf("%s_%s_%s", object.Namespace, object.Name, object.UID))
	p.start = metav1.Now()
	if object.Status.StartTime != nil {
		p.start = *object.Status.StartTime
	}
	for i := range object.Spec.InitContainers {
		spec := &object.Spec.InitContainers[i]
		sidecar := spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
		p.init = append(p.init, newContainer(spec, object.Status.InitContainerStatuses,
			n.isProcess(spec), true, sidecar))
	}
	for i := range object.Spec.Containers {
		p.main = append(p.main, newContainer(&object.Spec.Containers[i], object.Status.ContainerStatuses,
			n.isProcess(&object.Spec.Containers[i]), false, false))
	}
	return p
}

// newContainer returns a container that waits for its start. If a container ran before the node was shut down, there
// are two cases. A container with a process gets a new process, which counts as a restart. A simulated container, which
// has no process, counts as running all the time.
func newContainer(spec *corev1.Container, statuses []corev1.ContainerStatus, process, init, sidecar bool) *container {
	c := &container{spec: spec, init: init, sidecar: sidecar}
	c.state.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	for _, status := range statuses {
		if status.Name != spec.Name {
			continue
		}
		c.restarts, c.last = status.RestartCount, status.LastTerminationState
		switch {
		case status.State.Running != nil && !process:
			c.state, c.ready, c.started = status.State, status.Ready, true
		case status.State.Running != nil:
			c.restarts++
			c.last = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "NodeShutdown", Message: "the cluster was stopped",
				StartedAt: status.State.Running.StartedAt, FinishedAt: metav1.Now(),
			}}
		case status.State.Terminated != nil && init && status.State.Terminated.ExitCode == 0:
			c.state = status.State
		}
	}
	return c
}

// update processes a new version of the object of the pod.
func (p *pod) update(object *corev1.Pod) {
	p.mu.Lock()
	p.object = object
	p.mu.Unlock()
	if object.DeletionTimestamp != nil {
		p.die()
	}
	p.triggerReport()
}

// stopWithoutStatusWrites ends a pod whose object no longer exists in the API server.
func (p *pod) stopWithoutStatusWrites() { p.forget() }

// current returns the latest known version of the pod's object in the API server.
func (p *pod) current() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.object
}

// changeContainers calls f with the mutex locked, to change containers. changeContainers then triggers a write of the
// status.
func (p *pod) changeContainers(f func()) {
	p.mu.Lock()
	f()
	p.mu.Unlock()
	p.triggerReport()
}

func (p *pod) triggerReport() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// run runs the containers of a pod: first the init containers one after the other, and then all other containers. At
// the end of the pod, or when the pod is deleted, run writes the last status and removes the pod.
func (p *pod) run() {
	defer p.forget()
	p.ip = p.node.keepOrAssignPodIP(p.current())
	reported := make(chan struct{})
	stopReports := make(chan struct{})
	go func() {
		defer close(reported)
		p.writeStatusChanges(stopReports)
	}()
	defer p.removeFiles()

	var wg sync.WaitGroup
	if p.writeAndRefreshPodFiles() && p.runInitContainers(&wg) {
		var mains sync.WaitGroup
		for _, c := range p.main {
			mains.Go(func() { p.runRepeatedly(p.dead, c) })
		}
		mains.Wait()
	}
	over := p.dead.Err() == nil
	p.die() // sidecars end together with the other containers
	wg.Wait()
	close(stopReports)
	<-reported
	if p.gone.Err() != nil {
		return
	}
	p.writeFinalStatusWithRetry()
	if over && p.current().DeletionTimestamp == nil {
		p.awaitDeletionTimestamp()
	}
	p.deletePod()
}

// awaitDeletionTimestamp waits until the deletion of a pod whose containers have ended is requested.
func (p *pod) awaitDeletionTimestamp() {
	for p.current().DeletionTimestamp == nil {
		select {
		case <-p.changed:
		case <-p.gone.Done():
			return
		}
	}
}

// runInitContainers runs the init containers in their order. runInitContainers reports whether the other containers may
// start. Sidecars continue to run after the call; the caller waits for their end with wg.
func (p *pod) runInitContainers(wg *sync.WaitGroup) bool {
	for _, c := range p.init {
		if c.sidecar {
			wg.Go(func() { p.runRepeatedly(p.dead, c) })
			if !p.awaitReadyOrPodEnd(c) {
				return false
			}
			continue
		}
		if done := c.state.Terminated; done == nil || done.ExitCode != 0 {
			p.runRepeatedly(p.dead, c)
		}
		if p.dead.Err() != nil || !succeeded(c) {
			return false
		}
	}
	return true
}

func succeeded(c *container) bool {
	return c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
}

// awaitReadyOrPodEnd waits until a sidecar runs and is ready, or until the containers of the pod must stop.
func (p *pod) awaitReadyOrPodEnd(c *container) (isReady bool) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		p.mu.Lock()
		ok := c.ready
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-ticker.C:
		case <-p.dead.Done():
			return false
		}
	}
}

// end is the result of one run of a container.
type end struct {
	code    int32
	reason  string // Completed or Error
	message string
	signal  int32
}

// runRepeatedly starts a container repeatedly, as the restart policy of the pod requires. runRepeatedly returns when no
// restart is necessary or ctx ends.
func (p *pod) runRepeatedly(ctx context.Context, c *container) {
	if p.waitIfNeverStartsImage(ctx, c) {
		return
	}
	backOff := minBackOff
	for {
		begin := time.Now()
		var e end
		if image, ok := p.node.host.options.Images[imageRepository(c.spec.Image)]; ok {
			e = p.runAsProcess(ctx, c, image)
		} else {
			e = p.simulateByImageName(ctx, c)
		}
		again := c.sidecar
		switch p.current().Spec.RestartPolicy {
		case corev1.RestartPolicyAlways:
			again = again || !c.init || e.code != 0
		case corev1.RestartPolicyOnFailure:
			again = again || e.code != 0
		}
		again = again && ctx.Err() == nil
		var terminated corev1.ContainerState
		terminated.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: e.code, Signal: e.signal, Reason: e.reason, Message: e.message,
			StartedAt: metav1.NewTime(begin), FinishedAt: metav1.Now(), ContainerID: p.containerID(c),
		}
		if time.Since(begin) > steady {
			backOff = minBackOff
		}
		p.changeContainers(func() {
			c.ready, c.started = false, false
			if !again {
				c.state = terminated
				return
			}
			c.last = terminated
			c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff",
				Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", backOff, c.spec.Name,
					p.object.Name, p.object.Namespace, p.uid),
			}}
		})
		if !again {
			return
		}
		p.warn("BackOff", "Back-off restarting failed container %s in pod %s", c.spec.Name, p.current().Name)
		if !sleepUnlessDone(ctx, backOff) {
			p.changeContainers(func() { c.state, c.last = c.last, corev1.ContainerState{} })
			return
		}
		backOff = min(2*backOff, maxBackOff)
		p.changeContainers(func() { c.restarts++ })
	}
}

// waitIfNeverStartsImage keeps a container in the state waiting until ctx ends, if its image is "never-starts", which
// cannot be pulled. waitIfNeverStartsImage reports whether the image cannot be pulled.
func (p *pod) waitIfNeverStartsImage(ctx context.Context, c *container) (isUnpullable bool) {
	if imageBase(c.spec.Image) != "never-starts" {
		return false
	}
	cause := fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: %s: not found",
		c.spec.Image, c.spec.Image, c.spec.Image)
	p.changeContainers(func() {
		c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: cause}}
	})
	p.warn("Failed", "Failed to pull image %q: %s", c.spec.Image, cause)
	if sleepUnlessDone(ctx, minBackOff) {
		p.changeContainers(func() {
			c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: fmt.Sprintf(
					"Back-off pulling image %q: ErrImagePull: %s", c.spec.Image, cause),
			}}
		})
		<-ctx.Done()
	}
	return true
}

// simulateByImageName simulates one run of a container. The last element of the repository of the image decides the
// behaviour:
//
//	crash       fails immediately with exit code 1
//	slow-start  becomes ready after the duration in its tag, as in slow-start:10s; default 5 s
//	other       is ready immediately
//
// A container that is expected to end, in a Job or as an init container, then ends with success.
func (p *pod) simulateByImageName(ctx context.Context, c *container) end {
	name := imageBase(c.spec.Image)
	p.setRunning(c, name != "slow-start" && name != "crash")
	finite := c.init && !c.sidecar || p.current().Spec.RestartPolicy != corev1.RestartPolicyAlways
	switch {
	case name == "crash":
		if sleepUnlessDone(ctx, crashAfter) {
			return end{code: 1, reason: "Error", message: "simulated crash: the image's name says so"}
		}
	case name == "slow-start":
		delay := slowDefault
		if d, err := time.ParseDuration(imageTagOrEmpty(c.spec.Image)); err == nil {
			delay = d
		}
		if sleepUnlessDone(ctx, delay) && !finite {
			p.changeContainers(func() { c.ready = true })
			<-ctx.Done()
		}
	case finite:
		sleepUnlessDone(ctx, finishAfter)
	default:
		<-ctx.Done()
	}
	return end{reason: "Completed"}
}

// setRunning sets the state of a container to running.
func (p *pod) setRunning(c *container, ready bool) {
	p.changeContainers(func() {
		if c.state.Running == nil { // otherwise it has continued over a restart of the cluster
			c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		}
		c.started, c.ready = true, ready
	})
}

// sleepUnlessDone waits for the duration d. sleepUnlessDone reports false if ctx has ended.
func sleepUnlessDone(ctx context.Context, d time.Duration) (isElapsed bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// warn creates a warning event for the pod.
func (p *pod) warn(reason, format string, args ...any) {
	p.node.events.Eventf(p.current(), corev1.EventTypeWarning, reason, format, args...)
}

func (p *pod) containerID(c *container) string {
	return fmt.Sprintf("playground://%s/%s/%d", p.uid, c.spec.Name, c.restarts)
}

// gracePeriod returns the time between SIGTERM and SIGKILL for the processes of the pod.
func (p *pod) gracePeriod() time.Duration {
	if p.gone.Err() != nil { // the node shuts down, or the pod was deleted by force
		return stopGrace
	}
	if seconds := p.current().DeletionGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return defaultGrace
}

// writeStatusChanges writes the status each time it has changed, until stop is closed.
func (p *pod) writeStatusChanges(stop <-chan struct{}) {
	for {
		select {
		case <-p.changed:
		case <-stop:
			return
		}
		if !p.tryWriteStatus() && !sleepUnlessDone(p.gone, retryStatus) {
			return
		}
	}
}

// writeFinalStatusWithRetry writes the last status of a pod. If a write fails, writeFinalStatusWithRetry tries again
// until the context p.gone has ended.
func (p *pod) writeFinalStatusWithRetry() {
	for !p.tryWriteStatus() && sleepUnlessDone(p.gone, retryStatus) {
	}
}

// tryWriteStatus writes the status, unless the API server already has the same status. tryWriteStatus returns false if
// the write failed and must be retried.
func (p *pod) tryWriteStatus() (noRetry bool) {
	p.mu.Lock()
	object := p.object
	want := p.statusLocked()
	p.mu.Unlock()
	have := object.Status.DeepCopy()
	merged := have.DeepCopy()
	merged.Phase, merged.StartTime, merged.PodIP, merged.PodIPs, merged.HostIP, merged.HostIPs = want.Phase,
		want.StartTime, want.PodIP, want.PodIPs, want.HostIP, want.HostIPs
	merged.InitContainerStatuses, merged.ContainerStatuses, merged.QOSClass = want.InitContainerStatuses,
		want.ContainerStatuses, have.QOSClass
	for _, condition := range want.Conditions {
		i := slices.IndexFunc(merged.Conditions, func(c corev1.PodCondition) bool { return c.Type == condition.Type })
		if i < 0 {
			merged.Conditions = append(merged.Conditions, condition)
		} else {
			merged.Conditions[i] = condition
		}
	}
	if equality.Semantic.DeepEqual(have, merged) {
		return true
	}
	// The object from the watch may be older than the node's last write. Writing the same status again does no harm.
	patch, err := statusPatch(p.uid, have, merged)
	if err != nil {
		p.warn("Failed", "encoding the status: %v", err)
		return true
	}
	updated, err := p.node.client.CoreV1().Pods(object.Namespace).Patch(p.gone, object.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		if isPodGone(err) {
			p.stopWithoutStatusWrites()
			return true
		}
		p.triggerReport()
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.object == object { // otherwise the watch has already sent a newer object
		p.object = updated
	}
	return true
}

// statusPatch returns a patch with the difference between two statuses. The patch contains the UID, so it applies only
// to this pod.
func statusPatch(uid types.UID, from, to *corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: *from})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *to})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}

// isPodGone reports whether an error means that a pod no longer exists, or that another pod has its name.
func isPodGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// deletePod deletes a pod whose containers have ended.
func (p *pod) deletePod() {
	object := p.current()
	for p.gone.Err() == nil {
		err := p.node.client.CoreV1().Pods(object.Namespace).Delete(p.gone, object.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.uid},
		})
		if err == nil || isPodGone(err) || !sleepUnlessDone(p.gone, retryStatus) {
			return
		}
	}
}

// statusLocked computes the status from the containers.
func (p *pod) statusLocked() corev1.PodStatus {
	s := corev1.PodStatus{
		StartTime: &p.start, HostIP: p.node.server.ip(), HostIPs: []corev1.HostIP{{IP: p.node.server.ip()}},
		PodIP: p.ip, PodIPs: []corev1.PodIP{{IP: p.ip}},
	}
	initialized := true
	for _, c := range p.init {
		if c.sidecar && !c.started || !c.sidecar && !succeeded(c) {
			initialized = false
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, p.containerStatusLocked(c, ""))
	}
	ready := initialized
	waiting := ""
	if !initialized {
		waiting = "PodInitializing"
	}
	for _, c := range p.main {
		ready = ready && c.ready
		s.ContainerStatuses = append(s.ContainerStatuses, p.containerStatusLocked(c, waiting))
	}
	s.Phase = p.phaseLocked(initialized)
	over := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	reason := ""
	switch {
	case s.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case s.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case !ready:
		reason = "ContainersNotReady"
	}
	var unready []string
	for _, c := range p.main {
		if !c.ready {
			unready = append(unready, c.spec.Name)
		}
	}
	message := ""
	if reason == "ContainersNotReady" {
		message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	}
	all, allReason := ready, reason
	for _, gate := range p.object.Spec.ReadinessGates {
		if !slices.ContainsFunc(p.object.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		}) && all {
			all, allReason = false, "ReadinessGatesNotReady"
		}
	}
	p.conditions = []corev1.PodCondition{
		p.conditionLocked(corev1.PodReadyToStartContainers, !over, "", ""),
		p.conditionLocked(corev1.PodInitialized, initialized,
			map[bool]string{false: "ContainersNotInitialized"}[initialized], ""),
		p.conditionLocked(corev1.PodReady, all && !over, allReason, message),
		p.conditionLocked(corev1.ContainersReady, ready && !over, reason, message),
	}
	s.Conditions = p.conditions
	return s
}

// conditionLocked returns a condition with the time of the last change of its status.
func (p *pod) conditionLocked(kind corev1.PodConditionType, status bool, reason, message string) corev1.PodCondition {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.Now(), ObservedGeneration: p.object.Generation}
	if status {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
	}
	before := p.conditions
	if before == nil {
		before = p.object.Status.Conditions
	}
	for _, old := range before {
		if old.Type == kind && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return c
}

// phaseLocked returns the phase of the pod. The first row of this table that is true for the containers decides:
//
//	1 an init container has failed for good                       Failed
//	2 an init container is not done                                Pending
//	3 a container has never run                                    Pending
//	4 a container runs, or will again                              Running
//	5 all have ended, one of them with an error                    Failed
//	6 all have ended well                                          Succeeded
func (p *pod) phaseLocked(initialized bool) corev1.PodPhase {
	if !initialized {
		for _, c := range p.init {
			if done := c.state.Terminated; done != nil && done.ExitCode != 0 && !c.sidecar {
				return corev1.PodFailed
			}
		}
		return corev1.PodPending
	}
	active, failed := false, false
	for _, c := range p.main {
		switch {
		case c.state.Terminated != nil:
			failed = failed || c.state.Terminated.ExitCode != 0
		case c.state.Waiting != nil && c.last.Terminated == nil:
			return corev1.PodPending
		default:
			active = true
		}
	}
	switch {
	case active:
		return corev1.PodRunning
	case failed:
		return corev1.PodFailed
	default:
		return corev1.PodSucceeded
	}
}

// containerStatusLocked returns the status of a container. If the container waits for its first start, the parameter
// waiting replaces the reason in the status.
func (p *pod) containerStatusLocked(c *container, firstStartReason string) corev1.ContainerStatus {
	started := c.started
	s := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, State: c.state, LastTerminationState: c.last, RestartCount: c.restarts,
		Ready: c.ready, Started: &started,
	}
	if c.init && !c.sidecar {
		s.Ready = succeeded(c)
	}
	if firstStartReason != "" && s.State.Waiting != nil && s.State.Waiting.Reason == "ContainerCreating" {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: firstStartReason}
	}
	if s.State.Waiting == nil {
		s.ImageID = c.spec.Image
		s.ContainerID = p.containerID(c)
	}
	return s
}

// imageRepository returns the name of an image without tag and digest.
func imageRepository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		image = image[:colon]
	}
	return image
}

// imageBase returns the last element of the repository of an image.
func imageBase(image string) string {
	name := imageRepository(image)
	return name[strings.LastIndex(name, "/")+1:]
}

// imageTagOrEmpty returns the tag of an image, or "" if there is none.
func imageTagOrEmpty(image string) string {
	image, _, _ = strings.Cut(image, "@")
	return strings.TrimPrefix(strings.TrimPrefix(image, imageRepository(image)), ":")
}
