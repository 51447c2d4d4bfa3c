# This needs Go, git, make and a C compiler (for the race detector). Tools and programs are built into bin/; `make clean` removes them.
CONTROLLER_GEN_VERSION := v0.23.0
GOLANGCI_LINT_VERSION  := v2.15.0
FUZZTIME ?= 1m
FUZZPKGS ?= ./...
export GOBIN := $(CURDIR)/bin

# Checksums of the generated files: `make test` fails when generating changes them.
sums = find api crds playground/sample -name 'zz_generated.*' -o -path 'crds/*.yaml' | sort | xargs cksum
# The version of Kubernetes in the playground, for `kubectl version` and the API servers' /version.
kube = -ldflags "-X k8s.io/component-base/version.gitVersion=$(shell cd playground && go list -m -f '{{.Version}}' k8s.io/kubernetes)"
# Filters the output of `go build -v $(1)`, which compiles about $(2) packages the first time: counts packages, prints the progress every few seconds, and keeps messages and exit code.
progress = (while sleep 5; do echo tick; done 2>/dev/null & go build -v $(1) 2>&1; echo "exit $$?"; kill $$!) | { n=0; m=0; while read -r line; do \
	case "$$line" in tick) echo "  ... $$m modules downloaded, $$n$(if $(2), of about $(2)) packages compiled";; "exit "*) exit $${line\#exit };; \
	"go: downloading "*) m=$$((m+1));; *" "*) echo "$$line";; *) n=$$((n+1));; esac; done; }

.DEFAULT_GOAL := help
.PHONY: help up build test check-generated generate manifests install uninstall run lint cross fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: build bin/kubectl ## start a control plane, two runtimes and a module; UNTIL=ready ends when the module is Ready
	@bin/playground up $(if $(UNTIL),--until=$(UNTIL))

build: ## build manager, playground and sample operator into bin/
	@echo "Building into bin/, including Kubernetes: 5 to 15 minutes on two cores the first time, seconds after that."
	@$(call progress,$(release) -o bin/ ./cmd/...,1400) && ln -sf klm bin/kubectl-lifecycle && ln -sf klm bin/kubectl_complete-lifecycle
	@cd playground && $(call progress,-o ../bin/sample-operator ./sample/operator)
	@cd playground && $(call progress,$(kube) -o ../bin/playground ./cmd/playground,1400)

bin/kubectl: playground/go.mod
	@cd playground && $(call progress,$(kube) -o ../bin/kubectl k8s.io/kubernetes/cmd/kubectl,120) && touch ../bin/kubectl

# The playground tests programs of another module, so cached results do not apply (-count=1). `lint` vets, so tests do not (-vet).
# Its slowest packages run first. Less garbage collection starts API servers faster (GOGC), within 10 GiB. Many tests mostly wait (-p, -parallel): the linter uses that time, and gets some time (nice) on a machine that has other work, too. The limits (-timeout) are for tests that hang: a test that waits has its own deadline. The fuzz tests begin without the inputs of former runs (FUZZCACHE), so each run does the same work. The race detector finds nothing in packages without goroutines (serial; TestWithoutRace holds this), and makes their tests five times slower. Go's own linker (-linkmode) needs two thirds of the processor time that it needs together with the linker of the C compiler.
test: bin/golangci-lint bin/controller-gen chromium ## run all tests: generated files, linter, unit tests (-race where goroutines are), scenarios on real API servers
	@failed=; $(MAKE) -s check-generated || failed="$$failed check-generated"; nice -n 5 $(MAKE) -s lint >bin/lint.log 2>&1 & lint=$$!; trap 'kill $$lint' INT TERM; \
	serial=$$(go list . ./api/... ./channel ./crds ./deploy ./docs ./internal/rollout/...); go test -vet=off -timeout 2h $$serial || failed="$$failed serial-unit-tests"; \
	CGO_ENABLED=1 go test -race $(if $(filter Linux,$(shell uname)),-ldflags=-linkmode=internal) -vet=off -p $$(($$(getconf _NPROCESSORS_ONLN)+1)) -timeout 2h $$(go list ./... | grep -vxF "$$serial") || failed="$$failed unit-tests"; \
	rm -rf bin/fuzz.cache; $(MAKE) -s fuzz FUZZTIME=300x FUZZCACHE="$(CURDIR)/bin/fuzz.cache" FUZZPKGS="./api/... ./render ./internal/protocol" || failed="$$failed fuzz"; \
	(cd playground && GOGC=400 GOMEMLIMIT=10GiB go test -count=1 -vet=off -timeout 24h -p 3 -parallel 6 ./scenario ./fleetbench ./...) || failed="$$failed scenarios"; \
	wait $$lint || failed="$$failed lint"; cat bin/lint.log; if [ -n "$$failed" ]; then echo "FAIL:$$failed"; exit 1; fi

check-generated: bin/controller-gen ## fail if generated files differ from their sources
	@before=$$($(sums)); $(MAKE) -s generate manifests && [ "$$before" = "$$($(sums))" ] || { echo "generated files were not up to date: commit what 'make generate manifests' changed"; exit 1; }

generate: bin/controller-gen ## generate deep-copy functions
	@bin/controller-gen object paths=./api/...
	@cd playground && ../bin/controller-gen object paths=./sample

manifests: bin/controller-gen ## generate the CRDs from the types
	@bin/controller-gen crd paths=./api/... output:crd:dir=crds

install: bin/kubectl ## install the CRDs on the cluster of the current KUBECONFIG
	@bin/kubectl apply --server-side --force-conflicts -f crds/

uninstall: bin/kubectl ## delete the CRDs, and with them every Kyma and Manifest, on the cluster of the current KUBECONFIG
	@bin/kubectl delete --ignore-not-found -f crds/

run: ## run the manager with the current KUBECONFIG: make run ARGS="--oci-registry-host=HOST"
	@go run ./cmd/lifecycle-manager --leader-elect=false $(ARGS)

lint: bin/golangci-lint ## run the linter over both modules
	@r=0; bin/golangci-lint run ./... || r=1; cd playground && ../bin/golangci-lint run --config ../.golangci.yml ./... || r=1; exit $$r

fuzz: ## run every fuzz test of FUZZPKGS (./...) for FUZZTIME (1m, or 300x inputs); each test binary is linked once
	@go list -f '{{.ImportPath}} {{.Dir}}' $(FUZZPKGS) | while read -r p dir; do all=$$(grep -hos '^func Fuzz[A-Za-z0-9]*' $$dir/*_test.go | cut -c6-); \
	[ -z "$$all" ] || go test -c -vet=off -fuzz . -o bin/fuzz.test $$p || exit 1; for f in $$all; do (cd $$dir && "$(CURDIR)/bin/fuzz.test" -test.run '^$$' -test.fuzz "^$$f$$" -test.fuzztime $(FUZZTIME) -test.fuzzcachedir "$(or $(FUZZCACHE),$$(go env GOCACHE)/fuzz)/$$p") </dev/null || { echo "FAIL: $$p $$f"; exit 1; }; done; done

cross: ; @for p in linux/arm64 darwin/arm64 windows/amd64; do GOOS=$${p%/*} GOARCH=$${p#*/} go vet ./render/process || exit 1; done ## compile for other platforms
clean: ; @rm -rf bin ## remove bin/

bin/controller-gen: Makefile
	@go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)

bin/golangci-lint: Makefile
	@go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

include playground/bench.mk playground/browser.mk deploy/deploy.mk docs/docs.mk
