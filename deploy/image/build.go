package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os/exec"
	"strings"

	"github.com/kyma-fleet/lifecycle-manager/internal/config"
)

// build compiles the program in a folder for a platform, such as linux/arm64, and writes it to a file. The program is
// linked statically. The program contains no paths of the build machine and no debug symbols.
func build(ctx context.Context, folder, platform, file string) error {
	system, architecture, ok := strings.Cut(platform, "/")
	if !ok || strings.Contains(architecture, "/") {
		return fmt.Errorf("--platforms: %q is not SYSTEM/ARCHITECTURE, such as linux/arm64", platform)
	}
	//nolint:gosec // folders and files are ours
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X github.com/kyma-fleet/lifecycle-manager/internal/config.Version="+config.Version, "-o", file, folder)
	command.Env = append(command.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture, "GOAMD64=v1",
		"GOARM64=v8.0", "GOFLAGS=")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("building %s for %s: %w\n%s", folder, platform, err, output.Bytes())
	}
	return checkStatic(file)
}

// checkStatic returns an error if a program needs a dynamic loader. Such a program could not start, because the image
// contains no dynamic loader.
func checkStatic(file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("reading the program %s: %w", file, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("checking the program %s: it is not static: build it with CGO_ENABLED=0", file)
		}
	}
	return nil
}
