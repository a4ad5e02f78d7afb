# Each target works alone on a fresh machine with Python >= 3.11 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
LISTS := pyproject.toml packages/pocket/pyproject.toml constraints.txt

.PHONY: demo check test slow lint types contract docs parity chaos ray labelstudio mutants bench clean release-check

demo: $(RUNTIME)
	$(BIN)/taps demo

# One thread a process: torch's threads would wait for each other.
# A part of the tests, the quick ones of every package; tests/quick.txt names them.
check: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile $$(cat tests/quick.txt)

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses auto --maxprocesses 4 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contract: $(STAMP)
	$(BIN)/lint-imports

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

parity: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/parity

# Recipes, benchmarks and trainings that take a minute or more each.
slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow tests/benchmarks tests/study/evaluate tests/study/training

# One thread, as the service's processes have: the states that are compared must be the same to the bit.
chaos: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow tests/chaos

# Evaluations, statistics and services on a real Ray cluster of several nodes on this machine; some are in `make test`.
# Workers compute with one thread, and so must the runs they are compared with: several add up in another order.
ray: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster

# Installs the real Label Studio into a folder of its own, and drives it end to end on loopback.
labelstudio: $(STAMP)
	$(PYTHON) -m venv $(VENV)-labelstudio
	$(VENV)-labelstudio/bin/python -m pip install --quiet --disable-pip-version-check label-studio
	TAPS_LABEL_STUDIO=$(CURDIR)/$(VENV)-labelstudio/bin/label-studio $(BIN)/python -m pytest -m slow tests/labelstudio

# An hour or more: plants small bugs one by one; `make mutants MODULES="head/ridge head/mixture"` for some modules.
mutants: $(STAMP)
	$(PIP) -e packages/pocket -e ".[dev,mutants]"
	$(BIN)/python tests/mutants.py $(MODULES)

bench: $(STAMP)
	$(BIN)/taps bench step --model pocket --classes 100 --buffer 0,150 --views 16 --quick

release-check:
	$(PYTHON) recipes/release/check.py

# Installed once; again only when what is to be installed has changed. The demo needs what `pip install` brings, no more.
$(RUNTIME): $(LISTS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile -e packages/pocket -e .
	touch $(RUNTIME)

$(STAMP): $(LISTS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e packages/pocket -e ".[dev]"
	touch $(RUNTIME) $(STAMP)

clean:
	rm -rf $(VENV) mutants build dist src/*.egg-info packages/*/src/*.egg-info packages/*/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
