"""Outcomes, events, figures and JUnit XML of tests, from reports and rows that differ."""

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.findings import CLOSURE, Finding
from lightrig.harness.measure.recording import NotEnoughDataError
from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.events import Events
from lightrig.harness.plugin.junit import add_outcomes
from lightrig.harness.plugin.keys import (
    BENCHES,
    ENDED,
    FOUND,
    INCONCLUSIVE,
    RUN,
    TESTBEDS,
)
from lightrig.harness.plugin.live import Live
from lightrig.harness.plugin.outcomes import (
    MOST_TEXT,
    Outcomes,
    Reports,
    Undecided,
    outcome_of,
    why,
)
from lightrig.harness.plugin.quantities import MedianFigure, Quantities, in_a_line
from lightrig.harness.record import Row, read_journal
from lightrig.harness.run import ObservedRun
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import LightrigError, Limit

MS = 1_000_000
CARRIER_UP = "reconfiguration.carrier_up"


def report(when: str, outcome: str, text: str = "", nodeid: str = "t.py::a", **more: Any) -> Any:
    """Return a report of pytest; `details` is what the harness adds."""
    found = pytest.TestReport(
        nodeid, ("t.py", 1, "a"), {}, outcome, text or None, when,  # type: ignore[arg-type]
        more.pop("sections", ()), more.pop("duration", 0.25),
    )  # fmt: skip
    found.lightrig = more.pop("details", {})  # type: ignore[attr-defined]
    for name, value in more.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ([("setup", "passed"), ("call", "passed"), ("teardown", "passed")], "passed"),
        ([("setup", "passed"), ("call", "failed"), ("teardown", "failed")], "failed"),
        ([("setup", "failed"), ("teardown", "passed")], "error"),
        ([("setup", "passed"), ("call", "passed"), ("teardown", "failed")], "error"),
        ([("setup", "skipped"), ("teardown", "passed")], "skipped"),
    ],
)
def test_outcome_of_setup_call_and_teardown(ended: list[tuple[str, str]], expected: str) -> None:
    assert outcome_of([report(*each) for each in ended]) == expected


def test_inconclusive_test_is_skipped_for_those_who_know_no_more() -> None:
    call = report("call", "skipped", inconclusive="9 more needed")
    assert outcome_of([report("setup", "passed"), call, report("teardown", "passed")]) == (
        "inconclusive"
    )


@pytest.mark.parametrize(("outcome", "expected"), [("skipped", "xfailed"), ("passed", "xpassed")])
def test_expected_failure_is_seen_by_its_call(outcome: str, expected: str) -> None:
    call = report("call", outcome, wasxfail="known")
    assert outcome_of([report("setup", "passed"), call, report("teardown", "passed")]) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AssertionError("too slow\nassert 3 < 2"), "AssertionError: too slow"),
        (ValueError(""), "ValueError"),
        (LightrigError("no light"), "no light"),
        (InstrumentError("ocs", "refused\n  last on the wire\n  > A"), None),
        (ValueError("x" * (MOST_TEXT + 9)), "ValueError: " + "x" * (MOST_TEXT - 12)),
        (NotEnoughDataError("9 more needed"), "9 more needed"),
    ],
)
def test_reason_is_the_message_without_values_and_wire(
    error: BaseException, expected: str | None
) -> None:
    if expected is None:
        assert "refused" in why(error)
        assert "last on the wire" not in why(error)
    else:
        assert why(error) == expected


