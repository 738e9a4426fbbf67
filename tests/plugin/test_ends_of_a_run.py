"""The end of a run: its order, what is recorded of it, and its exit status however it ends."""

import inspect
import signal
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.jobs.fixtures import open_or_skip
from lightrig.harness.plugin import ending, session
from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.ending import EndShield, ending_unrecorded
from lightrig.harness.plugin.keys import ENDED, RUN, UNRECORDED
from lightrig.harness.record import RecordError
from lightrig.harness.run import ObservedRun


class Ending:
    """A run of which every part notes when it is called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noted: list[Any] = []
        self.run = ObservedRun(folder, {})
        self.failing: dict[str, Exception] = {}
        for name in ("close", "publish"):
            monkeypatch.setattr(self.run, name, self._part(name))
        monkeypatch.setattr(session, "add_outcomes", lambda *_: self.noted.append("junit"))
        self.page = SimpleNamespace(
            finish=self._part("page"), path=folder / "report.html", is_to_come=True, frame="rows"
        )
        plugins = [SimpleNamespace(__name__="_hypothesis_pytestplugin"), object()]
        self.config: Any = SimpleNamespace(
            stash=pytest.Stash(),
            option=SimpleNamespace(verbose=1),
            getoption={"fail_inconclusive": True}.get,
            pluginmanager=SimpleNamespace(
                getplugin={"terminalreporter": self}.get,
                get_plugins=lambda: plugins,
                unregister=plugins.remove,
            ),
        )
        self.plugins = plugins
        self.outcomes = SimpleNamespace(inconclusive={}, running=None, has_begun=True, reruns={})
        self.config.stash[RUN] = self.run
        self.config.stash[session.PAGE] = self.page
        self.config.stash[session.OUTCOMES] = self.outcomes
        self.config.stash[session.EVENTS] = SimpleNamespace(finished=self._part("events"))
        self.config.stash[session.SHIELD] = SimpleNamespace(
            begin=lambda: self.noted.append("shield"), end=lambda: self.noted.append("no shield")
        )
        self.config.stash[DESELECTED] = {"bench": Counter({"no NIC": 3})}
        self.session: Any = SimpleNamespace(
            config=self.config,
            exitstatus=pytest.ExitCode.OK,
            testscollected=17,
            _setupstate=SimpleNamespace(teardown_exact=self._part("down")),
        )

    def _part(self, name: str) -> Any:
        def called(*given: object) -> None:
            self.noted.append((name, *given) if given else name)
            if name in self.failing:
                raise self.failing[name]

        return called

    def finish(self, *, other: BaseException | None = None) -> list[Any]:
        """Finish the session, in whose middle other plugins end; return what was called."""
        self.noted.clear()
        steps: Any = session.pytest_sessionfinish(self.session, 0)
        try:
            next(steps)
            self.noted.append("others")
            if other is None:
                steps.send(None)
            else:
                steps.throw(other)
        except StopIteration:
            pass
        return self.noted

    # The terminal.

    def section(self, title: str) -> None:
        self.noted.append(("section", title))

    def write_line(self, text: str, **colour: bool) -> None:
        self.noted.append((text, colour))


@pytest.fixture
def end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ending:
    return Ending(tmp_path, monkeypatch)


def test_the_record_is_complete_before_other_plugins_end_and_the_report_after(end: Ending) -> None:
    summary = {"exit": 0, "tests": 17, "deselected": {"bench": {"no NIC": 3}}}
    assert end.finish() == [
        "shield",
        ("down", None),
        ("close", summary),
        *("others", "page", "publish", "junit"),
        ("events", 0, end.page.path),
    ]
    assert session.FINISHED in end.config.stash
    assert end.session.exitstatus == 0
    end.config.stash[session.EVENTS] = None
    assert end.finish()[-1] == "junit"


def test_the_summary_has_all_that_was_not_as_usual(end: Ending) -> None:
    end.config.stash[ENDED] = "interrupted"
    end.config.stash[DESELECTED] = {}
    end.run.failures_to_restore.append("ocs is not as found")
    end.run.report_notes["bench"] = ["a gate of 30 s"]
    end.session.exitstatus = 2
    noted = end.finish()
    assert noted[2] == (
        "close",
        {
            "exit": 2,
            "tests": 17,
            "ended": "interrupted",
            "not_restored": ["ocs is not as found"],
            "notes": {"bench": ["a gate of 30 s"]},
        },
    )
    # docs/reference: 6 where an instrument is not as it was found, whatever the tests did.
    assert (end.session.exitstatus, noted[-1]) == (6, ("events", 6, end.page.path))


def test_what_fixtures_fail_with_at_the_end_is_raised_after_the_record(end: Ending) -> None:
    end.failing["down"] = ValueError("no way down")
    with pytest.raises(ValueError, match="no way down"):
        end.finish()
    assert end.noted[1:] == [
        ("down", None),
        ("close", {"exit": 0, "tests": 17, "deselected": {"bench": {"no NIC": 3}}}),
        *("page", "publish", "junit"),
        ("events", 0, end.page.path),
    ]
    end.failing.clear()
    with pytest.raises(OSError, match="of another"):
        end.finish(other=OSError("of another plugin"))
    assert end.noted[-4:-1] == ["page", "publish", "junit"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RecordError("disk full"), "lightrig: the record is incomplete: disk full\n"),
        (ValueError("why"), "lightrig: the record is incomplete: ValueError('why')\n"),
    ],
)
def test_an_incomplete_record_is_an_error_and_the_report_comes_all_the_same(
    end: Ending, error: Exception, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    end.failing["close"] = error
    assert end.finish()[-3:] == ["publish", "junit", ("events", 3, end.page.path)]
    assert end.session.exitstatus == pytest.ExitCode.INTERNAL_ERROR
    assert capsys.readouterr().err == text


def test_the_error_that_ended_the_run_is_reported_once(
    end: Ending, capsys: pytest.CaptureFixture[str]
) -> None:
    end.failing["close"] = end.failing["page"] = RecordError("disk full")
    end.config.stash[UNRECORDED] = True
    noted = end.finish()
    assert (noted[-2], "publish" in noted) == ("junit", False)
    assert capsys.readouterr().err == ""
    del end.config.stash[UNRECORDED]
    del end.failing["close"]
    end.finish()
    assert capsys.readouterr().err == "lightrig: disk full\n"


@pytest.mark.parametrize(
    ("wanted", "inconclusive", "before", "after"),
    [
        (True, {"a": "few"}, 0, 1),
        (False, {"a": "few"}, 0, 0),
        (True, {}, 0, 0),
        (True, {"a": "few"}, 2, 2),
        (True, {"a": "few"}, 5, 5),
    ],
)
def test_undecided_tests_fail_a_run_that_is_to_fail_by_them(
    end: Ending, wanted: bool, inconclusive: dict[str, str], before: int, after: int
) -> None:
    end.config.getoption = {"fail_inconclusive": wanted}.get
    end.outcomes.inconclusive = inconclusive
    end.session.exitstatus = pytest.ExitCode(before)
    end.finish()
    assert end.session.exitstatus == after


def test_only_hypothesis_that_was_not_used_is_left_out(
    end: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", SimpleNamespace())
    end.finish()
    assert len(end.plugins) == 2
    monkeypatch.delitem(sys.modules, "hypothesis")
    plain = end.plugins[1]
    end.config.pluginmanager.get_plugins = lambda: list(end.plugins)
    end.finish()
    assert end.plugins == [plain]


def test_a_worker_ends_as_pytest_does(end: Ending) -> None:
    end.config.stash[RUN] = object()  # type: ignore[assignment]
    assert end.finish() == ["others"]


@pytest.mark.parametrize(
    ("error", "running", "reason"),
    [
        (KeyboardInterrupt("terminated by SIGTERM"), None, "interrupted: terminated by SIGTERM"),
        (KeyboardInterrupt(), "t.py::a", "interrupted\nwhile t.py::a ran"),
        (pytest.exit.Exception("no lab"), None, "no lab"),
    ],
)
def test_the_reason_of_an_early_end_is_recorded(
    end: Ending, error: BaseException, running: str | None, reason: str
) -> None:
    ends = session.Ends(end.config, end.outcomes)  # type: ignore[arg-type]
    end.outcomes.running = running
    for _ in ends.pytest_keyboard_interrupt(SimpleNamespace(value=error)):  # type: ignore[arg-type]
        pass
    assert (end.config.stash[ENDED], end.noted) == (reason, ["shield"])
    broken: Any = SimpleNamespace(exconly=lambda: "KeyError: x", value=KeyError("x"))
    ends.pytest_internalerror(broken)
    assert end.config.stash[ENDED].startswith("internal error: KeyError: x")


def test_the_summary_leaves_the_verbosity_as_it_was(
    end: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "summary_lines", lambda frame: [])
    ends = session.Ends(end.config, end.outcomes)  # type: ignore[arg-type]
    for verbose, within in ((1, 2), (3, 3)):
        end.config.option.verbose = verbose
        steps: Any = ends.pytest_terminal_summary()
        next(steps)
        session.pytest_terminal_summary(end, end.config)
        assert end.config.option.verbose == within
        next(steps, None)
        assert end.config.option.verbose == verbose
    end.config.option.verbose = 1
    end.config.stash[RUN] = object()  # type: ignore[assignment]
    session.pytest_terminal_summary(end, end.config)
    assert end.config.option.verbose == 1


def test_the_terminal_shows_each_part_once(end: Ending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "summary_lines", lambda frame: [f"of {frame}", "more"])
    end.outcomes.inconclusive = {"t.py::a": "9 more"}
    end.run.failures_to_restore.append("ocs is not as found")
    end.config.stash[session.FINISHED] = True
    end.config.pluginmanager.getplugin = {}.get  # as with -p no:terminal
    session.pytest_unconfigure(end.config)
    assert end.noted == ["no shield"]
    end.noted.clear()
    session.pytest_terminal_summary(end, end.config)
    session.pytest_terminal_summary(end, end.config)
    assert end.noted == [
        ("section", "lightrig"),
        ("of rows", {}),
        ("more", {}),
        ("bench: 3 tests not applicable: no NIC (3)", {}),
        ("INCONCLUSIVE t.py::a - 9 more", {"yellow": True}),
        ("ocs is not as found", {"red": True, "bold": True}),
        (f"report   {end.page.path}", {}),
        (f"journal  {end.run.folder / 'journal.jsonl'}", {}),
    ]


@pytest.mark.parametrize("page", ["no path", "not to come"])
def test_a_report_that_does_not_come_is_not_named(
    end: Ending, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    def unreadable(frame: object) -> list[str]:
        raise RecordError("torn")

    monkeypatch.setattr(session, "summary_lines", unreadable)
    if page == "no path":
        end.page.path = None
    else:
        end.page.is_to_come = False
    session.pytest_terminal_summary(end, end.config)
    assert end.noted[1] == ("the record cannot be read: torn", {"red": True})
    assert not any(one[0].startswith("report") for one in end.noted)


def test_a_session_that_never_began_is_recorded_as_such(
    end: Ending, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "summary_lines", lambda frame: [])
    session.pytest_unconfigure(end.config)
    ended = {"exit": 2, "tests": 0, "ended": "ended before the session had begun"}
    heading = ("section", "lightrig")
    assert (end.noted[:2], end.noted[-1]) == ([("close", ended), heading], "no shield")
    end.failing["close"] = RecordError("disk full")
    session.pytest_unconfigure(end.config)
    assert capsys.readouterr().err == "lightrig: the record is incomplete: disk full\n"
    assert end.noted[-2:] == [("close", ended), "no shield"]  # the rest is shown already
    del end.config.stash[session.SHOWN]
    end.noted.clear()
    end.config.stash[session.FINISHED] = True
    session.pytest_unconfigure(end.config)
    assert (end.noted[0], end.noted[-1]) == (heading, "no shield")


def test_an_interrupted_loop_is_shielded_and_a_whole_one_is_not(end: Ending) -> None:
    steps: Any = session.pytest_runtestloop(end.session)
    next(steps)
    with pytest.raises(StopIteration) as ended:
        steps.send(True)
    assert (ended.value.value, end.noted) == (True, [])
    steps = session.pytest_runtestloop(end.session)
    next(steps)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    assert end.noted == ["shield"]


# ------------------------------------------------------------------------------- its parts


def test_the_shield_gives_handlers_back_to_a_program_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handlers: dict[int, Any] = {number: f"handler {number}" for number in ending.ENDING}
    repeated = [KeyboardInterrupt()]

    def set_handler(number: int, handler: Any) -> Any:
        if repeated:
            raise repeated.pop()
        before, handlers[number] = handlers[number], handler
        return before

    monkeypatch.setattr(signal, "signal", set_handler)
    sound, shield = dict(handlers), EndShield()
    shield.begin()
    shield.begin()
    assert set(handlers.values()) == {signal.SIG_IGN}
    # Where pytest itself is the program, it exits next.
    frame = inspect.currentframe()
    assert frame is not None
    monkeypatch.setattr(pytest, "console_main", SimpleNamespace(__code__=frame.f_code))
    shield.end()
    assert set(handlers.values()) == {signal.SIG_IGN}
    monkeypatch.setattr(pytest, "console_main", SimpleNamespace(__code__=None))
    shield.end()
    assert handlers == sound


def test_a_missing_program_skips_and_an_open_one_is_closed() -> None:
    from lightrig.harness.jobs.bench.collectives import NoCollectivesError
    from lightrig.instruments.jobs.traffic.gloo import NoPyTorchError

    def absent(error: Exception) -> Any:
        def opened() -> Any:
            raise error

        return opened

    sentence = "server0  has no\n  nccl-tests"
    with pytest.raises(pytest.skip.Exception) as skipped:
        next(open_or_skip(absent(NoCollectivesError(sentence))))
    assert skipped.value.msg == "server0 has no; nccl-tests"
    with pytest.raises(pytest.skip.Exception, match="PyTorch is not installed"):
        next(open_or_skip(absent(NoPyTorchError("server0", "none"))))
    closed: list[str] = []
    runner = SimpleNamespace(close=lambda: closed.append("closed"))
    steps = open_or_skip(lambda: runner)
    assert (next(steps), closed) == (runner, [])
    assert list(steps) == []
    assert closed == ["closed"]


def test_what_cannot_be_recorded_ends_the_run(end: Ending) -> None:
    with ending_unrecorded(end.config):
        assert UNRECORDED not in end.config.stash
    with pytest.raises(pytest.exit.Exception) as ended, ending_unrecorded(end.config):
        raise RecordError("disk full")
    assert (ended.value.msg, ended.value.returncode) == (
        "nothing more can be recorded: disk full",
        3,
    )
    assert end.config.stash[UNRECORDED] is True
