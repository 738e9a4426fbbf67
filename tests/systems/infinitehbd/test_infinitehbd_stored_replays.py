"""Replays through the service that claims rest on: what they find, and which still count."""

from pathlib import Path

import numpy as np
import pytest

from lightrig.harness.systems.infinitehbd.planning.wiring import FatTree
from lightrig.suites.claims.infinitehbd import stored
from lightrig.suites.claims.infinitehbd.claims import COMPUTED
from lightrig.suites.claims.infinitehbd.service import Crossing, filled
from lightrig.suites.claims.infinitehbd.trace import States
from tests.campaigns.sequences import most_groups


@pytest.mark.parametrize("hops", [2, 3])
def test_a_full_job_wastes_what_algorithm_2_leaves_over(hops: int, tmp_path: Path) -> None:
    """On a line of 60 nodes, groups of four; nodes beyond its end have failed for ever."""
    random = np.random.default_rng(5)
    faulty = np.array([random.random(60) < share for share in (0.0, 0.1, 0.2, 0.1, 0.3)])
    found = filled(States(np.array([1, 2, 3, 4, 5]), faulty), hops, 16, tmp_path)
    groups = [most_groups(set(np.flatnonzero(~row)), 60 + hops, hops, 4) for row in faulty]
    wasted = (~faulty).sum(axis=1) - 4 * np.array(groups)
    assert found["waste"] == pytest.approx((wasted * [1, 2, 3, 4, 5]).sum() / 15 / 60)
    assert found["least"] == 16 * min(groups)
    assert found["waste"] > 0.01


def test_traffic_beside_faults_is_that_of_a_new_job_each_time(tmp_path: Path) -> None:
    tree = FatTree(512, 2, 128)
    crossing = Crossing(tree, 3, 32, 0.85, tmp_path)
    none, many, few = (np.zeros(512, dtype=bool) for _ in range(3))
    many[:256] = True
    few[np.random.default_rng(1).permutation(512)[:30]] = True
    assert [crossing.beside(each) for each in (none, many, none)] == [0.0, 1.0, 0.0]
    assert crossing.beside(few) <= 0.03  # near zero below 7 % of faults (Fig. 17c)


def test_replays_count_while_the_code_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "replays.json"
    monkeypatch.setattr(stored, "stored_file", lambda: file)
    assert stored.replays(3, 32) is None
    rows = [
        {"seed": seed, "hops": 3, "tp": 32, "apart": True, "waste": 0.004 + 0.001 * seed}
        for seed in (1, 0, *range(2, 11))
    ]
    stored.write(file, "2026-11-29", [*rows, {**rows[0], "apart": False}])
    found = stored.replays(3, 32)
    assert found is not None
    assert ([row["seed"] for row in found.rows], found.day) == ([*range(11)], "2026-11-29")
    value = COMPUTED["waste-3-hop"]()
    assert (value.value, value.n) == (pytest.approx(0.009), 11)
    assert "through the service's own steps, 2026-11-29" in value.note
    assert stored.replays(3, 32, apart=False) is None
    stored.write(file, "2026-11-29", rows[:9])  # nine have no verdict, as Algorithm 2 would have
    assert stored.replays(3, 32) is None
    stored.write(file, "2026-11-29", rows)
    (tmp_path / "other.json").write_text(file.read_text().replace(stored.digest(), "0" * 16))
    monkeypatch.setattr(stored, "stored_file", lambda: tmp_path / "other.json")
    assert stored.replays(3, 32) is None
