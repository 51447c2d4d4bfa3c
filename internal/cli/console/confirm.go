package console

import (
	"bufio"
	"fmt"
	"strings"
)

// Confirm asks the user a question. Confirm returns an error unless the answer is yes.
func (a *App) Confirm(question string) error {
	fmt.Fprintf(a.Err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	switch {
	case answer == "y" || answer == "yes":
		return nil
	case err != nil && answer == "":
		fmt.Fprintln(a.Err)
		return Fail(ExitUsage, "no answer on standard input, so nothing was changed: add --yes to confirm")
	}
	return Fail(ExitFailed, "nothing was changed")
}
