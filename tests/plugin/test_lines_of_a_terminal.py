"""The line of a test on a terminal: when it is drawn, what it has, and what is written of it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.plugin import events as events_module
from lightrig.harness.plugin import live as live_module
from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.events import Events
from lightrig.harness.plugin.keys import TESTBEDS
from lightrig.harness.plugin.live import Live, TimeLeft
from lightrig.harness.record import Row
from lightrig.harness.run import ObservedRun

MS, S = 1_000_000, 10**9
CARRIER_UP = "reconfiguration.carrier_up"


def row(value: int, event: int) -> Row:
    return Row("lab", CARRIER_UP, value * MS, None, None, "ns", event, {"event": event})


class Screen:
    """A terminal whose clock stands unless a test moves it; it notes what is written."""

    def __init__(self, folder: Path, verbosity: int = 0, capture: bool = True) -> None:
        self.written: list[Any] = []
        self.time = 0
        self.isatty, self.showfspath = True, True
        self.run = ObservedRun(folder, {})
        plugins: dict[str, Any] = {"terminalreporter": self}
        if capture:
            plugins["capturemanager"] = self
        writer = SimpleNamespace(fullwidth=60, markup=self._marked)
        self.config: Any = SimpleNamespace(
            pluginmanager=SimpleNamespace(getplugin=plugins.get),
            get_verbosity=lambda: verbosity,
            get_terminal_writer=lambda: writer,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                live_module, "SystemClock", lambda: SimpleNamespace(now=lambda: self.time)
            )
            self.live = Live(self.config, self.run)
        self.live.pytest_sessionstart()

    def _marked(self, text: str, **colour: bool) -> str:
        return f"{'+'.join(colour)}:{text.strip()}"

    def write(self, text: str) -> None:
        self.written.append(text)

    def write_line(self, text: str) -> None:
        self.written.append(f"{text}\n")

    def rewrite(self, text: str, erase: bool = False) -> None:
        self.written.append(("erased", text) if erase else ("over", text))

    def flush(self) -> None:
        self.written.append("flushed")

    def global_and_fixture_disabled(self) -> Any:
        self.written.append("seen")
        return _Seen(self.written)

    def record(self, test: str, *rows: Row) -> None:
        for observer in self.run.observers:
            observer(test, True, rows)

    def finish(self, test: str, outcome: str, took: float, why: str = "") -> None:
        for finish in self.run.finishes:
            finish(test, outcome, took, why)

    def taken(self) -> list[Any]:
        written, self.written = self.written, []
        return written


class _Seen:
    def __init__(self, written: list[Any]) -> None:
        self._written = written

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._written.append("hidden")


@pytest.fixture
def screen(tmp_path: Path) -> Screen:
    return Screen(tmp_path)


def session(*nodeids: str) -> Any:
    return SimpleNamespace(items=[SimpleNamespace(nodeid=each) for each in nodeids])


ERASED = [("erased", ""), ("over", "")]


def test_a_running_test_is_redrawn_five_times_a_second(screen: Screen) -> None:
    screen.live.pytest_collection_finish(session("d/t.py::a", "d/t.py::b", "d/t.py::c"))
    screen.live.pytest_runtest_logstart("d/t.py::a")
    line = "0/3  t.py::a"
    assert screen.taken() == ["seen", ("erased", line), "flushed", "hidden"]
    screen.time = 199_999_999
    screen.record("d/t.py::a", row(3, 0))
    assert screen.taken() == []
    screen.time = 200_000_000
    screen.record("d/t.py::a", row(5, 1), row(9, 2))
    line += "  carrier_up not enough data: 6 needed"
    assert screen.taken()[1] == ("erased", line[:59])
    screen.time = 399_999_999
    screen.record("d/t.py::x", row(5, 1))
    assert screen.taken() == []
    screen.time = 3 * S - 1
    screen.live.pytest_runtest_logstart("d/t.py::b")
    assert screen.taken()[1] == ("erased", "0/3  t.py::b")
    screen.finish("d/t.py::b", "error", 2.0, "first\nsecond")
    assert screen.taken() == [
        *ERASED, "1/3  red:errort.py::b  first  2 s  about 4 s left\n",
    ]  # fmt: skip
    screen.time = 5 * S
    screen.record("d/t.py::a", row(5, 3))
    drawn = "1/3  t.py::a  carrier_up not enough data: 6 needed  5 s  about 4 s left"
    assert screen.taken()[1] == ("erased", drawn[:59])
    screen.finish("d/t.py::a", "skipped", 1.0)
    assert screen.taken()[-1].startswith("2/3  yellow:skippedt.py::a  carrier_up not enough")
    screen.live.pytest_runtest_logstart("d/t.py::c")
    screen.taken()
    screen.finish("d/t.py::c", "passed", 1.0, "x" * 101)
    assert screen.taken()[-1] == f"3/3  green:passedt.py::c  {'x' * 99}…  1 s\n"
    screen.finish("d/t.py", "error", 0.0, "not collected")
    assert screen.taken() == []


def test_a_reason_of_a_hundred_characters_is_whole(screen: Screen) -> None:
    screen.live.pytest_collection_finish(session(*"abcdefghijkl"))
    screen.live.pytest_runtest_logstart("a")
    screen.finish("a", "failed", 0.5, "x" * 100)
    line = f" 1/12  red:faileda  {'x' * 100}  500 ms  about 6 s left\n"
    assert screen.taken()[-1] == line


def test_workers_are_counted_once(screen: Screen) -> None:
    for _ in range(2):
        screen.live.pytest_xdist_node_collection_finished(["a", "b"])
    screen.live.pytest_runtest_logstart("a")
    assert screen.taken()[1] == ("erased", "0/2  a")
    screen.finish("a", "passed", 7.0)
    assert screen.taken()[-1].endswith("7 s  about 7 s left\n")


def test_dots_are_left_out_only_while_a_test_is_reported(screen: Screen, tmp_path: Path) -> None:
    def status(live: Live) -> Any:
        steps: Any = live.pytest_report_teststatus()
        next(steps)
        with pytest.raises(StopIteration) as ended:
            steps.send(("passed", ".", "PASSED"))
        return ended.value.value

    quiet = Screen(tmp_path / "quiet", verbosity=1)
    assert (screen.showfspath, quiet.showfspath) == (False, True)
    for live, within in (
        (screen.live, ("passed", "", "")),
        (quiet.live, ("passed", ".", "PASSED")),
    ):
        assert status(live) == ("passed", ".", "PASSED")
        steps: Any = live.pytest_runtest_logreport()
        next(steps)
        assert status(live) == within
        next(steps, None)
        assert status(live) == ("passed", ".", "PASSED")
    steps = screen.live.pytest_runtest_logreport()
    next(steps)
    nothing: Any = screen.live.pytest_report_teststatus()
    next(nothing)
    with pytest.raises(StopIteration) as ended:
        nothing.send(None)
    assert ended.value.value is None


def test_a_note_is_seen_although_a_test_is_captured(screen: Screen, tmp_path: Path) -> None:
    screen.run.note("lab", "a gate\x1b")
    assert screen.taken() == ["seen", *ERASED, "lab: a gate\\x1b\n", "hidden"]
    open_screen = Screen(tmp_path / "open", capture=False)
    open_screen.isatty = False
    open_screen.run.note("lab", "a gate")
    assert open_screen.taken() == ["lab: a gate\n"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.99, "less than a second left"),
        (1.0, "about 1 s left"),
        (99.9, "about 100 s left"),
        (100, "about 2 min left"),
        (5_990, "about 100 min left"),
        (6_000, "about 1.7 h left"),
    ],
)
def test_ends_of_the_units_of_the_time_left(seconds: float, words: str) -> None:
    left = TimeLeft()
    left.expect(["a[1]", "a[2]"])
    left.ended("a[1]", seconds)
    assert left.remaining_text() == words


# -------------------------------------------------------------------------------- events


def test_figures_are_reported_again_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = 0
    monkeypatch.setattr(events_module, "SystemClock", lambda: SimpleNamespace(now=lambda: time))
    run = ObservedRun(tmp_path / "results", {})
    stash: Any = pytest.Stash()
    stash[TESTBEDS], stash[DESELECTED] = [], {}
    target = str(tmp_path / "events.jsonl")
    options = {"lightrig_json": target}
    config: Any = SimpleNamespace(
        stash=stash, getoption=options.get, option=SimpleNamespace(instruments="auto")
    )
    events = Events.wanted(config, run)
    assert events is not None
    events.pytest_collection_finish(SimpleNamespace(items=[1, 2, 3, 4, 5]))  # type: ignore[arg-type]
    events.pytest_xdist_node_collection_finished(["a"])
    events.pytest_runtest_logstart("a")
    for time, value in ((S - 1, 3), (S, 9), (S + 1, 5), (2 * S, 6)):
        for observer in run.observers:
            observer("a", False, [row(value, time)])
    for finish in run.finishes:
        finish("a", "passed", 0.5, "")
    written = [json.loads(line) for line in Path(target).read_text().splitlines()]
    assert [(one["event"], one.get("tests")) for one in written[:2]] == [
        ("tests_collected", 5),
        ("test_started", None),
    ]
    figures = [one for one in written if one["event"] == "quantity"]
    assert [(one["n"], one["value"] / MS, one["final"]) for one in figures] == [
        *((2, 6, False), (4, 5.5, False), (4, 5.5, True))
    ]
    events.finished(0, None)
    del options["lightrig_json"]
    assert Events.wanted(config, run) is None


def test_events_end_where_nothing_more_can_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"lightrig_json": "/dev/full"}
    stash: Any = pytest.Stash()
    stash[DESELECTED] = {}
    config: Any = SimpleNamespace(stash=stash, getoption=options.get)
    run = ObservedRun(tmp_path / "results", {})
    events = Events.wanted(config, run)
    assert events is not None
    for _ in range(2):
        run.note("lab", "a gate")
    error = "lightrig: no more events: [Errno 28] No space left on device\n"
    assert capsys.readouterr().err == error
    events.finished(0, None)
    options["lightrig_json"] = str(tmp_path / "none" / "events.jsonl")
    with pytest.raises(pytest.UsageError, match=r"--json .*none/events.jsonl: No such file"):
        Events.wanted(config, run)
