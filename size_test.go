package lifecyclemanager_test

import (
	"go/ast"
	"strings"
	"testing"
)

// maxPackageLines limits the lines of one package of the product, without tests and generated files. A package with
// more lines than maxPackageLines has more than one subject.
const maxPackageLines = 2000

// largePackages may have more lines than maxPackageLines. The test fails if largePackages has an entry that is no
// longer needed.
var largePackages = map[string]string{
	"apply": "one concept: how objects reach one cluster and leave it; all parts share inventory " +
		"and progress",
	"channel": "one decision table with its inputs: requests, policy, windows, upgrade paths; each rule reads several",
	"internal/controller/kyma": "the life cycle of a Kyma from its triggers to its status; parts with a memory of " +
		"their own are below it",
	"internal/controller/manifest": "the life cycle of a Manifest from its plan to its status; parts with a memory of " +
		"their own are below it",
	"internal/runtimes": "the life of a connection: credential, owner, circuit breaker, watches and subscribers; its " +
		"parts share one lock",
	"internal/rollout": "one pure state machine: record, decision, verdict and report share the status of one rollout; " +
		"parts without it are packages below",
	"api/v1beta2": "types with their documentation, which is most of the text",
}

// maxReconcileFields limits the fields of a struct that one reconcile carries from step to step.
const maxReconcileFields = 12

// TestPackageSize limits packages of the product. The playground is a tool for tests and has no limit.
func TestPackageSize(t *testing.T) {
	lines := map[string]int{}
	for _, s := range mustSources(t) {
		if !s.isTest() && !s.isPlayground() && !strings.HasPrefix(s.name, "zz_generated") {
			lines[s.folder] += s.lines
		}
	}
	for folder, n := range lines {
		reason := largePackages[folder]
		switch {
		case n > maxPackageLines && reason == "":
			t.Errorf("%s has %d lines, %d are allowed: split it by meaning, or give it a reason in largePackages",
				folder, n, maxPackageLines)
		case n <= maxPackageLines && reason != "":
			t.Errorf("%s has %d lines: remove it from largePackages", folder, n)
		}
	}
	for folder := range largePackages {
		if lines[folder] == 0 {
			t.Errorf("largePackages names %s, which does not exist", folder)
		}
	}
}

// TestReconcileState limits the number of fields that a reconcile carries from step to step. Each controller has
// exactly one struct for these fields, named run.
func TestReconcileState(t *testing.T) {
	found := 0
	for _, s := range mustSources(t) {
		if s.isTest() || !isOf(s.folder, "internal/controller") {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != "run" {
				return true
			}
			structure, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			found++
			fields := 0
			for _, f := range structure.Fields.List {
				fields += max(len(f.Names), 1)
			}
			if fields > maxReconcileFields {
				t.Errorf("%s: run has %d fields, %d are allowed: a step that needs memory of its own is a type of "+
					"its own",
					s.path(), fields, maxReconcileFields)
			}
			return true
		})
	}
	if found < 4 {
		t.Errorf("found %d structs named run, want one for each controller", found)
	}
}

// finalizerPackages may assign finalizers.
var finalizerPackages = map[string]string{
	"internal/loop":        "the one place that sends them",
	"internal/dedup":       "replaces them by equal lists, to save memory in a cache",
	"internal/cli/fixture": "objects for tests",
}

// TestFinalizers: a list of finalizers that is sent as a whole removes finalizers that another client has added since
// the object was read, so only internal/loop sends them, with an optimistic lock.
func TestFinalizers(t *testing.T) {
	setters := map[string]bool{"AddFinalizer": true, "RemoveFinalizer": true, "SetFinalizers": true}
	used := map[string]bool{}
	for _, s := range mustSources(t) {
		if s.isTest() || s.isPlayground() {
			continue
		}
		found := ""
		ast.Inspect(s.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if setters[n.Sel.Name] {
					found = n.Sel.Name
				}
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == "Finalizers" {
						found = "an assignment of Finalizers"
					}
				}
			}
			return true
		})
		switch {
		case found != "" && finalizerPackages[s.folder] == "":
			t.Errorf("%s uses %s: use loop.AddFinalizers or loop.RemoveFinalizers", s.path(), found)
		case found != "":
			used[s.folder] = true
		}
	}
	for folder := range finalizerPackages {
		if !used[folder] {
			t.Errorf("%s may assign finalizers and does not: remove it from finalizerPackages", folder)
		}
	}
}
