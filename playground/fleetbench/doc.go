// Command fleetbench measures the manager with a fleet of simulated clusters.
//
//	go run ./fleetbench --clusters=100,1000 --modules=5 --objects=10 --scenario=all --out=result.json
//	go run ./fleetbench report --page=page.md result.json …
//
// It needs the manager's binary (--manager) and Linux, whose /proc says what a process uses. `make fleet-bench` and
// `make fleet-report` build what is needed; docs/benchmarks.md explains the figures.
//
// # How it works
//
// Three processes: the control plane, a real kube-apiserver and etcd (package cluster; this program again, as a
// subcommand); the manager, with the rights of its own service account; and the benchmark, which has the fleet (package
// fleet), the registry of modules, and the agents. So the processor time of each is known apart. Each simulated cluster
// has an access Secret and a Kyma with all modules; one more module is there for edits (module.go).
//
// The agents (agents.go) are played: a simulated cluster has no pods. Each has the certificate and the watch list that
// the manager delivered to its cluster, hears of changes in memory, and speaks to the manager's listener over a
// connection of its own (wire.go).
//
// Scenarios run one after the other on one fleet:
//
//	install   from nothing to all modules Ready
//	idle      nothing, for --idle and until the manager has collected garbage
//	edit      admins add a module to the Kyma in their cluster, while all is quiet, and while a version of another module goes to all
//	upgrade   the channel of one module moves for all
//	restart   the manager is killed and started; it is quiet when it used less than a tenth of a core for three seconds
//	failover  the manager is killed, and a second replica takes over; of several that all work (--replicas) one is killed
//	rotate    the credentials of all clusters are replaced
//	faults    5 % of the clusters are dead, 5 % slow by 2 s, the others refuse 1 % of all requests with 429; then a channel moves as in upgrade
//	delete    all Kymas are deleted
//
// Requests to runtimes are counted by the fleet, those to the control plane by the API server's own metrics, less those
// of the benchmark, without Leases. Processor time is also given as a ratio to a piece of work that is done meanwhile
// (reference.go), which is the same on a slow machine and on a busy one. "applied" is when the Deployment of a module
// has its version in the cluster, "ready" when the Kyma in the control plane shows it. Live heap is what the manager's
// last garbage collection left, less what it left without a fleet.
//
// --brief shortens what takes its time by itself; TestBrief does so with a few clusters and holds the figures to
// limits.
//
// It prints a table after each scenario, and at the end a table of all, how the figures grow, and what became of the
// aims; --out has all of it as JSON, and a chart if there are several sizes.
//
// # What it does not do
//
// It does not profile the manager (--profile is for the others), and fails for no figure, only if something does not
// become Ready. The agents know no limits and no webhooks. On a machine that does other things as well, times say
// little; requests, writes and memory hardly change.
package main
