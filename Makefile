# Everything that one types in this repository. `make help` lists it.

SUITE ?= suites/quick-look.yaml
ARGS ?=
export FUZZ_SECONDS ?= 60
# rustup puts cargo here, and an ordinary user's PATH may not have it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
DROPHAMMER = cargo run --quiet --release --locked -p drophammer-cli --

.DEFAULT_GOAL := help
.PHONY: help run test test-long lint test-all fuzz bench bench-ports package test-package wheel clean-lab

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r t h; do printf '%-16s %s\n' "$$t" "$$h"; done
	@echo
	@echo 'make run SUITE=my.yaml ARGS="--dut frr --profile conformant" runs another suite, or a part of one.'

run: ## install what is missing, build, run suites/quick-look.yaml and write its report
	@scripts/setup run
	cargo build --release --locked -p drophammer-cli
	$(DROPHAMMER) run $(SUITE) $(ARGS)

test: ## install what is missing, run all tests but the long real runs
	@scripts/setup test
	@scripts/test

test-long: ## run the tests that test leaves out: real routers, real time
	@scripts/setup test-long
	@scripts/test --ignored

lint: ## clippy without warnings, and the format; `make test` does not need it
	@scripts/lint

test-all: test test-long lint ## all three

fuzz: ## run every fuzz target for FUZZ_SECONDS (60); installs cargo-fuzz if it is missing
	@scripts/fuzz

bench: ## measure the packet path of the tester
	@scripts/setup bench
	cargo bench --workspace --locked --bench '*'

bench-ports: ## compare the ports with bare system calls and trafgen; writes target/bench-ports.json too
	@scripts/setup bench
	@mkdir -p target
	cargo bench --locked -p drophammer-port --bench ports -- --json $(CURDIR)/target/bench-ports.json $(ARGS)

package: ## build a Debian package with manual pages and completions, in target/package; installs cargo-deb if it is missing
	@scripts/package

test-package: ## as root: install that package into an overlay of this system, check what it brings, and purge it
	@scripts/test-package

wheel: ## build a Python wheel with the program and the module drophammer, in target/wheels; installs maturin if it is missing
	@scripts/wheel

clean-lab: ## remove what a killed run may have left behind
	$(DROPHAMMER) clean
