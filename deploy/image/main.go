// Command image builds the images of the manager, the agent and klm, for amd64 and arm64, without a container engine.
//
// Use: make image, or go run ./deploy/image --out=bin/images
// [--push=registry.example.com/team/lifecycle-manager:0.1.0]. With --push, the image of the manager is pushed under the
// given name. The images of the agent and of klm are pushed with the names runtime-watcher and klm under the same path.
// The credentials are those of docker login.
//
// The programs are static and contain no paths of the build machine (build.go). An image contains only its program and
// the root certificates of public certificate authorities (assemble.go). The program runs as user 65532 and writes no
// files, so the root file system may be read-only. All timestamps are 1970-01-01, so that the same sources result in
// the same digest on any machine. The bill of materials, in SPDX, is created from the build information that Go stores
// in each program (sbom.go). The bill of materials refers to its image by the subject field of OCI 1.1. The result is
// an OCI layout on disk, which the tools skopeo, crane and oras can read, too.
//
// The program does not use ko, because ko always reads its base image from a registry, and so needs a network
// connection. The program does not sign images. The program keeps only the images of the last run.
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

// program describes a program that is built into an image. about is the description in the labels of the image.
type program struct {
	name, folder, about string
}

// programs lists all programs. The manager is the first program in the list, because the name in the flag --push is
// used for the image of the first program; the names of the other images are derived from this name.
var programs = []program{
	{"lifecycle-manager", "./cmd/lifecycle-manager",
		"Installs, upgrades, heals and removes modules on a fleet of Kubernetes clusters"},
	{"runtime-watcher", "./cmd/runtime-watcher", "Reports changes in a runtime to the lifecycle manager"},
	{"klm", "./cmd/klm", "Client of the lifecycle manager, and its dashboard"},
}

// options are the flags of the command.
type options struct {
	out, push string
	platforms []string
}

func main() {
	o := options{}
	pflag.StringVar(&o.out, "out", "bin/images", "folder of the OCI layout, which is replaced")
	pflag.StringVar(&o.push, "push", "", "push the images; name of the manager's image: REGISTRY/NAME[:TAG]")
	pflag.StringSliceVar(&o.platforms, "platforms", []string{"linux/amd64", "linux/arm64"}, "platforms to build for")
	pflag.Parse()
	if err := run(signals.SetupSignalHandler(), o, programs, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds the programs and writes their images to o.out. run pushes the images if o.push is set. run prints progress
// to out.
func run(ctx context.Context, o options, programs []program, out io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("making a folder for programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	var images []*image
	for _, p := range programs {
		made := &image{program: p, version: config.Version}
		for _, platform := range o.platforms {
			fmt.Fprintf(out, "building %s for %s\n", p.name, platform)
			file := path.Join(folder, p.name+"-"+strings.ReplaceAll(platform, "/", "-"))
			if err := build(ctx, p.folder, platform, file); err != nil {
				return err
			}
			if err := made.addPlatform(platform, file); err != nil {
				return fmt.Errorf("making the image of %s for %s: %w", p.name, platform, err)
			}
		}
		images = append(images, made)
	}
	if err := removeAndWriteLayout(o.out, images); err != nil {
		return err
	}
	for _, made := range images {
		digest, err := made.index.Digest()
		if err != nil {
			return fmt.Errorf("computing the digest of %s: %w", made.name, err)
		}
		fmt.Fprintf(out, "%s:%s@%s in %s\n", made.name, made.version, digest, o.out)
	}
	if o.push == "" {
		return nil
	}
	return push(ctx, o.push, images, out)
}