def reported(when: str, outcome: str, error: BaseException | None = None, **known: Any) -> Any:
    """Return what the harness adds to a report of pytest, and the report and the test's item."""
    stash = pytest.Stash()
    if "undecided" in known:
        stash[INCONCLUSIVE] = known["undecided"]
    if "found" in known:
        stash[FOUND] = known["found"]
    of_run = pytest.Stash()
    of_run[BENCHES] = {}
    of_run[RUN] = SimpleNamespace()  # type: ignore[assignment]
    config: Any = SimpleNamespace(stash=of_run)
    item: Any = SimpleNamespace(
        stash=stash,
        user_properties=[],
        callspec=None,
        config=config,
        reportinfo=lambda: ("t.py", 1, "a"),
    )
    call: Any = SimpleNamespace(excinfo=error and SimpleNamespace(value=error))
    crash = SimpleNamespace(message="as pytest has it")
    plain = report(when, outcome, longrepr=SimpleNamespace(reprcrash=crash) if error else None)
    repeats: Any = SimpleNamespace(command=lambda _: "pytest again")
    for hooks in (Undecided(), Reports(config, repeats)):
        steps = hooks.pytest_runtest_makereport(item, call)
        next(steps)
        with pytest.raises(StopIteration) as ended:
            steps.send(plain)
        found: Any = ended.value.value
        assert found is plain
    return found.lightrig, found, SimpleNamespace(item=item, crash=crash, call=call)


def test_a_report_has_the_command_once_and_no_reason_where_all_passed() -> None:
    assert reported("setup", "passed")[0] == {"command": "pytest again"}
    assert reported("call", "passed")[0] == {}
    assert reported("teardown", "passed", undecided=["9 more"])[0] == {}


@pytest.mark.parametrize("raised", [False, True])
def test_limits_that_are_not_decided_make_a_test_inconclusive(raised: bool) -> None:
    error = NotEnoughDataError("2 more of b") if raised else None
    outcome = "failed" if raised else "passed"
    details, found, known = reported("call", outcome, error, undecided=["9 more of a"])
    reason = "9 more of a 2 more of b" if raised else "9 more of a"
    assert (found.outcome, found.inconclusive, details) == ("skipped", reason, {"why": reason})
    assert found.longrepr == ("t.py", 2, reason)
    with pytest.raises(pytest.skip.Exception, match=reason):
        raise known.call.excinfo.value
    assert known.item.user_properties == [("outcome", "inconclusive"), ("reason", reason)]
    details, found, _ = reported("call", "failed", ValueError("x"), undecided=["9 more of a"])
    assert (found.outcome, details["why"]) == ("failed", "ValueError: x")


