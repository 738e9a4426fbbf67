"""Nights by local dates, in labs of three time zones.

Moments are given in UTC, and dates were worked out by hand from the rules of the zones: Berlin is
UTC+1, from 29 March to 25 October 2026 at 01:00 UTC UTC+2; Los Angeles UTC-8, from 8 March 10:00
UTC to 1 November 09:00 UTC UTC-7; Auckland UTC+13, from 4 April 14:00 UTC to 26 September UTC+12.
"""

import datetime as dt
import re
import time
from types import SimpleNamespace

import pytest
from record.recorded import begin
from typer.testing import CliRunner

from lightrig.harness import run as runs
from lightrig.harness.cli.app import application
from lightrig.harness.record import Context, Results, Row, settle
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.earlier_nights import values_before
from lightrig.harness.record.retention import find_prunable
from lightrig.harness.report.comparison import compare
from lightrig.harness.report.nights import write_nights
from lightrig.harness.report.nights.last_night import last_nights
from lightrig.harness.report.nights.series import read
from lightrig.harness.report.nights.source import Source

BERLIN, PACIFIC, AUCKLAND = "Europe/Berlin", "America/Los_Angeles", "Pacific/Auckland"
CONDITIONS = {"wavelength_nm": 1310}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Record a run of six values about `db` that begins at a moment in UTC; return it."""

    def measured(moment, zone, db, testbed="lab", name=None):
        now = dt.datetime.fromisoformat(f"{moment}Z")
        monkeypatch.setattr(runs, "wall_time", lambda: now)
        run = runs.Run(tmp_path, {"testbeds": {}}, name=name, zone=zone)
        clock = SimpleNamespace(virtual=True)
        bench = SimpleNamespace(
            testbed=SimpleNamespace(name=testbed),
            participants=lambda: ("ocs: Polatis, serial 7",),
            simulated=("ocs",),
            clock=clock,
        )
        run.recorder(bench, "test_losses", CONDITIONS)(rows(db))
        run.test_finished("test_losses", "passed", 1.0, {})
        run.close({"exit": 0})
        return run

    return measured


def rows(db):
    values = (db + step / 8 for step in (0, 5, 2, 7, 1, 3))
    return [
        Row("ocs 1>5", "insertion_loss", value, None, None, "dB", 0, {"event": event})
        for event, value in enumerate(values)
    ]


def measured_by_utc(results, moment, db, testbed="lab"):
    """Record a run as versions did that named nights by the date in UTC."""
    now = dt.datetime.fromisoformat(f"{moment}Z")
    name, night = f"{now:%Y%m%d-%H%M%S}-0ddba1", f"{now:%Y-%m-%d}"
    journal = begin(results, name, night, testbeds={}, started=f"{now:%FT%TZ}")
    conditions = {**CONDITIONS, "clock": "virtual"}
    found = Context(testbed, "test_losses", ("ocs: Polatis, serial 7",), True, conditions)
    journal.append_many(found, rows(db))
    journal.close({"exit": 0, "duration_s": 1.0})
    settle(journal.path.parent)
    return name


def nights(results):
    """Return the nights of the only lab, as a page shows them, with the number of their runs."""
    history = read(Source(results))
    (lab,) = history.labs
    return [(str(night), len(names)) for night, names in zip(history.axis, lab.runs, strict=True)]


@pytest.mark.parametrize(
    ("zone", "moments", "dates"),
    [
        # The timer of docs/how-to/nightly.md, 01:30 each night, over both changes of the clocks.
        (BERLIN, ("03-28T00:30", "03-29T00:30", "03-29T23:30", "03-30T23:30"), (28, 29, 30, 31)),
        (BERLIN, ("10-23T23:30", "10-24T23:30", "10-26T00:30", "10-27T00:30"), (24, 25, 26, 27)),
        # 18:30 each evening.
        (PACIFIC, ("03-07T02:30", "03-08T02:30", "03-09T01:30", "03-10T01:30"), (6, 7, 8, 9)),
        # 02:45 each night: twice on 5 April, where it is 02:45 of summer time that the timer takes.
        (AUCKLAND, ("04-03T13:45", "04-04T13:45", "04-05T14:45"), (4, 5, 6)),
    ],
)
def test_each_night_has_the_date_of_the_lab(measured, tmp_path, zone, moments, dates):
    made = [measured(f"2026-{moment}:00", zone, 1.0 + n / 4) for n, moment in enumerate(moments)]
    assert [int(one.night[-2:]) for one in made] == list(dates)
    assert [one.name[:8] for one in made] == [one.night.replace("-", "") for one in made]
    assert [runs for _, runs in nights(tmp_path)] == [1] * len(dates)


def test_a_machine_without_a_stated_zone_has_its_own(measured, monkeypatch):
    monkeypatch.setenv("TZ", PACIFIC)
    assert measured("2026-03-13T01:30:00", None, 1.0).night == "2026-03-12"
    # Chatham's standard time, without a name: midnight of the 14th is 11:15 UTC.
    monkeypatch.setenv("TZ", "<+1245>-12:45")
    time.tzset()
    try:
        found = [measured(f"2026-03-13T11:{m}:00", None, 1.0) for m in (14, 15)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [one.night for one in found] == ["2026-03-13", "2026-03-14"]
    assert found[1].record().header["zone"] == "UTC+12:45"


def test_a_night_that_passes_midnight_has_the_date_on_which_it_began(measured, tmp_path):
    first = measured("2026-03-12T22:50:00", BERLIN, 1.0, name="20260312-235000-abcd-one")
    second = measured("2026-03-12T23:10:00", BERLIN, 2.0, name="20260312-235000-abcd-two")
    assert (first.night, second.night) == ("2026-03-12", "2026-03-12")
    assert nights(tmp_path) == [("2026-03-12", 2)]


@pytest.fixture
def pacific(measured, tmp_path):
    """A lab in California, 18:30 each evening, whose third night is the first by local date.

    The evening of the 10th and 11th were dated the 11th and 12th; the 12th is dated the 12th.
    """
    names = [
        measured_by_utc(tmp_path, moment, db)
        for moment, db in (("2026-03-11T01:30:00", 1.0), ("2026-03-12T01:30:00", 2.5))
    ]
    names += [
        measured(moment, PACIFIC, db).name
        for moment, db in (("2026-03-13T01:30:00", 7.0), ("2026-03-14T01:30:00", 4.0))
    ]
    return names


DATES = ["2026-03-11", "2026-03-12", "2026-03-12", "2026-03-13"]
LABELS = ["2026-03-11", "2026-03-12 (UTC)", f"2026-03-12 ({PACIFIC})", "2026-03-13"]
MEDIANS = [1.3125, 2.8125, 7.3125, 4.3125]
"""The middle of the third and fourth of each night's six values: 0.25 and 0.375 above the first."""


