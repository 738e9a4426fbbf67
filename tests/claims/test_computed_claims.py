"""Claims that arithmetic answers: found by name, never taken for a measurement."""

import importlib
import json
import sys

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import harness.fabrics
from harness.claims import check_claims, load_published
from harness.claims.computed import computable
from harness.claims.verdicts import CONFIDENCE, Estimate, reach, worded
from harness.cli.claims import claims
from harness.cli.common import out
from harness.fabrics import computed
from harness.fabrics.computed import Computed, exactly, over_draws
from harness.record import Results
from testbeds import TestbedError

CLAIMS = """\
from harness.fabrics.computed import exactly, over_draws

COMPUTED = {
    "circuits": lambda: exactly(24, "the paper's own example"),
    "waste": lambda: over_draws([0.005, 0.006, 0.007], "a random half of the nodes"),
}
"""
YAML = """\
system: mine_fabric
paper: A paper of ours
testbed: bench
claims:
  circuits:
    says: So many links.
    printed: "24"
    holds: {from: 24, to: 24}
    source: §7
    computed: circuits
  waste:
    says: So much is wasted.
    printed: 2 %
    holds: {from: 1.5 %, to: 2.5 %}
    source: §6
    computed: waste
"""


@pytest.fixture
def fabric(tmp_path, monkeypatch):
    """A control plane beside the project's own, which computes what `CLAIMS` says."""
    package = tmp_path / "mine_fabric"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "claims.py").write_text(CLAIMS)
    monkeypatch.setattr(harness.fabrics, "__path__", [*harness.fabrics.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.startswith("harness.fabrics.mine_fabric")]:
        monkeypatch.delitem(sys.modules, name)
    vars(harness.fabrics).pop("mine_fabric", None)


@pytest.fixture
def path(tmp_path, fabric):
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    return path


def test_a_formula_and_draws_answer_by_name(path, tmp_path):
    circuits, waste = check_claims(load_published(path), Results(tmp_path))
    assert (circuits.kind, circuits.outcome, circuits.exact) == ("computed", "agrees", True)
    assert circuits.rests_on == "the paper's own example"
    assert (waste.kind, waste.outcome, waste.exact) == ("computed", "differs", False)
    assert waste.ours.n == 3
    assert waste.night is None


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("computed: waste", "computed: wast", "'wast', but .* computes is: circuits, waste"),
        ("system: mine_fabric", "system: nobody", "what nobody computes is: nothing"),
        ("computed: waste", "computed: waste\n    unmeasured: why", "beside `unmeasured`"),
        (
            "computed: waste",
            "computed: waste\n    ours: {quantity: x, statistic: mean}",
            "beside `ours`",
        ),
    ],
)
def test_what_cannot_answer_is_named_with_its_place(path, old, new, what):
    path.write_text(YAML.replace(old, new))
    with pytest.raises(TestbedError, match=what):
        load_published(path)


def test_a_system_without_arithmetic_computes_nothing():
    assert computable("no_such_system") == {}
    assert computable("not an identifier") == {}


def test_the_terminal_the_document_and_the_page_call_it_computed(path, tmp_path, monkeypatch):
    monkeypatch.setattr(out, "width", 200)
    app = typer.Typer()
    app.command()(claims)
    page = tmp_path / "claims.html"
    run = CliRunner().invoke
    shown = run(app, [str(path), "--results", str(tmp_path), "--html", str(page)])
    assert shown.exit_code == 1
    assert "24 (computed)" in shown.stdout
    assert "0.6 % (computed)" in shown.stdout
    assert "measured by nobody" in shown.stdout
    first, second = json.loads(run(app, [str(path), "--json"]).stdout)
    assert (first["kind"], first["computed"], first["simulated"]) == ("computed", "circuits", False)
    assert second["rests_on"] == "a random half of the nodes"
    html = page.read_text()
    assert "computed, nothing drawn" in html
    assert "95 % of draws lie in" in html
    assert "measured)" not in html


def test_a_value_is_written_with_the_digits_that_it_has():
    assert worded(Estimate(17_924.0, 17_924.0, 17_924.0, 1), "1") == "17,924"
    assert worded(Estimate(19.5319, 16.8, 22.2, 20), "1") == "19.53"
    assert worded(Estimate(0.0051986153, 0.004, 0.006, 20), "share") == "0.5199 %"
    assert reach(Estimate(0.0051986153, 0.0043678, 0.0060294, 20), "share") == "0.4368 … 0.6029 %"


# ------------------------------------------------------------------------- the interval


def test_the_interval_is_that_of_the_estimates():
    assert computed.CONFIDENCE == CONFIDENCE


def test_a_formula_has_no_width():
    assert exactly(3.5, "why") == Computed(3.5, 3.5, 3.5, 1, "why")


def test_one_draw_says_nothing_of_the_next():
    with pytest.raises(ValueError, match="found 1 draw"):
        over_draws([1.0])


def test_one_more_draw_lies_within_as_often_as_promised():
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
