package supportdump

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kyma-fleet/lifecycle-manager/api/v1beta2"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/connection"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/console"
	"github.com/kyma-fleet/lifecycle-manager/internal/cli/fleetlist"
	"github.com/kyma-fleet/lifecycle-manager/internal/config"
	"github.com/kyma-fleet/lifecycle-manager/internal/text"
)

// Command returns klm support-dump.
func Command(a *console.App) *cobra.Command {
	var file, only string
	c := a.Command("support-dump [--file FILE] [--runtime RUNTIME]", "write an archive for support, without secrets", `
The archive has Kymas, Manifests, the catalog, Watchers, events, Deployments and Pods of the namespace, and the CRDs of the lifecycle manager. Of
Secrets it has metadata only. Values that look like passwords, tokens, keys or kubeconfigs are replaced everywhere. Check the archive before you
send it: names and labels of your runtimes are in it.`, `
klm support-dump
klm support-dump --runtime runtime-a --file runtime-a.tar.gz`,
		console.Arguments(), func(cmd *cobra.Command, _ []string) error {
			c, err := connection.ControlPlaneOrRuntime(cmd.Context(), a)
			if err != nil {
				return err
			}
			if file == "" {
				file = "klm-support-" + a.Now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			if only != "" {
				if _, err := c.Kyma(cmd.Context(), only); err != nil {
					return err
				}
			}
			return writeDump(cmd.Context(), a, c, file, only)
		})
	c.Flags().StringVar(&file, "file", "", "archive to write, which must not exist yet; empty: klm-support-TIME.tar.gz")
	c.Flags().StringVar(&only, "runtime", "", "only the Kyma and Manifests of this runtime")
	if err := c.MarkFlagFilename("file", "tar.gz"); err != nil {
		panic(err) // the flag was registered above
	}
	console.CompleteFlag(c, "runtime", connection.RuntimeNames(a))
	return c
}

// dumpedKinds are the kinds of the objects in the archive. With --runtime, Kymas are selected by name. With --runtime,
// Manifests and Secrets are selected by label.
var dumpedKinds = []struct {
	file  string
	kind  schema.GroupVersionKind
	limit int64 // maximum number of objects; 0 means all
}{
	{"kymas", v1beta2.GroupVersion.WithKind("Kyma"), 0},
	{"manifests", v1beta2.GroupVersion.WithKind("Manifest"), 0},
	{"moduletemplates", v1beta2.GroupVersion.WithKind(v1beta2.KindModuleTemplate), 0},
	{"modulereleasemetas", v1beta2.GroupVersion.WithKind(v1beta2.KindModuleReleaseMeta), 0},
	{"rolloutpolicies", v1beta2.GroupVersion.WithKind(v1beta2.KindRolloutPolicy), 0},
	{"modulerollouts", v1beta2.GroupVersion.WithKind(v1beta2.KindModuleRollout), 0},
	{"watchers", v1beta2.GroupVersion.WithKind("Watcher"), 0},
	{"secrets", corev1.SchemeGroupVersion.WithKind("Secret"), 0},
	{"configmaps", corev1.SchemeGroupVersion.WithKind("ConfigMap"), 0},
	{"events", corev1.SchemeGroupVersion.WithKind("Event"), 5000},
	{"deployments", schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, 0},
	{"pods", corev1.SchemeGroupVersion.WithKind("Pod"), 1000},
	{"leases", schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, 0},
	{"customresourcedefinitions", schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"}, 0},
}

// writeDump writes the archive. If one kind cannot be read, the error is written to problems.txt in the archive, and
// all other kinds are still written.
func writeDump(ctx context.Context, a *console.App, c *connection.Cluster, file, onlyRuntime string) (err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the user names the file
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			return console.Fail(console.ExitUsage, "--file: %s exists already: choose another name", file)
		}
		return console.Fail(console.ExitFailed, "--file: %v", err)
	}
	zip := gzip.NewWriter(f)
	archive := tar.NewWriter(zip)
	defer func() {
		if err = errors.Join(err, archive.Close(), zip.Close(), f.Close()); err != nil {
			err = fmt.Errorf("writing %s: %w", file, errors.Join(err, os.Remove(file)))
		}
	}()
	put := func(name string, data []byte) error {
		header := &tar.Header{Name: "klm-support/" + name, Mode: 0o600, Size: int64(len(data)),
			ModTime: a.Now().Truncate(time.Second), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(data)
		return err
	}
	report := dumpReport{File: file, Objects: map[string]int{}}
	var problems strings.Builder
	for _, d := range dumpedKinds {
		if d.kind.Group == v1beta2.GroupVersion.Group && !c.Serves[d.file] {
			continue // the cluster does not serve this kind
		}
		objects, err := listObjectsBeforeRedaction(ctx, c, d.kind, d.limit, onlyRuntime)
		if err != nil {
			fmt.Fprintf(&problems, "%s: %v\n", d.file, err)
			report.Missing = append(report.Missing, d.file)
			continue
		}
		var all bytes.Buffer
		for _, o := range objects {
			data, err := yaml.Marshal(redactObject(o))
			if err != nil {
				return err
			}
			all.WriteString("---\n")
			all.Write(data)
		}
		report.Objects[d.file] = len(objects)
		if err := put(d.file+".yaml", all.Bytes()); err != nil {
			return err
		}
	}
	if err := put("problems.txt", []byte(problems.String())); err != nil {
		return err
	}
	about := fmt.Sprintf("klm %s, %s\nserver %s, context %s, namespace %s, control plane: %t\nserver version: %s\n",
		config.Version, a.Now().UTC().Format(time.RFC3339), text.WithoutURLLogins(c.URL.String()), c.Context,
		c.Namespace,
		c.IsControlPlane(), kubernetesVersionOrEmpty(ctx, c))
	if err := put("about.txt", []byte(about)); err != nil {
		return err
	}
	return a.Print(report)
}

// kubernetesVersionOrEmpty returns the version of Kubernetes, or "" if the version cannot be read.
func kubernetesVersionOrEmpty(ctx context.Context, c *connection.Cluster) string {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if c.GetJSON(ctx, "/version", &v) != nil {
		return ""
	}
	return v.GitVersion
}

// listObjectsBeforeRedaction lists the objects of a kind for the archive.
func listObjectsBeforeRedaction(ctx context.Context, c *connection.Cluster, kind schema.GroupVersionKind, limit int64,
	onlyRuntime string) ([]map[string]any, error) {
	if kind.Kind == "Secret" {
		return listSecretMetadata(ctx, c, onlyRuntime)
	}
	options := []client.ListOption{client.Limit(fleetlist.PageSize)}
	isWhole := kind.Kind == "CustomResourceDefinition"
	if !isWhole {
		options = append(options, c.InNamespace())
	}
	switch {
	case onlyRuntime == "":
	case kind.Kind == "Kyma":
		options = append(options, client.MatchingFields{"metadata.name": onlyRuntime})
	case kind.Kind == "Manifest":
		options = append(options, client.MatchingLabels{v1beta2.LabelKymaName: onlyRuntime})
	}
	var all []map[string]any
	for next := ""; ; {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, page, append(options, client.Continue(next))...); err != nil {
			return nil, c.Explain(err, "listing")
		}
		for i := range page.Items {
			if !isWhole || strings.HasSuffix(page.Items[i].GetName(), "."+v1beta2.GroupVersion.Group) {
				all = append(all, page.Items[i].Object)
			}
		}
		if next = page.GetContinue(); next == "" || limit > 0 && int64(len(all)) >= limit {
			return all, nil
		}
	}
}

