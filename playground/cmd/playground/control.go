package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-fleet/lifecycle-manager/playground/cluster"
)

// controlSocket is the name of a Unix socket in the folder of a running playground. Later invocations of playground
// connect to this socket. Only the owner of the socket can connect to it.
const controlSocket = "control.sock"

// treatments are the actions on a running cluster, by verb.
var treatments = map[string]struct {
	says string
	do   func(ctx context.Context, c *cluster.Cluster, delay time.Duration) error
}{
	"stop": {"Stop a cluster; its data is kept", func(ctx context.Context, c *cluster.Cluster,
		_ time.Duration) error {
		return c.Stop(ctx)
	}},
	"start": {"Start a stopped cluster again, at the same address", func(ctx context.Context, c *cluster.Cluster,
		_ time.Duration) error {
		return c.Start(ctx)
	}},
	"cut": {"Cut a cluster off: nothing that is sent to it arrives",
		func(_ context.Context, c *cluster.Cluster, _ time.Duration) error {
			c.Cut(cluster.BlackHole)
			return nil
		}},
	"mend": {"End cut and slow", func(_ context.Context, c *cluster.Cluster, _ time.Duration) error {
		c.Mend()
		c.Slow(0)
		return nil
	}},
	"slow": {"Slow a cluster down by --by", func(_ context.Context, c *cluster.Cluster, delay time.Duration) error {
		c.Slow(delay)
		return nil
	}},
}

// serveControl accepts actions on the clusters from other processes of this program until stop is called.
func serveControl(dir string, clusters map[string]*cluster.Cluster) (stop func() error, err error) {
	path := filepath.Join(dir, controlSocket)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for control: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protecting the control socket: %w", err), listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{verb}/{name}", func(w http.ResponseWriter, r *http.Request) {
		treatment, known := treatments[r.PathValue("verb")]
		c := clusters[r.PathValue("name")]
		delay, err := time.ParseDuration(r.FormValue("by"))
		switch {
		case !known || err != nil:
			http.Error(w, "cannot do that", http.StatusBadRequest)
		case c == nil:
			var names []string
			for name := range clusters {
				names = append(names, name)
			}
			http.Error(w, fmt.Sprintf("there is no cluster %q here, there are: %s", r.PathValue("name"),
				strings.Join(names, ", ")), http.StatusNotFound)
		default:
			if err := treatment.do(r.Context(), c, delay); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener) //nolint:errcheck // ends with Close
	return server.Close, nil
}

// controlCommands returns the commands for actions on a cluster of a running playground.
func controlCommands() []*cobra.Command {
	var commands []*cobra.Command
	for verb, treatment := range treatments {
		var dir string
		var delay time.Duration
		command := &cobra.Command{
			Use:     verb + " CLUSTER",
			Short:   treatment.says,
			Example: "  playground " + verb + " runtime-b",
			Args:    cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				return requestAction(command.Context(), dir, verb, args[0], delay)
			},
		}
		command.Flags().StringVar(&dir, "dir", ".landscape", "folder of the running playground")
		if verb == "slow" {
			command.Flags().DurationVar(&delay, "by", 2*time.Second,
				"latency to add to what is sent in either direction")
		}
		commands = append(commands, command)
	}
	return commands
}

// requestAction requests an action on a cluster from a running playground.
func requestAction(ctx context.Context, dir, verb, cluster string, latency time.Duration) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, controlSocket))
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://playground/"+verb+"/"+cluster+"?by="+latency.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("asking to %s %s: %w", verb, cluster, err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("no playground runs in folder %s; give the one that was printed with --dir", dir)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil || answer.StatusCode != http.StatusOK {
		return errors.Join(errors.New(strings.TrimSpace(string(text))), err)
	}
	return nil
}
