# Everything sets up what it needs. PYTHON may name another interpreter of 3.11 or later.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

NIGHT  ?= --testbed testbeds/opus.yaml --testbed testbeds/namespaces.yaml \
          --testbed testbeds/infinitehbd.yaml \
          --instruments simulated --profile night --seed 1

# The tests start Python some hundred times: it may keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install night test lint bench clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[dev]'
	touch $@

night: $(READY)
	$(BIN)/python -m pytest suites $(NIGHT)

test: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
