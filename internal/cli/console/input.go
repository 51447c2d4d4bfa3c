package console

import (
	"io"
	"os"
)

// ReadInput reads a file, or standard input if file is "-". The parameter "flag" is the name of the flag whose value is
// the path of the file; the errors of ReadInput contain this name. More than 1 MiB is an error.
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
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, Fail(ExitUsage, "%s: %v", flag, err)
	}
	if len(data) > limit {
		return nil, Fail(ExitUsage, "%s: %s has more than %d bytes", flag, file, limit)
	}
	return data, nil
}
