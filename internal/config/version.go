package config

import (
	"regexp"
	"runtime/debug"
)

// Version is the version of all programs of the project. The build of a release sets Version to the version of the
// release.
var Version = "0.1.0"

// notInLabels matches the characters that the value of a label cannot have.
var notInLabels = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// VersionLabelValue returns Version in a form that a label can have as its value.
func VersionLabelValue() string {
	value := notInLabels.ReplaceAllString(Version, "-")
	return value[:min(len(value), 63)]
}

// Build describes how a program was built.
type Build struct {
	Version string `json:"version"`
	// Commit is the commit from which the program was built. Commit is "" if the program was built outside of a
	// repository.
	Commit string `json:"commit,omitempty"`
	// Modified is true if the sources had changes that were not committed.
	Modified bool `json:"modified,omitempty"`
	// Go is the version of the compiler.
	Go string `json:"go,omitempty"`
}

// ReadBuild returns how this program was built, from the information that the compiler adds to the program.
func ReadBuild() Build {
	b := Build{Version: Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the build as one line, such as "0.1.0 (commit 78d6795d0c3f, go1.26.0)".
func (b Build) String() string {
	text := ""
	if b.Commit != "" {
		text = "commit " + b.Commit[:min(len(b.Commit), 12)]
		if b.Modified {
			text += " with changes"
		}
	}
	if b.Go != "" {
		if text != "" {
			text += ", "
		}
		text += b.Go
	}
	if text == "" {
		return b.Version
	}
	return b.Version + " (" + text + ")"
}
