// Command image builds the images of manager and agent, for amd64 and arm64, without a container engine.
//
// Use: make image, or go run ./deploy/image --out=bin/images [--push=registry.example.com/team/lifecycle-manager:0.1.0]. With --push the
// manager gets that name, and the agent the name runtime-watcher beside it. Logins are those of docker login.
//
// How it works: programs are built static and without traces of the machine (build.go). An image has nothing but its program and the root
// certificates of the Web (assemble.go); it runs as user 65532 and writes nothing, so its root may be read-only. Times are those of
// 1970, so that the same sources give the same digest, on any machine. A bill of materials in SPDX is made from what Go recorded in each program
// (sbom.go), and refers to its image as OCI 1.1 says. All of it is in an OCI layout on disk, which skopeo, crane and oras read too.
//
// Why not ko: its base image always comes from a registry, so it builds nothing without a network; what else it does for static programs is what is
// done here.
//
// What it does not do: it signs nothing, and keeps no images but the last ones.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// program is one that gets an image.
type program struct {
	name, folder, about string
}

// programs are all of them, the manager first.
var programs = []program{
	{"lifecycle-manager", "./cmd/lifecycle-manager", "Installs, upgrades, heals and removes modules on a fleet of Kubernetes clusters"},
	{"runtime-watcher", "./cmd/runtime-watcher", "Tells the lifecycle manager what changes in a runtime"},
}

// options is what the command is told.
type options struct {
	out, push string
	platforms []string
}

func main() {
	o := options{}
	pflag.StringVar(&o.out, "out", "bin/images", "folder of the OCI layout; what is there is replaced")
	pflag.StringVar(&o.push, "push", "", "name in a registry that the manager's image is pushed to: REGISTRY/NAME[:TAG]")
	pflag.StringSliceVar(&o.platforms, "platforms", []string{"linux/amd64", "linux/arm64"}, "what to build for")
	pflag.Parse()
	if err := run(signals.SetupSignalHandler(), o, programs, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds, writes and pushes.
func run(ctx context.Context, o options, programs []program, say io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("making a folder for programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	var images []*image
	for _, p := range programs {
		made := &image{program: p, version: config.Version}
		for _, platform := range o.platforms {
			fmt.Fprintf(say, "building %s for %s\n", p.name, platform)
			file := path.Join(folder, p.name+"-"+strings.ReplaceAll(platform, "/", "-"))
			if err := build(ctx, p.folder, platform, file); err != nil {
				return err
			}
			if err := made.add(platform, file); err != nil {
				return fmt.Errorf("making the image of %s for %s: %w", p.name, platform, err)
			}
		}
		images = append(images, made)
	}
	if err := write(o.out, images); err != nil {
		return err
	}
	for _, made := range images {
		digest, err := made.index.Digest()
		if err != nil {
			return fmt.Errorf("computing the digest of %s: %w", made.name, err)
		}
		fmt.Fprintf(say, "%s:%s@%s in %s\n", made.name, made.version, digest, o.out)
	}
	if o.push == "" {
		return nil
	}
	return push(ctx, o.push, images, say)
}
