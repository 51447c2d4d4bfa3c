package v1beta2

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// summaryLimit is the maximum number of characters of status.summary of a Kyma.
const summaryLimit = 1024

// Summarize returns the text of status.summary for the modules of a Kyma.
func Summarize(modules []ModuleStatus) string {
	const rest = len(", and 250 more") // a Kyma has at most 250 modules
	var b strings.Builder
	for i := range modules {
		part := summaryOf(&modules[i])
		if i > 0 {
			part = ", " + part
		}
		if b.Len()+len(part)+rest > summaryLimit {
			more := fmt.Sprintf("and %d more", len(modules)-i)
			if i > 0 {
				more = ", " + more
			}
			return b.String() + more
		}
		b.WriteString(part)
	}
	return b.String()
}

// summaryOf returns the part of the summary about one module. A name that could not be the name of a module is quoted,
// so that the summary can be parsed again.
func summaryOf(m *ModuleStatus) string {
	text := m.Name
	if !moduleName.MatchString(text) {
		text = fmt.Sprintf("%q", text)
	}
	if m.Version != "" {
		text += "@" + m.Version
	}
	var details []string
	if m.Channel != "" {
		details = append(details, m.Channel)
	}
	if m.State != StateReady && m.State != StateUnknown {
		details = append(details, string(m.State))
	}
	if m.Reason != "" {
		details = append(details, m.Reason)
	}
	if len(details) > 0 {
		text += " (" + strings.Join(details, ", ") + ")"
	}
	return text
}

var moduleName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// ParseSummary returns the name, the version, the channel, the state and the reason of each module in a text of
// [Summarize]. ok is false if the text omits modules, or was not made by Summarize.
func ParseSummary(text string) (modules []ModuleStatus, ok bool) {
	for more := text != ""; more; {
		var details string
		end := strings.Index(text, ", ")
		open := strings.Index(text, " (")
		head := text
		switch {
		case open >= 0 && (end < 0 || open < end):
			shut := strings.IndexByte(text, ')')
			if shut < open {
				return nil, false
			}
			head, details, text = text[:open], text[open+2:shut], text[shut+1:]
			if text, more = strings.CutPrefix(text, ", "); !more && text != "" {
				return nil, false
			}
		case end >= 0:
			head, text = text[:end], text[end+2:]
		default:
			more = false
		}
		m := ModuleStatus{State: StateReady}
		m.Name, m.Version, _ = strings.Cut(head, "@")
		if !moduleName.MatchString(m.Name) {
			return nil, false
		}
		if details != "" {
			m.parseSummaryDetails(details)
		}
		modules = append(modules, m)
	}
	return modules, true
}

// parseSummaryDetails sets the channel, the state and the reason of a module from the text that the summary has in
// parentheses after the version.
func (m *ModuleStatus) parseSummaryDetails(text string) {
	for word := range strings.SplitSeq(text, ", ") {
		switch state := State(word); {
		case strings.ToLower(word) == word:
			m.Channel = word
		case m.State == StateReady && slices.Contains([]State{StateProcessing, StateDeleting, StateError, StateWarning,
			StateUnmanaged}, state):
			m.State = state
		default:
			m.Reason = word
		}
	}
}
