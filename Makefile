# Two commands do everything from a fresh clone: `make evolve` and `make test`.
.DELETE_ON_ERROR:
.PHONY: evolve test test-bare gpu snapshots format clean help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BARE := .venv-bare
BARE_STAMP := $(BARE)/.installed
PIP := -m pip install --quiet --disable-pip-version-check

help:
	@echo "make evolve     evolve the gemm kernel offline, without a GPU"
	@echo "make test       format, lint, types, import directions and all tests that need no GPU"
	@echo "make test-bare  prove that the compiler half works on a bare GPU host's packages"
	@echo "make gpu        the tests that need a GPU, with this host's own python ($(PYTHON))"
	@echo "make snapshots  rewrite what rules say and the generated CUDA under tests; read the difference"
	@echo "make format     rewrite the sources in the house format"
	@echo "make clean      remove the virtual environments and caches"

evolve: $(STAMP)
	$(BIN)/cake evolve gemm --backend machine --candidates 40 --seed 0

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .cache/import_linter
	$(BIN)/python -m pytest -m "not gpu" -n 2 --dist worksteal

# Only what a GPU host has: proves that the compiler half imports nothing else.
test-bare: $(BARE_STAMP)
	PYTHONPATH=core $(BARE)/bin/python -m pytest tests/test_bare.py
	PYTHONPATH=core $(BARE)/bin/python -m pytest -m gpu --collect-only -q tests/gpu

gpu:
	PYTHONPATH=core $(PYTHON) -m pytest -m gpu tests/gpu

snapshots: $(STAMP)
	$(BIN)/python -m pytest -q tests/test_snapshots.py tests/codegen tests/verify/test_rendering.py --write-snapshots

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(BARE) .cache

$(STAMP): pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cake needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) -e '.[dev]'
	@touch $@

$(BARE_STAMP): Makefile
	$(PYTHON) -m venv $(BARE)
	$(BARE)/bin/python $(PIP) numpy ml_dtypes pluggy cuda-bindings cuda-core pytest
	@touch $@
