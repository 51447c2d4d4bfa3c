// Package ocmaccess gives commands of klm access to component versions: in registries, with the flags for a login,
// and in archives.
//
// # Use
//
//	var login ocmaccess.Flags
//	login.Register(c.Flags())
//	access, err := login.Access(a)
//	place, err := ocmaccess.Open("registry.example.com/modules", access, false)
//
// # How it works
//
// [Open] calls storage.Open. [ExplainWithExitCode] gives errors of package author and package registry an exit code. If
// a registry requires a login, the error also contains an instruction how the user can log in.
//
// # What it does not do
//
// The package reads and writes no component versions: package author reads and writes them.
package ocmaccess
