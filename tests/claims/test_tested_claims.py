"""Claims that tests answer: their outcomes are stored, and hold for the code that was tested."""

import json
import sys

import pytest

from lightrig.harness.claims.checking import check_claims
from lightrig.harness.claims.published import load_published, published_files
from lightrig.harness.claims.tested import OutcomesError, outcomes_of
from lightrig.harness.record import Results
from lightrig.harness.system_registry import installed_systems

pytest_plugins = ["pytester"]

BUILT_IN = [name for name, system in installed_systems().items() if system.built_in]

YAML = """\
system: mine_system
paper: A paper of ours
testbed: bench
claims:
  ring: {says: Rings close., source: §2, tested: true}
  skip: {says: Rings skip any node., source: §3, tested: true}
  idle: {says: Links idle., source: §4, tested: true}
"""
INIT = """\
from pathlib import Path
from lightrig.harness.system_registry import System

SYSTEM = System(
    name="mine_system", title="Mine", claims="mine_system.claims:COMPUTED",
    published=Path(__file__).parents[1] / "mine.yaml",
)
"""
TESTS = """\
import pytest

@pytest.mark.claim("mine_system:ring")
@pytest.mark.parametrize("nodes", [3, 4])
def test_a_ring(nodes):
    pass

@pytest.mark.claim("mine_system:skip", "mine_system:ring")
def test_a_skip():
    pass

@pytest.mark.claim("mine_system:skip")
@pytest.mark.xfail(reason="the last node has no neighbour", strict=True)
def test_the_last():
    assert False

def test_another():
    assert False
"""
OPTIONS = ("-p", "lightrig.harness.claims.record_tests", "-p", "no:cacheprovider", "-m", "claim")


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Install a system of another project, whose file of published values is mine.yaml."""
    package, installed = tmp_path / "mine_system", tmp_path / "mine_system-1.0.dist-info"
    package.mkdir()
    installed.mkdir()
    (package / "__init__.py").write_text(INIT)
    (package / "claims.py").write_text("COMPUTED = {}\n")
    (tmp_path / "mine.yaml").write_text(YAML)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine_system\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[lightrig.systems]\nmine_system = mine_system:SYSTEM\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    installed_systems.cache_clear()
    yield tmp_path
    installed_systems.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine_system"]:
        del sys.modules[name]


@pytest.fixture
def make_claims(system, pytester):
    """Run the tests of `TESTS` as `make claims` does."""

    def make_claims(tests=TESTS):
        pytester.makepyfile(test_mine=tests)
        return pytester.runpytest_inprocess(*OPTIONS)

    return make_claims


@pytest.fixture
def check(system, tmp_path_factory):
    def check():
        empty = Results(tmp_path_factory.mktemp("empty"))
        found = check_claims(load_published(system / "mine.yaml"), empty)
        return {one.claim.name: one for one in found}

    return check


def test_before_they_ran_nothing_is_known(check):
    ring = check()["ring"]
    assert (ring.outcome, ring.value) == ("not measured", None)
    assert ring.reason == "Its tests have not run on this version; `make claims` runs them."


def test_a_claim_agrees_where_all_its_tests_hold(make_claims, check):
    make_claims().assert_outcomes(passed=3, xfailed=1, deselected=1)
    ring = check()["ring"]
    assert (ring.verdict, ring.kind, ring.value.value) == ("agrees", "tested", 1)
    assert ring.rests_on == "3 of 3 tests"
    assert check()["idle"].outcome == "not measured"


def test_a_case_that_is_expected_to_fail_counts_against_the_claim(make_claims, check):
    make_claims()
    skip = check()["skip"]
    assert (skip.verdict, skip.value.value) == ("differs", 0.5)
    assert skip.reason == "1 of 2 tests hold. Not the last: the last node has no neighbour."


RINGS = """\
# Rings of nodes.
from mine_system.steps import step

def ring(nodes):
    "Return the nodes of a ring."
    return [step(node) for node in range(nodes)]
"""
STEPS = """\
from importlib.resources import files

_DATA = "step.txt"

def step(node):
    return node + int(files("mine_system").joinpath(_DATA).read_text())
"""
IMPORTING = """\
import pytest
from mine_helpers import ring

@pytest.mark.claim("mine_system:ring")
def test_a_ring():
    assert ring(3) == [1, 2, 3]