// listSecretMetadata lists the metadata of Secrets. listSecretMetadata does not request the data of the Secrets.
func listSecretMetadata(ctx context.Context, c *connection.Cluster, onlyRuntime string) ([]map[string]any, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	options := []client.ListOption{c.InNamespace()}
	if onlyRuntime != "" {
		options = append(options, client.MatchingLabels{v1beta2.LabelKymaName: onlyRuntime})
	}
	if err := c.List(ctx, list, options...); err != nil {
		return nil, c.Explain(err, "listing")
	}
	all := make([]map[string]any, 0, len(list.Items))
	for i := range list.Items {
		s := &list.Items[i]
		labels := map[string]any{}
		for key, value := range s.Labels {
			labels[key] = value
		}
		all = append(all, map[string]any{"kind": "Secret", "metadata": map[string]any{
			"name": s.Name, "namespace": s.Namespace, "labels": labels, "uid": string(s.UID),
			"resourceVersion":   s.ResourceVersion,
			"creationTimestamp": s.CreationTimestamp.UTC().Format(time.RFC3339),
		}})
	}
	return all, nil
}

// dumpReport is the report of klm support-dump.
type dumpReport struct {
	File    string         `json:"file"`
	Objects map[string]int `json:"objects"`
	Missing []string       `json:"missing,omitempty"` // kinds that could not be read
}

func (r dumpReport) Names() []string { return []string{r.File} }

func (r dumpReport) Show(p *console.Page) {
	n := 0
	for _, some := range r.Objects {
		n += some
	}
	p.Line("%s has %s.", r.File, console.Count(n, "object"))
	if len(r.Missing) > 0 {
		p.Line("Not in it: %s; see problems.txt in the archive.", strings.Join(r.Missing, ", "))
	}
}
