package console

import (
	"io"
	"os"
)

// ReadInput reads at most 1 MiB of the file that a flag names, or of standard input if it is "-". Errors name the flag.
func (a *App) ReadInput(flag, file string) ([]byte, error) {
	const limit = 1 << 20
	from := a.In
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // the user names the file
		if err != nil {
			return nil, Fail(ExitUsage, "%s: %v", flag, err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, limit))
	if err != nil {
		return nil, Fail(ExitUsage, "%s: %v", flag, err)
	}
	return data, nil
}
