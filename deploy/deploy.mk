# Images and deployments. IMG is the manager's image in your registry, REGISTRY/NAME[:TAG]; the agent's is beside it.
.PHONY: image docker-build docker-push deploy undeploy deploy-files
# VERSION sets the version of the programs, for a release; the default is in internal/config/version.go.
release = $(if $(VERSION),-ldflags "-X github.com/kyma-fleet/lifecycle-manager/internal/config.Version=$(VERSION)")
# img is IMG; without IMG the target fails.
img = $(if $(IMG),$(IMG),$(error IMG is required: make $@ IMG=registry.example.com/team/lifecycle-manager:0.1.0))

image: ## build the images of manager and agent into bin/images, without a container engine; IMG=… pushes them
	@go run $(release) ./deploy/image --out=bin/images $(if $(IMG),--push=$(IMG))

docker-build: ## build the images without pushing, like image
	@go run $(release) ./deploy/image --out=bin/images

docker-push: ## build the images and push them to IMG
	@go run $(release) ./deploy/image --out=bin/images --push=$(img)

deploy: ## install or upgrade the manager on the current KUBECONFIG: make deploy IMG=… ARGS="--set=registry.host=HOST"
	@go run $(release) ./cmd/klm install --yes --image=$(img) $(ARGS)

undeploy: ## remove the manager; CRDs, namespace, Kymas and Secrets stay: make undeploy ARGS="--flavour=in-cluster"
	@go run ./cmd/klm uninstall --yes $(ARGS)

deploy-files: ## generate base, in-cluster, components and definitions from deploy/chart
	@go test ./deploy -run TestWritten -update