"""
IDLE = """\
import pytest
from mine_system import idle

@pytest.mark.claim("mine_system:idle")
def test_idle():
    assert idle.SHARE == 0.5
"""


@pytest.fixture
def tested(system, pytester):
    """Run tests of two files, one of which imports the system through a file of helpers."""
    package = system / "mine_system"
    (package / "rings.py").write_text(RINGS)
    (package / "steps.py").write_text(STEPS)
    (package / "step.txt").write_text("1\n")
    (package / "idle.py").write_text("SHARE = 0.5\n")
    (package / "other.py").write_text("UNUSED = 1\n")
    pytester.makepyfile(
        test_mine_rings=IMPORTING,
        test_mine_idle=IDLE,
        mine_helpers="from mine_system.rings import ring\n",
    )
    pytester.syspathinsert()
    pytester.runpytest_inprocess(*OPTIONS).assert_outcomes(passed=2)
    return package


def measured(check):
    return {name for name in ("ring", "idle") if check()[name].outcome == "agrees"}


@pytest.mark.parametrize(
    ("file", "text", "holds"),
    [
        ("rings.py", RINGS.replace("# Rings of nodes.", "# Rings\n\n"), {"ring", "idle"}),
        ("rings.py", RINGS.replace("Return the nodes", "The nodes"), {"ring", "idle"}),
        ("rings.py", RINGS.replace("range(nodes)", "range(nodes - 1)"), {"idle"}),
        ("steps.py", STEPS.replace("node + int", "node - int"), {"idle"}),
        ("step.txt", "2\n", {"idle"}),
        ("idle.py", "SHARE = 0.25\n", {"ring"}),
        ("other.py", "UNUSED = 2\n", {"ring", "idle"}),
        ("claims.py", "COMPUTED = {'': None}\n", {"ring", "idle"}),
        ("__init__.py", INIT.replace('"Mine"', '"Mine, again"'), set()),
    ],
)
def test_outcomes_hold_while_the_code_that_their_tests_import_is_the_same(
    tested, check, file, text, holds
):
    assert measured(check) == {"ring", "idle"}
    (tested / file).write_text(text)
    assert measured(check) == holds
    if "ring" not in holds:
        reason = check()["ring"].reason
        assert reason.startswith("Its tests have not run on this version, whose code changed since")
        assert reason.endswith("; `make claims` runs them.")


def test_a_module_that_is_no_longer_there_has_changed(tested, check):
    (tested / "steps.py").rename(tested / "paces.py")
    assert measured(check) == {"idle"}


def test_tests_that_import_no_module_stand_for_all_code(make_claims, check, system):
    make_claims()
    assert check()["ring"].outcome == "agrees"
    (system / "mine_system" / "claims.py").write_text("COMPUTED = {'': None}\n")
    assert check()["ring"].outcome == "not measured"


def test_a_test_that_fails_is_stored_with_its_reason(make_claims, check):
    failing = TESTS.replace("    pass", "    assert [nodes] == [3]", 1)
    assert make_claims(failing).ret == 1
    ring = check()["ring"]
    assert ring.value.value == pytest.approx(2 / 3)
    assert ring.reason.startswith("2 of 3 tests hold. Not 4: ")
    assert "assert [4] == [3]" in ring.reason


def test_a_mark_names_a_system(make_claims):
    result = make_claims(TESTS.replace("mine_system:skip", "nobody:skip"))
    result.stderr.fnmatch_lines(["*found claim('nobody:skip'), expected SYSTEM:CLAIM of *"])


def test_an_unreadable_file_is_named(make_claims, check, system):
    make_claims()
    path = system / "mine.tests.json"
    path.write_text(json.dumps({"digest": 1}))
    with pytest.raises(OutcomesError, match=r"mine\.tests\.json: not a file of test outcomes"):
        check()


@pytest.mark.parametrize("name", BUILT_IN)
def test_all_tested_claims_of_the_checkout_have_outcomes(name):
    """A change of a system's code is committed with the outcomes of its tests."""
    published = load_published(published_files()[name])
    outcomes = outcomes_of(published)
    names = [claim.name for claim in published.claims if claim.tested]
    void = {name: outcomes.missing(name) for name in names if not outcomes.of(name)}
    assert not void, f"run `make claims` and commit results/published: {void}"
