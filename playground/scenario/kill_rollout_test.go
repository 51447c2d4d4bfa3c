package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/rollout/place"
	"github.com/kyma-fleet/lifecycle-manager/playground/landscape"
)

// staged is the module whose channel TestRolloutKilledAtEveryWrite moves.
const staged = "staged"

// stagedObject is the content of a version of the module.
const stagedObject = `
apiVersion: v1
kind: ConfigMap
metadata: {name: staged, namespace: kyma-system}
data: {version: VERSION}
`

// written matches the requests for objects of ours. The submatches are the resource, the name and the subresource.
var written = regexp.MustCompile(
	"^/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/([a-z]+)/?([^/]*)/?(status)?$")

// writeKiller kills the manager after its writes to the control plane. The manager does not get the response to the
// last write. The killer also checks that no runtime gets a version before a rollout has admitted it.
type writeKiller struct {
	*scenario
	mu         sync.Mutex
	isActive   bool            // a move is under way
	isKilled   bool            // the manager was killed, and no other one was started
	isRecorded bool            // the status of the release names the rollout of the present move
	once       map[string]bool // the kinds of writes of the present move after which the manager was killed before that
	kinds      map[string]bool // the kinds of writes after which the manager was killed
	wrong      []string        // runtimes that got a version before a rollout admitted it, and errors
}

// TestRolloutKilledAtEveryWrite moves a channel forward and back, with two stages and a runtime in each. The manager is
// killed after each of its writes, and started again. In the end each move is complete, and was recorded once. No
// runtime got a version before its stage admitted it.
//
// A manager that is killed after it has made a ModuleRollout, and before it has recorded that, leaves a ModuleRollout
// that the next manager adopts. Only one manager is killed after each of these writes.
func TestRolloutKilledAtEveryWrite(t *testing.T) {
	t.Parallel()
	k := &writeKiller{scenario: bringUpWith(t, landscape.Options{Runtimes: []string{"runtime-a", "runtime-b"},
		LongTimeouts: true, ManagerArgs: alive}), kinds: map[string]bool{}}
	if err := k.prepare(); err != nil {
		t.Fatal(err)
	}
	for i, version := range []string{"2.0.0", "1.0.0"} {
		kills, err := k.move(version, i+1)
		if err == nil {
			err = k.check(version, i+1)
		}
		if err != nil {
			t.Fatalf("moving the channel to %s, after %d kills: %v", version, kills, err)
		}
		t.Logf("the manager was killed %d times during the move to %s", kills, version)
	}
	for _, kind := range []string{"POST modulerollouts", "PATCH modulerollouts/status",
		"PATCH modulereleasemetas/status", "PATCH manifests", "PATCH manifests/status", "PATCH kymas/status"} {
		if !k.kinds[kind] {
			t.Errorf("the manager was never killed after %s, only after %v", kind, k.kinds)
		}
	}
}

