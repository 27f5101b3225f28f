# Callsheet's commands. A fresh clone needs Python 3.11+ and make: `make test`.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.installed
RUNS := .venv/.runs

APT := DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y --no-install-recommends chromium >/dev/null 2>&1 </dev/null

.DEFAULT_GOAL := help
.PHONY: help venv demo check browser test conformance faults storm simulate mutations differential deep bench reference format lock clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z]*\):.*## /  make \1: /p' Makefile

venv: $(STAMP) ## Create .venv with everything pinned in requirements/dev.txt

$(STAMP): requirements/dev.txt pyproject.toml
	@$(call install,dev)
	@touch $@ $(RUNS)

$(RUNS): requirements/demo.txt pyproject.toml # the half of it that the demo needs
	@$(call install,demo)
	@touch $@

define install
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Callsheet needs Python 3.11 or later")' || exit 1; \
	echo "installing what requirements/$(1).txt pins into .venv: some minutes, once"; \
	if command -v uv >/dev/null; then \
		{ test -x $(BIN)/python || uv venv --python $(PYTHON) .venv; } \
		&& uv pip install --python $(BIN)/python --require-hashes -r requirements/$(1).txt \
		&& uv pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .; \
	else \
		{ $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv; } \
		&& $(BIN)/python -m pip install --quiet --require-hashes -r requirements/$(1).txt \
		&& $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	fi
endef

demo: $(RUNS) ## The whole story once: make, read, search and cut a video, send a webhook (ENGINE=postgres, ENGINE=redis)
	$(BIN)/python -m tools.demo $(or $(ENGINE),sqlite)

check: venv ## Format, lint, types, the import law, no pin with known holes, plain words, short files
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.check_types
	$(BIN)/python -m tools.check_pins
	$(BIN)/python -m tools.check_words
	$(BIN)/python -m pytest -q -p no:xdist tests/architecture/test_sizes.py

browser: ## Chromium for the tests of pages: installed when it is missing and it can be
	@if command -v chromium >/dev/null; then exit 0; fi; \
	if command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
		echo "installing Chromium for the tests of pages: some minutes, once"; \
		$(APT) || { timeout 120 apt-get update >/dev/null 2>&1; $(APT); } && exit 0; \
	fi; \
	echo "there is no Chromium and it cannot be installed here (apt-get and root can): tests of pages are skipped"

# A failed test is tried once more and reported at the end; tests/flaky.md gets a line. A run may retry five tests. Tests
# without a clock and without neighbours, or whose second try could hide a rare input, are never retried.
SECOND_TRY := --reruns 1 --max-suite-reruns 5 --rerun-show-tracebacks \
	$(addprefix --rerun-exclude-path tests/,architecture differential docs kernel mutations simulation)

test: venv browser ## Every quick test, on real servers (ARGS="-k name" for some)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(SECOND_TRY) tests $(ARGS)

conformance: venv ## The store conformance suite as a table, store by store
	$(BIN)/python -m tests.conformance $(ARGS)

faults: venv ## Crashes, kills and restarts, for longer than `make test` does
	CALLSHEET_DEEP=1 $(BIN)/python -m pytest tests/faults $(ARGS)

storm: venv ## Ten minutes of random faults on each store, then a checker (ARGS="--minutes 3 --store redis --seed 7 --plan")
	$(BIN)/python -m tests.storm $(ARGS)

simulate: venv ## Ten thousand seeded worlds on virtual time on all cores (ARGS="--seeds 100 --first 1 --processes 2", "--seed 7 --trace")
	$(BIN)/python -m tests.simulation $(ARGS)

mutations: venv ## Remove every guard of the program once: its test must fail
	CALLSHEET_DEEP=1 $(BIN)/python -m pytest -n 4 --dist worksteal tests/mutations $(ARGS)

differential: venv ## All stores and the pure model under the same commands, for longer
	CALLSHEET_DEEP=1 $(BIN)/python -m pytest tests/differential $(ARGS)

deep: venv ## Mutations, differential and faults, one after the other, with one table at the end (ARGS="faults -- -k redis")
	$(BIN)/python -m tools.deep $(ARGS)

bench: venv ## Measure on this machine
	$(BIN)/python -m bench $(ARGS)

reference: venv ## Write docs/reference anew from the code
	$(BIN)/python -m tools.reference

format: venv ## Format, and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml

lock: ## Pin requirements/ anew from pyproject.toml (needs uv; ARGS=--upgrade for newer releases)
	$(COMPILE) $(ARGS) --output-file requirements/base.txt
	$(COMPILE) $(ARGS) --extra server --extra postgres --extra redis --extra media --group demo --output-file requirements/demo.txt
	$(COMPILE) $(ARGS) --extra all --group dev \
		--output-file requirements/dev.txt

clean: ## Remove .venv, caches and builds
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
