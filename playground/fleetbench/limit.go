package main

import "syscall"

// raiseOpenFileLimit raises the limit of open files for this process and its children. A fleet may need a connection to
// each cluster and a connection of each agent. The manager keeps connections only to clusters without an agent, and
// agents keep their connections only for a short time. If the system does not allow a higher limit, raiseOpenFileLimit
// only prints a warning, because a small fleet may still work.
func (o *options) raiseOpenFileLimit(clusters int) {
	need := uint64(clusters + 2000) //nolint:gosec // positive
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		o.logf("the limit of open files is not to be known: %v", err)
		return
	}
	wanted := syscall.Rlimit{Cur: max(limit.Max, need), Max: max(limit.Max, need)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &wanted) == nil { // only root may raise the hard limit
		return
	}
	wanted = syscall.Rlimit{Cur: limit.Max, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &wanted); err != nil {
		wanted.Cur = limit.Cur
	}
	if wanted.Cur < need {
		o.logf("ONLY %d FILES MAY BE OPEN, which is too few for %d clusters: %d are needed. Raise it (ulimit -Hn %d, "+
			"as root) or measure fewer clusters.", wanted.Cur, clusters, need, need)
	}
}
