# References that are generated from the code, and pictures of what programs print.
.PHONY: references

references: ## generate docs/reference from the code
	@go run ./docs/generator

generate: references
