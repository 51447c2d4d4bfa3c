package console

// Outcome is the report of a command whose only result is a text about its action.
type Outcome struct {
	Object string `json:"object"`
	Result string `json:"result"`
}

// Names implements [Report].
func (s Outcome) Names() []string { return []string{s.Object} }

// Show implements [Report].
func (s Outcome) Show(p *Page) { p.Line("%s", s.Result) }

// Outcomes is the report of a command about its actions on several objects.
type Outcomes []Outcome

// Names implements [Report].
func (s Outcomes) Names() []string {
	var all []string
	for _, o := range s {
		all = append(all, o.Object)
	}
	return all
}

// Show implements [Report].
func (s Outcomes) Show(p *Page) {
	for _, o := range s {
		o.Show(p)
	}
}
