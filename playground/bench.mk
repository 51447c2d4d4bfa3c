# Benchmarks: they measure time and memory, as ratios in one run, and are not part of `make test`.
.PHONY: bench-apply bench-events

bench-apply: ## the apply engine against a bare loop, kubectl and Helm on a real API server; OUT=file writes JSON
bench-events: ## the listener under 1,000 client identities, and beside a flood; OUT=file writes JSON
bench-apply bench-events:
	@cd playground && go run ./$(subst -,,$@) --out="$(if $(OUT),$(abspath $(OUT)))"
