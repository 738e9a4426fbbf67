"""Figures of the paper that follow from the generated fabrics, and those that do not."""

import pytest

from lightrig.harness.claims import check_claims, load_published
from lightrig.harness.claims.published import PUBLISHED
from lightrig.harness.record import Results
from lightrig.harness.systems.acos.claims import COMPUTED

DIFFER = {
    *("m06", "m28", "m46"),
    *("c058-count", "c061", "c063-count", "c064-count", "c068", "c070"),
    *("c071-fabric", "c072-fabric", "c084-64", "c085", "c100", "c122"),
    *(f"c{number}" for number in range(126, 135)),
}
"""Misprints, what the wiring found here contradicts, and models whose inputs are not public."""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    published = load_published(PUBLISHED / "acos.yaml")
    found = check_claims(published, Results(tmp_path_factory.mktemp("empty")))
    return {one.claim.name: one for one in found}


def test_every_mechanism_and_claim_has_a_row_and_an_answer_or_a_reason(checked):
    rows = {name.partition("-")[0] for name in checked}
    assert rows == {f"m{n:02}" for n in range(1, 68)} | {f"c{n:03}" for n in range(1, 146)}
    for one in checked.values():
        assert (one.claim.computed is None) == bool(one.claim.unmeasured)
    assert {one.claim.computed for one in checked.values() if one.claim.computed} == set(COMPUTED)


def test_the_figures_that_differ_are_known_and_explained(checked):
    differ = {name for name, one in checked.items() if one.outcome == "differs"}
    assert differ == DIFFER
    for name in differ:
        assert checked[name].claim.erratum or checked[name].claim.note, name


@pytest.mark.parametrize(
    ("name", "value"),
    [("c039", 125.5), ("c058", 1495), ("c063", 2135.11), ("c064", 2355.56), ("c067", 1998)],
)
def test_costs_of_generated_fabrics(checked, name, value):
    assert checked[name].value.value == pytest.approx(value, abs=0.006)
    assert checked[name].outcome == "agrees"
