package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector selects objects by their labels. In JSON, Selector has the form of the label selector of Kubernetes.
// Selector is a Go type of its own so that the CRD has rules by which the API server rejects invalid expressions.
// +structType=atomic
type Selector struct {
	// matchLabels are labels with values that an object must have. Empty: no condition.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// matchExpressions are conditions on labels that must all be met. Empty: no condition. At most 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=100
	MatchExpressions []SelectorRequirement `json:"matchExpressions,omitempty"`
}

// SelectorRequirement is a condition on one label.
// +kubebuilder:validation:XValidation:rule="self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",fieldPath=".values",message="values are needed with the operators In and NotIn, and not allowed with Exists and DoesNotExist"
type SelectorRequirement struct {
	// key is the key of the label.
	Key string `json:"key"`

	// operator defines how the label and the values are compared: the label has one of the values (In), has none of
	// them (NotIn), exists (Exists), or does not exist (DoesNotExist).
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values are the values for the operators In and NotIn. Empty for the other operators.
	// +optional
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// IsEmpty reports whether the selector has no condition. A nil selector is empty.
func (s *Selector) IsEmpty() bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

// Compile converts the selector for matching and listing. A nil selector selects nothing; an empty selector selects
// everything. The error of Compile names the invalid label key or value.
func (s *Selector) Compile() (labels.Selector, error) {
	if s == nil {
		return labels.Nothing(), nil
	}
	selector := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement(e))
	}
	return metav1.LabelSelectorAsSelector(selector)
}
