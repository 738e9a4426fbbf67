"""Sessions with many switches: what is silent holds up no other, and is noticed in time."""

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.orchestration import switch_sessions
from lightrig.harness.orchestration.health import HITS, MISSES
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import Reading, SilentError, SwitchSessions
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.testbeds import Circuit, LightrigError, Plan, Testbed, load

LOOPBACK = frozenset({Circuit(1, 4)})


class Lab:
    """Switches of which some never answer: their sessions end after a time of their own."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.present: dict[str, frozenset[Circuit]] = {}
        self.applied: list[str] = []
        self.asked: list[str] = []
        self.timeout_s = 5.0
        self.change_s = 0.0
        self.at_once = self.most_at_once = 0
        self.turn: AbstractContextManager[Any] | None = None
        self._waits: list[threading.Event] = []

    def hang_up(self) -> None:
        """End the sessions that wait for an answer now, as a switch that begins again does."""
        for wait in self._waits:
            wait.set()

    def bind_only(self, testbed: Any, names: set[str], *_: object) -> Any:
        (name,) = names

        def circuits() -> frozenset[Circuit]:
            self.asked.append(name)
            if name in self.silent:
                # Of each its own, as a socket is: threads that share an event wake one another.
                self._waits.append(threading.Event())
                self._waits[-1].wait(self.timeout_s)
                raise LightrigError(f"{name} did not answer within 5 s")
            if self.turn is not None:
                with self.turn:
                    threading.Event().wait(0.06)
            return self.present.get(name, LOOPBACK)

        return SimpleNamespace(
            testbed=testbed, switches={name: SimpleNamespace(circuits=circuits)}, close=lambda: None
        )

    def fabric(self, bench: Any) -> Any:
        def apply(plan: Plan) -> None:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            threading.Event().wait(self.change_s)
            self.at_once -= 1
            self.applied += plan.circuits
            self.present.update(plan.circuits)

        return SimpleNamespace(bench=bench, testbed=bench.testbed, apply=apply)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab()
    monkeypatch.setattr(switch_sessions, "bind_only", made.bind_only)
    monkeypatch.setattr(switch_sessions, "Fabric", made.fabric)
    return made


def row(folder: Path, nodes: int) -> Testbed:
    (folder / "row.yaml").write_text(render(nodes, hops=2))
    return load(folder / "row.yaml")


def calls_of_lightrig(action: Callable[[], None]) -> int:
    """Count the calls of Lightrig's functions by this thread while `action` runs."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_globals["__name__"].startswith("lightrig.")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def test_a_silent_switch_holds_up_no_other_and_is_not_asked_twice(
    lab: Lab, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 0.3)
    testbed = row(tmp_path, 8)
    sessions = SwitchSessions(testbed)
    lab.silent = {"trx0-node3"}
    for _ in range(2):
        found = sessions.probe(testbed.optical_switches)
        late = [name for name, each in found.items() if not isinstance(each, Reading)]
        assert late == ["trx0-node3"]
        assert "did not answer within 0.3 s" in str(found["trx0-node3"])
    assert lab.asked.count("trx0-node3") == 1
    assert lab.asked.count("trx0-node2") == 2
    lab.silent = set()
    lab.hang_up()
    while isinstance(sessions.probe(["trx0-node3"])["trx0-node3"], SilentError):
        pass
    assert isinstance(sessions.probe(["trx0-node3"])["trx0-node3"], Reading)
    sessions.close()


def test_a_switch_that_the_probe_before_has_waited_for_is_not_waited_for_again(
    lab: Lab, tmp_path, monkeypatch
) -> None:
    """Its answer, an error, comes after 10 s: the second probe ends long before it."""
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 0.3)
    testbed = row(tmp_path, 5)
    sessions = SwitchSessions(testbed)
    lab.timeout_s, lab.silent = 10.0, {"trx0-node3"}
    sessions.probe(testbed.optical_switches)
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 600.0)
    found = sessions.probe(testbed.optical_switches)["trx0-node3"]
    assert isinstance(found, SilentError)
    lab.hang_up()
    sessions.close()


def test_switches_that_answer_one_after_the_other_are_all_waited_for(
    lab: Lab, tmp_path, monkeypatch
) -> None:
    """Sixteen answers 60 ms apart, and one that does not come, within 0.3 s of the one before."""
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 0.3)
    testbed = row(tmp_path, 8)
    sessions = SwitchSessions(testbed)
    sessions.probe(testbed.optical_switches)
    lab.turn, lab.silent = threading.Lock(), {"trx0-node3"}
    found = sessions.probe(testbed.optical_switches)
    late = [name for name, each in found.items() if not isinstance(each, Reading)]
    assert late == ["trx0-node3"]
    lab.hang_up()
    sessions.close()


def test_few_switches_change_at_once_also_where_a_probe_asked_all(
    lab: Lab, tmp_path, monkeypatch
) -> None:
    """Changes of 0.3 s, longer than probes wait for an answer, two at once; before, silence."""
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(switch_sessions, "ORDERED_AT_ONCE", 2)
    testbed = row(tmp_path, 5)
    sessions = SwitchSessions(testbed)
    sessions.probe(testbed.optical_switches)
    lab.silent = {"trx0-node1", "trx0-node2", "trx0-node3"}
    found = sessions.probe(testbed.optical_switches)
    assert sum(isinstance(each, Reading) for each in found.values()) == 7
    lab.silent = set()
    lab.hang_up()
    while sum(isinstance(each, Reading) for each in found.values()) < 10:
        found = sessions.probe(testbed.optical_switches)
    lab.change_s = 0.3
    outcomes = sessions.order(dict.fromkeys(list(testbed.optical_switches)[:6], LOOPBACK))
    assert all(isinstance(each, Reading) for each in outcomes.values())
    assert lab.most_at_once == 2
    sessions.close()


