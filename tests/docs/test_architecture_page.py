"""docs/architecture.md names files that exist, and those that a reconfiguration runs through."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.testbeds import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = ("harness", "instruments", "testbeds", "suites", "tests", "results", "docs")
OF_SIMULATION = ("instruments/simulated/", "instruments/clock/virtual", "closure")


def table() -> list[str]:
    """Return the files of the table of steps, without .py; a bare name is beside the last one."""
    found: list[str] = []
    rows = PAGE.partition("| step | files |\n| --- | --- |\n")[2].partition("\n\n")[0]
    for row in rows.splitlines():
        for name in re.findall(r"`([\w/]+)`", row.split("|")[2]):
            found.append(name if "/" in name else str(Path(found[-1]).with_name(name)))
    return found


def named() -> Iterator[str]:
    """Yield each path on the page that begins with a folder of the checkout."""
    for name in re.findall(r"[\w./-]+/[\w./*-]*", PAGE):
        if (
            name.partition("/")[0] in FOLDERS
            and "mine.yaml" not in name
            and "SYSTEM" not in name
            and "PACK" not in name
        ):
            yield name.rstrip(".")


def test_every_path_of_the_page_exists() -> None:
    found = [*named(), *table()]
    assert len(found) > 40
    missing = [
        name for name in found if not (ROOT / name).exists() and not (ROOT / f"{name}.py").is_file()
    ]
    assert missing == []


@pytest.mark.long
def test_the_table_is_what_a_reconfiguration_runs_through() -> None:
    seen: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    bench = bind(load("testbeds/opus.yaml"), "simulated", 1)
    try:
        fabric, links = Fabric(bench), LinkObservation(bench)
        measure = Recording([].extend, bench.testbed.limits)
        bring_up(fabric, links, fabric.plans["giant-ring"])
        measure_reconfiguration(fabric, links, measure, fabric.plans["east-west"])
        before = sys.getprofile()
        sys.setprofile(profile)  # the second one: nothing is loaded or opened any more
        try:
            measure_reconfiguration(fabric, links, measure, fabric.plans["giant-ring"])
        finally:
            sys.setprofile(before)
    finally:
        bench.close()
    files = {Path(name).resolve() for name in seen if Path(name).is_file()}
    ours = {
        str(file.relative_to(ROOT).with_suffix(""))
        for file in files
        if file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in FOLDERS[:4]
    }
    on_hardware = {name for name in ours if not any(part in name for part in OF_SIMULATION)}
    assert set(table()) == on_hardware
    (count,) = re.findall(r"runs through (\d+) files", PAGE)
    assert int(count) == len(table())
