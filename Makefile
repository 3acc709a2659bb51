# Two commands on a fresh machine: `make run` and `make test`. Both need Python 3.11 and nothing else.
# Tests: `make test-fast` while working, `make test` before a change is handed in, `make test-all` for everything.
# Every step leaves a stamp and is done again only when what it depends on has changed.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup setup-test run test-fast test test-all test-loki test-n8n test-openapi lint format locks sbom clean screenshots

# An environment of the caller's must not lead the project's Python astray.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV DJANGO_SETTINGS_MODULE
# Without compiled modules each of the many processes compiles them again.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
LOCKS := deploy/locks
FLEET := tests/node
OPENAPI := tests/openapi
SBOM := .sbom/unstall.cdx.json
STATIC := $(shell find static -type f 2>/dev/null)
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Most tests wait for a process or a store, so there are more workers than cores.
WORKERS ?= $(shell n=$$(($(CORES) * 3)); echo $$((n < 12 ? n : 12)))
# Which kinds of libraries, stores, databases and looks the gate tries: others each time; the summary says which seed.
SEED ?= $(shell date +%s)
# A real Loki has to be built, a real n8n of each generation installed, clients of the API generated: `make test-all`.
GATE := not long and not loki and not n8n and not openapi
PYTEST_ARGS ?=

# Looked at before anything else, because make asks once how old the stamps in it are.
ifneq ($(filter-out help clean,$(MAKECMDGOALS)),)
ifneq ($(shell PYTHON311="$(PYTHON311)" sh deploy/setup/venv.sh $(VENV) >&2 && echo made),made)
$(error There is no virtual environment)
endif
endif

help: ## what can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name what; do printf '  make %-12s %s\n' "$$name" "$$what"; done

setup: $(VENV)/.stamp-run .static/.stamp ## everything `make run` needs

setup-test: $(VENV)/.stamp-test .static/.stamp $(FLEET)/node_modules/.stamp ## everything `make test` needs
	@sh deploy/setup/test-tools.sh

run: setup ## start everything on this machine and print one URL
	@exec $(PYTHON) manage.py up

lint: setup-test ## style, types, import contracts, templates
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@said=$$($(BIN)/lint-imports --no-cache 2>&1) || { echo "$$said"; exit 1; }
	@$(BIN)/djlint --lint --quiet templates

format: setup-test ## put the code into its format
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

test-fast: lint ## the inner loop: lint and the tests that need no store or process, in less than a minute
	@$(PYTHON) -m pytest -q -n $(CORES) -m "pure and not long" tests/unit tests/property tests/house $(PYTEST_ARGS)

test: lint sbom ## the gate; pytest's summary is the last thing printed
	@$(PYTHON) -m pytest -q -n $(WORKERS) --sample $(SEED) -m "$(GATE)" $(PYTEST_ARGS)

test-all: lint sbom $(OPENAPI)/node_modules/.stamp ## everything: every kind, faults, soak tests, a real Loki, n8n of each generation, clients of the API
	@loki=$$(sh deploy/setup/loki.sh || :) n8n=$$(sh deploy/setup/n8n.sh || :); \
		LOKI="$$loki" N8N="$$n8n" $(PYTHON) -m pytest -q -n $(WORKERS) --timeout 3600 $(PYTEST_ARGS)

test-loki: setup-test # a part of test-all: the contract of logs with a real Loki
	@loki=$$(sh deploy/setup/loki.sh) && LOKI="$$loki" $(PYTHON) -m pytest -q -m loki tests/contract/test_log_source_loki_real.py $(PYTEST_ARGS)

test-n8n: setup-test # a part of test-all: a real n8n of each generation, and what we say of it
	@n8n=$$(sh deploy/setup/n8n.sh) && N8N="$$n8n" $(PYTHON) -m pytest -q -n $(CORES) -m n8n tests/contract/n8n_real $(PYTEST_ARGS)

test-openapi: setup-test $(OPENAPI)/node_modules/.stamp # a part of test-all: generated clients, and schemathesis
	@$(PYTHON) -m pytest -q -m openapi tests/integration $(PYTEST_ARGS)

screenshots: setup-test ## take the README's pictures anew from the demo
	@$(PYTHON) docs/img/take.py

locks: ## write deploy/locks anew from pyproject.toml
	@sh deploy/setup/locks.sh

sbom: $(SBOM) ## write the bill of materials of what runs in production (CycloneDX)

$(SBOM): deploy/sbom.py $(LOCKS)/runtime.txt pyproject.toml $(VENV)/.stamp-run
	@mkdir -p $(@D)
	@$(PYTHON) deploy/sbom.py >$@.new && mv $@.new $@

clean: ## remove what the steps above made; the data directory stays
	rm -rf $(VENV) .static .sbom $(FLEET)/node_modules $(OPENAPI)/node_modules .mypy_cache .ruff_cache .pytest_cache

# test.txt holds every pin of demo.txt, so either order of the two leaves the same versions.
$(VENV)/.stamp-run: $(LOCKS)/demo.txt
	@echo "Installing what the program needs …"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r $<
	@touch $@

$(VENV)/.stamp-test: $(LOCKS)/test.txt $(VENV)/.stamp-run
	@echo "Installing what the tests need …"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r $<
	@touch $@

.static/.stamp: $(STATIC) dashboard/settings.py $(VENV)/.stamp-run
	@$(PYTHON) manage.py collectstatic --noinput --clear --verbosity 0
	@touch $@

# Scripts of packages are not run: the libraries work without their compiled extras. Whom this machine trusts, npm trusts:
# without that it knows the authorities alone that Node brings.
NPM_CI := NODE_USE_SYSTEM_CA=1 PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --loglevel error --ignore-scripts --no-audit --no-fund
$(FLEET)/node_modules/.stamp: $(FLEET)/package-lock.json $(VENV)/.stamp-test
	@echo "Installing the real Bull and BullMQ for the tests …"
	@$(NPM_CI) --prefix $(FLEET) >/dev/null
	@touch $@

$(OPENAPI)/node_modules/.stamp: $(OPENAPI)/package-lock.json $(VENV)/.stamp-test
	@echo "Installing what generates a TypeScript client for the tests …"
	@$(NPM_CI) --prefix $(OPENAPI) >/dev/null
	@touch $@

# -- measurements

PEERS := bench/node
BENCH_ARGS ?=
.PHONY: bench

bench: setup-test $(PEERS)/node_modules/.stamp ## measure what is promised, a peer beside it; BENCH_ARGS=--quick
	@$(PYTHON) -m bench $(BENCH_ARGS)

$(PEERS)/node_modules/.stamp: $(PEERS)/package-lock.json $(VENV)/.stamp-test
	@echo "Installing bull-board for the measurements …"
	@$(NPM_CI) --prefix $(PEERS) >/dev/null
	@touch $@
