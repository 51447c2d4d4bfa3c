//go:build !linux

package process

import "os"

// sandboxProcess sets no limits, because other systems than Linux do not enforce them.
func sandboxProcess(_, _ uint64) error { return nil }

// wasKilled returns false, because it is not determined on systems other than Linux whether the system has killed a
// process.
func wasKilled(*os.ProcessState) bool { return false }
