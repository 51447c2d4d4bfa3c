// Package console has the parts of the commands of klm that need no cluster: the frame of a command, its output, its
// questions and its errors.
//
// # Use
//
//	a.Command("status", "the fleet at a glance", long, example, console.Arguments("[RUNTIME]"), func(cmd *cobra.Command, args []string) error {
//		…
//		return a.Print(report)
//	})
//
// # How it works
//
// A command returns an error made by [Fail], which has an exit code; the root command prints the error. The result of a
// command is a [Report], which [App.Print] writes in the format of -o: as a [Page] for people, or encoded for programs.
//
// # What it does not do
//
// The package sends no requests: see package connection.
package console
