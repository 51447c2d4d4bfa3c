package content

// Level says how grave a finding is.
type Level string

// The levels.
const (
	// Error: the module cannot be built, or would do harm.
	Error Level = "error"
	// Warning: it is rarely meant so.
	Warning Level = "warning"
	// Info: worth knowing before a release.
	Info Level = "info"
)

// Finding is something that an author should know.
type Finding struct {
	// Level is Error, Warning or Info.
	Level Level `json:"level"`
	// Where it is: file:line, or an object; never empty.
	Where string `json:"where"`
	// What is so, and what to do.
	What string `json:"what"`
}

// NewFinding returns a finding.
func NewFinding(level Level, where, what string) Finding {
	return Finding{Level: level, Where: where, What: what}
}

// String is the finding in one line.
func (f Finding) String() string { return f.Where + ": " + f.What }