def test_threads_are_few_unless_switches_hang(lab: Lab, tmp_path, monkeypatch) -> None:
    """Of 60 switches that answer few threads ask; 40 that hang are asked by threads that end."""
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 2.0)
    testbed = row(tmp_path, 30)
    sessions, most = SwitchSessions(testbed), switch_sessions.PROBED_AT_ONCE
    before = threading.active_count()
    assert len(sessions.probe(testbed.optical_switches)) == 60
    assert threading.active_count() <= before + most < before + 60
    lab.silent = set(list(testbed.optical_switches)[:40])
    found = sessions.probe(testbed.optical_switches)
    assert {name for name in found if isinstance(found[name], SilentError)} == lab.silent
    assert threading.active_count() >= before + 40
    lab.hang_up()
    while threading.active_count() > before + most:
        threading.Event().wait(0.01)
    sessions.close()


def test_sessions_are_opened_a_few_at_once_and_left_out_until_then(
    lab: Lab, tmp_path, monkeypatch
) -> None:
    """A service that begins again takes no switch for silent that it has not come to yet."""
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(switch_sessions, "_MOST_OPENED_AT_ONCE", 2)
    begun, may_end = list[str](), threading.Event()

    def bind_only(testbed: Any, names: set[str], *rest: object) -> Any:
        begun.extend(names)
        may_end.wait()
        if "trx0-node3" in names:
            raise LightrigError("no route to trx0-node3")
        return lab.bind_only(testbed, names, *rest)

    monkeypatch.setattr(switch_sessions, "bind_only", bind_only)
    testbed = row(tmp_path, 5)
    sessions = SwitchSessions(testbed)
    while len(begun) < 2:
        assert sessions.probe(testbed.optical_switches) == {}
    assert sessions.probe(testbed.optical_switches) == {}
    assert len(begun) == 2
    may_end.set()
    found = dict[str, Any]()
    while len(found) < 10:
        found = dict(sessions.probe(testbed.optical_switches))
    assert {*begun} == {*testbed.optical_switches}
    late = [name for name, each in found.items() if not isinstance(each, Reading)]
    assert late == ["trx0-node3"]
    may_end.clear()
    while not isinstance(found["trx0-node3"], SilentError):  # opened anew, and out of turn
        found = dict(sessions.probe(testbed.optical_switches))
    assert len(found) == 10
    may_end.set()
    sessions.close()


@pytest.mark.long
def test_a_thousand_of_two_thousand_nodes_are_noticed_in_two_rounds(lab: Lab, tmp_path) -> None:
    """A round is a period and the longest time for an answer, 3 s, and the processor's part."""
    testbed = row(tmp_path, 2000)
    service = Orchestrator(
        testbed, RowLayout(testbed), SwitchSessions(testbed), tmp_path / "s.json"
    )
    service.start()
    job = {"do": "submit", "job": "a", "shape": {"size": 4, "groups": 200}}
    before = service.request(job)["jobs"]["a"]["groups"]
    assert service.status()["settled"]
    number = {name: int(name.partition("node")[2]) for name in testbed.optical_switches}
    lab.silent = {name for name in number if number[name] % 4 > 1}
    service.step()
    assert not service.status()["faulty"]
    # Its processor time would depend on the machine's load: the less a thread comes to run, the
    # more often those that wait for the interpreter wake up.
    assert calls_of_lightrig(service.step) < 20 * len(testbed.optical_switches)
    status = service.status()
    assert {int(node.removeprefix("node")) % 4 for node in status["faulty"]} == {2, 3}
    assert (len(status["faulty"]), status["doubt"]) == (1000, None)
    placed = [group and group["nodes"] for group in status["jobs"]["a"]["groups"]]
    assert not {n for group in filter(None, placed) for n in group} & status["faulty"].keys()
    assert status["jobs"]["a"]["missing"] > 0
    assert len(before) == 200
    lab.silent = set()
    lab.hang_up()
    for _ in range(HITS + 40):
        service.step()
        status = service.status()
        if status["settled"] and not status["faulty"]:
            break
    assert (status["faulty"], status["jobs"]["a"]["missing"], status["settled"]) == ({}, 0, True)
    service.close()


@pytest.mark.long
def test_where_all_of_six_hundred_nodes_are_silent_nothing_is_placed_anew(lab, tmp_path) -> None:
    testbed = row(tmp_path, 600)
    service = Orchestrator(
        testbed, RowLayout(testbed), SwitchSessions(testbed), tmp_path / "s.json"
    )
    service.start()
    job = {"do": "submit", "job": "a", "shape": {"size": 4, "groups": 60}}
    groups = service.request(job)["jobs"]["a"]["groups"]
    lab.applied.clear()
    lab.silent = {*testbed.optical_switches}
    for _ in range(MISSES + 1):
        service.step()
    status = service.status()
    assert "all 1200 of the switches fell silent at once" in status["doubt"]
    assert (status["faulty"], status["jobs"]["a"]["groups"]) == ({}, groups)
    lab.silent = set()
    lab.hang_up()
    for _ in range(HITS + 40):
        service.step()
        status = service.status()
        assert (status["faulty"], status["jobs"]["a"]["groups"]) == ({}, groups)
        if status["settled"]:
            break
    assert (status["doubt"], status["settled"]) == (None, True)
    assert lab.applied == []
    service.close()
