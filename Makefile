# Two commands on a fresh machine: `make run` and `make test`. Both need Python 3.11 and nothing else.
# Every step leaves a stamp and is done again only when what it depends on has changed.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup setup-test run test test-long test-loki test-n8n lint format locks clean screenshots

# An environment of the caller's must not lead the project's Python astray.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV DJANGO_SETTINGS_MODULE
# Without compiled modules each of the many processes compiles them again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
LOCKS := deploy/locks
FLEET := tests/node
STATIC := $(shell find static -type f 2>/dev/null)
WORKERS ?= 2
# A file stays with one worker, so what its tests share is started once; the longest files come first in any case.
SPREAD := --dist loadfile --no-loadscope-reorder
PYTEST_ARGS ?=

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

test: lint ## the whole gate; pytest's summary is the last thing printed
	@$(PYTHON) -m pytest -q -n $(WORKERS) $(SPREAD) -m "not long and not loki and not n8n" $(PYTEST_ARGS)

test-long: setup-test ## soak and generated states by the thousand
	@$(PYTHON) -m pytest -q -n $(WORKERS) $(SPREAD) -m long --timeout 3600 $(PYTEST_ARGS)

test-loki: setup-test ## the contract of logs with a real Loki, which Go builds once
	@program=$$(sh deploy/setup/loki.sh) && LOKI="$$program" $(PYTHON) -m pytest -q -m loki tests/contract/test_log_source_loki_real.py $(PYTEST_ARGS)

test-n8n: setup-test ## the repairs of n8n with a real one, which is installed once
	@folder=$$(sh deploy/setup/n8n.sh) && N8N="$$folder" $(PYTHON) -m pytest -q -m n8n tests/contract/test_n8n_real.py $(PYTEST_ARGS)

screenshots: setup-test ## take the README's pictures anew from the demo
	@$(PYTHON) docs/img/take.py

locks: ## write deploy/locks anew from pyproject.toml
	@sh deploy/setup/locks.sh

clean: ## remove what the steps above made; the data directory stays
	rm -rf $(VENV) .static $(FLEET)/node_modules .mypy_cache .ruff_cache .pytest_cache

$(PYTHON):
	@sh deploy/setup/venv.sh $(VENV)

# test.txt holds every pin of demo.txt, so either order of the two leaves the same versions.
$(VENV)/.stamp-run: $(LOCKS)/demo.txt | $(PYTHON)
	@echo "Installing what the program needs …"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r $<
	@touch $@

$(VENV)/.stamp-test: $(LOCKS)/test.txt $(VENV)/.stamp-run | $(PYTHON)
	@echo "Installing what the tests need …"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r $<
	@touch $@

.static/.stamp: $(STATIC) dashboard/settings.py $(VENV)/.stamp-run
	@$(PYTHON) manage.py collectstatic --noinput --clear --verbosity 0
	@touch $@

# Scripts of packages are not run: the libraries work without their compiled extras.
$(FLEET)/node_modules/.stamp: $(FLEET)/package-lock.json $(VENV)/.stamp-test
	@echo "Installing the real Bull and BullMQ for the tests …"
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix $(FLEET) ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

# -- measurements

PEERS := bench/node
BENCH_ARGS ?=
.PHONY: bench

bench: setup-test $(PEERS)/node_modules/.stamp ## measure what is promised, a peer beside it; BENCH_ARGS=--quick
	@$(PYTHON) -m bench $(BENCH_ARGS)

$(PEERS)/node_modules/.stamp: $(PEERS)/package-lock.json $(VENV)/.stamp-test
	@echo "Installing bull-board for the measurements …"
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix $(PEERS) ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@
