# `make demo` and `make test` each make the virtual environment they need; nothing has to be installed before.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TYPES ?= build/types

.PHONY: weight demo test test-slow compat compat-old compat-new dist test-wheel lint types type-tree docs format clean

demo: $(VENV)/.demo
	$(BIN)/stack-lm demo

# A process for each core.
test: $(VENV)/.compiled
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow or not slow and not gpu and not network"

# The oldest and the newest releases that pyproject.toml allows, each in an environment of its own. TORCH is the same at
# both ends: the default build is of gigabytes, and index servers have the CPU's build of few releases.
TORCH ?= 2.13.0
COMPAT ?= build/compat
COMPAT_TESTS ?= tests/models/test_generation.py tests/models/test_modeling.py tests/models/test_modeling_heads.py \
	tests/models/test_own_model.py tests/models/test_torch_export.py tests/hub/test_code.py \
	tests/clients/test_training.py tests/clients/test_peft.py tests/cli/test_cli.py

compat: compat-old compat-new

# Compiled kernels lie beside the sources, but for one release of numba.
compat-old compat-new: compat-%: $(COMPAT)/%.txt
	$(PYTHON) -m venv $(COMPAT)/$*
	$(COMPAT)/$*/bin/pip install -q torch==$(TORCH)
	$(COMPAT)/$*/bin/pip install -q --upgrade --upgrade-strategy eager torch==$(TORCH) -c $< -e ".[plots]" \
		hypothesis peft pytest setuptools
	NUMBA_CACHE_DIR=$(abspath $(COMPAT))/$*/numba $(COMPAT)/$*/bin/python -m pytest -q \
		-m "not gpu and not network" $(COMPAT_TESTS)

$(COMPAT)/old.txt: pyproject.toml tests/lower_bounds.py
	mkdir -p $(@D)
	$(PYTHON) tests/lower_bounds.py > $@

$(COMPAT)/new.txt:
	mkdir -p $(@D)
	touch $@

# Lines of code, of tests, and words.
weight:
	$(PYTHON) tests/weight.py

# The source archive, and the wheel from it; needs the package index.
dist: $(VENV)/.dev
	$(BIN)/pip install -q build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

test-wheel: $(VENV)/.dev
	$(BIN)/python -m pytest -m network tests/hub/test_wheel.py

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
