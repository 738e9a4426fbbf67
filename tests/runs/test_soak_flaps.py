"""A soak names each flap that lies in no gap, with the end that saw it first, and none else."""

import random
from pathlib import Path

import pytest

from lightrig.instruments.namespaces import namespaces
from lightrig.instruments.namespaces.sshd import sshd_program
from lightrig.testbeds import LightrigError
from tests.campaigns.planted_soaks import SoakRuns, plant, soak_lab


@pytest.fixture(autouse=True)
def _possible() -> None:
    if (reason := namespaces.available()) is not None:
        pytest.skip(reason)
    try:
        sshd_program()
    except LightrigError as error:
        pytest.skip(str(error))


def seconds(dice: random.Random) -> float:
    return dice.uniform(0.3, 1.5)


@pytest.mark.long
def test_planted_flaps_are_named_over_two_kills(tmp_path: Path) -> None:
    with soak_lab(tmp_path) as lab:
        runs = SoakRuns(lab, "25 s")
        found = plant(runs, 8, 2, seconds, 5)
        assert not found.missed
        assert not found.invented
        assert not found.wrong_end
        assert not found.wrong_length
        assert found.cannot_tell <= 1
        assert len(found.named) >= 6
        assert runs.process.returncode == 1  # no limit states how many may be
        assert not any("stayed" in str(row.conditions["light"]) for row in found.named)
        # The last run counts all, and says which run it goes on with.
        text = runs.printed()
        assert f"{len(found.named)} flaps in" in text, text
        between = [r for r in runs.rows() if r.conditions.get("why") == "between two runs"]
        assert len(between) == 2
        watched = [r for r in runs.rows() if r.quantity.endswith(".watched")]
        assert 20e9 < sum(row.value for row in watched) < 26e9
