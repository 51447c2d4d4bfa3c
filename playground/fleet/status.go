package fleet

import (
	"encoding/json"
	"reflect"
)

// newCondition returns a condition of a status. The lastTransitionTime of the condition is the present time.
func newCondition(kind, status, reason, message string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message,
		"lastTransitionTime": nowToken}
}

// settledStatusPatch returns a merge patch with the final status of an object, which the controllers of a real cluster
// would set in the end. settledStatusPatch returns nil if the object already has the final status. The parameter
// tokenized and the returned patch contain tokens in place of the values of the cluster, such as times.
func settledStatusPatch(group string, v *body, tokenized []byte) []byte {
	make := statuses[group+"/"+v.kind]
	if make == nil {
		return nil
	}
	var o map[string]any
	if json.Unmarshal(tokenized, &o) != nil {
		return nil
	}
	spec, _ := o["spec"].(map[string]any)
	want := make(v, spec)
	if want == nil {
		return nil
	}
	data, err := json.Marshal(map[string]any{"status": want})
	if err != nil {
		return nil
	}
	var again struct {
		Status map[string]any `json:"status"`
	}
	if json.Unmarshal(data, &again) != nil {
		return nil
	}
	now, _ := o["status"].(map[string]any)
	if hasFieldsIgnoringTimes(now, again.Status) {
		return nil
	}
	return data
}

// hasFieldsIgnoringTimes compares two JSON values: it reports whether the present value has all wanted fields. If a
// wanted field is the present time, any value counts as equal. If a wanted field has a zero value, the field may be
// absent.
func hasFieldsIgnoringTimes(now, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m, _ := now.(map[string]any)
		for key, value := range want {
			if value == nowToken {
				if m[key] == nil {
					return false
				}
				continue
			}
			if !hasFieldsIgnoringTimes(m[key], value) {
				return false
			}
		}
		return true
	case []any:
		list, _ := now.([]any)
		if len(list) != len(want) {
			return false
		}
		for i := range want {
			if !hasFieldsIgnoringTimes(list[i], want[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(now, want) || now == nil && reflect.ValueOf(want).IsZero()
	}
}

// statuses has the functions that return the final status of an object, by kind.
var statuses = map[string]func(v *body, spec map[string]any) map[string]any{
	"apps/Deployment":                   deploymentStatus,
	"apps/StatefulSet":                  statefulSetStatus,
	"apps/DaemonSet":                    daemonSetStatus,
	"apps/ReplicaSet":                   replicaSetStatus,
	"batch/Job":                         jobStatus,
	"/Pod":                              podStatus,
	"/PersistentVolumeClaim":            claimStatus,
	"policy/PodDisruptionBudget":        budgetStatus,
	"apiregistration.k8s.io/APIService": apiServiceStatus,
	"apiextensions.k8s.io/CustomResourceDefinition": definitionStatus,
}

func desiredReplicas(spec map[string]any) any {
	if n, ok := spec["replicas"]; ok {
		return n
	}
	return 1
}

func deploymentStatus(v *body, spec map[string]any) map[string]any {
	n := desiredReplicas(spec)
	available := newCondition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
	progressing := newCondition("Progressing", "True", "NewReplicaSetAvailable",
		"ReplicaSet of the newest template has successfully progressed.")
	available["lastUpdateTime"], progressing["lastUpdateTime"] = nowToken, nowToken
	return map[string]any{"observedGeneration": v.generation, "replicas": n, "updatedReplicas": n,
		"readyReplicas": n, "availableReplicas": n,
		"conditions": []any{available, progressing}}
}

func statefulSetStatus(v *body, spec map[string]any) map[string]any {
	n := desiredReplicas(spec)
	return map[string]any{"observedGeneration": v.generation, "replicas": n, "updatedReplicas": n, "readyReplicas": n,
		"availableReplicas": n, "currentReplicas": n,
		"currentRevision": v.name + "-1", "updateRevision": v.name + "-1", "collisionCount": 0}
}

func daemonSetStatus(v *body, _ map[string]any) map[string]any {
	return map[string]any{"observedGeneration": v.generation, "currentNumberScheduled": 1,
		"desiredNumberScheduled": 1, "numberReady": 1,
		"updatedNumberScheduled": 1, "numberAvailable": 1, "numberMisscheduled": 0}
}

func replicaSetStatus(v *body, spec map[string]any) map[string]any {
	n := desiredReplicas(spec)
	return map[string]any{"observedGeneration": v.generation, "replicas": n, "readyReplicas": n,
		"availableReplicas": n, "fullyLabeledReplicas": n}
}

func jobStatus(_ *body, spec map[string]any) map[string]any {
	if spec["suspend"] == true {
		return nil
	}
	n, ok := spec["completions"]
	if !ok {
		n = 1
	}
	criteria := newCondition("SuccessCriteriaMet", "True", "CompletionsReached",
		"Reached expected number of succeeded pods")
	complete := newCondition("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods")
	criteria["lastProbeTime"], complete["lastProbeTime"] = nowToken, nowToken
	return map[string]any{"startTime": nowToken, "completionTime": nowToken, "succeeded": n, "ready": 0,
		"terminating": 0, "uncountedTerminatedPods": map[string]any{},
		"conditions": []any{criteria, complete}}
}

func podStatus(v *body, spec map[string]any) map[string]any {
	var conditions, containers []any
	for _, kind := range []string{"PodReadyToStartContainers", "Initialized", "Ready",
		"ContainersReady", "PodScheduled"} {
		conditions = append(conditions, map[string]any{"type": kind, "status": "True", "lastTransitionTime": nowToken})
	}
	list, _ := spec["containers"].([]any)
	for _, one := range list {
		c, _ := one.(map[string]any)
		containers = append(containers, map[string]any{"name": c["name"], "image": c["image"], "imageID": c["image"],
			"ready": true, "started": true, "restartCount": 0,
			"state": map[string]any{"running": map[string]any{"startedAt": nowToken}}})
	}
	return map[string]any{"phase": "Running", "conditions": conditions,
		"containerStatuses": containers, "startTime": nowToken}
}

func claimStatus(_ *body, spec map[string]any) map[string]any {
	want := map[string]any{"phase": "Bound", "accessModes": spec["accessModes"]}
	if resources, ok := spec["resources"].(map[string]any); ok && resources["requests"] != nil {
		want["capacity"] = resources["requests"]
	}
	return want
}

func budgetStatus(v *body, _ map[string]any) map[string]any {
	return map[string]any{"observedGeneration": v.generation, "currentHealthy": 1, "desiredHealthy": 0,
		"disruptionsAllowed": 1, "expectedPods": 1}
}

func apiServiceStatus(_ *body, spec map[string]any) map[string]any {
	if spec["service"] == nil {
		return map[string]any{"conditions": []any{newCondition("Available", "True", "Local",
			"Local APIServices are always available")}}
	}
	return map[string]any{"conditions": []any{newCondition("Available", "True", "Passed", "all checks passed")}}
}

func definitionStatus(v *body, spec map[string]any) map[string]any {
	if v.definition == nil || v.definition.isEstablishedWithSpecNames() {
		return nil
	}
	return map[string]any{"acceptedNames": spec["names"], "conditions": []any{
		newCondition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
		newCondition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
	}}
}
