package content

// Level is how severe a finding is.
type Level string

// The levels of findings.
const (
	// Error means that the module cannot be built or would cause damage.
	Error Level = "error"
	// Warning means that something is probably a mistake.
	Warning Level = "warning"
	// Info means information that is useful before a release.
	Info Level = "info"
)

// Finding is a note to the module author about one file or object.
type Finding struct {
	// Level is Error, Warning or Info.
	Level Level `json:"level"`
	// The field Where contains the location of the problem: file:line, or the name of an object. The field Where is
	// never empty.
	Where string `json:"where"`
	// The field What contains the description of the problem, and how to solve it.
	What string `json:"what"`
}

// NewFinding returns a finding.
func NewFinding(level Level, where, what string) Finding {
	return Finding{Level: level, Where: where, What: what}
}

// String returns the location and the description of the finding as text.
func (f Finding) String() string { return f.Where + ": " + f.What }
