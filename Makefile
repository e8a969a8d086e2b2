# Every target does its own set-up; the second run is quick. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# A federation starts a dozen Python programs, and each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test e2e image wheel release lint bench format generate clean chaos chaos-nodes faults beside soak fuzz mutants

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Atoll needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	@echo "environment: $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP) ## the environment in .venv and the control-plane binaries
	@$(BIN)/python -m atoll.local.binaries

demo: setup ## a federation on this machine, real workloads in, a result table out
	@$(BIN)/python -m demo $(DEMO)

test: setup ## all tests, the integration tests against real API servers; TESTS="-m long" or a path runs others, WORKERS at once
	@$(BIN)/python -m pytest -n $(or $(WORKERS),4) --durations=25 $(TESTS)

e2e: setup ## real containers on real kubelets, installations by Helm; needs root and Debian packages, which it installs where there is apt-get
	@$(BIN)/python -m atoll.local.realnodes.requirements
	@$(BIN)/python -m atoll.local.realnodes.prepare $(addprefix examples/images/,mpi torch ray stress)
	@$(BIN)/python -m pytest -m e2e $(or $(TESTS),tests/e2e)

chaos: setup ## real work while processes, leases, connections and API servers fail; CHAOS_SECONDS, CHAOS_SEED
	@$(BIN)/python -m tests.chaos --seconds $(or $(CHAOS_SECONDS),90) --seed $(or $(CHAOS_SEED),7) $(CHAOS)

chaos-nodes: setup ## gangs beside bare pods and DaemonSets while kubelets reject, nodes die and are drained, links flap; CHAOS_SECONDS, CHAOS_SEED
	@$(BIN)/python -m tests.chaos.nodes --seconds $(or $(CHAOS_SECONDS),90) --seed $(or $(CHAOS_SEED),7) $(CHAOS)

beside: setup ## gangs beside bare pods and DaemonSets in a member with kube-scheduler, nothing fails; BESIDE_MINUTES
	@$(BIN)/python -m tests.chaos.beside --minutes $(or $(BESIDE_MINUTES),10) --seed $(or $(CHAOS_SEED),7) $(CHAOS)

faults: setup ## one fault after the other while jobs run: nothing lost, doubled, stuck; FAULTS="clock --quick"
	@$(BIN)/python -m tests.faults $(FAULTS)

soak: setup ## jobs for SOAK_SECONDS; fails if the memory of a process grows or a loop is late
	@$(BIN)/python -m tests.soak --seconds $(or $(SOAK_SECONDS),1800) $(SOAK)

fuzz: $(STAMP) ## random and hostile reviews, watch streams, kubeconfigs and reports; FUZZ=examples per test (50000)
	@$(BIN)/python -m pytest tests/fuzz -v --timeout=0 --hypothesis-profile=random --fuzz-examples=$(or $(FUZZ),50000)

mutants: $(STAMP) ## small faults in the dispatcher's core and split: do the tests notice? MUTANTS=how many (300)
	@$(BIN)/python -m tests.mutants --count $(or $(MUTANTS),300) --seed 7

lint: $(STAMP) ## ruff, mypy --strict, import-linter, generated files, what commands import, what is read of the core, what tests import, who decodes each object, words of docstrings
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m atoll.api.crdgen --check
	@$(BIN)/python -m atoll.cli.reference --check
	@$(BIN)/python -m atoll.api.reference --check
	@$(BIN)/python -m atoll.kinds.reference --check
	@$(BIN)/python -m atoll.cli.settings_reference --check
	@$(BIN)/python -m atoll.local.image.requirements --check
	@$(BIN)/python -m atoll.cli.chart_files --check
	@$(BIN)/python -m tests.cli.import_profile --check
	@$(BIN)/python -m tests.dispatcher.private
	@$(BIN)/python -m tests.imports
	@$(BIN)/python -m tests.readers
	@$(BIN)/python -m tests.words --check

bench: setup ## every benchmark, a table, and JSON in bench/results/
	@$(BIN)/python -m bench $(BENCH)

format: $(STAMP) ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

generate: $(STAMP) ## write the CRDs, docs/api.md, docs/cli.md, docs/settings.md, the pins of the image, charts and manifests
	@$(BIN)/python -m atoll.api.crdgen
	@$(BIN)/python -m atoll.cli.reference
	@$(BIN)/python -m atoll.api.reference
	@$(BIN)/python -m atoll.kinds.reference
	@$(BIN)/python -m atoll.cli.settings_reference
	@$(BIN)/python -m atoll.local.image.requirements
	@$(BIN)/python -m atoll.cli.chart_files

image: $(STAMP) ## Atoll's container image as an archive in dist/, without Docker; needs root and mmdebstrap
	@$(BIN)/atollctl local image build --output dist/atoll-image.tar $(IMAGE)

wheel: $(STAMP) ## Atoll's wheel in dist/, for deploy/image/Dockerfile
	@$(BIN)/python -m hatchling build --target wheel --directory dist

release: $(STAMP) ## wheel, sdist, CRDs, charts, manifests and SHA256SUMS in dist/, and the image where root has mmdebstrap
	@rm -rf dist
	@$(BIN)/python -m hatchling build --directory dist
	@for each in deploy/manifests/*.yaml; do cp $$each dist/atoll-$$(basename $$each); done
	@version=$$($(BIN)/python -c 'from atoll.model.release import VERSION; print(VERSION)'); for each in deploy/charts/*; do \
	tar -C deploy/charts --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf dist/$$(basename $$each)-$$version.tgz $$(basename $$each); done
	@if command -v mmdebstrap > /dev/null && [ $$(id -u) = 0 ]; then $(MAKE) --no-print-directory image; \
	else echo "no image: it needs root and mmdebstrap"; fi
	@cd dist && sha256sum $$(ls | grep -v SHA256SUMS) > SHA256SUMS && cat SHA256SUMS

clean: ## remove the environment and what the tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
