package content

// Level is the severity of a finding.
type Level string

// The levels.
const (
	// Error: the module cannot be built, or would cause damage.
	Error Level = "error"
	// Warning: this is probably a mistake.
	Warning Level = "warning"
	// Info: useful information before a release.
	Info Level = "info"
)

// Finding is a note to the author about one file or object.
type Finding struct {
	// Level is Error, Warning or Info.
	Level Level `json:"level"`
	// Where is file:line, or an object; never empty.
	Where string `json:"where"`
	// What describes the problem and what to do.
	What string `json:"what"`
}

// NewFinding returns a finding.
func NewFinding(level Level, where, what string) Finding {
	return Finding{Level: level, Where: where, What: what}
}

// String returns the finding in one line.
func (f Finding) String() string { return f.Where + ": " + f.What }
