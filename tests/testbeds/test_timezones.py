"""The time zone that a testbed file states, by whose clocks its nights are dated."""

import datetime as dt
import json
from pathlib import Path

import pytest
from bench.served_lab import describe
from runs.running import started

from lightrig.testbeds import TestbedError, load
from lightrig.testbeds.timezones import ZoneError, common_zone, local

EMPTY_SUITE = "def test_nothing(testbed):\n    pass\n"


def lab(folder: Path, zone: str, name: str = "lab") -> Path:
    folder.mkdir(exist_ok=True)
    path = describe(folder)
    text = path.read_text().replace("name: ", f"timezone: {zone}\nname: ", 1)
    path.write_text(text)
    return path


def test_a_zone_is_read(tmp_path):
    assert load(lab(tmp_path, "Pacific/Auckland")).timezone == "Pacific/Auckland"
    assert load(describe(tmp_path)).timezone is None


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("CEST-2", "expected a time zone by its IANA name"),
        ("../../etc/passwd", "expected a time zone by its IANA name"),
        ("Europe", "expected a time zone by its IANA name"),
    ],
)
def test_an_unknown_zone_is_refused_by_name(tmp_path, zone, hint):
    path = lab(tmp_path, zone)
    with pytest.raises(TestbedError) as refused:
        load(path)
    line = path.read_text().splitlines().index(f"timezone: {zone}") + 1
    assert f"{path}:{line}:11: found {zone!r}" in str(refused.value)
    assert hint in str(refused.value)


def test_testbeds_of_one_run_state_one_zone():
    assert common_zone([("a", None), ("b", "Asia/Tokyo"), ("c", "Asia/Tokyo")]) == "Asia/Tokyo"
    assert common_zone([("a", None)]) is None
    with pytest.raises(ZoneError, match="b states the time zone Asia/Tokyo, c Europe/Berlin"):
        common_zone([("a", None), ("b", "Asia/Tokyo"), ("c", "Europe/Berlin")])


def test_the_machine_says_which_zone_it_has(monkeypatch):
    noon = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
    for stated, zone, offset in (
        (":Asia/Kathmandu", "Asia/Kathmandu", "+05:45"),
        ("America/St_Johns", "America/St_Johns", "-02:30"),  # summer: half an hour from -03:00
        ("", "UTC", "+00:00"),
    ):
        monkeypatch.setenv("TZ", stated)
        found = local(noon)
        assert (found.zone, found.offset) == (zone, offset)
    assert local(noon, "Asia/Tokyo").stamp == "20260701-210000"


def test_a_run_counts_for_the_date_of_its_testbed(tmp_path):
    """The date is that 14 hours ahead of UTC, where no other zone may have it."""
    path = lab(tmp_path, "Pacific/Kiritimati")
    suite = tmp_path / "test_nothing.py"
    suite.write_text(EMPTY_SUITE)
    given = (suite, "--testbed", path, "--instruments", "simulated")
    with started(given, tmp_path / "results") as run:
        ended = run.end()
    assert ended.code == 0, ended.output
    (facts,) = tmp_path.glob("results/runs/*/run.json")
    header = json.loads(facts.read_text())["header"]
    there = dt.datetime.fromisoformat(header["started"]) + dt.timedelta(hours=14)
    assert header["night"] == f"{there:%Y-%m-%d}"
    assert facts.parent.name.startswith(f"{there:%Y%m%d-%H%M%S}-")
    assert (header["zone"], header["utc_offset"]) == ("Pacific/Kiritimati", "+14:00")
