# Each target works alone on a fresh machine with Python >= 3.11 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types contract docs parity chaos ray labelstudio mutants bench clean release-check

demo: $(STAMP)
	$(BIN)/taps demo

# One thread a process: torch's threads would wait for each other.
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

chaos: $(STAMP)
	$(BIN)/python -m pytest -m slow tests/chaos

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
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,mutants]"
	$(BIN)/python tests/mutants.py $(MODULES)

bench: $(STAMP)
	$(BIN)/taps bench step --model pocket --classes 100 --buffer 0,150 --views 16 --quick

release-check:
	recipes/release_check.sh

# Installed once; again only when what is to be installed has changed.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) mutants build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
