// Command fleetbench measures the manager with a fleet of simulated clusters.
//
//	go run ./fleetbench --clusters=100,1000 --modules=5 --objects=10 --scenario=all --out=result.json
//	go run ./fleetbench report --page=page.md result.json …
//
// The command needs the manager's binary (--manager). It needs Linux, because it reads the usage of processes from
// /proc. `make fleet-bench` and `make fleet-report` build the binaries. docs/benchmarks.md explains the figures.
//
// # How it works
//
// There are three processes, so the processor time of each is known separately. The first process is the control plane:
// a real kube-apiserver and etcd (package cluster). The control plane is this program, started with a subcommand. The
// second process is the manager, with the rights of its own service account. The third process is the benchmark, with
// the fleet (package fleet), the registry of modules, and the simulated agents. Each simulated cluster has an access
// Secret and a Kyma with all modules. One extra module is used for edits (module.go).
//
// The agents are simulated (agents.go), because a simulated cluster has no pods. Each agent has the certificate and the
// watch list that the manager delivered to its cluster. Each agent learns of changes by a function call instead of a
// watch, and sends requests to the manager's listener over its own connection (wire.go).
//
// Scenarios run one after the other on one fleet:
//
//	install   from an empty control plane until all modules are Ready
//	idle      no changes, for --idle and until the manager has collected garbage
//	edit      admins add a module to the Kyma in their cluster: first in a quiet fleet, then while all clusters upgrade another module
//	upgrade   the channel of one module points to a new version in all clusters
//	restart   the manager is killed and started; it is quiet when it used less than a tenth of a core for three seconds
//	failover  the manager is killed, and a second replica takes over; if several replicas work (--replicas), one is killed
//	rotate    the credentials of all clusters are replaced
//	faults    5 % of the clusters are dead, 5 % slow by 2 s, the others refuse 1 % of all requests with 429; then a channel points to a new version, as in upgrade
//	rollout   a RolloutPolicy with five stages; a version that works, while 1 % of the clusters fail for another reason and 5 % are dead; then a version that fails in 1 % of the clusters, which has to halt
//	delete    all Kymas are deleted
//
// The fleet counts requests to runtimes. The API server's own metrics count requests to the control plane; the requests
// of the benchmark are subtracted, and Leases are left out. Processor time is also given as a ratio to the time of a
// reference work that runs at the same time (reference.go). The ratio of processor time to the reference work does not
// depend on the clock of the processor, or on other load. The ratio does depend on the type of the processor, because
// the reference work makes no system calls and the manager makes many: compare ratios only if they were measured on the
// same type. The heap that the manager allocates depends on neither. A module is "applied" when its Deployment in the
// cluster has the new version, and "ready" when the Kyma in the control plane shows it as Ready. Live heap is the
// memory after the manager's last garbage collection, minus the same figure without a fleet.
//
// --brief shortens the fixed waiting times. TestBrief runs with --brief and a few clusters, and compares the figures
// with limits.
//
// The program prints a table after each scenario. At the end it prints a table of all scenarios, the growth of the
// figures, and the verdicts on the aims. --out writes all of it as JSON, and a chart if there are several sizes.
//
// # What it does not do
//
// With --profile, the figures of the manager include the cost of its profiles. The benchmark fails only if something
// does not become Ready, never because of a figure. The simulated agents do not limit their requests,
// and have no webhooks, which the real agent has. On a machine that also does other work, times change much; requests,
// writes and memory hardly change.
package main
