"""A run with `--soak`: what is checked before it begins, and the soak that it goes on with."""

# Few runs are soaks, so their imports are local.
# ruff: noqa: PLC0415

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lightrig.testbeds import Testbed, format_duration

if TYPE_CHECKING:
    from lightrig.harness.measure.soak import EarlierSoak

EARLIER: pytest.StashKey[dict[str, EarlierSoak]] = pytest.StashKey()
"""The soak that is gone on with, by testbed."""

FIXTURE = "soak"
_GB = 1e9


def is_soak(item: pytest.Item) -> bool:
    """Whether a test takes the fixture of a soak."""
    return FIXTURE in getattr(item, "fixturenames", ())


def is_deselected(item: pytest.Item) -> bool:
    """Whether a test is a soak, and none was asked for."""
    return is_soak(item) and not (
        item.config.getoption("soak") or item.config.getoption("soak_resume")
    )


def soak_obstacle(testbed: Testbed) -> str | None:
    """Return why a testbed can have no soak; None if it can."""
    return None if testbed.plans and testbed.nic_ports else "no plan of links between servers"


def prepare_soak(
    config: pytest.Config, testbeds: Sequence[Testbed], results: Path
) -> dict[str, Any]:
    """Check the options of a soak; return what the header of the run says of it.

    Raises `pytest.UsageError` for several processes, a run that no soak can go on with, and a disk
    without room.
    """
    length, resumed = config.getoption("soak"), config.getoption("soak_resume")
    config.stash[EARLIER] = {}
    if not length and not resumed:
        return {}
    from lightrig.harness.measure.soak import SoakResumeError, read_earlier

    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--soak: a soak is one process; leave out -n")
    if resumed:
        try:
            for testbed in testbeds:
                earlier = read_earlier(results, resumed, testbed.name)
                config.stash[EARLIER][testbed.name] = earlier
                length = length or earlier.planned
        except SoakResumeError as error:
            raise pytest.UsageError(str(error)) from error
        config.option.soak = length
    _check_room(testbeds, length, results)
    # Others who wait for the instruments are told; restoring takes no hour.
    watched = min((each.watched for each in config.stash[EARLIER].values()), default=0)
    config.option.hold = config.getoption("hold") or max(length - watched, 0)
    header = {"length_s": length / 1e9}
    return {"soak": {**header, "resumes": resumed} if resumed else header}


def _check_room(testbeds: Sequence[Testbed], length: int, results: Path) -> None:
    from lightrig.harness.measure.soak import needed_bytes

    place = next(each for each in (results, *results.absolute().parents) if each.exists())
    needed = sum(needed_bytes(testbed, length) for testbed in testbeds)
    free = shutil.disk_usage(place).free
    if needed > free:
        raise pytest.UsageError(
            f"--soak {format_duration(length)}: its journal, rows and page may need "
            f"{needed / _GB:,.1f} GB, and {results} has room for {free / _GB:,.1f} GB; make room, "
            "or name another folder with --results"
        )
