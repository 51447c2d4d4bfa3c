package config

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// FormerFlag describes a flag of Kyma's lifecycle-manager that does not exist here or has another meaning here.
type FormerFlag struct {
	// Instead is a text that says what replaces a flag that no longer exists. The text in Instead is a clause without a
	// full stop.
	Instead string
	// Changed is a text with the new meaning of a flag that still exists. Exactly one of Instead and Changed is set.
	Changed string
}

const (
	insteadEvents = "not needed: changes are noticed by events; --poll-interval, --watched-poll-interval and " +
		"--audit-interval are for changes that events miss"
	insteadRotation   = "not needed: certificates are rotated automatically"
	insteadListener   = "set --listener-address to the address that agents report to"
	insteadNothing    = "not needed: remove it"
	insteadRuntime    = "--runtime-concurrency limits the concurrent requests to a runtime"
	insteadManifests  = "--max-concurrent-manifest-reconciles: a mandatory module is a Manifest like others"
	changedAgentImage = "it names the image of this project's agent, not of Kyma's runtime-watcher: remove it, and the " +
		"chart sets it"
)

// FormerFlags has the flags of Kyma's lifecycle-manager that do not exist here or have another meaning here, by name.
// All other flags of Kyma's lifecycle-manager exist here with the same values.
var FormerFlags = map[string]FormerFlag{
	"pprof":                {Instead: "--pprof-bind-address alone serves profiles"},
	"pprof-server-timeout": {Instead: insteadNothing},
	"max-concurrent-mandatory-modules-reconciles":          {Instead: insteadManifests},
	"max-concurrent-mandatory-modules-deletion-reconciles": {Instead: insteadManifests},
	"kyma-requeue-success-interval":                        {Instead: insteadEvents},
	"kyma-requeue-error-interval":                          {Instead: "--failure-base-delay and --failure-max-delay"},
	"kyma-requeue-warning-interval":                        {Instead: insteadEvents},
	"kyma-requeue-busy-interval":                           {Instead: insteadEvents},
	"manifest-requeue-success-interval":                    {Instead: insteadEvents},
	"manifest-requeue-error-interval":                      {Instead: "--failure-base-delay and --failure-max-delay"},
	"manifest-requeue-warning-interval":                    {Instead: insteadEvents},
	"manifest-requeue-busy-interval":                       {Instead: insteadEvents},
	"manifest-requeue-jitter-probability":                  {Instead: insteadNothing},
	"manifest-requeue-jitter-percentage":                   {Instead: insteadNothing},
	"mandatory-module-requeue-success-interval":            {Instead: insteadEvents},
	"mandatory-module-deletion-requeue-success-interval":   {Instead: insteadEvents},
	"watcher-requeue-success-interval":                     {Instead: insteadEvents},
	"module-upgrade-rollout-max-delay": {Instead: "a RolloutPolicy upgrades the fleet in stages; --catalog-spread " +
		"spreads changes of the catalog"},
	"k8s-client-burst":                                 {Instead: "the burst is twice --k8s-client-qps"},
	"k8s-skr-client-qps":                               {Instead: insteadRuntime},
	"k8s-skr-client-burst":                             {Instead: insteadRuntime},
	"istio-namespace":                                  {Instead: insteadListener},
	"istio-gateway-name":                               {Instead: insteadListener},
	"listener-port-overwrite":                          {Instead: insteadListener},
	"rate-limiter-burst":                               {Instead: insteadNothing},
	"rate-limiter-frequency":                           {Instead: insteadNothing},
	"cache-sync-timeout":                               {Instead: insteadNothing},
	"sync-namespace":                                   {Instead: "not needed: it is always kyma-system"},
	"self-signed-cert-renew-before":                    {Instead: insteadRotation},
	"self-signed-cert-renew-buffer":                    {Instead: insteadRotation},
	"self-signed-cert-key-size":                        {Instead: insteadRotation},
	"self-signed-cert-issuer-namespace":                {Instead: "not needed: the Issuer is in --namespace"},
	"istio-gateway-cert-switch-before-expiration-time": {Instead: insteadRotation},
	"istio-gateway-server-cert-switch-grace-period":    {Instead: insteadRotation},
	"istio-gateway-server-cert-expiry-window":          {Instead: insteadRotation},
	"istio-gateway-secret-requeue-success-interval":    {Instead: insteadRotation},
	"istio-gateway-secret-requeue-error-interval":      {Instead: insteadRotation},
	"drop-crd-stored-version-map":                      {Instead: "not needed: v1beta2 is the stored version"},
	"metrics-cleanup-interval":                         {Instead: "not needed: series are removed with their object"},

	"skr-watcher-image-name":     {Changed: changedAgentImage},
	"skr-watcher-image-tag":      {Changed: changedAgentImage},
	"skr-watcher-image-registry": {Changed: changedAgentImage},
	"kyma-skr-listener-bind-address": {Changed: "it is only for a listener behind an ingress that ends TLS, " +
		"with --listener-forwarded-from; agents otherwise reach --listener-bind-address"},
	"metrics-bind-address":    {Changed: "metrics are served over TLS unless --metrics-secure=false"},
	"istio-gateway-namespace": {Changed: "it is only used for Watchers that select a gateway"},
	"log-level":               {Changed: "0 logs what happened, 1 also what reconciles wait for, 2 everything"},
}