@pytest.mark.parametrize("compacted", [False, True])
def test_the_first_local_night_is_told_from_the_last_one_by_utc(
    measured, pacific, tmp_path, compacted
):
    labels, medians = LABELS, MEDIANS
    if compacted:  # a month is compacted when the next has begun
        measured("2026-04-02T01:30:00", PACIFIC, 3.0)
        compact(str(tmp_path))
        assert len([*tmp_path.glob("rows/testbed=lab/*.parquet")]) == 1
    history = read(Source(tmp_path))
    (lab,) = history.labs
    assert [str(night) for night in history.axis][:4] == labels
    assert list(lab.runs[:4]) == [(name,) for name in pacific]
    (series,) = (one for one in lab.series if one.statistic == "median")
    assert series.level[:4].tolist() == medians
    if compacted:
        assert [*lab.runs[4:-1]] == [()] * 18  # 14 to 31 March


def test_the_page_says_by_which_clocks_nights_are_dated(pacific, tmp_path):
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    items = [
        " ".join(re.sub("<[^>]*>", "", one).split())
        for one in re.findall(
            "<li>(.*?)</li>", page.partition("Nights and their runs")[2], re.DOTALL
        )
    ][:4]
    note = f" (dates of {PACIFIC} from here on, of UTC before)"
    expected = zip(LABELS, pacific, ("", "", note, ""), strict=True)
    assert items == [f"{label} {run}{more}" for label, run, more in expected][::-1]
    (last,) = last_nights(tmp_path)
    assert last.night == "2026-03-13"
    assert f'"dates":["2026-03-11","2026-03-12 (UTC)","2026-03-12 ({PACIFIC})"' in page


