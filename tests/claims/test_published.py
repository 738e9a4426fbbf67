"""Files of published values: the project's own, and what is wrong with others."""

import math

import pytest

from lightrig.harness.claims.published import load_published, published_files
from lightrig.harness.system_registry import installed_systems
from lightrig.testbeds import TestbedError

GOOD = """\
system: mine
paper: A paper
testbed: bench
claims:
  turnaround:
    says: It takes so long.
    printed: ≈ 41 ms
    holds: {from: 40.5 ms, to: 41.5 ms}
    source: §6
    ours: {quantity: reconfiguration.acknowledged, statistic: mean, conditions: {moving: 4}}
"""


def test_systems_of_this_checkout_have_a_file():
    assert published_files().keys() == installed_systems().keys()
    assert {"acos", "infinitehbd", "mixnet", "opus", "railx"} <= published_files().keys()


@pytest.mark.parametrize("system", list(published_files()))
def test_every_claim_has_a_source_and_the_figure_it_prints(system):
    published = load_published(published_files()[system])
    assert published.system == system
    assert published.claims
    for claim in published.claims:
        assert claim.statement.endswith(".")
        assert claim.source
        assert claim.figure.printed.strip()
        assert claim.figure.low <= claim.figure.high


def test_a_claim_as_it_is_read(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD)
    (claim,) = load_published(path).claims
    assert (claim.figure.low, claim.figure.high, claim.figure.unit) == (40.5e6, 41.5e6, "ns")
    assert (claim.ours.statistic, claim.ours.conditions) == ("mean", {"moving": 4})
    assert (claim.ours.pick, claim.ours.since, claim.line) == ("worst", None, 5)
    assert (claim.tolerance, claim.basis) == (None, None)
    path.write_text(GOOD + "    tolerance: {share: 5 %, reason: as the draws scatter}\n")
    assert load_published(path).claims[0].tolerance == (0.05, "as the draws scatter")
    path.write_text(GOOD.replace("from: 40.5 ms, ", ""))
    assert load_published(path).claims[0].figure.low == -math.inf


@pytest.mark.parametrize(
    ("old", "new", "place", "what"),
    [
        ("from: 40.5 ms", "from: 40.5", "8:19", "for reconfiguration.acknowledged, expected"),
        ("from: 40.5 ms", "from: 42 ms", "8:12", "expected the lower value first"),
        ("{from: 40.5 ms, to: 41.5 ms}", "{}", "8:12", "neither 'from' nor 'to'"),
        ("statistic: mean", "statistic: mode", "10:63", "expected 'median'"),
        ("    source: §6\n", "", "5:3", "'source' is missing"),
        ("printed", "prints", "7:5", "did you mean 'printed'"),
        ("    ours", "    unmeasured: why\n    ours", "10:17", "found `ours` and `unmeasured`"),
        ("    ours", "    basis: printed\n    ours", "10:12", "only a claim with `computed`"),
        ("    ours", "    tolerance: {share: 5}\n    ours", "10:24", "expected a percentage"),
        ("    ours", "    tolerance: {share: 5 %}\n    ours", "10:5", "'reason' is missing"),
        ("    ours", "    tested: true\n    ours", "10:13", "found `ours` and `tested`"),
        ("    ours", "    same_as: other\n    ours", "10:14", "expected another claim"),
    ],
)
def test_mistakes_are_located(tmp_path, old, new, place, what):
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(TestbedError) as caught:
        load_published(path)
    assert f"{path}:{place}: " in str(caught.value)
    assert what in str(caught.value)


def test_two_units_in_one_figure(tmp_path):
    path = tmp_path / "mine.yaml"
    text = GOOD.partition("    ours")[0].replace("41.5 ms}", "3 dB}")
    path.write_text(text)
    with pytest.raises(TestbedError, match="found two units, ns and dB"):
        load_published(path)
