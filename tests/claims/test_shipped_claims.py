"""The five files of published values: each row has its answer, each difference its reason."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lightrig.harness.claims.checking import check_claims
from lightrig.harness.claims.computed import computed_by
from lightrig.harness.claims.published import load_published, published_files
from lightrig.harness.quantities.registry import all_quantities
from lightrig.harness.record import Results

ROOT = Path(__file__).parents[2]
SYSTEMS = ("acos", "infinitehbd", "mixnet", "opus", "railx")
GPUS = (1024, 4096, 8192, 16384, 32768, 65536, 131072)
DIFFERENCES = {
    "railx": {
        *("C22", "C26", "C60", "C67", "C76", "C76-per-global", "C77", "C77-per-global"),
        *("C84", "C91", "C98", "C105", "M37", "M48"),
    },
    "acos": {
        *("m27", "m28", "c058-count", "c061", "c063-count", "c064-count", "c068", "c070"),
        *("c071-fabric", "c072-fabric", "c084-64", "c085", "c100", "c122"),
        *(f"c{number}" for number in range(129, 138)),
        *("c126-fitted", "c128-fitted"),
    },
    "opus": {
        *("step-time-config-2", "step-time-config-2-provisioned", "control-overhead"),
        *("control-overhead-provisioned", "suppressed", "cost-256", "window-bound"),
        *("overhead-gb200", "overhead-gb200-2048", "overhead-h200-one-shot"),
        *("overhead-anywhere", "overhead-100ms"),
    },
    "mixnet": {
        *("dual-nic-failure", "comparable-qwen", "cost-efficiency-100-8x7b"),
        *("failure-gpu", "slow-switch", "scale-per-dollar", "fast-switch"),
    },
    "infinitehbd": {
        *("faulty-nodes-p99", "half-faults", "node-faults-p99", "power-nvl-36x2"),
        *("cost-share-tpuv4", "cost-share-nvl-72", "lowest-power-per-bandwidth"),
        *("limiting-size", "moe-parameters", "waste-nvl-reserved-64", "waste-below-nvl-72"),
        *("waste-tpuv4-cubes", "waste-2-hop-side-by-side", "waste-tpuv4-side-by-side"),
        *("waste-tpuv4-cubes-side-by-side", "cross-tor-baseline", "cross-tor-90"),
        "lowest-aggregate",
        *(f"mfu-llama-{gpus}" for gpus in GPUS[4:]),
        *(f"mfu-llama-tp8-{gpus}" for gpus in GPUS[1:]),
        *(f"tensor-llama-{gpus}" for gpus in (1024, 8192, 32768, 131072)),
        *(f"mfu-moe-{gpus}" for gpus in (1024, 2048, 4096, 8192, 16384)),
        *("mfu-moe-tensor", *(f"mfu-moe-experts-{percent}" for percent in (0, 10, 20, 30))),
    },
}
"""Computed figures that are not as printed."""
DEAR = {
    "railx": {"C44"},
    "mixnet": {
        *("fast-switch", "slow-switch", "failure-gpu", "scale-per-dollar", "over-subscribed"),
    },
    "infinitehbd": {"cross-tor-knee", "cross-tor-85"},
    "opus": {"overhead-anywhere", "overhead-100ms"},
}
"""What takes more than half a second to compute: the long tests have these too."""


@pytest.fixture(scope="module")
def published():
    return {system: load_published(published_files()[system]) for system in SYSTEMS}


def without_dear(file):
    """Leave out claims that are dear to compute, and those that repeat them."""
    dear = {one.name for one in file.claims if one.computed in DEAR.get(file.system, ())}
    claims = [one for one in file.claims if not {one.name, one.same_as} & dear]
    return replace(file, claims=tuple(claims))


@pytest.fixture(scope="module", params=["quick", pytest.param("all", marks=pytest.mark.long)])
def checked(request, published, tmp_path_factory):
    """Claims, checked without results, by system and name."""
    empty = Results(tmp_path_factory.mktemp("empty"))
    asked = (lambda file: file) if request.param == "all" else without_dear
    return {
        system: {one.claim.name: one for one in check_claims(asked(file), empty)}
        for system, file in published.items()
    }


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_claim_has_one_answer_or_a_reason(published, system):
    for claim in published[system].claims:
        answers = [claim.ours, claim.computed, claim.unmeasured, claim.same_as]
        stated = sum(answer is not None for answer in answers)
        assert stated + claim.tested == 1, claim.name


@pytest.mark.parametrize("system", SYSTEMS)
def test_everything_that_is_computed_answers_a_claim(published, system):
    used = {claim.computed for claim in published[system].claims}
    assert used - {None} == set(computed_by(system))


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_tested_claim_has_a_test_and_every_mark_a_tested_claim(published, system):
    """A mark is `claim("name")` in the folder of the system's tests, or has the system's name."""
    marked = set()
    for path in (ROOT / "tests" / "systems" / system).glob("test_*.py"):
        for names in re.findall(r"^@claim\(([^)]*)\)", path.read_text(), re.MULTILINE):
            marked |= set(re.findall(r'"([^"]+)"', names))
    assert marked == {claim.name for claim in published[system].claims if claim.tested}


@pytest.mark.parametrize("system", SYSTEMS)
def test_differences_are_known_and_explained(checked, system):
    found = {
        name: one.claim
        for name, one in checked[system].items()
        if one.outcome == "differs" and one.kind != "tested"
    }
    assert found.keys() == DIFFERENCES[system] & checked[system].keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_reason_is_stated_of_every_difference_and_of_nothing_else(checked, system):
    """So `lightrig claims` ends with status 0 until something else differs."""
    explained = {name for name, one in checked[system].items() if one.claim.difference}
    differing = {name for name, one in checked[system].items() if one.outcome == "differs"}
    errata = {name for name in differing if checked[system][name].claim.erratum}
    assert explained == differing - errata


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_agreement_is_evidence(checked, system):
    """It was measured, computed by a path that is named, emulated, or tested."""
    for one in checked[system].values():
        if one.verdict == "agrees" and one.counted:
            assert one.kind in {"computed", "emulated", "tested"}, one.claim.name
            assert one.kind != "computed" or one.claim.path, one.claim.name


@pytest.mark.parametrize("system", ["infinitehbd", "mixnet", "opus", "railx"])
def test_words_that_a_paper_prints_have_a_reading(published, system):
    """They hold in all cases, as the note has it, or have another ground; acos lists any words."""
    for claim in published[system].claims:
        if not any(character.isdigit() for character in claim.figure.printed):
            whole = claim.figure.low == claim.figure.high == 1
            read = (
                whole or "held as" in f"{claim.note} {claim.difference}" or claim.ours is not None
            )
            assert read or claim.unmeasured or claim.tested or claim.same_as, claim.name


def test_measured_claims_are_quantities_of_testbeds_that_are_shipped(published):
    claims = [claim for file in published.values() for claim in file.claims]
    lookups = [claim.ours for claim in claims if claim.ours]
    related = [one for claim in claims for one in claim.related]
    testbeds = {lookup.testbed for lookup in lookups if lookup.testbed}
    testbeds |= {one.testbed for one in related} | {file.testbed for file in published.values()}
    assert all((ROOT / "testbeds" / f"{name}.yaml").exists() for name in testbeds)
    lookups += [one.lookup for one in related]
    assert {lookup.quantity for lookup in lookups} <= all_quantities().keys()


def test_every_number_of_the_lists_of_claims_has_a_row(published):
    numbers = {
        "railx": {f"C{n:02}" for n in range(1, 128)} | {f"M{n:02}" for n in range(1, 52)},
        "acos": {f"m{n:02}" for n in range(1, 68)} | {f"c{n:03}" for n in range(1, 146)},
    }
    for system, expected in numbers.items():
        names = {claim.name.partition("-")[0] for claim in published[system].claims}
        assert names == expected


def test_stored_outcomes_are_of_claims_that_are_tested(published):
    """`make claims` writes them; a claim that is no longer tested has none."""
    for system, file in published.items():
        path = file.path.with_name(f"{system}.tests.json")
        if path.exists():
            stored = json.loads(path.read_text())["claims"]
            assert stored.keys() <= {claim.name for claim in file.claims if claim.tested}
