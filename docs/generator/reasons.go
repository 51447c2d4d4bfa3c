package main

import (
	"fmt"
	"strings"
)

// reasonsPage returns the page of all reasons. Each reason has a meaning and an instruction for the user.
func reasonsPage(root string) (string, error) {
	sections, err := constants(apiFile(root, "reasons.go"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head("Reasons", "api/v1beta2/reasons.go"))
	b.WriteString(`A reason is the stable code of a blocker.
The same word is in ` + "`klm why`, `klm status`, `status.modules[].reason`" +
		`, in conditions that are not True, in events and in the metric ` +
		"`lifecycle_mgr_module_blocked_total`" + `.
The message beside it names the object.
To find the cause of a problem, begin with [troubleshooting.md](../guide/troubleshooting.md).

`)
	for i := range sections {
		sections[i].title = strings.Replace(sections[i].title, "Reasons about", "About", 1)
	}
	for _, s := range sections {
		fmt.Fprintf(&b, "- %s:", s.title)
		for i, e := range s.entries {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, " [%s](#%s)", e.value, strings.ToLower(e.value))
		}
		b.WriteString("\n")
	}
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n", s.title)
		for _, e := range s.entries {
			means, do := splitRemedy(e.doc)
			fmt.Fprintf(&b, "\n### %s\n\n", e.value)
			if strings.Contains(e.note, "event") {
				b.WriteString("An event. ")
			}
			fmt.Fprintln(&b, sentence(means))
			if do != "" {
				fmt.Fprintf(&b, "\n**What to do:** %s\n", do)
			}
		}
	}
	return b.String(), nil
}

// splitRemedy splits the comment of a reason. The first sentence is the meaning, and the rest is the instruction.
func splitRemedy(doc string) (means, do string) {
	means, do, _ = strings.Cut(doc, ". ")
	return means, do
}

// conditionsPage returns the page of states, of conditions and of the reasons of events.
func conditionsPage(root string) (string, error) {
	var b strings.Builder
	b.WriteString(head("States, conditions and events", "api/v1beta2"))
	b.WriteString("Reasons of conditions that are not True are in [reasons.md](reasons.md).\n")
	for _, part := range []struct{ file, prefix, column string }{
		{"state.go", "State", "State"}, {"conditions.go", "Condition", "Condition"},
		{"conditions.go", "Reason", "Reason"}, {"events.go", "Event", "Event"},
	} {
		sections, err := constants(apiFile(root, part.file))
		if err != nil {
			return "", err
		}
		for _, s := range sections {
			writeTable(&b, s, part.prefix, part.column)
		}
	}
	return b.String(), nil
}

// writeTable writes a table of the entries in a section whose names begin with prefix.
func writeTable(b *strings.Builder, s section, prefix, column string) {
	first := true
	for _, e := range s.entries {
		if !strings.HasPrefix(e.name, prefix) || e.value == "" {
			continue
		}
		if first {
			title := s.title
			if prefix == "State" {
				title = "States"
			}
			if title == "Others" {
				title = "Conditions of all kinds"
			}
			fmt.Fprintf(b, "\n## %s\n\n| %s | |\n|---|---|\n", title, column)
			first = false
		}
		doc := e.doc
		if e.note != "" {
			doc = e.note + ": " + doc
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", e.value,
			cell(sentence(strings.TrimPrefix(strings.TrimPrefix(doc, "means that "), "is the "))))
	}
}