@pytest.mark.parametrize("count", [1, 5, 7])
def test_what_does_not_close_fails_a_test_that_passed(count: int) -> None:
    sentences = [f"loss {n}" for n in range(count)]
    closures = [Finding(CLOSURE, one, ("lab",)) for one in sentences]
    details, found, _ = reported("call", "passed", found=closures)
    assert found.outcome == "failed"
    assert details["why"] == found.longrepr
    assert [one["evidence"] for one in details["findings"]] == sentences[:5]
    assert {one["components"][0]["kind"] for one in details["findings"]} == {"harness"}
    more = "; 2 more" if count == 7 else ""
    assert found.longrepr.endswith(f": {'; '.join(sentences[:5])}{more}")
    assert reported("setup", "passed", found=closures)[1].outcome == "passed"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LightrigError("no light"), "no light"),
        (pytest.fail.Exception("too slow"), None),
        (AssertionError("so wrong"), "as pytest has it"),
    ],
)
def test_the_summary_of_a_failure_begins_with_the_reason(
    error: BaseException, message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "lightrig.harness.plugin.outcomes.wires_of"
    monkeypatch.setattr(module, lambda item, benches, of: {"ocs": [str(of)]})
    details, _, known = reported("call", "failed", error, not_closed=["loss 1"])
    assert details["why"] == why(error)
    assert details["wire"] == {"ocs": [str(error)]}
    assert known.crash.message == (why(error) if message is None else message)
    assert "wire" not in reported("call", "skipped", error)[0]


@pytest.fixture
def observed(tmp_path: Path) -> ObservedRun:
    return ObservedRun(tmp_path / "results", {"run": "r"})


def finished(outcomes: Outcomes, *reports: Any) -> None:
    for each in reports:
        outcomes.pytest_runtest_logreport(each)


def test_ends_of_two_tests_are_noted_with_their_details(observed: ObservedRun) -> None:
    outcomes = Outcomes(SimpleNamespace(stash=pytest.Stash()), observed)  # type: ignore[arg-type]
    seen: list[tuple[Any, ...]] = []
    observed.finishes = (lambda *each: seen.append(each),)
    for nodeid in ("t.py::a", "t.py::b"):
        outcomes.pytest_runtest_logstart(nodeid)
    assert outcomes.running == "t.py::b"
    wires = {"ocs": ["> one"]}, {"ocs": ["> two"], "server0": ["> three"]}
    finished(
        outcomes,
        report("setup", "passed", details={"command": "pytest again"}),
        report("call", "failed", "E so wrong", duration=2.0,
               details={"why": "first reason", "wire": wires[0], "command": "later"}),
        report("teardown", "failed", "E at its end", details={"why": "second", "wire": wires[1]},
               sections=[("Captured log", "said twice")]),
    )  # fmt: skip
    assert outcomes.running == "t.py::b"
    finished(
        outcomes,
        report("setup", "passed", nodeid="t.py::b"),
        report(
            "call",
            "skipped",
            nodeid="t.py::b",
            inconclusive="9 more needed",
            details={"why": "9 more needed"},
        ),
        report("teardown", "passed", nodeid="t.py::b"),
    )
    assert outcomes.inconclusive == {"t.py::b": "9 more needed"}
    assert seen == [
        ("t.py::a", "failed", 2.5, "first reason"),
        ("t.py::b", "inconclusive", 0.75, "9 more needed"),
    ]
    observed.close({"exit": 1})
    first, second = read_journal(observed.folder / "journal.jsonl").tests
    assert (first.outcome, first.details["command"]) == ("failed", "pytest again")
    # Of an instrument that two reports have, the wire of the first stays.
    assert first.details["wire"] == {"ocs": ["> one"], "server0": ["> three"]}
    assert first.details["log"] == "E so wrong\nE at its end\n--- Captured log ---\nsaid twice"
    assert "log" not in second.details
    assert "wire" not in second.details
    assert outcomes.added["t.py::a"]["wrong"] is True
    assert outcomes.added["t.py::b"] == {"why": "9 more needed", "undecided": True}


def test_long_log_is_cut_at_its_beginning(observed: ObservedRun) -> None:
    outcomes = Outcomes(SimpleNamespace(stash=pytest.Stash()), observed)  # type: ignore[arg-type]
    text = "begin" + "x" * MOST_TEXT + "end"
    finished(outcomes, report("setup", "failed", text), report("teardown", "passed"))
    observed.close({"exit": 1})
    (ended,) = read_journal(observed.folder / "journal.jsonl").tests
    assert (ended.outcome, len(ended.details["log"])) == ("error", MOST_TEXT)
    assert ended.details["log"].endswith("end")


def test_test_that_is_run_again_ends_with_its_last_run(observed: ObservedRun) -> None:
    outcomes = Outcomes(SimpleNamespace(stash=pytest.Stash()), observed)  # type: ignore[arg-type]
    finished(outcomes, report("setup", "passed"), report("teardown", "rerun"))
    finished(
        outcomes,
        report("setup", "passed"),
        report("call", "rerun", details={"why": "too slow"}),
        report("teardown", "passed"),
    )
    finished(outcomes, *(report(when, "passed") for when in ("setup", "call", "teardown")))
    assert list(outcomes.added) == ["t.py::a"]
    assert outcomes.reruns == {"t.py::a": ["", "too slow"]}
    observed.close({"exit": 0})
    ended = read_journal(observed.folder / "journal.jsonl").tests
    assert [test.outcome for test in ended] == ["rerun", "rerun", "passed"]


def test_test_whose_worker_died_ends_with_an_error(observed: ObservedRun) -> None:
    outcomes = Outcomes(SimpleNamespace(stash=pytest.Stash()), observed)  # type: ignore[arg-type]
    finished(outcomes, report("setup", "passed"), report("crashed", "failed", "E worker died"))
    assert list(outcomes.added) == ["t.py::a"]


def test_file_that_cannot_be_collected_is_an_error(observed: ObservedRun) -> None:
    outcomes = Outcomes(SimpleNamespace(stash=pytest.Stash()), observed)  # type: ignore[arg-type]
    text = "import x\nE   first line\nmore\nE   ImportError: no x\nend"
    outcomes.pytest_collectreport(pytest.CollectReport("t.py", "failed", text, None))
    outcomes.pytest_collectreport(pytest.CollectReport("u.py", "passed", None, []))
    assert {name: added["why"] for name, added in outcomes.added.items()} == {
        "t.py": "ImportError: no x"
    }


# ------------------------------------------------------------------------------- events


def row(quantity: str, value: int, event: int, low: int | None, high: int | None) -> Row:
    return Row("lab", quantity, value, low, high, "ns", event, {"event": event})


def events_of(tmp_path: Path, observed: ObservedRun) -> tuple[Events, Path]:
    path = tmp_path / "events.jsonl"
    stash: Any = pytest.Stash()
    stash[TESTBEDS] = [SimpleNamespace(name="lab", path=Path("lab.yaml"))]
    stash[DESELECTED] = {"lab": {"no OCS": 2, "no NIC": 5}, "fab": {"no NIC": 1}}
    stash[ENDED] = "interrupted"
    options = {"seed": 7, "lightrig_json": str(path)}
    config = SimpleNamespace(
        stash=stash, option=SimpleNamespace(instruments="simulated"), getoption=options.get
    )
    found = Events.wanted(config, observed)  # type: ignore[arg-type]
    assert found is not None
    return found, path


def test_each_event_has_its_fields(tmp_path: Path, observed: ObservedRun) -> None:
    events, path = events_of(tmp_path, observed)
    events.pytest_sessionstart()
    events.pytest_xdist_node_collection_finished(["a", "b", "c"])
    events.pytest_xdist_node_collection_finished(["a", "b", "c"])
    for nodeid in ("t.py::a", "t.py::b"):
        events.pytest_runtest_logstart(nodeid)
    for observer in observed.observers:
        observer("t.py::b", True, [row(CARRIER_UP, n * MS, n, None, None) for n in (3, 9, 4)])
    limit = Limit(CARRIER_UP, "upper", 0.99, 5 * MS, "ns", 0.95)
    verdict = Verdict("not enough data", 3, 1, 1, 296, "too few")
    observed.judged("t.py::b", limit, verdict)
    observed.note("lab", "a gate of 30 s")
    observed.not_restored("lab", "ocs is not as found")
    for finish in observed.finishes:
        finish("t.py::b", "failed", 1.23456789, "so wrong")
        finish("t.py::a", "passed", 2.0, "")
    events.finished(6, None)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for one in found:
        assert one.pop("time").endswith("+00:00")
        by_name.setdefault(one.pop("event"), []).append(one)
    lab = {"testbeds": {"lab": "lab.yaml"}, "instruments": "simulated", "seed": 7}
    assert by_name["run_started"] == [{"version": 1, "run": observed.name, **lab}]
    assert by_name["tests_collected"] == [{"tests": 3}]
    assert by_name["test_started"] == [
        {"test": "t.py::a", "number": 1},
        {"test": "t.py::b", "number": 2},
    ]
    (figure,) = by_name["quantity"]
    assert (figure["test"], figure["value"], figure["n"]) == ("t.py::b", 4 * MS, 3)
    assert (figure["final"], figure["simulated"]) == (True, True)
    judged = {"outcome": "not enough data", "n": 3, "needed": 296, "reason": "too few"}
    of_limit = {"test": "t.py::b", "quantity": CARRIER_UP, "limit": str(limit)}
    assert by_name["verdict"] == [of_limit | judged]
    assert by_name["note"] == [{"testbed": "lab", "note": "a gate of 30 s"}]
    assert by_name["not_restored"] == [{"testbed": "lab", "problem": "ocs is not as found"}]
    assert by_name["test_finished"] == [
        {"test": "t.py::b", "outcome": "failed", "duration_s": 1.234568, "why": "so wrong"},
        {"test": "t.py::a", "outcome": "passed", "duration_s": 2.0, "why": None},
    ]
    assert by_name["tests_deselected"] == [
        {"testbed": "lab", "tests": 7, "reasons": {"no OCS": 2, "no NIC": 5}},
        {"testbed": "fab", "tests": 1, "reasons": {"no NIC": 1}},
    ]
    (end,) = by_name["run_finished"]
    assert (end["exit"], end["ended"], end["report"]) == (6, "interrupted", None)
    assert end["journal"] == str(observed.folder / "journal.jsonl")


@pytest.mark.parametrize("target", ["-", None])
def test_the_terminal_makes_room_for_events_on_standard_output(
    tmp_path: Path, observed: ObservedRun, target: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    options = {"lightrig_json": target or str(tmp_path / "events.jsonl")}
    stash: Any = pytest.Stash()
    stash[DESELECTED], stash[ENDED] = {}, "complete"
    config = SimpleNamespace(stash=stash, getoption=options.get)
    made: list[object] = []

    class Terminal:
        def __init__(self, of: object, file: object) -> None:
            assert (of, file) == (config, sys.stderr)
            made.append(self)

    events = Events.wanted(config, observed)  # type: ignore[arg-type]
    assert events is not None
    calls: list[tuple[str, object]] = []
    manager: Any = SimpleNamespace(
        unregister=lambda plugin: calls.append(("unregister", plugin)),
        register=lambda plugin, name: calls.append((name, plugin)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest, "TerminalReporter", Terminal)
        events.pytest_plugin_registered("other", "cacheprovider", manager)
        assert calls == []
        events.pytest_plugin_registered("terminal", "terminalreporter", manager)
        if target is not None:
            assert calls == [("unregister", "terminal"), ("terminalreporter", made[0])]
            events.pytest_plugin_registered(made[0], "terminalreporter", manager)
    assert (len(calls), len(made)) == ((0, 0) if target is None else (2, 1))
    events.finished(0, None)
    assert ('"run_finished"' in capfd.readouterr().out) is (target is not None)


# ------------------------------------------------------------------------------ figures


def test_bounds_of_an_event_are_those_of_its_worst_subjects() -> None:
    found = Quantities()
    ports = {"a": (5, 2, 9), "b": (7, 6, 8), "c": (6, 1, 12)}
    for event, by in ((4, 0), (2, 100), (9, 50), (0, 20), (1, 70), (3, 40)):
        for port, ends in ports.items():
            value, low, high = (each + by for each in ends)
            one = Row(
                port, "outage.total", value * MS, low * MS, high * MS, "ns", 0, {"event": event}
            )
            found.add(False, [one])
    # Of six events the interval of the median is from the least to the greatest.
    (figure,) = found.figures()
    assert (figure.lower, figure.upper, figure.n) == (6 * MS, 112 * MS, 6)


def test_row_without_bounds_is_its_value() -> None:
    found = Quantities()
    rows = [row("retraining", n * MS, n, None, (n + 2) * MS if n % 2 else None) for n in range(6)]
    found.add(True, rows)
    (figure,) = found.figures()
    assert (figure.lower, figure.upper) == (0, 7 * MS)


def test_figures_of_different_numbers_are_separate_in_a_line() -> None:
    figures = [
        MedianFigure("reconfiguration.los", 2 * MS, None, None, "ns", 3, True),
        MedianFigure("loss", 1.5, 1.2, 2.0, "dB", 1200, False),
        MedianFigure("outage.carrier", 4 * MS, None, None, "ns", 3, True),
        MedianFigure("reconfiguration.carrier_up", 9 * MS, None, None, "ns", 3, False),
    ]
    assert in_a_line(figures) == (
        "los 2 ms, outage.carrier 4 ms (medians of 3, simulated); "
        "loss 1.50 dB [1.20 … 2.00] (median of 1,200); carrier_up 9 ms (median of 3)"
    )


# -------------------------------------------------------------------------- one line a test


def live(observed: ObservedRun, *, width: int = 0, verbosity: int = 0) -> tuple[Live, list[str]]:
    """Return the lines of a terminal `width` columns wide, or of a file, and what is written."""
    written: list[str] = []
    reporter = SimpleNamespace(
        write=written.append,
        rewrite=lambda text, erase=False: written.append(f"{'erase ' if erase else ''}<{text}>"),
        flush=lambda: None,
        isatty=bool(width),
    )
    writer = SimpleNamespace(markup=lambda text, **_colour: text, fullwidth=width)
    config = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin={"terminalreporter": reporter}.get),
        get_terminal_writer=lambda: writer,
        get_verbosity=lambda: verbosity,
    )
    found = Live(config, observed)  # type: ignore[arg-type]
    found.pytest_sessionstart()
    found.pytest_xdist_node_collection_finished(["d/t.py::a", "d/t.py::b"])
    return found, written


def test_marginal_limits_are_on_the_line_of_their_test(observed: ObservedRun) -> None:
    shown, written = live(observed)
    for nodeid in ("d/t.py::a", "d/t.py::b"):
        shown.pytest_runtest_logstart(nodeid)
    limits = [Limit("q", "upper", 0.99, n * MS, "ns", 0.95) for n in (5, 8)]
    for limit, outcome in zip(limits, ("marginal", "pass"), strict=True):
        observed.judged("d/t.py::b", limit, Verdict(outcome, 3, 0, 0, None, ""))  # type: ignore[arg-type]
    for finish in observed.finishes:
        finish("d/t.py::b", "passed", 1.2, "")
        finish("d/t.py::a", "failed", 0.25, "first line\nsecond line")
    assert written == [
        f"1/2  passed       t.py::b  marginal: {limits[0]}  1.2 s  about 1 s left\n",
        "2/2  failed       t.py::a  first line  250 ms\n",
    ]


def test_the_last_line_of_a_terminal_is_the_running_test(
    observed: ObservedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightrig.harness.plugin.live.REDRAWN", 0)
    shown, written = live(observed, width=50)
    shown.pytest_runtest_logstart("d/t.py::b")
    for observer in observed.observers:
        observer("d/t.py::b", True, [row(CARRIER_UP, n * MS, n, None, None) for n in (3, 9, 4)])
    for finish in observed.finishes:
        finish("d/t.py::b", "passed", 7.0, "")
    shown.pytest_runtest_logstart("d/t.py::a")
    line = "0/2  t.py::b  carrier_up not enough data: 6 needed"
    assert written == [
        *("erase <0/2  t.py::b>", f"erase <{line[:49]}>", "erase <>", "<>"),
        "1/2  passed       t.py::b  carrier_up not enough data: 6 needed  7 s  about 7 s left\n",
        "erase <1/2  t.py::a  about 7 s left>",
    ]


def test_where_pytest_is_quiet_or_verbose_no_line_is_added(observed: ObservedRun) -> None:
    for verbosity in (-1, 2):
        shown, written = live(observed, width=50, verbosity=verbosity)
        shown.pytest_runtest_logstart("d/t.py::b")
        for finish in observed.finishes:
            finish("d/t.py::b", "passed", 7.0, "")
        assert written == []


# -------------------------------------------------------------------------------- JUnit


def junit(tmp_path: Path, suite: str, reruns: Mapping[str, list[str]] | None = None) -> ET.Element:
    path = tmp_path / "junit.xml"
    path.write_text(f"<testsuites>{suite}</testsuites>")
    config = SimpleNamespace(getoption=lambda name, default: str(path))
    add_outcomes(config, reruns or {})  # type: ignore[arg-type]
    return ET.parse(path).getroot()


def case(outcome: str, extra: str = "") -> str:
    properties = (
        f'<property name="other" value="x"/><property name="outcome" value="{outcome}"/>'
        '<property name="reason" value="9 more"/>'
    )
    return f"<testcase><properties>{properties}</properties>{extra}</testcase>"


COUNTED = ("tests", "failures", "errors", "skipped")
SKIPPED = '<skipped type="pytest.skip" message="9 more"/>'


def counts(suite: ET.Element) -> tuple[int, ...]:
    return tuple(int(suite.get(name, "-1")) for name in COUNTED)


def test_inconclusive_cases_are_skipped_and_each_case_counts_once(tmp_path: Path) -> None:
    cases = case("inconclusive", SKIPPED) + case("passed") + "<testcase/>" + case("", SKIPPED)
    cases += case("inconclusive", SKIPPED + "<error/>")  # its tear-down failed
    cases += "<testcase><failure/></testcase>"
    root = junit(tmp_path, f"<testsuite tests='7' skipped='3'>{cases}</testsuite><testsuite/>")
    first, second = root.iter("testsuite")
    assert (counts(first), counts(second)) == ((6, 1, 1, 2), (0, 0, 0, 0))
    marks = [[each.attrib for each in one.iter("skipped")] for one in first.iter("testcase")]
    mark = {"type": "lightrig.inconclusive", "message": "9 more"}
    assert marks == [[mark], [], [], [mark | {"type": "pytest.skip"}], [], []]
    assert [each.attrib for each in first.findall("properties/property")] == [
        {"name": "inconclusive", "value": "1"}
    ]
    assert first[0].tag == "properties"
    assert second.find("properties") is None


@pytest.mark.parametrize(
    ("end", "kind", "expected"),
    [
        ("", "flakyFailure", (2, 0, 0, 0)),
        ("<failure/>", "rerunFailure", (2, 1, 0, 0)),
        (SKIPPED, "rerunFailure", (2, 0, 0, 1)),
    ],
)
def test_attempts_are_parts_of_the_case_of_the_last(
    tmp_path: Path, end: str, kind: str, expected: tuple[int, ...]
) -> None:
    place = 'classname="d.t.A" name="a[x::y]"'
    cases = [f"<testcase {place}>{each}</testcase>" for each in ("", "", end)]
    cases.insert(1, '<testcase classname="d.u.A" name="a[x::y]"/>')
    reruns = {"d/t.py::A::a[x::y]": ["too slow", "no light"], "gone.py::b": ["crashed"]}
    root = junit(tmp_path, f"<testsuite>{''.join(cases)}</testsuite>", reruns)
    (suite,) = root.iter("testsuite")
    assert counts(suite) == expected
    other, last = suite.findall("testcase")
    assert (other.get("classname"), len(other)) == ("d.u.A", 0)
    assert [one.get("message") for one in last.findall(kind)] == ["too slow", "no light"]


def test_properties_of_a_suite_are_retained(tmp_path: Path) -> None:
    given = '<properties><property name="host" value="lab7"/></properties>'
    root = junit(tmp_path, f"<testsuite>{given}{case('inconclusive', SKIPPED)}</testsuite>")
    (suite,) = root.iter("testsuite")
    found = [one.get("name") for one in suite.findall("properties/property")]
    assert (suite.get("skipped"), found) == ("1", ["host", "inconclusive"])
