// Package fleetstatus has the command klm status, which shows a fleet at a glance.
//
// # Use
//
//	root.AddCommand(fleetstatus.Command(a))
//
// # How it works
//
// The command lists the Kymas page by page, and counts the runtimes (tally.go). The command reads the whole status only
// of the worst runtimes. With several contexts, each control plane is counted by itself, and the reports are added up
// (merge.go).
//
// # What it does not do
//
// The command changes nothing and makes no decisions: the manager has written the states and reasons.
package fleetstatus
