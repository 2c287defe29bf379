# Everything installs into .venv with the locked versions of constraints.txt.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench

.PHONY: demo test test-docs check test-extras torture mutants bench docs release format clean

demo: $(VENV)/.dev
	$(BIN)/roamax demo

# Tests compile in a third of the time without optimisations; those marked `optimized` turn them on again.
QUICKLY := XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1" JAX_DISABLE_MOST_OPTIMIZATIONS=true

test: $(VENV)/.dev
	$(QUICKLY) $(BIN)/pytest -n 2 --dist worksteal -m "not slow and not extras and not docs"

check: $(VENV)/.extras
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

test-docs: $(VENV)/.dev
	$(QUICKLY) $(BIN)/pytest -n 2 -m "docs and not slow and not extras"

test-extras: $(VENV)/.extras $(VENV)/.docs
	$(BIN)/pytest -m "extras and not slow"

torture: $(VENV)/.extras
	$(BIN)/pytest -m slow

mutants: $(VENV)/.dev
	$(BIN)/python tests/mutants.py

bench: $(BENCH)/.bench
	$(BENCH)/bin/python -m benchmarks

docs: $(VENV)/.docs
	$(BIN)/python -m mkdocs build --strict

# sdist and wheel into dist/, tried outside of the repository; RELEASE_PYTHON=python3.13 tries them with another Python.
RELEASE_PYTHON ?= $(PYTHON)
release: $(VENV)/.release
	$(BIN)/python tests/release.py $(RELEASE_PYTHON)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(BENCH) runs demo dist site bench.json

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.dev: $(VENV)/bin/pip pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --group dev --editable . --constraint constraints.txt
	touch $@

$(VENV)/.extras: $(VENV)/.dev
	$(BIN)/pip install --quiet --group extras --constraint constraints.txt
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/pip install --quiet --group docs --constraint constraints.txt
	touch $@

$(VENV)/.release: $(VENV)/.dev
	$(BIN)/pip install --quiet --group release --constraint constraints.txt
	touch $@

# The libraries that roamax is compared with are in nobody's way there.
$(BENCH)/.bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/pip install --quiet --upgrade pip
	$(BENCH)/bin/pip install --quiet --group bench --editable . --constraint constraints.txt
	touch $@
