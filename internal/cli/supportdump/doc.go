// Package supportdump has the command of klm that writes an archive for support, without secrets.
//
// # Use
//
//	root.AddCommand(supportdump.Command(a))
//
// # How it works
//
// Objects are listed page by page, redacted (redact.go), and written as YAML into a tar archive. For Secrets, only the
// metadata is requested.
//
// # What it does not do
//
// The package reads no logs.
package supportdump
