package console

import (
	"io"
	"os"
)

// ReadInput reads a small file that a flag names, or standard input.
func (a *App) ReadInput(flag, file string) ([]byte, error) {
	const most = 1 << 20
	from := a.In
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // the user names the file
		if err != nil {
			return nil, Fail(ExitUsage, "%s: %v", flag, err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, most))
	if err != nil {
		return nil, Fail(ExitUsage, "%s: %v", flag, err)
	}
	return data, nil
}
