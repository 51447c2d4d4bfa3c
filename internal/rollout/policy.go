package rollout

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
)

// PolicyJudgement is what is found out about a policy.
type PolicyJudgement struct {
	// Modules and Channels are the numbers of modules, and of their channels, to which the policy applies.
	Modules, Channels int
	// Problems name the fields of the policy that are not valid, and the other policies that are equally specific for a
	// channel. While a policy has problems, no rollout begins with this policy.
	Problems []string
	// Reason is the code of the first problem.
	Reason string
	// Notes name the stages of the policy that contain no runtime: no runtime has the labels of the stage, or all
	// runtimes with these labels are in earlier stages.
	Notes []string
}

// Problem records a problem.
func (j *PolicyJudgement) Problem(code, text string) {
	if j.Reason == "" {
		j.Reason = code
	}
	j.Problems = append(j.Problems, text)
}

// JudgePolicy finds out whether a policy can be applied, and in how many modules and channels. The parameter all has
// all policies, the parameter releases has the releases of all modules, and the parameter kymas has the labels of all
// runtimes.
func JudgePolicy(policy *v1beta2.RolloutPolicy, all []v1beta2.RolloutPolicy, releases []v1beta2.ModuleReleaseMeta,
	kymas []v1beta2.Kyma) PolicyJudgement {
	is := PolicyJudgement{}
	is.judgeStages(policy.Spec.Stages, kymas)
	for i := range releases {
		before := is.Channels
		for _, channel := range channelsOf(&releases[i]) {
			if policy.MatchPrecedence(releases[i].Name, channel) == 0 || !policy.DeletionTimestamp.IsZero() {
				continue
			}
			found, err := PolicyFor(all, releases[i].Name, channel)
			switch {
			case err != nil && isConflictWith(err, policy.Name):
				is.Problem(v1beta2.ReasonPolicyConflict, err.Error())
			case found != nil && found.Name == policy.Name:
				is.Channels++
			}
		}
		if is.Channels > before {
			is.Modules++
		}
	}
	return is
}

// judgeStages checks the selectors of the stages: each has to be valid, and should select runtimes that are in no
// earlier stage.
func (j *PolicyJudgement) judgeStages(stages []v1beta2.RolloutStage, kymas []v1beta2.Kyma) {
	taken := make([]bool, len(kymas))
	for i := range stages {
		s := &stages[i]
		if s.Selector == nil {
			continue
		}
		selector, err := s.Selector.Selector().Compile()
		if err != nil {
			j.Problem(v1beta2.ReasonPolicyInvalid, fmt.Sprintf("spec.stages[%s].selector: %v", s.Name, err))
			continue
		}
		selected, own := 0, 0
		for k := range kymas {
			if !selector.Matches(labels.Set(kymas[k].Labels)) {
				continue
			}
			selected++
			if !taken[k] {
				taken[k] = true
				own++
			}
		}
		switch {
		case selected == 0:
			j.Notes = append(j.Notes, fmt.Sprintf("no runtime has the labels of stage %s", s.Name))
		case own == 0:
			j.Notes = append(j.Notes, fmt.Sprintf("all %d runtimes with the labels of stage %s are in earlier stages",
				selected, s.Name))
		}
	}
}

// isConflictWith reports whether err is a PolicyConflict between the named policy and an equally specific one.
func isConflictWith(err error, policy string) bool {
	conflict, ok := errors.AsType[*PolicyConflict](err)
	return ok && slices.Contains(conflict.Policies, policy)
}

// channelsOf returns the channels of a release.
func channelsOf(release *v1beta2.ModuleReleaseMeta) []string {
	if release.IsMandatory() {
		return []string{v1beta2.MandatoryChannel}
	}
	var all []string
	for _, c := range release.Spec.Channels {
		all = append(all, c.Channel)
	}
	return all
}
