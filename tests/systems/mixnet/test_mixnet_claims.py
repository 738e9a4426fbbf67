"""The paper's figures, by arithmetic."""

import pytest

from lightrig.harness.claims import load_published
from lightrig.harness.claims.published import PUBLISHED
from lightrig.harness.claims.verdicts import Estimate, compare
from lightrig.harness.systems.mixnet.claims import COMPUTED
from lightrig.harness.systems.mixnet.planning.costs import PRICES, fat_tree_cost, mixnet_cost


@pytest.fixture(scope="module")
def claims():
    return load_published(PUBLISHED / "mixnet.yaml").claims


def test_everything_that_is_computed_answers_a_claim(claims):
    assert set(COMPUTED) == {claim.computed for claim in claims} - {None}


@pytest.mark.parametrize("name", sorted(COMPUTED))
def test_only_known_errata_are_not_as_printed(claims, name):
    by_name = {claim.computed: claim for claim in claims}
    found = COMPUTED[name]()
    ours = Estimate(found.value, found.lower, found.upper, found.n)
    outcome, _ = compare(by_name[name].figure, ours, by_name[name].tolerance)
    # Some generated exchanges leave a server without a circuit: 21 to 24 links.
    expected = {
        "dual-nic-failure": "differs",
        "circuits": "cannot tell",
        # By the authors' released table.
        "comparable-qwen": "differs",
        "cost-efficiency-100-8x7b": "differs",
    }
    assert outcome == expected.get(name, "agrees")
    assert found.note


def test_every_claim_has_a_result_or_a_reason(claims):
    for claim in claims:
        answers = [claim.ours, claim.computed, claim.unmeasured]
        assert sum(answer is not None for answer in answers) == 1, claim.name


def test_costs_by_hand():
    prices = PRICES[100]
    assert fat_tree_cost(prices, nics=1) == 659 + 99 + 5 * (187 + 99)
    assert mixnet_cost(prices, optical=1, packet=0) == 659 + 99 + 520
