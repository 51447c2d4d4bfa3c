package recovery

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// pageSize is the number of objects that klm backup requests with one page of a list. The pages of lists are small
// because Manifests are large.
const pageSize = 100

func backupCommand(a *console.App) *cobra.Command {
	force := false
	c := a.Command("backup FILE [--force]", "save the objects of the control plane in one file, status included", `
The file has the namespace of the control plane, its Secrets, ConfigMaps, catalog, Watchers, Kymas and Manifests, as YAML documents. klm restore
writes them into a new control plane. The file holds the credentials of all runtimes and the keys of the certificate authority: only its owner
may read it (mode 0600); keep it as safe as the control plane itself. FILE - is the standard output.

Each kind is read at one point in time. Kymas are read before Manifests, Secrets and ConfigMaps, and the manager need not be stopped.
The manager, its CRDs, flags and chart values are not in the file: install them again with klm install.`, `
klm backup control-plane.yaml
klm backup control-plane.yaml --force
klm backup - | age -r age1… > control-plane.yaml.age`,
		console.Arguments("FILE"), func(cmd *cobra.Command, args []string) error {
			c, err := connection.ControlPlane(cmd.Context(), a)
			if err != nil {
				return err
			}
			return backup(cmd.Context(), a, c, args[0], force)
		})
	c.Flags().BoolVar(&force, "force", false, "replace FILE if it exists, once the new backup is complete")
	return c
}

// backup writes a backup to a file, or to the standard output if the parameter file is "-".
func backup(ctx context.Context, a *console.App, c *connection.Cluster, file string, force bool) error {
	report := backupReport{File: file, Namespace: c.Namespace, Objects: map[string]int{}}
	if file == "-" {
		if console.IsTerminal(a.Out) {
			return console.Fail(console.ExitUsage, "the backup has credentials, and is not written to a terminal: "+
				"name a file, or redirect the output")
		}
		if err := writeBackup(ctx, a, c, a.Out, report.Objects); err != nil {
			return err
		}
		p := a.Page()
		report.Show(p)
		fmt.Fprint(a.Err, p.String())
		return nil
	}
	out, commit, err := createFileOrTemp(file, force)
	if err != nil {
		return err
	}
	err = writeBackup(ctx, a, c, out, report.Objects)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = commit()
	}
	if err != nil {
		if removed := os.Remove(out.Name()); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
			fmt.Fprintf(a.Err, "%s is not complete and was not removed: %v\n", out.Name(), removed)
		}
		return err
	}
	return a.Print(report)
}

// createFileOrTemp creates the backup file, which must not exist. If force is true, createFileOrTemp creates a
// temporary file, and the function commit replaces the existing backup file by the temporary file. The backup file gets
// the mode 0600.
func createFileOrTemp(file string, force bool) (out *os.File, commit func() error, err error) {
	if force {
		if out, err = os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*"); err != nil {
			return nil, nil, console.Fail(console.ExitUsage, "writing beside %s: %v", file, err)
		}
		return out, func() error {
			if err := os.Rename(out.Name(), file); err != nil {
				return console.Fail(console.ExitFailed, "replacing %s: %v", file, err)
			}
			return nil
		}, nil
	}
	out, err = os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the user names the file
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, nil, console.Fail(console.ExitUsage, "%s exists already: choose another name, or add --force", file)
	case err != nil:
		return nil, nil, console.Fail(console.ExitUsage, "%v", err)
	}
	return out, func() error { return nil }, nil
}

// writeBackup writes the backup and counts its objects by kind.
func writeBackup(ctx context.Context, a *console.App, c *connection.Cluster, to io.Writer,
	counts map[string]int) error {
	out := bufio.NewWriter(to)
	fmt.Fprintf(out, "# klm backup of %s, namespace %s, by klm %s at %s.\n"+
		"# It holds the credentials of all runtimes. Restore it with klm restore, see docs/guide/recovery.md.\n",
		c.Config.Host, c.Namespace, config.Version, a.Now().UTC().Format(time.RFC3339))
	uid, err := uidIfReadable(ctx, c)
	if err != nil {
		return err
	}
	if uid != "" {
		fmt.Fprintf(out, "%s%s\n", controlPlaneLine, uid)
	}
	total := 0
	for _, kind := range kinds {
		if kind.Group == v1beta2.GroupVersion.Group && !c.ServesKind(kind.Kind) {
			continue // Watchers may be missing, and kinds that are newer than the manager
		}
		err := list(ctx, c, kind, func(o *unstructured.Unstructured) error {
			if !belongsInBackup(o) {
				return nil
			}
			data, err := encode(o)
			if err != nil {
				return err
			}
			counts[kind.Kind]++
			total++
			_, err = out.Write(data)
			return err
		})
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%s%s\n", lastLine, console.Count(total, "object"))
	return out.Flush()
}

// uidIfReadable returns the UID that identifies a control plane, or "" if the user may not read it.
func uidIfReadable(ctx context.Context, c *connection.Cluster) (string, error) {
	uid, err := c.UID(ctx)
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	return uid, c.Explain(err, "reading the UID of the control plane")
}

// list calls the function visit once for each object of a kind in the namespace of the control plane. All pages of a
// list have the same resource version.
func list(ctx context.Context, c *connection.Cluster, kind schema.GroupVersionKind,
	visit func(*unstructured.Unstructured) error) error {
	if kind.Kind == "Namespace" {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		if err := c.Get(ctx, client.ObjectKey{Name: c.Namespace}, o); err != nil {
			return c.Explain(err, "reading namespace "+c.Namespace)
		}
		return visit(o)
	}
	for next := ""; ; {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := c.List(ctx, page, c.InNamespace(), client.Limit(pageSize), client.Continue(next))
		switch {
		case apierrors.IsResourceExpired(err):
			return console.Fail(console.ExitFailed, "listing %ss took longer than the API server keeps a list, which "+
				"is 5 minutes by default: try again from a place that is closer to it", kind.Kind)
		case err != nil:
			return c.Explain(err, "listing "+kind.Kind+"s")
		}
		for i := range page.Items {
			if err := visit(&page.Items[i]); err != nil {
				return err
			}
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// backupReport is the report of klm backup.
type backupReport struct {
	File      string         `json:"file"`
	Namespace string         `json:"namespace"`
	Objects   map[string]int `json:"objects"` // by kind
}

func (r backupReport) Names() []string { return []string{r.File} }

func (r backupReport) Show(p *console.Page) {
	p.Line("%s has %s of namespace %s.", fileText(r.File), countsText(r.Objects), r.Namespace)
	p.Line("It holds the credentials of all runtimes: keep it as safe as the control plane.")
}

// fileText returns the name of the backup file in the form in which messages contain it.
func fileText(file string) string {
	if file == "-" {
		return "the output"
	}
	return file
}

// countsText returns the numbers of objects by kind, in the order of the file.
func countsText(counts map[string]int) string {
	var parts []string
	for _, kind := range kinds {
		if n := counts[kind.Kind]; n > 0 {
			parts = append(parts, console.Count(n, kind.Kind))
		}
	}
	if len(parts) == 0 {
		return "no objects"
	}
	return strings.Join(parts, ", ")
}