// prepare installs the first version in both runtimes. Then prepare starts a manager whose writes pass the gate of the
// control plane.
func (k *writeKiller) prepare() error {
	const component = "kyma-project.io/module/" + staged
	for _, version := range []string{"1.0.0", "2.0.0"} {
		if err := k.land.PushAndCreateModuleTemplate(k.ctx, landscape.Module{Name: staged, Version: version,
			Component: component,
			Manifest:  []byte(strings.ReplaceAll(stagedObject, "VERSION", version))}); err != nil {
			return err
		}
	}
	kcp := k.land.Clients[landscape.ControlPlane]
	template := &v1beta2.ModuleTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: k.land.Namespace(),
		Name: v1beta2.ModuleTemplateName(staged, "2.0.0")}}
	if err := errors.Join(
		kcp.Patch(k.ctx, template, client.RawPatch(types.MergePatchType, []byte(
			`{"spec":{"upgrade":{"back":"1.0.0"}}}`))),
		k.land.SetChannels(k.ctx, staged, component, map[string]string{v1beta2.DefaultChannel: "1.0.0"}),
		kcp.Create(k.ctx, &v1beta2.RolloutPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.land.Namespace(), Name: "standard"},
			Spec: v1beta2.RolloutPolicySpec{Modules: v1beta2.RolloutModules{Names: []string{staged}},
				Stages: []v1beta2.RolloutStage{{Name: "own",
					Selector: &v1beta2.StageSelector{MatchLabels: map[string]string{"stage": "own"}}}, {Name: "rest"}}},
		})); err != nil {
		return err
	}
	for name, stage := range map[string]string{"runtime-a": "own", "runtime-b": "rest"} {
		labels := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"stage":%q}}}`, stage))
		if err := k.land.Register(k.ctx, name, v1beta2.DefaultChannel); err != nil {
			return err
		}
		if err := errors.Join(
			kcp.Patch(k.ctx, &v1beta2.Kyma{ObjectMeta: metav1.ObjectMeta{Namespace: k.land.Namespace(), Name: name}},
				labels),
			k.poll(func(ctx context.Context) (bool, string) {
				err := k.land.PatchDesiredKymaSpec(ctx, name, func(s *v1beta2.KymaSpec) {
					s.Modules = []v1beta2.Module{{Name: staged}}
				})
				return err == nil, fmt.Sprint(err)
			})); err != nil {
			return err
		}
	}
	if err := k.poll(func(ctx context.Context) (bool, string) { return k.isAt(ctx, "1.0.0", 0) }); err != nil {
		return err
	}
	gate, err := k.land.Gate(landscape.ControlPlane)
	if err != nil {
		return err
	}
	kubeconfig, err := gate.Kubeconfig()
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.land.KubeconfigPath("gate"), kubeconfig, 0o600); err != nil {
		return err
	}
	gate.InterceptWrites(k.observe)
	if err := k.land.Manager.Kill(); err != nil {
		return err
	}
	k.land.ManagerArgs = append(slices.Clone(alive), "--kubeconfig="+k.land.KubeconfigPath("gate"))
	return k.land.StartManagerWithoutWait(k.ctx)
}

// observe forwards a write, and kills the manager if it is time for that. observe reports whether the manager gets the
// response.
func (k *writeKiller) observe(r *http.Request, body []byte, forward func() int) bool {
	of := written.FindStringSubmatch(r.URL.Path)
	if of == nil {
		forward()
		return true
	}
	// If the context has ended, the manager was killed before the check. The next manager may have ended the rollout by
	// now, so that nothing shows any more whether the runtime was admitted at the time of the write.
	if of[1] == "manifests" && of[3] == "" && r.Context().Err() == nil &&
		bytes.Contains(body, []byte(v1beta2.AnnotationRequestedVersion)) {
		// Not with the context of the request: it ends if the manager is killed after another write meanwhile.
		k.checkAdmission(k.ctx, of[2])
	}
	code := forward()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.isActive || code >= http.StatusBadRequest {
		return !k.isKilled
	}
	kind := strings.TrimSuffix(r.Method+" "+of[1]+"/"+of[3], "/")
	wasRecorded := k.isRecorded
	k.isRecorded = wasRecorded || of[1] == "modulereleasemetas" && bytes.Contains(body, []byte(`"rollout":"`+staged))
	if k.isKilled { // after a concurrent write: the manager does not get the response to this one either
		k.kinds[kind] = true
		return false
	}
	if !wasRecorded {
		step := kind
		if k.isRecorded {
			step += ", which records the rollout"
		}
		if k.once[step] {
			return true
		}
		k.once[step] = true
	}
	k.kinds[kind], k.isKilled = true, true
	if err := k.land.Manager.Kill(); err != nil {
		k.wrong = append(k.wrong, err.Error())
	}
	return false
}

// checkAdmission records a version that is ordered for a runtime before the rollout has admitted this runtime.
func (k *writeKiller) checkAdmission(ctx context.Context, manifest string) {
	kcp, in := k.land.Clients[landscape.ControlPlane], k.land.Namespace()
	is, kyma, release, r := &v1beta2.Manifest{}, &v1beta2.Kyma{}, &v1beta2.ModuleReleaseMeta{}, &v1beta2.ModuleRollout{}
	err := errors.Join(kcp.Get(ctx, client.ObjectKey{Namespace: in, Name: manifest}, is),
		kcp.Get(ctx, client.ObjectKey{Namespace: in, Name: staged}, release))
	name, rollout := is.Labels[v1beta2.LabelKymaName], ""
	if s := release.ChannelStatus(v1beta2.DefaultChannel); s != nil {
		rollout = s.Rollout
	}
	err = errors.Join(err, kcp.Get(ctx, client.ObjectKey{Namespace: in, Name: name}, kyma),
		kcp.Get(ctx, client.ObjectKey{Namespace: in, Name: rollout}, r))
	places, invalid := place.New(r)
	if err = errors.Join(err, invalid); err != nil {
		k.record(fmt.Sprintf("%s gets a version, and its rollout %q: %v", manifest, rollout, err))
		return
	}
	at := places.Of(name, kyma.Labels)
	if at.Stage > int(r.Status.Stage.Index) || !place.IsAdmitted(r.Status.Admitted, at.Token) {
		k.record(fmt.Sprintf("%s gets a version, and %s has not admitted it in stage %d: %s", name, rollout, at.Stage,
			text(r.Status)))
	}
}

func (k *writeKiller) record(wrong string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrong = append(k.wrong, wrong)
}

// maxKills is more than the number of writes during a move. The writes of a manager that makes no progress exceed it.
const maxKills = 1000

