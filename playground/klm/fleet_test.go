package klm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/crds"
	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// size is the number of Kymas in a large fleet.
const size = 10_000

// mostBytes is the maximum memory that klm status may use for a large fleet.
const mostBytes = 200 << 20

// kymaNumber returns a Kyma with five modules, with the status that a manager has written. One Kyma in a hundred is in
// state Error.
func kymaNumber(n int) *v1beta2.Kyma {
	now := metav1.NewTime(time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC))
	k := &v1beta2.Kyma{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: "Kyma"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("runtime-%05d", n), Namespace: v1beta2.ControlPlaneNamespace,
			Labels: map[string]string{"kyma-project.io/region": "eu-central-1"}},
		Spec: v1beta2.KymaSpec{Channel: "regular"},
		Status: v1beta2.KymaStatus{State: v1beta2.StateReady, ObservedGeneration: 1, ModulesReady: "5/5",
			LastOperation: v1beta2.LastOperation{Operation: v1beta2.OperationReady, LastUpdateTime: now}},
	}
	if n%100 == 0 {
		k.Status.State = v1beta2.StateError
	}
	for _, kind := range []string{v1beta2.ConditionCRDsSync, v1beta2.ConditionModules, v1beta2.ConditionModuleCatalog,
		v1beta2.ConditionReady, v1beta2.ConditionSKRWebhook} {
		k.Status.Conditions = append(k.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue,
			Reason: v1beta2.ReasonReady, Message: "all is as it should be", LastTransitionTime: now})
	}
	for i := range 5 {
		name := "module-" + strings.Repeat(string(rune('a'+i)), 3)
		k.Spec.Modules = append(k.Spec.Modules, v1beta2.Module{Name: name})
		e := v1beta2.ModuleStatus{
			Name: name, FQDN: "kyma-project.io/module/" + name, OCMComponentName: "kyma-project.io/module/" + name,
			Channel: "regular", Version: fmt.Sprintf("1.%d.0", n%3), State: v1beta2.StateReady,
			Manifest: &v1beta2.ObjectReference{APIVersion: v1beta2.GroupVersion.String(), Kind: "Manifest",
				Metadata: v1beta2.ObjectReferenceMeta{Name: k.Name + "-" + name + "-12345678",
					Namespace: k.Namespace, Generation: 1}},
			Template: &v1beta2.ObjectReference{APIVersion: v1beta2.GroupVersion.String(), Kind: "ModuleTemplate",
				Metadata: v1beta2.ObjectReferenceMeta{Name: name + "-1.0.0", Namespace: k.Namespace, Generation: 1}},
		}
		if k.Status.State == v1beta2.StateError && i == 0 {
			e.State, e.Reason, e.Message = v1beta2.StateError, v1beta2.ReasonWorkloadFailed,
				"Deployment kyma-system/"+name+" cannot become ready: look at its pods"
		}
		k.Status.Modules = append(k.Status.Modules, e)
	}
	k.Status.Summary = v1beta2.Summarize(k.Status.Modules)
	k.Status.Agent = &v1beta2.AgentStatus{Connected: true, Version: "1.0.0", Since: now}
	return k
}

// fakeControlPlane starts a server that serves only a list of n Kymas, in pages.
func fakeControlPlane(t *testing.T, n int) string {
	items := make([]json.RawMessage, n)
	for i := range items {
		k := kymaNumber(i)
		k.UID, k.ResourceVersion, k.Generation = "2c9a4b5e-0f4c-4a53-9a4f-5bb9a2b3c4d5", strconv.Itoa(1000+i), 1
		fields := &metav1.FieldsV1{}
		fields.SetRawString(`{"f:status":{` + strings.Repeat(`"f:something":{".":{},"f:name":{},"f:state":{}},`, 40) +
			`"f:state":{}}}`)
		k.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "lifecycle-manager",
			Operation: metav1.ManagedFieldsOperationApply, APIVersion: v1beta2.GroupVersion.String(),
			FieldsType: "FieldsV1", FieldsV1: fields}}
		data, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		items[i] = data
	}
	t.Logf("%d Kymas of %d bytes", n, len(items[1]))
	base := "/apis/" + v1beta2.GroupVersion.String()
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, o any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(o); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, _ *http.Request) {
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
			GroupVersion: v1beta2.GroupVersion.String()}
		for _, name := range []string{"kymas", "manifests", "moduletemplates", "modulereleasemetas", "watchers"} {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		reply(w, list)
	})
	mux.HandleFunc("GET "+base+"/namespaces/kcp-system/kymas", func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		to, next := n, ""
		if limit > 0 && from+limit < n {
			to = from + limit
			next = strconv.Itoa(to)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":%q,"items":[`, v1beta2.GroupVersion.String())
		for i := from; i < to; i++ {
			if i > from {
				fmt.Fprint(w, ",")
			}
			if _, err := w.Write(items[i]); err != nil {
				return // the client has disconnected
			}
		}
		fmt.Fprintf(w, `],"kind":"KymaList","metadata":{"continue":%q,"resourceVersion":"99999"}}`, next)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return kubeconfigFor(t, &rest.Config{Host: server.URL})
}

// kubeconfigFor writes a kubeconfig with the address and the credentials in c, and returns its path.
func kubeconfigFor(t testing.TB, c *rest.Config) string {
	config := clientcmdapi.NewConfig()
	config.Clusters["large"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos["large"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData,
		ClientKeyData: c.KeyData, Token: c.BearerToken}
	config.Contexts["large"] = &clientcmdapi.Context{Cluster: "large", AuthInfo: "large"}
	config.CurrentContext = "large"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// cost is the time and the memory of a run of klm.
type cost struct {
	seconds float64
	cpu     float64 // processor time in seconds
	bytes   int64
	out     string
}

func measure(t testing.TB, kubeconfig string, args ...string) cost {
	t.Helper()
	var out bytes.Buffer
	c := exec.Command(filepath.Join(bin, "klm"), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "GOGC=100") // the default, as for users
	c.Stdout, c.Stderr = &out, os.Stderr
	begin := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done, peak := make(chan struct{}), make(chan int64)
	go func() { peak <- peakOf(c.Process.Pid, done) }()
	err := c.Wait()
	took := time.Since(begin).Seconds()
	close(done)
	if err != nil {
		t.Fatalf("klm %q: %v", args, err)
	}
	cpu := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return cost{took, cpu.Seconds(), <-peak, out.String()}
}

// peakOf returns the peak memory of a process in bytes. peakOf reads the value from /proc again and again until the
// channel done is closed. The system also reports a value when the process has ended, but this value includes memory of
// the test, from which the process was forked.
func peakOf(pid int, done <-chan struct{}) (most int64) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, rest, found := strings.Cut(string(data), "VmHWM:"); err == nil && found {
			if kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64); err == nil {
				most = max(most, kib<<10)
			}
		}
		select {
		case <-done:
			return most
		case <-ticker.C:
		}
	}
}

