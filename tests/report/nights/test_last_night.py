"""The first section of the nights page: outcomes of the last night, and what is new in them."""

import pytest
from planted_nights import Grown, write_nights_of

from lightrig.harness.record import Context, Journal, Results, Row, TestOutcome
from lightrig.harness.record.recovery import settle
from lightrig.harness.report.nights import write_nights
from lightrig.harness.report.nights.last_night import last_nights

MOVES = "suites/test_reconfiguration.py::test_between_plans[bench/a-to-b]"
LOSS = "suites/test_insertion_loss.py::test_losses[bench]"
DIRTY = "ocs.5 loses 1.38 dB more than its reference.\n  try to clean the connector at ocs.5"


@pytest.fixture
def night(tmp_path):
    """Record a run: outcome and reason of each test by name, and one row if asked for."""

    def night(date, outcomes, testbeds=("bench",), name="a", *, row=True, ended=""):
        folder = tmp_path / "runs" / f"{date}-{name}"
        folder.mkdir(parents=True)
        header = {"run": folder.name, "night": date, "testbeds": dict.fromkeys(testbeds, "x.yaml")}
        with Journal(folder / "journal.jsonl", header) as journal:
            if row:
                context = Context(testbeds[0], MOVES, ("ocs: x",), True, {"clock": "virtual"})
                journal.append(context, Row("p", "carrier_up", 5, 5, 5, "ns", 1, {"event": 0}))
            for nodeid, (outcome, why) in outcomes.items():
                journal.note_test(TestOutcome(nodeid, outcome, 1.0, {"why": why}))
            if ended:
                journal.close({"ended": ended})
        settle(folder)
        (folder / "report.html").write_text("report")

    return night


def top(tmp_path):
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    main = page.partition('<main class="lr-report">')[2]
    causes, begin, rest = main.partition('<section class="lr-head" id="last-night">')
    assert causes.count("<section") == causes.count('id="lr-causes"') <= 1
    return begin + rest.partition("</section>")[0]


def test_a_failure_stands_first_with_its_reason_and_report(night, tmp_path):
    night("2026-11-20", {MOVES: ("passed", ""), LOSS: ("passed", "")})
    night("2026-11-21", {MOVES: ("passed", ""), LOSS: ("failed", DIRTY)})
    shown = top(tmp_path)
    assert shown.startswith('<section class="lr-head" id="last-night">')
    assert "1 failed</span>" in shown
    assert "1 passed</span>" in shown
    assert f'<b class="ln-by">new</b> <a href="runs/2026-11-21-a/report.html">{LOSS}</a>' in shown
    assert "clean the connector at ocs.5" in shown


@pytest.mark.parametrize("simulated", [(True, False), (False, True)])
def test_a_night_is_marked_where_one_of_its_runs_was_simulated(tmp_path, simulated):
    for name, of_run in zip("ab", simulated, strict=True):
        folder = tmp_path / "runs" / f"2026-11-21-{name}"
        folder.mkdir(parents=True)
        header = {"run": folder.name, "night": "2026-11-21", "testbeds": {"bench": "x.yaml"}}
        with Journal(folder / "journal.jsonl", header) as journal:
            context = Context("bench", MOVES, ("ocs: x",), of_run, {"clock": "system"})
            journal.append(context, Row("p", "carrier_up", 5, 5, 5, "ns", 1, {"event": 0}))
            journal.note_test(TestOutcome(MOVES, "passed", 1.0, {}))
        settle(folder)
    (found,) = last_nights(tmp_path)
    assert found.simulated


def test_a_night_of_hardware_is_not_marked(tmp_path):
    folder = tmp_path / "runs" / "2026-11-21-a"
    folder.mkdir(parents=True)
    header = {"run": folder.name, "night": "2026-11-21", "testbeds": {"bench": "x.yaml"}}
    with Journal(folder / "journal.jsonl", header) as journal:
        context = Context("bench", MOVES, ("ocs: x",), False, {"clock": "system"})
        journal.append(context, Row("p", "carrier_up", 5, 5, 5, "ns", 1, {"event": 0}))
        journal.note_test(TestOutcome(MOVES, "passed", 1.0, {}))
    settle(folder)
    (found,) = last_nights(tmp_path)
    assert not found.simulated


def test_a_failure_of_the_night_before_is_not_new(night, tmp_path):
    night("2026-11-20", {LOSS: ("failed", DIRTY)})
    assert "new</b>" not in top(tmp_path)  # there is no night before to compare with
    night("2026-11-21", {LOSS: ("failed", DIRTY)})
    assert "new</b>" not in top(tmp_path)
    night("2026-11-22", {LOSS: ("inconclusive", "9 more needed")})
    shown = top(tmp_path)
    assert "new</b>" in shown
    assert "9 more needed" in shown
    night("2026-11-23", {LOSS: ("passed", "")})
    assert f"Passed again since the night before: {LOSS}" in top(tmp_path)


