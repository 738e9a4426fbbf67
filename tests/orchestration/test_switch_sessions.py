"""Sessions with many switches: what is silent holds up no other, and is noticed in time."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.orchestration import switch_sessions
from lightrig.harness.orchestration.health import MISSES
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import Reading, SwitchSessions
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.testbeds import Circuit, LightrigError, load

LOOPBACK = frozenset({Circuit(1, 4)})


class Lab:
    """Switches of which some never answer: their sessions end after a time of their own."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.asked: list[str] = []
        self.over = threading.Event()

    def bind_only(self, testbed: Any, names: set[str], *_: object) -> Any:
        (name,) = names

        def circuits() -> frozenset[Circuit]:
            self.asked.append(name)
            if name in self.silent:
                self.over.wait(5)
                raise LightrigError(f"{name} did not answer within 5 s")
            return LOOPBACK

        return SimpleNamespace(
            testbed=testbed, switches={name: SimpleNamespace(circuits=circuits)}, close=lambda: None
        )


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    made = Lab()
    monkeypatch.setattr(switch_sessions, "bind_only", made.bind_only)
    monkeypatch.setattr(
        switch_sessions, "Fabric", lambda bench: SimpleNamespace(bench=bench, testbed=bench.testbed)
    )
    yield made
    made.over.set()


def test_a_silent_switch_holds_up_no_other_and_is_not_asked_twice(
    lab: Lab, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 0.3)
    (tmp_path / "row.yaml").write_text(render(8, hops=2))
    testbed = load(tmp_path / "row.yaml")
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
    lab.over.set()
    sessions.probe(["trx0-node3"])
    assert isinstance(sessions.probe(["trx0-node3"])["trx0-node3"], Reading)
    sessions.close()


@pytest.mark.long
def test_a_thousand_of_two_thousand_nodes_are_noticed_in_two_rounds(lab: Lab, tmp_path) -> None:
    """A round is a period and the longest time for an answer, 3 s, and the processor's part."""
    (tmp_path / "row.yaml").write_text(render(2000, hops=2))
    testbed = load(tmp_path / "row.yaml")
    service = Orchestrator(
        testbed, RowLayout(testbed), SwitchSessions(testbed), tmp_path / "s.json"
    )
    service.start()
    assert service.status()["settled"]
    lab.silent = {name for name in testbed.optical_switches if int(name.partition("node")[2]) % 2}
    for _ in range(MISSES):
        service.step()
    assert len(service.status()["faulty"]) == 1000
    lab.over.set()
    service.close()