// TestLargeFleet checks the memory and the output of klm status for a large fleet. BenchmarkStatus measures how long
// klm status takes with a real API server.
func TestLargeFleet(t *testing.T) {
	kubeconfig := fakeControlPlane(t, size)
	c := measure(t, kubeconfig, "status")
	t.Logf("klm status over %d runtimes: %.2f s, of processors %.2f s, %d MiB", size, c.seconds, c.cpu, c.bytes>>20)
	if c.bytes >= mostBytes {
		t.Errorf("klm status took %d MiB, which should be less than %d MiB", c.bytes>>20, mostBytes>>20)
	}
	for _, want := range []string{"10000 runtimes", "100 Error", "9900 Ready", "module-aaa   1.2.0     regular   3333",
		"WorkloadFailed   100"} {
		if !strings.Contains(c.out, want) {
			t.Errorf("klm status does not say %q:\n%s", want, c.out)
		}
	}
	if c := measure(t, kubeconfig, "runtime", "list", "-o", "name"); strings.Count(c.out, "\n") != size {
		t.Errorf("klm runtime list has %d lines", strings.Count(c.out, "\n"))
	}
}

// BenchmarkStatus measures klm with 10,000 Kymas of 6 kB in a real API server. With --worst=101, klm status reads the
// Kymas in the way that it uses for CRDs without columns for the versions of modules.
//
//	klm status               1.0 s, of which 0.6 s of a processor of the API server; 96 MiB    (two processors, busy with other work)
//	klm status --worst=101   6.7 s, 3.3 s of the API server, which has to encode 60 MB; 89 MiB
//	klm runtime list         7.1 s, 3.6 s of the API server; 93 MiB; it read whole Kymas at that time
func BenchmarkStatus(b *testing.B) {
	ctx := b.Context()
	host, err := cluster.Open(ctx, cluster.Options{Bare: true})
	if err != nil {
		b.Fatal(err)
	}
	defer host.Close() //nolint:errcheck // the benchmark is over
	c, err := host.Start(ctx, "large")
	if err != nil {
		b.Fatal(err)
	}
	createKymas(ctx, b, c.Config())
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, c.Kubeconfig(), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, {"status", "--worst=101"}, {"why", "runtime-00001"},
		{"runtime", "list"}} {
		b.Run(strings.Join(args, "_"), func(b *testing.B) {
			var most int64
			var cpu float64
			before := processorTime(b)
			for b.Loop() {
				c := measure(b, kubeconfig, args...)
				most, cpu = max(most, c.bytes), cpu+c.cpu
			}
			b.ReportMetric(float64(most>>20), "MiB")
			b.ReportMetric(cpu/float64(b.N), "klm-cpu-s/op")
			b.ReportMetric((processorTime(b)-before)/float64(b.N), "server-cpu-s/op")
		})
	}
}

// processorTime returns the processor time of this process in seconds. The API server runs in this process.
func processorTime(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// createKymas creates a large fleet.
func createKymas(ctx context.Context, b *testing.B, config *rest.Config) {
	kinds := runtime.NewScheme()
	if err := v1beta2.AddToScheme(kinds); err != nil {
		b.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	admin, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		b.Fatal(err)
	}
	installCRDs(ctx, b, admin)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(32)
	for n := range size {
		all.Go(func() error {
			k := kymaNumber(n)
			status := k.Status
			if err := admin.Create(ctx, k); err != nil {
				return err
			}
			k.Status = status
			return admin.Status().Update(ctx, k)
		})
	}
	if err := all.Wait(); err != nil {
		b.Fatal(err)
	}
}

// installCRDs installs our CRDs and the namespace, and waits until the kinds are served.
func installCRDs(ctx context.Context, b *testing.B, admin client.Client) {
	for _, crd := range crds.All() {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			b.Fatal(err)
		}
		create(ctx, b, admin, fields)
	}
	create(ctx, b, admin, map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": v1beta2.ControlPlaneNamespace}})
	for end := time.Now().Add(deadline); ; {
		err := admin.List(ctx, &v1beta2.WatcherList{})
		if err == nil {
			err = admin.List(ctx, &v1beta2.KymaList{})
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			b.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

func create(ctx context.Context, b *testing.B, admin client.Client, fields map[string]any) {
	if err := admin.Create(ctx, &unstructured.Unstructured{Object: fields}); err != nil {
		b.Fatal(err)
	}
}