def test_inconclusive_tests_are_one_line(night, tmp_path):
    few = {MOVES: ("inconclusive", "9 more needed"), "t[bench]": ("inconclusive", "7 more needed")}
    night("2026-11-20", {LOSS: ("failed", DIRTY), **few})
    shown, _, fold = top(tmp_path).partition("<summary>2 inconclusive tests</summary>")
    assert DIRTY.partition("\n")[0] in shown
    assert "more needed" not in shown
    assert "9 more needed" in fold
    assert "7 more needed" in fold


def test_a_night_that_left_no_row_is_shown(night, tmp_path):
    night("2026-11-20", {MOVES: ("passed", "")})
    night("2026-11-21", {MOVES: ("error", "ocs did not answer")}, row=False)
    shown = top(tmp_path)
    assert "1 error</span>" in shown
    assert "ocs did not answer" in shown


def test_a_test_run_again_counts_as_it_ended_last(night, tmp_path):
    night("2026-11-21", {LOSS: ("failed", DIRTY)}, name="a")
    night("2026-11-21", {LOSS: ("passed", "")}, name="b")
    (found,) = last_nights(tmp_path)
    assert (found.counts, found.problems) == ({"passed": 1}, ())


def test_tests_of_several_testbeds_in_one_run_are_separate(night, tmp_path):
    other = LOSS.replace("[bench]", "[other]")
    night("2026-11-21", {LOSS: ("passed", ""), other: ("failed", "x")}, ("bench", "other"))
    found = last_nights(tmp_path)
    assert [(one.testbed, dict(one.counts)) for one in found] == [
        ("other", {"failed": 1}),
        ("bench", {"passed": 1}),
    ]


def test_a_testbed_that_was_not_measured_last_night_is_named(night, tmp_path):
    night("2026-11-20", {LOSS: ("passed", "")})
    night("2026-11-21", {"t[other]": ("passed", "")}, ("other",))
    assert "It was not measured on 2026-11-21." in top(tmp_path)


def test_an_interrupted_run_is_named(night, tmp_path):
    night("2026-11-21", {LOSS: ("passed", "")}, ended="interrupted")
    assert "2026-11-21-a</a>: interrupted" in top(tmp_path)


def test_reasons_cannot_be_markup(night, tmp_path):
    night("2026-11-21", {LOSS: ("failed", "<script>alert()</script>")})
    assert "<script>alert" not in top(tmp_path)


def test_results_without_a_journal_still_show_outcomes(night, tmp_path):
    night("2026-11-21", {LOSS: ("failed", DIRTY)})
    (tmp_path / "runs" / "2026-11-21-a" / "journal.jsonl").unlink()
    (found,) = last_nights(tmp_path)
    assert [(one.nodeid, one.reason) for one in found.problems] == [(LOSS, "")]
    assert Results(tmp_path).runs()


def test_a_departure_is_on_the_page_the_first_morning(tmp_path):
    still = [Grown("carrier_up", f"p{n}", 3e9, 2e7, 8e7, "ns") for n in range(6)]
    slow = Grown("carrier_up", "slow", 3e9, 2e7, 8e7, "ns", change=8e8, at=9)
    write_nights_of(tmp_path, "bench", [*still, slow], nights=10, firmware_at=9)
    shown = top(tmp_path)
    assert shown.count("<li>") == 1
    assert ">slow</a>" in shown
    assert "+800 ms" in shown or "+79" in shown or "+8" in shown
    assert "firmware 22.39 → 22.41" in shown


def test_three_nights_of_two_runs_and_two_testbeds(night, tmp_path):
    """Tests of one testbed differ from those of the other, and those of a night's first run."""
    slow, other = "t.py::test_slow[bench]", "t.py::test_slow[fab]"
    both = ("bench", "fab")
    night("2026-11-19", {MOVES: ("passed", ""), slow: ("failed", "x"), other: ("passed", "")}, both)
    night("2026-11-20", {MOVES: ("failed", "a"), LOSS: ("inconclusive", "b")}, name="a")
    night("2026-11-20", {other: ("error", "d"), slow: ("passed", "")}, both, name="b")
    night("2026-11-21", {slow: ("failed", "e"), MOVES: ("failed", "f")}, name="a", ended="stopped")
    night("2026-11-21", {LOSS: ("passed", ""), MOVES: ("failed", "g"), other: ("failed", "h")},
          both, name="b")  # fmt: skip
    bench, fab = last_nights(tmp_path)
    assert (bench.testbed, bench.night, dict(bench.counts)) == (
        *("bench", "2026-11-21"),
        {"failed": 2, "passed": 1},
    )
    assert [(one.nodeid, one.reason, one.run) for one in bench.problems] == [
        (MOVES, "g", "2026-11-21-b"),
        (slow, "e", "2026-11-21-a"),
    ]
    assert bench.known == {MOVES: "failed", LOSS: "inconclusive"}
    assert bench.mended == (LOSS,)
    assert bench.since == {MOVES: ("2026-11-20", 2), slow: ("2026-11-21", 1)}
    assert bench.unfinished["2026-11-21-a"] != "complete"
    assert [(one.nodeid, one.reason) for one in fab.problems] == [(other, "h")]
    assert (fab.since, dict(fab.counts)) == ({other: ("2026-11-20", 2)}, {"failed": 1})
