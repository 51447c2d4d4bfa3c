package docs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Page is a page of the documentation.
type Page struct {
	File   string
	Blocks []Block
}

// Block is the text between two fences of a page.
type Block struct {
	// Kind is the word behind the first fence. "" is a block of lines that are indented by four spaces.
	Kind string
	// Line is the number of the line of the first fence.
	Line int
	// Text has the lines, without the indentation of the fence.
	Text string
	// NotRun is the REASON in a comment above the block, which has the form "not run: REASON". Such a block is not run.
	NotRun string
	// RunBy is the FILE in a comment above the block, which has the form "run by: FILE". The path is relative to the
	// repository.
	RunBy string
}

// Runs reports whether this block is run when a test runs the page.
func (b Block) Runs() bool {
	return (b.Kind == "sh" || b.Kind == "bash") && b.NotRun == "" && b.RunBy == ""
}

var mark = regexp.MustCompile(`^<!-- (not run|run by): (.+) -->$`)

// Read reads a page. Indented lines in a list belong to the list, unless they are fenced.
func Read(file string) (Page, error) {
	data, err := os.ReadFile(file) //nolint:gosec // a page of this repository
	if err != nil {
		return Page{}, fmt.Errorf("reading a page: %w", err)
	}
	p := Page{File: file}
	inside, indent, before, list := false, "", "", false
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		bare := strings.TrimLeft(line, " ")
		kind, fence := strings.CutPrefix(bare, "```")
		switch {
		case fence && !inside:
			b := Block{Kind: strings.TrimSpace(kind), Line: n}
			if m := mark.FindStringSubmatch(strings.TrimSpace(before)); m != nil && m[1] == "not run" {
				b.NotRun = m[2]
			} else if m != nil {
				b.RunBy = m[2]
			}
			p.Blocks = append(p.Blocks, b)
			inside, indent = true, strings.TrimSuffix(line, bare)
		case fence:
			inside = false
		case inside:
			p.Blocks[len(p.Blocks)-1].Text += strings.TrimPrefix(line, indent)
		case strings.HasPrefix(line, "    ") && !list:
			p.Blocks = append(p.Blocks, Block{Line: n, Text: bare})
		case strings.TrimSpace(line) != "" && bare == line:
			list = regexp.MustCompile(`^([-*]|\d+\.) `).MatchString(line)
		}
		before = line
	}
	return p, nil
}

// Shell runs the blocks of a page as a reader does.
type Shell struct {
	// Dir is the working directory.
	Dir string
	// Env has environment variables, in addition to those of this process.
	Env []string
	// Before has the shell commands that the reader has run before. Their output is not compared.
	Before string
	// Replace replaces names in the commands of the page by names that the test uses. nil means that nothing is
	// replaced.
	Replace *strings.Replacer
	// Update writes the output of the commands into the blocks of kind output.
	Update bool
}

// end is printed behind each block, with its number.
const end = "\x1eend of block "

