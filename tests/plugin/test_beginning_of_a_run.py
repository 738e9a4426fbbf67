"""The beginning of a run: options and marks, what is registered, and the header of the journal."""

import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness import plugin
from lightrig.harness.plugin import session
from lightrig.harness.plugin.collection import DESELECTED
from lightrig.harness.plugin.ending import EndShield
from lightrig.harness.plugin.keys import BENCHES, FILES, OPENED, RUN, TESTBEDS
from lightrig.harness.record import RecordError
from lightrig.testbeds import TestbedError
from lightrig.testbeds.model import OutOfService


class Beginning:
    """A configuration of pytest with two testbeds; its parts note what they are made of."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noted: list[Any] = []
        self.registered: dict[str, Any] = {}
        self.cleanups: list[Any] = []
        self.handlers: dict[int, Any] = {}
        self.names = {"a.yaml": "opus", "b.yaml": "acos"}
        self.options: dict[str, Any] = {"seed": 9, "publish": "s3://x", "run_name": "mine"}
        self.worker, self.failing = False, False
        stash: Any = pytest.Stash()
        stash[FILES] = list(self.names)
        self.config: Any = SimpleNamespace(
            stash=stash, rootpath=folder, getoption=self.options.get,
            option=SimpleNamespace(collectonly=False, instruments="auto"),
            pluginmanager=SimpleNamespace(register=self._register),
            invocation_params=SimpleNamespace(args=["suites", "-k", "a b"]),
            add_cleanup=self.cleanups.append,
        )  # fmt: skip
        self.run: Any = SimpleNamespace(folder=folder)
        parts = {
            "described": lambda config, file: SimpleNamespace(
                name=self.names[file], path=f"/{file}", timezone="Asia/Tokyo", out=OutOfService()
            ),
            "is_worker": lambda config: self.worker,
            "make_stated_folder": lambda: self.noted.append("folder"),
            "ObservedRun": self._run,
            "WorkerRun": lambda config, deselected: ("worker", deselected),
            "Undecided": lambda: ("Undecided",),
            "Repeats": lambda config, files: self.noted.append(files) or "repeats",
            "Events": SimpleNamespace(wanted=lambda config, run: ("events", run)),
        }
        names = (
            "Parts",
            "Reports",
            "Outcomes",
            "Page",
            "Faults",
            "Traces",
            "Timeouts",
            "Ends",
            "MainProcess",
            "Live",
            "ExpectedDuration",
        )
        for name in names:
            parts[name] = partial(self._part, name)
        for name, part in parts.items():
            monkeypatch.setattr(session, name, part)
        monkeypatch.setattr(signal, "getsignal", self.handlers.get)
        monkeypatch.setattr(signal, "signal", self.handlers.__setitem__)
        self.handlers.update({signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: "nohup"})

    def _part(self, name: str, config: object, *given: object) -> Any:
        assert config is self.config
        return name, *given

    def _register(self, part: object, name: str) -> None:
        self.registered[name] = part

    def _run(self, *given: Any) -> Any:
        if self.failing:
            raise RecordError("no room")
        self.noted.append(given)
        return self.run


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beginning:
    return Beginning(tmp_path, monkeypatch)


def test_the_parts_of_a_run_are_registered_and_its_header_is_complete(begun: Beginning) -> None:
    session.pytest_configure(begun.config)
    stash, run = begun.config.stash, begun.run
    assert [one.name for one in stash[TESTBEDS]] == ["opus", "acos"]
    assert (stash[BENCHES], stash[OPENED]) == ({}, {})
    assert isinstance(stash[session.SHIELD], EndShield)
    files, folder, (results, header, place, name, zone) = begun.noted
    assert (files, folder) == ({"opus": "a.yaml", "acos": "b.yaml"}, "folder")
    assert (results, place, name) == (begun.run.folder / "results", "s3://x", "mine")
    assert zone == "Asia/Tokyo"
    assert header == {
        "seed": 9,
        "instruments": "auto",
        "command": "pytest suites -k 'a b'",
        "testbeds": {"opus": "/a.yaml", "acos": "/b.yaml"},
        "testbed_order": ["opus", "acos"],
    }
    outcomes, events = ("Outcomes", run), ("events", run)
    page = ("Page", run, outcomes)
    assert begun.registered == {
        "lightrig-parts": ("Parts",),
        "lightrig-undecided": ("Undecided",),
        "lightrig-reports": ("Reports", "repeats"),
        "lightrig-faults": ("Faults",),
        "lightrig-traces": ("Traces",),
        "lightrig-timeouts": ("Timeouts",),
        "lightrig-outcomes": outcomes,
        "lightrig-page": page,
        "lightrig-ends": ("Ends", outcomes),
        "lightrig-main": ("MainProcess", run),
        "lightrig-live": ("Live", run),
        "lightrig-expected-duration": ("ExpectedDuration", run, header),
        "lightrig-events": events,
    }
    assert (stash[RUN], stash[session.PAGE], stash[session.EVENTS]) == (run, page, events)
    # What nohup ignores stays ignored.
    assert begun.handlers[signal.SIGHUP] == "nohup"
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")):
        with pytest.raises(KeyboardInterrupt, match=f"terminated by {name}"):
            begun.handlers[signal.SIGTERM](number, None)
    (cleanup,) = begun.cleanups
    again: list[str] = []
    cleanup()
    stash[session.INCLUDE_AGAIN] = partial(again.append, "again")
    cleanup()
    assert again == ["again"]


def test_results_are_where_the_option_says(begun: Beginning, tmp_path: Path) -> None:
    begun.options["results"] = tmp_path / "there"
    session.pytest_configure(begun.config)
    assert begun.noted[-1][0] == tmp_path / "there"


def test_a_worker_has_no_page_and_no_journal(begun: Beginning) -> None:
    begun.worker = True
    session.pytest_configure(begun.config)
    kind, deselected = begun.config.stash[RUN]  # type: ignore[misc]
    begun.config.stash[DESELECTED] = {"opus": {"no NIC": 1}}  # type: ignore[dict-item]
    assert (kind, deselected()) == ("worker", {"opus": {"no NIC": 1}})  # type: ignore[operator]
    parts = ["parts", "undecided", "reports", "faults", "traces", "timeouts", "worker"]
    assert list(begun.registered) == [f"lightrig-{part}" for part in parts]


def test_collecting_alone_begins_nothing(begun: Beginning) -> None:
    begun.config.option.collectonly = True
    session.pytest_configure(begun.config)
    assert (begun.registered, begun.noted, len(begun.config.stash[TESTBEDS])) == ({}, [], 2)


@pytest.mark.parametrize("how", ["same names", "no room", "no file"])
def test_a_run_that_cannot_begin_is_wrong_use(
    begun: Beginning, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise FileNotFoundError("a.yaml")

    begun.failing = how == "no room"
    if how == "same names":
        begun.names["b.yaml"] = "opus"
    if how == "no file":
        monkeypatch.setattr(session, "described", refuse)
    text = {"same names": "two testbeds have the same name: opus, opus", "no file": "a.yaml"}
    with pytest.raises(pytest.UsageError, match=text.get(how, how)):
        session.pytest_configure(begun.config)
    assert RUN not in begun.config.stash
    assert issubclass(TestbedError, Exception)


def test_collected_items_are_frozen_for_the_garbage_collector(
    begun: Beginning, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[Any] = []
    monkeypatch.setattr(session, "store_quantities", stored.append)
    monkeypatch.setattr(session, "exclude_present", lambda: "include")
    session.pytest_collection_finish(SimpleNamespace(config=begun.config))  # type: ignore[arg-type]
    assert (stored, begun.config.stash[session.INCLUDE_AGAIN]) == ([], "include")
    begun.config.stash[RUN] = begun.run
    session.pytest_collection_finish(SimpleNamespace(config=begun.config))  # type: ignore[arg-type]
    assert stored == [begun.run.folder]


# ------------------------------------------------------------------------ without a testbed


@pytest.mark.parametrize(
    ("files", "by_person", "given", "instruments"),
    [
        (["a.yaml"], True, None, "auto"),
        (["a.yaml"], False, None, "simulated"),
        (["a.yaml"], False, "hardware", "hardware"),
        ([], False, None, "simulated"),
    ],
)
def test_testbeds_of_a_conftest_are_simulated_and_load_the_rest(
    monkeypatch: pytest.MonkeyPatch, files: list[str], by_person: bool, given: str | None,
    instruments: str,
) -> None:  # fmt: skip
    lines: list[Any] = []
    imported: list[Any] = []
    stash: Any = pytest.Stash()
    config: Any = SimpleNamespace(
        stash=stash, option=SimpleNamespace(instruments=given),
        addinivalue_line=lambda kind, line: lines.append((kind, line.partition("(")[0])),
        pluginmanager=SimpleNamespace(import_plugin=imported.append),
    )  # fmt: skip
    monkeypatch.setattr(plugin, "testbed_files", lambda config: (files, by_person))
    monkeypatch.setattr(plugin, "load_fixtures", lambda config: imported.append("systems"))
    plugin.pytest_configure(config)
    assert config.option.instruments == instruments
    marks = ("limits", "needs", "fault", "of_testbed", "claim", "of_system")
    assert lines == [("markers", mark) for mark in marks]
    assert imported == ([*plugin.PARTS, "systems"] if files else [])
    assert (FILES in stash) is bool(files)


def test_fixtures_of_each_system_are_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [("acos", "new"), ("opus", "known")]
    module = "lightrig.harness.system_registry.installed_parts"
    monkeypatch.setattr(module, lambda part: iter(modules if part == "fixtures" else ()))
    registered: list[Any] = []
    manager = SimpleNamespace(
        is_registered=lambda module: module == "known",
        register=lambda *given: registered.append(given),
    )
    plugin.load_fixtures(SimpleNamespace(pluginmanager=manager))  # type: ignore[arg-type]
    assert registered == [("new", "lightrig-acos")]
