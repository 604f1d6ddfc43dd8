# `make demo` and `make test` each make the virtual environment they need; nothing has to be installed before.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TYPES ?= build/types

.PHONY: demo test test-slow dist test-wheel lint types type-tree docs format clean

demo: $(VENV)/.demo
	$(BIN)/stack-lm demo

# A process for each core.
test: $(VENV)/.compiled
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow or not slow and not gpu and not network"

# The source archive, and the wheel from it; needs the package index.
dist: $(VENV)/.dev
	$(BIN)/pip install -q build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

test-wheel: $(VENV)/.dev
	$(BIN)/python -m pytest -m network tests/publishing/test_wheel.py

lint: $(VENV)/.dev types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev type-tree
	cd $(TYPES) && $(abspath $(BIN))/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache

# The sources as they install, with parsing/ and eval/ inside stack_lm: mypy looks modules up in folders only.
type-tree:
	mkdir -p $(TYPES)/stack_lm
	find $(TYPES) -type l -delete
	ln -s $(addprefix $(CURDIR)/,$(wildcard stack_lm/*) parsing eval) $(TYPES)/stack_lm
	ln -s $(CURDIR)/recipes $(CURDIR)/benchmarks $(CURDIR)/docs $(TYPES)

docs: $(VENV)/.docs type-tree
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[plots]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/.demo

# Once: the processes of the tests would each compile the same code, side by side.
$(VENV)/.compiled: $(VENV)/.dev stack_lm/kernels/layout.py $(wildcard stack_lm/kernels/cpu/*.py)
	$(BIN)/stack-lm warmup
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
