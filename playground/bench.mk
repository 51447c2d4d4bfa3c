# Benchmarks: they measure time and memory, and are not part of `make test`; a small run of the fleet is, as a test of package fleetbench.
.PHONY: bench-apply bench-events fleet-bench fleet-report
CLUSTERS ?= 100
MODULES ?= 5
OBJECTS ?= 10
SCENARIO ?= all
REPLICAS ?= 1
IDLE ?= 1m

bench-apply: ## the apply engine against a bare loop, kubectl and Helm on a real API server; OUT=file writes JSON
bench-events: ## the listener under 1,000 client identities, and beside a flood; OUT=file writes JSON
bench-apply bench-events:
	@cd playground && go run ./$(subst -,,$@) --out="$(if $(OUT),$(abspath $(OUT)))"

fleet-bench: ## the manager with a fleet of clusters: CLUSTERS=100 MODULES=5 OBJECTS=10 SCENARIO=all REPLICAS=1 IDLE=1m OUT=file.json ARGS=flags
	@$(call progress,-o bin/ ./cmd/lifecycle-manager)
	@cd playground && $(call progress,-o ../bin/fleetbench ./fleetbench)
	@bin/fleetbench --manager=bin/lifecycle-manager --clusters=$(CLUSTERS) --modules=$(MODULES) --objects=$(OBJECTS) \
	--scenario=$(SCENARIO) --replicas=$(REPLICAS) --idle=$(IDLE) --out="$(OUT)" $(ARGS)

fleet-report: ## put results of fleet-bench together: FILES="a.json b.json" PAGE=docs/benchmarks.md
	@cd playground && $(call progress,-o ../bin/fleetbench ./fleetbench)
	@bin/fleetbench report --page="$(PAGE)" $(FILES)

.PHONY: chaos
MINUTES ?= 10
SEED ?= 1

# Ten minutes: a run of an hour is MINUTES=60. docs/reliability.md describes faults and checks.
chaos: build ## the manager under random faults and requests: MINUTES=10 SEED=1 ARGS=flags
	@bin/playground chaos --minutes=$(MINUTES) --seed=$(SEED) $(ARGS)

.PHONY: skew
# The scenario skew runs in every test with this version as its own former version.
skew: ## upgrade from a former version of the manager and back, in a landscape: FORMER=COMMIT
	@test -n "$(FORMER)" || { echo "FORMER=COMMIT is missing"; exit 2; }
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && git archive $(FORMER) | tar -x -C "$$dir" && \
	(cd "$$dir" && go build -o "$$dir/" ./cmd/lifecycle-manager) && \
	cd playground && go test -count=1 ./scenario -run 'TestScenarios/skew$$' -former="$$dir" -v
