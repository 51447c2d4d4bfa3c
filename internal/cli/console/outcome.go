package console

import ()

// Outcome is the report of a command whose only result is a text about its action.
type Outcome struct {
	Object string `json:"object"`
	Result string `json:"result"`
}

// Names implements [Report].
func (s Outcome) Names() []string { return []string{s.Object} }

// Show implements [Report].
func (s Outcome) Show(p *Page) { p.Line("%s", s.Result) }
