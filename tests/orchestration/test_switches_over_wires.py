"""An orchestrator of RailX on served switches: light that goes and returns, over their wires."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from real_time import over_soon

from lightrig.harness.orchestration import switch_sessions
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SilentError, SwitchSessions
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import Circuit, load
from tests.campaigns import wire_sequences
from tests.campaigns.orchestrations import present, served
from tests.campaigns.sequences import CASES
from tests.campaigns.switchroom import joined


def until(service: Orchestrator, condition: Callable[[], bool]) -> None:
    """Step until a condition holds; 40 steps are more than the hysteresis needs."""
    for _ in range(40):
        threading.Event().wait(0.05)  # longer than a switch is dark while it changes
        service.step()
        if condition():
            return
    raise AssertionError(service.status())


def test_a_node_whose_light_goes_is_left_out_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LIGHTRIG_STATE", "LIGHTRIG_SERVED"):
        monkeypatch.setenv(name, "")  # restored afterwards
    with served(tmp_path, render(5, 1, mesh=2, ports=1)) as (world, file):
        testbed = load(file)
        service = Orchestrator(
            testbed, GridLayout(testbed), SwitchSessions(testbed), tmp_path / "s.json"
        )
        try:
            service.start()
            shape = {"columns": 0, "rows": 0, "topology": "torus"}
            service.request({"do": "submit", "job": "ring", "shape": shape})
            until(service, lambda: service.status()["jobs"]["ring"]["ready"])
            assert joined(testbed, present(world, testbed))["node1-0"] == {"node0-0", "node2-0"}

            power_on = world.power_off("node2-0")
            until(service, lambda: "node2-0" in service.status()["faulty"])
            assert "no light at" in service.status()["faulty"]["node2-0"]
            (group,) = service.status()["jobs"]["ring"]["groups"]
            assert group["nodes"] == ["node0-0", "node1-0", "node3-0", "node4-0"]
            assert joined(testbed, present(world, testbed))["node1-0"] == {"node0-0", "node3-0"}

            power_on()
            until(service, lambda: not service.status()["faulty"])
            assert len(service.status()["jobs"]["ring"]["groups"][0]["nodes"]) == 5
            assert joined(testbed, present(world, testbed))["node1-0"] == {"node0-0", "node2-0"}
        finally:
            service.close()


def test_served_switches_record_the_commands_that_they_receive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LIGHTRIG_STATE", wire_sequences.LOGIN):
        monkeypatch.setenv(name, "")  # restored afterwards
    with wire_sequences.served(CASES[0], tmp_path) as (room, file):
        numbers: list[int] = []
        room.on_acknowledged = numbers.append
        testbed = load(file)
        switches = SwitchSessions(testbed)
        try:
            loopback = frozenset({Circuit(1, 4)})
            for _ in range(2):  # the second time nothing is sent
                found = switches.order({"trx0-node3": loopback})
            assert found["trx0-node3"] == switches.probe({"trx0-node3"})["trx0-node3"]
        finally:
            switches.close()
        assert room.circuits["trx0-node3"] == loopback
        assert room.commands == [
            ("trx0-node3", Circuit(1, 2)),
            ("trx0-node3", Circuit(1, 4)),
        ]
        assert numbers == [1]


def test_the_end_does_not_wait_for_a_switch_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer would be waited for for ten seconds."""
    for name in ("LIGHTRIG_STATE", wire_sequences.LOGIN):
        monkeypatch.setenv(name, "")  # restored afterwards
    monkeypatch.setattr(switch_sessions, "ANSWER_TIMEOUT_S", 0.3)
    with served(tmp_path, render(4, 1, mesh=2, ports=1)) as (world, file):
        testbed = load(file)
        switches = SwitchSessions(testbed)
        switches.open(testbed.optical_switches)
        world.injectors["xocs0-0"].fault = "silent"
        found = switches.probe(testbed.optical_switches)
        assert [name for name in found if isinstance(found[name], SilentError)] == ["xocs0-0"]
        with over_soon():
            switches.close()


# httpcore 1.0 does not close the socket of a connection that a service refuses while it is killed.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket fd=.*, family=1,"
    ":pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_service_that_is_killed_converges_and_touches_nothing_else(
    case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `python -m tests.campaigns wire_sequences` 60 times for each system."""
    for name in ("LIGHTRIG_STATE", wire_sequences.LOGIN):
        monkeypatch.setenv(name, "")
    with wire_sequences.served(case, tmp_path) as (room, file):
        for seed in range(3, 11):  # some end before their kill: wires take fewer commands
            place = tmp_path / str(seed)
            found = wire_sequences.one_sequence(case, seed, room, file, place, kills=True)
            assert "problems" not in found
            if found["kills"]:
                break
    assert found["kills"] == 1
