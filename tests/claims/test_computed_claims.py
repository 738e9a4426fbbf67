"""Claims that arithmetic answers: found by name, never taken for a measurement."""

import json
import sys

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lightrig.harness.claims import computed
from lightrig.harness.claims.checking import check_claims
from lightrig.harness.claims.commands import claims
from lightrig.harness.claims.computed import Computed, computed_by, exactly, over_draws
from lightrig.harness.claims.published import load_published
from lightrig.harness.claims.verdicts import CONFIDENCE, Estimate, interval_text, value_text
from lightrig.harness.record import Results
from lightrig.harness.system_registry import installed_systems
from lightrig.testbeds import TestbedError

CLAIMS = """\
from lightrig.harness.claims.computed import exactly, over_draws

COMPUTED = {
    "circuits": lambda: exactly(24, "the paper's own example"),
    "waste": lambda: over_draws([0.005, 0.006, 0.007], "a random half of the nodes"),
}
"""
YAML = """\
system: mine_fabric
paper: A paper of ours
testbed: bench
basis: computed
paths:
  halves: "a random half of the nodes, counted"
claims:
  circuits:
    says: So many links.
    printed: "24"
    holds: {from: 24, to: 24}
    source: §7
    computed: circuits
    basis: printed
  waste:
    says: So much is wasted.
    printed: 2 %
    holds: {from: 1.5 %, to: 2.5 %}
    source: §6
    computed: waste
    path: halves
"""


INIT = """\
from lightrig.harness.system_registry import System

SYSTEM = System(name="mine_fabric", title="Mine", claims="mine_fabric.claims:COMPUTED")
"""


@pytest.fixture
def fabric(tmp_path, monkeypatch):
    """A system of another project, installed beside ours, which computes the claims of `CLAIMS`."""
    package, installed = tmp_path / "mine_fabric", tmp_path / "mine_fabric-1.0.dist-info"
    package.mkdir()
    installed.mkdir()
    (package / "__init__.py").write_text(INIT)
    (package / "claims.py").write_text(CLAIMS)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine_fabric\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[lightrig.systems]\nmine_fabric = mine_fabric:SYSTEM\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    installed_systems.cache_clear()
    yield
    installed_systems.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine_fabric"]:
        del sys.modules[name]


@pytest.fixture
def path(tmp_path, fabric):
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    return path


def test_a_formula_and_draws_answer_by_name(path, tmp_path):
    circuits, waste = check_claims(load_published(path), Results(tmp_path))
    assert (circuits.kind, circuits.outcome, circuits.exact) == ("printed", "agrees", True)
    assert circuits.rests_on == "the paper's own example"
    assert (waste.kind, waste.outcome, waste.exact) == ("computed", "differs", False)
    assert circuits.verdict == "reproduces"
    assert waste.value.n == 3
    assert waste.night is None


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("computed: waste", "computed: wast", "'wast', but .* computes is: circuits, waste"),
        (
            "system: mine_fabric",
            "system: nobody",
            "no system 'nobody' is installed; there are: acos, .*mine_fabric",
        ),
        ("basis: computed\n", "", "found no `basis`, expected one of computed, emulated, printed"),
        (
            "    path: halves\n",
            "",
            "found no `path`; a claim of the basis 'computed' names its path",
        ),
        ("path: halves", "path: half", "found 'half', but `paths` describes: halves"),
        ("basis: printed", "path: halves\n    basis: printed", "`path` with the basis 'printed'"),
        ("computed: waste", "computed: waste\n    unmeasured: why", "`computed` and `unmeasured`"),
        (
            "computed: waste",
            "computed: waste\n    ours: {quantity: x, statistic: mean}",
            "`ours` and `computed`",
        ),
    ],
)
def test_a_claim_that_cannot_be_computed_is_named_with_its_place(path, old, new, what):
    path.write_text(YAML.replace(old, new))
    with pytest.raises(TestbedError, match=what):
        load_published(path)


def test_a_system_without_arithmetic_computes_nothing():
    assert computed_by("no_such_system") == {}
    assert computed_by("not an identifier") == {}


def test_terminal_document_and_page_show_the_basis(path, tmp_path):
    app = typer.Typer()
    app.command()(claims)
    page = tmp_path / "claims.html"
    run = CliRunner().invoke
    shown = run(app, [str(path), "--results", str(tmp_path), "--html", str(page)])
    assert shown.exit_code == 1
    assert "circuits\treproduces\tprinted\t24\t24\t" in shown.stdout
    assert "waste\tdiffers\tcomputed\t2 %\t0.60 %\t" in shown.stdout
    answer = run(app, [str(path), "--results", str(tmp_path), "--json"])
    first, second = json.loads(answer.stdout)
    assert (first["kind"], first["computed"], first["simulated"]) == ("printed", "circuits", False)
    assert second["rests_on"] == "a random half of the nodes"
    html = page.read_text()
    assert "outside the count, printed: arithmetic and constants of the paper: 1 rep" in html
    assert "Path: a random half of the nodes, counted" in html
    assert "95 % of draws in" in html
    assert "Of 1 claims 1 have a value here and 0 agree; 0 were measured here" in html
    assert html.index('id="waste"') < html.index('id="circuits"')


def test_a_value_is_written_with_the_digits_that_it_has():
    assert value_text(Estimate(17_924.0, 17_924.0, 17_924.0, 1), "1") == "17,924"
    assert value_text(Estimate(19.5319, 16.8, 22.2, 20), "1") == "19.5"
    assert value_text(Estimate(0.0051986153, 0.004, 0.006, 20), "share") == "0.52 %"
    assert (
        interval_text(Estimate(0.0051986153, 0.0043678, 0.0060294, 20), "share")
        == "0.436 … 0.603 %"
    )


# ------------------------------------------------------------------------- the interval


def test_the_interval_is_that_of_the_estimates():
    assert computed.CONFIDENCE == CONFIDENCE


def test_a_formula_has_no_width():
    assert exactly(3.5, "why") == Computed(3.5, 3.5, 3.5, 1, "why")


def test_one_draw_has_no_prediction_interval():
    with pytest.raises(ValueError, match="found 1 draw"):
        over_draws([1.0])


def test_the_interval_covers_one_more_draw_at_its_confidence():
    random = np.random.default_rng(1)
    drawn = random.normal(5, 2, (2000, 21))
    inside = 0
    for *before, after in drawn.tolist():
        found = over_draws(before)
        inside += found.lower <= after <= found.upper
    assert 0.93 <= inside / 2000 <= 0.97


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_mean_is_in_the_middle(values):
    found = over_draws(values)
    assert found.n == len(values)
    assert found.value - found.lower == pytest.approx(found.upper - found.value, abs=1e-6)