// program is the configuration of a program.
type program interface {
	Register(f *pflag.FlagSet)
	Validate() error
}

// Load registers the flags of a program, parses its arguments and validates the configuration. If the arguments request
// the help or the version, Load writes it to out, and done is true. version is the field of p that --version sets.
func Load(f *pflag.FlagSet, p program, version *bool, args []string, out io.Writer) (done bool, err error) {
	p.Register(f)
	err = parse(f, args, out)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return true, nil
	case err != nil:
		return false, err
	case *version:
		_, err := fmt.Fprintln(out, ReadBuild())
		return true, err
	}
	return false, p.Validate()
}

// parse parses the arguments of a program. parse reports all unknown flags at once, each with an instruction. pflag
// itself reports only the first unknown flag. If the arguments request the help, parse writes it to out and returns
// ErrHelp of pflag.
func parse(f *pflag.FlagSet, args []string, out io.Writer) error {
	f.Init(f.Name(), pflag.ContinueOnError)
	help := f.FlagUsages
	f.Usage = func() { fmt.Fprintf(out, "Usage of %s:\n%s", f.Name(), help()) }
	var errs []error
	for _, name := range unknownFlags(f, args) {
		former, isFormer := FormerFlags[name]
		switch {
		case strings.HasPrefix(name, "-"):
			errs = append(errs, fmt.Errorf("%s: write flags with two dashes: -%s", name, name))
		case isFormer && former.Instead != "":
			errs = append(errs, fmt.Errorf("--%s does not exist any more: %s", name, former.Instead))
		default:
			errs = append(errs, fmt.Errorf("--%s is unknown: see --help", name))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return f.Parse(args)
}

// unknownFlags returns the names of those flags in args that f does not have, sorted. If a flag name of several letters
// is written with one dash, the returned name includes this dash. unknownFlags does not know which flags have a value,
// so an argument that begins with a dash counts as a flag, even if it is the value of the flag before it.
func unknownFlags(f *pflag.FlagSet, args []string) []string {
	var names []string
	for _, arg := range args {
		if arg == "--" {
			break
		}
		long, isLong := strings.CutPrefix(arg, "--")
		name, _, _ := strings.Cut(long, "=")
		switch {
		case isLong && name != "help" && f.Lookup(name) == nil:
			names = append(names, name)
		case !isLong && len(name) > 2 && name[0] == '-' && (name[1] < '0' || name[1] > '9') && name != "-help" &&
			f.ShorthandLookup(name[1:2]) == nil:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
