"""Records of a failure: lines of wires, the cause of a file that cannot be collected."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.plugin import outcomes, quantities
from lightrig.harness.plugin.outcomes import MOST_TEXT, Outcomes, why, wires_of
from lightrig.harness.plugin.quantities import MedianFigure, Quantities, in_a_line
from lightrig.harness.plugin.worker_run import WorkerRun
from lightrig.harness.record import Row, read_journal
from lightrig.harness.run import ObservedRun
from lightrig.harness.statistics.quantiles import NotEnough
from lightrig.instruments.core.errors import InstrumentError

MS = 1_000_000


def instrument(lines: int, error: str = "") -> Any:
    def wire() -> list[str]:
        if error:
            raise ValueError(error)
        return [f"> {number}" for number in range(lines)]

    return SimpleNamespace(wire=wire)


def bench(servers: int) -> Any:
    switches = {"ocs": instrument(999), "quiet": instrument(0), "odd": instrument(3, "no file")}
    return SimpleNamespace(
        switches=switches,
        servers={f"s{number}": instrument(150) for number in range(servers)},
        instruments={"laser": instrument(2)},
    )


@pytest.fixture
def item(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(outcomes, "testbed_of", lambda item: item.testbed)
    return SimpleNamespace(testbed=SimpleNamespace(name="lab"))


@pytest.mark.parametrize(("servers", "most"), [(1, 400 // 5), (6, 400 // 10), (96, 6)])
def test_instruments_share_the_lines_of_a_failure(item: Any, servers: int, most: int) -> None:
    found = wires_of(item, {"lab": bench(servers)}, ValueError("x"))
    assert found["ocs"] == [f"> {number}" for number in range(999 - most, 999)]
    assert len(found["s0"]) == min(most, 150)
    assert found["laser"] == ["> 0", "> 1"]
    assert found["odd"] == ["! its wire cannot be told: no file"]
    assert "quiet" not in found


def test_the_instrument_of_an_error_and_of_its_causes_is_shown_without_a_bench(item: Any) -> None:
    first = InstrumentError("laser 7", "no reply", trace=["> POW?"])
    second = InstrumentError("ocs", "refused", trace=["> A"])
    third = InstrumentError("laser 8", "late", trace=["> WAV?"])
    first.__context__ = ValueError("between")
    first.__context__.__cause__ = second
    second.__context__ = third
    assert wires_of(item, {}, first) == {"laser": ["> POW?"], "ocs": ["> A"]}
    assert wires_of(SimpleNamespace(testbed=None), {"lab": bench(1)}, second) == {  # type: ignore[arg-type]
        "ocs": ["> A"],
        "laser": ["> WAV?"],
    }
    # The bench's own wire of an instrument is the longer one.
    assert wires_of(item, {"lab": bench(1)}, first)["laser"] == ["> 0", "> 1"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (pytest.fail.Exception("too slow\nassert x"), "too slow\nassert x"),
        (pytest.skip.Exception("no light"), "no light"),
        (KeyError("a"), "KeyError: 'a'"),
        (OSError(""), "OSError"),
    ],
)
def test_reasons_of_errors(error: BaseException, reason: str) -> None:
    assert why(error) == reason


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import x\nE   ImportError: no x\nlast", "ImportError: no x"),
        ("first\nlast line", "last line"),
        ("", "cannot be collected"),
        ("E   " + "x" * MOST_TEXT + "\nE   end", "end"),
    ],
)
def test_a_file_that_cannot_be_collected_is_recorded_with_its_cause(
    tmp_path: Any, text: str, cause: str
) -> None:
    run = ObservedRun(tmp_path / "results", {"run": "r"})
    parts = Outcomes(SimpleNamespace(stash=pytest.Stash()), run)  # type: ignore[arg-type]
    report = pytest.CollectReport("t.py", "failed", text or None, [])
    parts.pytest_collectreport(report)
    run.close({"exit": 2})
    (ended,) = read_journal(run.folder / "journal.jsonl").tests
    assert (ended.outcome, ended.details["why"]) == ("error", cause)
    assert ended.details["log"] == text[max(len(text) - MOST_TEXT, 0) :]


def test_an_undecided_test_has_a_word_and_a_letter_of_its_own(tmp_path: Any) -> None:
    parts = Outcomes(SimpleNamespace(stash=pytest.Stash()), None)  # type: ignore[arg-type]
    word = ("INCONCLUSIVE", {"yellow": True})
    status = parts.pytest_report_teststatus(
        SimpleNamespace(outcome="skipped", inconclusive="9 more")
    )
    assert status == ("inconclusive", "I", word)
    assert parts.pytest_report_teststatus(SimpleNamespace(outcome="passed")) is None
    assert parts.running is None


def test_what_a_worker_has_to_show_travels_with_its_reports(tmp_path: Any) -> None:
    shown: list[Any] = []
    run: Any = SimpleNamespace(test_finished=lambda *given: shown.append(given))
    parts = Outcomes(SimpleNamespace(stash=pytest.Stash()), run)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcomes, "show", lambda of, each: shown.append((of is run, each)))
        for when in ("setup", "call", "teardown"):
            report: Any = pytest.TestReport("a", ("t", 1, "a"), {}, "passed", None, when, (), 0.25)  # type: ignore[arg-type]
            report.lightrig = {"shown": [when]} if when != "call" else {"wire": {}}
            parts.pytest_runtest_logreport(report)
    assert shown == [
        *((True, ["setup"]), (True, ()), (True, ["teardown"])),
        ("a", "passed", 0.75, {}),
    ]
    assert WorkerRun.shown is not None


# ------------------------------------------------------------------------------- figures


@pytest.mark.parametrize(("lower", "upper"), [(1.0, None), (None, 3.0), (None, None)])
def test_an_interval_without_an_end_is_not_shown(lower: float | None, upper: float | None) -> None:
    one = MedianFigure("reconfiguration.los", 2 * MS, lower, upper, "ns", 1, False)
    assert in_a_line([one]) == "los 2 ms (n = 1)"


def test_ends_of_an_interval_are_in_their_order() -> None:
    one = MedianFigure("loss", 1.5, 1.2, 2.25, "dB", 2, True)
    two = MedianFigure("los", 2.5, 1.25, 3.75, "dB", 2, True)
    line = "loss 1.50 dB [1.20 … 2.25], los 2.5 dB [1.2 … 3.8] (medians of 2, simulated)"
    assert in_a_line([one, two]) == line
    assert in_a_line([]) == ""
    assert Quantities().few() == []


def test_no_more_than_four_figures_are_on_a_line() -> None:
    found = Quantities()
    names = [f"family{number}.q" for number in range(6)]
    found.add(False, [Row("lab", name, 7, None, None, "ns", 0, {}) for name in names])
    assert [one.quantity for one in found.few()] == names[:4]


def test_events_are_matched_by_their_number_or_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events 0 and 1 in order, then 7 and a name, each with two subjects, of which one is worse."""
    found = Quantities()

    def add(event: object, low: int, value: int, high: int) -> None:
        conditions: Any = {"event": event}
        row = Row("p", "reconfiguration.carrier_up", value, low, high, "ns", 0, conditions)
        found.add(True, [row])

    for event, (low, value, high) in {0: (5, 7, 9), 1: (1, 2, 3), 7: (11, 12, 13)}.items():
        add(event, low, value, high)
        add(event, low - 1, value + 1, high)
    add(2, 20, 21, 22)
    add(2, 20, 21, 29)
    given: list[Any] = []

    def quantile(low: Any, high: Any, *_: object, points: Any, effective: Any) -> NotEnough:
        assert effective == low.size  # of four events none can be told to follow another
        given.extend(map(list, (low, points, high)))
        return NotEnough(4, 6)

    monkeypatch.setattr(quantities, "quantile", quantile)
    (figure,) = found.figures()
    assert given == [[5, 1, 11, 20], [8, 3, 13, 21], [9, 3, 13, 29]]
    assert (figure.value, figure.n, figure.simulated) == (10.5, 4, True)