// move sets the version of the channel, and starts the manager after each kill until both runtimes have the version.
// Each start of the manager has the time of a poll to lead to the next kill or to the end.
func (k *writeKiller) move(version string, moves int) (kills int, err error) {
	k.mu.Lock()
	k.isActive, k.isRecorded, k.once = true, false, map[string]bool{}
	k.mu.Unlock()
	if err := k.land.SetChannels(k.ctx, staged, "kyma-project.io/module/"+staged,
		map[string]string{v1beta2.DefaultChannel: version}); err != nil {
		return 0, err
	}
	restart := func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.isKilled {
			return nil
		}
		kills++
		k.isKilled = false
		return k.land.StartManagerAgain()
	}
	for isDone := false; err == nil && !isDone; {
		before := kills
		if before >= maxKills {
			err = fmt.Errorf("the move does not end, and the manager was killed %d times", kills)
			break
		}
		err = k.poll(func(ctx context.Context) (bool, string) {
			if err := restart(); err != nil {
				return false, err.Error()
			}
			var seen string
			isDone, seen = k.isAt(ctx, version, moves)
			return isDone || kills > before, seen
		})
	}
	k.mu.Lock()
	k.isActive = false
	k.mu.Unlock()
	err = errors.Join(err, restart()) // it may have been killed after the last write
	return kills, err
}

// isAt reports whether both runtimes are Ready with a version, and the channel has recorded a number of moves.
func (k *writeKiller) isAt(ctx context.Context, version string, moves int) (bool, string) {
	kcp := k.land.Clients[landscape.ControlPlane]
	release := &v1beta2.ModuleReleaseMeta{}
	if err := kcp.Get(ctx, client.ObjectKey{Namespace: k.land.Namespace(), Name: staged}, release); err != nil {
		return false, err.Error()
	}
	s := release.ChannelStatus(v1beta2.DefaultChannel)
	if s == nil || s.Version != version || s.Target != version || s.Rollout != "" || len(s.History) <= moves {
		return false, text(release.Status)
	}
	for _, name := range []string{"runtime-a", "runtime-b"} {
		is := &v1beta2.Kyma{}
		if err := kcp.Get(ctx, client.ObjectKey{Namespace: k.land.Namespace(), Name: name}, is); err != nil {
			return false, err.Error()
		}
		if m := is.ModuleStatus(staged); is.Status.State != v1beta2.StateReady || m == nil || m.Version != version {
			return false, text(is.Status)
		}
	}
	return true, ""
}

// check compares the state after a move with the state that a manager without a kill leaves: one ModuleRollout for each
// move.
func (k *writeKiller) check(version string, moves int) error {
	kcp := k.land.Clients[landscape.ControlPlane]
	release, all := &v1beta2.ModuleReleaseMeta{}, &v1beta2.ModuleRolloutList{}
	if err := errors.Join(
		kcp.Get(k.ctx, client.ObjectKey{Namespace: k.land.Namespace(), Name: staged}, release),
		kcp.List(k.ctx, all, client.InNamespace(k.land.Namespace()))); err != nil {
		return err
	}
	var errs []error
	history := release.ChannelStatus(v1beta2.DefaultChannel).History
	if len(history) != moves+1 { // the first version is the first entry
		errs = append(errs, fmt.Errorf("%d moves are recorded as %s", moves, text(history)))
	}
	completed := 0
	for i := range all.Items {
		switch r := &all.Items[i]; {
		case slices.ContainsFunc(history, func(m v1beta2.ChannelMove) bool { return m.Revision == r.Spec.Revision }):
			if completed++; r.Status.Phase != v1beta2.RolloutCompleted || r.Status.Runtimes.Proven != 2 {
				errs = append(errs, fmt.Errorf("ModuleRollout %s: %s", r.Name, text(r.Status)))
			}
		default:
			errs = append(errs, fmt.Errorf("ModuleRollout %s, which is not adopted: %s", r.Name, text(r.Status)))
		}
	}
	for _, move := range history {
		if move.Outcome != v1beta2.RolloutCompleted {
			errs = append(errs, fmt.Errorf("a move was recorded as %s", text(move)))
		}
	}
	if completed != moves {
		errs = append(errs, fmt.Errorf("%d rollouts for %d moves: %s", completed, moves, text(all.Items)))
	}
	for _, name := range []string{"runtime-a", "runtime-b"} {
		is := &corev1.ConfigMap{}
		err := k.land.Clients[name].Get(k.ctx, client.ObjectKey{Namespace: v1beta2.RuntimeNamespace, Name: staged}, is)
		if is.Data["version"] != version {
			errs = append(errs, err, fmt.Errorf("%s has version %q, not %s", name, is.Data["version"], version))
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, wrong := range k.wrong {
		errs = append(errs, errors.New(wrong))
	}
	return errors.Join(errs...)
}