def test_a_night_without_a_run_two_runs_and_a_change_of_clocks_are_shown(measured, tmp_path):
    for moment in ("27T00:30", "28T00:30", "28T02:10", "29T23:30"):
        measured(f"2026-03-{moment}:00", BERLIN, 1.0)
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    items = [
        " ".join(re.sub("<[^>]*>", "", one).split())
        for one in re.findall(
            "<li>(.*?)</li>", page.partition("Nights and their runs")[2], re.DOTALL
        )
    ][:4]
    assert re.fullmatch(
        "2026-03-30 20260330-013000-[0-9a-f]{6} "
        r"\(clocks of Europe/Berlin were set forward by 1 h since the run before\)",
        items[0],
    )
    assert items[1] == "2026-03-29 no data"
    assert items[2].startswith("2026-03-28 2 runs: 20260328-013000-")
    assert nights(tmp_path)[1] == ("2026-03-28", 2)


def test_runs_of_the_hour_that_comes_twice_are_in_order(measured, tmp_path):
    """02:50 of summer time is twenty minutes before 02:10 of standard time."""
    first = measured("2026-10-25T00:50:00", BERLIN, 1.0)
    second = measured("2026-10-25T01:10:00", BERLIN, 2.0)
    assert first.name > second.name
    assert Results(tmp_path).find("last").run == second.name
    assert [one.run for one in Results(tmp_path).runs()] == [first.name, second.name]
    assert read(Source(tmp_path)).labs[0].runs == ((first.name, second.name),)


def test_a_run_compares_with_the_nights_before_its_own(pacific, tmp_path):
    now = Context("lab", "test_losses", (), simulated=True, conditions=CONDITIONS)
    found = [
        values_before(tmp_path / "runs" / name, night, now, "insertion_loss")
        for name, night in zip(pacific, DATES, strict=True)
    ]
    # The last value of a night, 0.375 above its first.
    values = [{"ocs 1>5": value} for value in (1.375, 2.875, 7.375)]
    assert found == [values[:n] for n in range(4)]


def test_old_and_new_results_stand_beside_each_other(pacific, tmp_path):
    listed = [(one.run, one.night) for one in Results(tmp_path).runs()]
    assert listed == [*zip(pacific, DATES, strict=True)]
    assert Results(tmp_path).find("last").run == pacific[-1]
    assert [one.run for one in find_prunable(str(tmp_path), "2026-03-12")] == pacific[:1]
    table = Results(tmp_path).query("SELECT run, zone FROM runs ORDER BY started")
    assert table["zone"].isna().tolist() == [True, True, False, False]


def test_the_nights_of_one_date_are_compared_as_two(pacific, tmp_path):
    results = Results(tmp_path)
    (last,) = {one.case: one for one in compare(results, pacific[1], pacific[2])}.values()
    assert (last.before.n, last.after.n) == (6, 6)
    assert last.drift.nights == 2
    (old,) = compare(results, pacific[0], pacific[1])
    assert old.drift.nights == 1


def test_another_testbed_lies_in_the_night_of_its_own_clocks(measured, pacific, tmp_path):
    measured("2026-03-12T00:30:00", BERLIN, 1.0, testbed="far")
    history = read(Source(tmp_path))
    far = next(lab for lab in history.labs if lab.testbed == "far")
    assert [len(names) for names in far.runs] == [0, 0, 1, 0]


def test_the_last_night_is_not_the_one_before_of_the_same_date(measured, tmp_path):
    old = measured_by_utc(tmp_path, "2026-03-12T01:30:00", 2.5)
    new = measured("2026-03-13T01:30:00", PACIFIC, 7.0).name
    (last,) = last_nights(tmp_path)
    assert last.night == f"2026-03-12 ({PACIFIC})"
    assert last.counts == {"passed": 1}
    assert last.known == {}  # the night before had no failure
    assert Results(tmp_path).last_of("lab", "2026-03-12") == {new}
    listed = CliRunner().invoke(
        application("results"), ["results", "list", "--results", str(tmp_path)]
    )
    shown = {line.split()[0]: line.split()[1:3] for line in listed.output.splitlines()[1:]}
    assert (shown[old], shown[new][0]) == (["2026-03-12", "(UTC)"], "2026-03-12")
