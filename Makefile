# What a developer runs. Tools are built into bin/tools on demand, from the modules in scripts/tools.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/bin/tools:$(PATH)

# All modules of the workspace, as package patterns.
PKGS = $(shell go list -m -f '{{.Dir}}' | sed 's|^$(CURDIR)|.|; s|$$|/...|')
MAINS = $(shell go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./services/... | grep -v /internal/)
BENCH ?=

# A tool group is current while the versions in its module and the Go release are those it was built from.
stamp = bin/tools/.$(1)-$(shell { go env GOVERSION; cat scripts/tools/$(1)/go.mod scripts/tools/$(1)/go.sum; } | cksum | cut -d' ' -f1)
BUF := $(call stamp,buf)
PROTOC := $(call stamp,protoc)
LINT := $(call stamp,lint)
TEST := $(call stamp,test)

.PHONY: help run build test test-repeat test-long bench gen lint verify setup tools \
        verify-gen verify-proto verify-vet verify-format verify-tidy

help: ## Lists the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

run: ## Builds the product and starts it with the demo source.
	go build -o bin/ankusa ./services/ankusa
	exec bin/ankusa serve --config deploy/demo.yml

build: ## Builds every binary into bin.
	go build -o bin/ $(MAINS)

test: setup $(TEST) ## Runs the tests of all modules under the race detector.
	gotestsum --format pkgname-and-test-fails -- -race -timeout 20m $(PKGS)

test-repeat: setup $(TEST) ## Runs every test but those of whole processes 20 times, few seeds of each simulation.
	ANKUSA_SIM_SEEDS=3 ANKUSA_SHELL_SEEDS=1 gotestsum --format pkgname-and-test-fails -- \
		-race -count=20 -timeout 120m $(filter-out ./e2e/...,$(PKGS))

test-long: $(TEST) ## Runs the model check, the simulations over many seeds, the fuzz targets and the long end-to-end tests.
	@scripts/setup.sh spin
	scripts/test-long.sh $(PKGS)

bench: ## Runs all benchmarks, or the ones that BENCH names; one JSON line each.
	@scripts/bench.sh $(BENCH)

gen: $(BUF) $(PROTOC) ## Generates all generated files again.
	buf generate
	cd services/internal/config && go generate .

lint: $(BUF) $(LINT) ## Lints the protos and the Go code.
	buf lint
	scripts/sleep-check.sh
	golangci-lint run $(PKGS)

verify: verify-gen verify-proto lint verify-vet verify-format verify-tidy ## Checks all that is not a test.
	@echo 'verify: all checks passed'

verify-gen: $(BUF) $(PROTOC)
	scripts/gen-check.sh

verify-proto: $(BUF)
	scripts/proto-breaking.sh

verify-vet:
	go vet $(PKGS)

verify-format:
	@stale=$$(gofmt -l $$(go list -m -f '{{.Dir}}')); \
	if [ -n "$$stale" ]; then printf 'gofmt would change:\n%s\n' "$$stale"; exit 1; fi

verify-tidy:
	scripts/tidy-check.sh

setup: ## Installs the C compiler if it is missing.
	@scripts/setup.sh

tools: $(BUF) $(PROTOC) $(LINT) $(TEST) ## Builds all tools.

$(BUF) $(PROTOC) $(LINT) $(TEST): bin/tools/.%:
	@group=$*; group=$${group%-*}; echo "tools: building $$group"; \
	rm -f bin/tools/.$$group-*; mkdir -p bin/tools; \
	cd scripts/tools/$$group; GOWORK=off GOBIN=$(CURDIR)/bin/tools go install -mod=readonly tool; touch $(CURDIR)/$@
