# make demo     a first prediction, in a virtual environment of its own
# make test     the whole test suite
# make check    linters, types, import contracts and the fast tests
# make bench    how fast the model itself is
# make picture  the terminal output of the demo as SVG
# make dashboard    the dashboard on http://127.0.0.1:8050
# make screenshots  its pictures for the documents; needs Chromium
# make users        how it bears ten users for a minute
# make latency      how long a change takes to show, view by view; needs Chromium
#
# PYTHON picks the interpreter the environment is made from, VENV where it goes. EXTRAS=test,kernel-tests installs torch
# and Triton too, without which `make test` skips the tests of the kernels.

PYTHON ?= python3
VENV ?= .venv
SCENARIO ?= scenarios/glm-5.1-1m-512xh20.yaml
PICTURE ?= build/prediction.svg
EXTRAS ?= test

# Compiled modules are kept, whatever the shell says: each process of a test would compile hundreds again.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
FACTS := pyproject.toml constraints.txt
comma := ,
# One stamp for each set of extras: another set calls for another installation.
TESTED = $(VENV)/.installed-for-$(subst $(comma),+,$(EXTRAS))

.PHONY: demo test check bench picture dashboard screenshots users latency clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/hyscale predict $(SCENARIO)
	@echo
	@echo "Next:"
	@echo "  source $(BIN)/activate"
	@echo "  hyscale predict $(SCENARIO) --set workload.sequence_length=524288"
	@echo "  hyscale predict $(SCENARIO) --json --output prediction.json"
	@echo "  hyscale catalog"
	@echo "Copy $(SCENARIO) and write your own model, cluster and layout into it."

test: $(TESTED)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not gpu" --hypothesis-profile=fewer

bench: $(VENV)/.installed
	$(BIN)/python -m hyscale_model.bench

picture: $(VENV)/.installed
	$(BIN)/python -m hyscale_model.report.svg $(SCENARIO) $(PICTURE)

dashboard: $(VENV)/.installed
	$(BIN)/python app.py

screenshots: $(TESTED)
	$(BIN)/python tests/browser/screenshots.py

users: $(TESTED)
	$(BIN)/python tests/browser/users.py

latency: $(TESTED)
	$(BIN)/python tests/browser/latency.py

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f $(VENV)/.installed*

# An editable installation follows the sources, so only changed requirements call for a new one.
$(VENV)/.installed: $(FACTS) | $(BIN)/python
	@echo "Installing hyscale-model into $(VENV) ..."
	@$(INSTALL) .
	@touch $@

$(TESTED): $(FACTS) | $(BIN)/python
	@echo "Installing hyscale-model and its extras $(EXTRAS) into $(VENV) ..."
	@$(INSTALL) '.[$(EXTRAS)]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: $(FACTS) | $(BIN)/python
	@echo "Installing hyscale-model and its development tools into $(VENV) ..."
	@$(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.installed-for-test $(VENV)/.installed

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null 2>&1 \
	  || { echo "No $(PYTHON) here. Install Python 3.11 or later, or say which one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "hyscale-model needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V 2>&1). Say which one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "$(PYTHON) cannot make virtual environments: its venv module is missing (a package such as python3-venv has it)." >&2; exit 1; }
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
