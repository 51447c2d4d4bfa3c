package diagnosis

import (
	"regexp"
	"slices"
	"strings"
)

// instructions are the words with which an instruction in a message or in a remedy begins.
var instructions = []string{
	"accept", "add", "allow", "ask", "change", "check", "choose", "complete", "configure", "correct", "create",
	"delete", "find", "free", "give", "grant", "install", "keep", "klm", "kubectl", "label", "let", "look",
	"make", "move", "name", "pack", "publish", "push", "put", "remove", "rename", "renew", "restart", "restore",
	"revert", "run", "set", "sign", "simplify", "take", "update", "upgrade", "use", "wait", "write",
}

// clauseEnd matches the end of a clause of a message.
var clauseEnd = regexp.MustCompile(`[:;,.] |[:;.]$| or | and `)

// duty matches the words with which a message describes that a person has to do something.
var duty = regexp.MustCompile(` (has|have) to be | must be `)

// hasInstruction reports whether a clause of a message is an instruction for the reader.
func hasInstruction(message string) bool {
	if duty.MatchString(message) {
		return true
	}
	for i, clause := range clauseEnd.Split(message, -1) {
		first, _, _ := strings.Cut(strings.TrimSpace(clause), " ")
		if i > 0 && slices.Contains(instructions, strings.ToLower(first)) {
			return true
		}
	}
	return false
}

// RemedyFor returns the remedy (a text with an instruction) for the reason code of a condition or an error. RemedyFor
// returns "" if the message already contains an instruction, or if there is no remedy for the reason code.
func RemedyFor(reason, message string) string {
	if hasInstruction(message) {
		return ""
	}
	return remedies[reason]
}