// Run runs blocks of a page in one shell, which ends at the first command that fails, and returns all output. If the
// block after a block of commands has the kind output, the commands must print exactly the content of the second block.
// In a block of output, a line "…" stands for any lines, and "…" within a line for any text. Run ignores differences in
// times and in the number of spaces.
func (p Page) Run(ctx context.Context, s Shell, from, to int) (output string, _ error) {
	script := "set -euo pipefail\n" + s.Before + "\ntrap 'echo \"failed: $BASH_COMMAND\"' ERR\necho '" + end + "-1'\n"
	for i := from; i < to; i++ {
		if b := p.Blocks[i]; b.Runs() {
			script += b.Text + fmt.Sprintf("\necho '%s%d'\n", end, i)
		}
	}
	if s.Replace != nil {
		script = s.Replace.Replace(script)
	}
	script = withLongTimeouts(script)
	file, err := os.CreateTemp("", "guide-*.sh")
	if err != nil {
		return "", fmt.Errorf("writing commands: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // in the folder for temporary files
	if _, err := file.WriteString(script); err != nil {
		return "", fmt.Errorf("writing commands: %w", err)
	}
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("writing commands: %w", err)
	}
	shell := exec.CommandContext(ctx, "bash", file.Name()) //nolint:gosec // commands of our own guides
	shell.Dir, shell.Env = s.Dir, append(os.Environ(), s.Env...)
	data, err := shell.CombinedOutput()
	out := string(data)
	if err != nil {
		return out, fmt.Errorf("%s: %w:\n%s", filepath.Base(p.File), err, out)
	}
	_, rest, _ := strings.Cut(out, end+"-1\n")
	for i := from; i < to; i++ {
		if !p.Blocks[i].Runs() {
			continue
		}
		printed, after, found := strings.Cut(rest, fmt.Sprintf("%s%d\n", end, i))
		if !found {
			return out, fmt.Errorf("%s:%d: the shell ended in this block:\n%s", p.File, p.Blocks[i].Line, out)
		}
		rest = after
		if i+1 == len(p.Blocks) || p.Blocks[i+1].Kind != "output" {
			continue
		}
		want := &p.Blocks[i+1]
		if s.Update {
			if err := p.write(want, printed); err != nil {
				return out, err
			}
		} else if at, ok := outputMatches(want.Text, printed); !ok {
			return out, fmt.Errorf("%s:%d: the commands do not print what the page has, from the line %q on: run the "+
				"test with -update, and look at the difference. They print\n%s", p.File, want.Line, at, printed)
		}
	}
	return out, nil
}

// longTimeout is the timeout of every command that waits. A page has timeouts for its readers, which are too short for
// a busy machine.
const longTimeout = "--timeout=60m"

var (
	timeoutFlag  = regexp.MustCompile(`--timeout=[0-9]+[sm]\b`)
	waitingByKlm = regexp.MustCompile(`\bklm module test\b|\bklm .* --wait\b`)
)

// withLongTimeouts replaces the timeouts of commands that wait, and gives longTimeout to those that have a default.
func withLongTimeouts(script string) string {
	script = timeoutFlag.ReplaceAllString(script, longTimeout)
	lines := strings.Split(script, "\n")
	for i, line := range lines {
		if !strings.Contains(line, "--timeout") {
			lines[i] = waitingByKlm.ReplaceAllString(line, "${0} "+longTimeout)
		}
	}
	return strings.Join(lines, "\n")
}

// write replaces the text of a block in its file.
func (p Page) write(b *Block, text string) error {
	data, err := os.ReadFile(p.File)
	if err != nil {
		return fmt.Errorf("reading a page: %w", err)
	}
	text = strings.TrimRight(text, "\n") + "\n"
	fenced := func(text string) []byte { return []byte("```output\n" + text + "```\n") }
	changed := bytes.Replace(data, fenced(b.Text), fenced(text), 1)
	b.Text = text
	if err := os.WriteFile(p.File, changed, 0o644); err != nil { //nolint:gosec // a page is for everybody
		return fmt.Errorf("writing a page: %w", err)
	}
	return nil
}

// outputMatches reports whether the commands have printed the text of a page. If the output does not match,
// outputMatches also returns the first line of the page that is missing in the output.
func outputMatches(page, printed string) (mismatch string, isMatch bool) {
	want, got := linesWithMaskedTimes(page), linesWithMaskedTimes(printed)
	next, skip := 0, false
	for _, line := range want {
		if line == "…" {
			skip = true
			continue
		}
		parts := strings.Split(line, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		for skip && next < len(got) && !pattern.MatchString(got[next]) {
			next++
		}
		if next == len(got) || !pattern.MatchString(got[next]) {
			return line, false
		}
		next, skip = next+1, false
	}
	if next < len(got) && !skip {
		return got[next], false
	}
	return "", true
}

var clockTimes = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?|\b(\d+(\.\d+)?(ms|s|m|h|d))+\b`)

// linesWithMaskedTimes returns lines without the parts that differ from run to run.
func linesWithMaskedTimes(text string) []string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.Join(strings.Fields(clockTimes.ReplaceAllString(line, "T")), " "))
	}
	return lines
}

// DryRunMakeFunction returns the text of a shell function that replaces the program make, for the field Shell.Before.
// The shell function only checks that the targets exist, because building them takes minutes. The parameter root is the
// folder of the repository.
func DryRunMakeFunction(root string) string {
	return fmt.Sprintf("make() { command make --dry-run -C %q \"$@\" >/dev/null; }\n", root)
}
