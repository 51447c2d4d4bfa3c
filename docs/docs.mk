# Pages that are generated from the code.
.PHONY: references

references: ## generate docs/reference from the code
	@go run ./docs/generator

generate: references
