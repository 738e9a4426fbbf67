"""The paper's figures, computed again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lightrig.harness.claims.checking import check_claims
from lightrig.harness.claims.published import PUBLISHED, load_published
from lightrig.harness.record import Results
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError
from lightrig.suites.claims.infinitehbd.figures import FIGURES
from lightrig.suites.claims.infinitehbd.model_flops import (
    LLAMA,
    Strategy,
    best,
    use,
)
from lightrig.suites.claims.infinitehbd.theory import (
    MODEL_USE,
    PcieFraming,
    ring_utilisation,
    waste_bound,
)


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """Claims that are looked at here: those of the service place some hundred jobs."""
    published = load_published(PUBLISHED / "infinitehbd.yaml")
    looked_at = ("waste-", "mfu-", "tensor-", "faulty-nodes", "power-", "cost-")
    claims = tuple(one for one in published.claims if one.name.startswith(looked_at))
    empty: Path = tmp_path_factory.mktemp("empty")
    found = check_claims(replace(published, claims=claims), Results(empty))
    return {one.claim.name: one for one in found}


def test_both_readings_of_tpuv4_are_shown(checked):
    parts, cubes = checked["waste-tpuv4"].value.value, checked["waste-tpuv4-cubes"].value.value
    assert cubes > 1.8 * parts
    linear = checked["waste-tpuv4-side-by-side"].value.value
    assert linear < parts  # halves that fail together take one part, not two


def test_the_model_finds_the_trend_of_the_tables(checked):
    """Large tensor parallelism pays the more the larger the cluster, and EP only in balance."""

    def value(name):
        return checked[name].value.value

    ratios = [value(f"mfu-llama-{gpus}") / value(f"mfu-llama-tp8-{gpus}") for gpus in MODEL_USE]
    assert ratios == sorted(ratios)
    assert ratios[-1] > 3
    tensor = [value(f"tensor-llama-{gpus}") for gpus in MODEL_USE]
    assert tensor == sorted(tensor)
    experts = [value(f"mfu-moe-experts-{percent}") for percent in (0, 10, 20, 30)]
    assert experts == sorted(experts, reverse=True)
    assert experts[1] < value("mfu-moe-tensor") <= experts[0]


def test_the_figures_of_the_trace(checked):
    assert checked["faulty-nodes"].value.value == pytest.approx(0.0234, abs=0.00005)
    assert checked["faulty-nodes-p99"].value.value == 0.0775
    waste = checked["waste-3-hop"].value
    assert (waste.n, waste.lower < 0.0053 < waste.upper) == (20, True)
    assert checked["waste-3-hop"].outcome == "cannot tell"  # draws scatter by 8 %


def test_the_tables_are_those_printed_but_for_one_cell(checked):
    assert checked["power-nvl-36x2"].value.value == pytest.approx(152.125)
    assert checked["cost-infinitehbd-2"].value.value == pytest.approx(2626.80)
    for row in MODEL_USE.values():
        tp, pp, dp = row.parallel
        assert tp * pp * dp == row.gpus
    assert waste_bound(2, 4, 32, 0.0367) == pytest.approx(0.0754, abs=0.00005)


def test_a_ring_s_utilisation_tends_to_the_wire_s_whatever_its_ranks():
    wire = PcieFraming().efficiency
    for ranks in (2, 16, 32):
        large = ring_utilisation(ranks, 1 << 40, 1536e9, wire, 2_000)
        assert large == pytest.approx(wire, rel=1e-3)
        assert ring_utilisation(ranks, 1 << 20, 1536e9, wire, 2_000) < large
    assert PcieFraming(answers=0).efficiency == pytest.approx(128 / 152 * 128 / 130)


def test_what_does_not_fit_the_memory_is_no_strategy():
    assert use(LLAMA, Strategy(8, 1, 16)) is None
    assert use(LLAMA, Strategy(16, 4, 4096)) is None  # more than there are sequences
    with pytest.raises(InfiniteHbdError, match="no strategy of 8 GPUs"):
        best(LLAMA, 8)
    only = use(LLAMA, Strategy(16, 4, 16))
    assert 0.5 < only < 0.55


@pytest.mark.parametrize(
    "name", ["waste-over-faults", pytest.param("crossing-by-faults", marks=pytest.mark.long)]
)
def test_series_lie_in_their_bands_and_shares_are_shares(name):
    arguments = {"group": 32} if name == "waste-over-faults" else {}
    for one in FIGURES[name](**arguments):
        assert len(one.x) == len(one.y) == len(one.lower) == len(one.upper)
        # A mean can leave the band of 95 % of a few draws, but not the draws.
        assert min(one.y) >= 0
        assert max(one.y) <= 1 + 1e-9
        assert (np.asarray(one.lower) <= np.asarray(one.upper)).all()


def test_a_distribution_over_time_climbs_to_one():
    found = FIGURES["waste-distribution"](group=32)
    for one in found:
        assert (np.diff(one.y) >= -1e-12).all()
    series = {one.name: one for one in found}
    assert series["InfiniteHBD (K=3)"].y[-1] == pytest.approx(1)
    best, worst = np.asarray(series["Big-Switch"].y), np.asarray(series["SiP-Ring"].y)
    assert (best >= worst).all()
