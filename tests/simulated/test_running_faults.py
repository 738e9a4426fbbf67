"""Faults begin and end while a simulated world runs."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import STRAIGHT, describe

from lightrig.harness.bench import Bench, bind
from lightrig.instruments.core.errors import DisconnectedError, InstrumentError, NoReplyError
from lightrig.testbeds import Port, load
from lightrig.testbeds.fault_plan import RunningFault

MS = 1_000_000
FIRST, SECOND = "server0.nic0.p0", "server0.nic0.p1"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A lab whose links are up."""
    with contextlib.closing(bind(load(describe(tmp_path)), "simulated", 1)) as bound:
        bound.switches["ocs"].change([], STRAIGHT).done()
        bound.clock.sleep(1000 * MS)
        yield bound


def has_carrier(bench: Bench, port: str) -> bool:
    bench.clock.sleep(1000 * MS)
    world: Any = bench.world
    timeline = world.links.timeline(Port(*port.split(".", 1)))
    up: bool = timeline.is_up("carrier", bench.clock.now())
    return up


def power(bench: Bench, egress: int) -> float:
    bench.clock.sleep(1000 * MS)
    switch: Any = bench.switches["ocs"]
    dbm: float = switch.power([egress]).dbm[egress]
    return dbm


def begin(bench: Bench, *fault: Any, **more: Any) -> Any:
    world: Any = bench.world
    return world.inject(RunningFault(*fault, **more))


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("fiber cut", (FIRST,)),
        ("NIC flap", (FIRST,)),
        ("fibers swapped", (FIRST, SECOND)),
        ("server lost", ("server0",)),
    ],
)
def test_links_go_down_and_come_back(bench: Bench, kind: str, at: tuple[str, ...]) -> None:
    assert has_carrier(bench, FIRST)
    end = begin(bench, kind, at)
    assert not has_carrier(bench, FIRST)
    end()
    end()
    assert has_carrier(bench, FIRST)
    assert has_carrier(bench, SECOND)


def test_an_attenuated_fiber_shows_at_the_monitors(bench: Bench) -> None:
    (egress,) = (c.egress for c in STRAIGHT if c.ingress == 1)
    before = power(bench, egress)
    end = begin(bench, "fiber attenuated", (FIRST,), loss_db=6.0)
    assert power(bench, egress) == pytest.approx(before - 6.0, abs=0.2)
    end()
    assert power(bench, egress) == pytest.approx(before, abs=0.2)


def test_a_silent_instrument_answers_again(bench: Bench) -> None:
    end = begin(bench, "instrument silent", ("ocs",))
    with pytest.raises(NoReplyError, match="did not answer within 10 s"):
        bench.switches["ocs"].circuits()
    end()
    assert bench.switches["ocs"].circuits() == STRAIGHT


def test_a_slow_instrument_answers_late(bench: Bench) -> None:
    began = bench.clock.now()
    end = begin(bench, "instrument slow", ("ocs",))
    assert bench.switches["ocs"].circuits() == STRAIGHT
    assert bench.clock.now() - began >= 100 * MS
    end()


def test_a_slow_instrument_acknowledges_late_in_truth(bench: Bench) -> None:
    world, switch = bench.world, bench.switches["ocs"]
    assert world is not None

    def acknowledged(remove: Any, add: Any) -> int:
        began = bench.clock.now()
        switch.change(remove, add).done()
        at = world.truth.last("ocs", "acknowledged", since=began)
        assert at is not None
        assert at.latest <= bench.clock.now()
        return at.latest - began

    end = begin(bench, "instrument slow", ("ocs",))
    assert acknowledged(STRAIGHT, []) >= 100 * MS
    end()
    assert acknowledged([], STRAIGHT) < 100 * MS


def test_a_restarted_switch_has_no_circuits(bench: Bench) -> None:
    end = begin(bench, "instrument restarts", ("ocs",))
    with pytest.raises(DisconnectedError):
        bench.switches["ocs"].circuits()
    end()
    assert bench.switches["ocs"].circuits() == frozenset()


def test_a_lost_server_hangs_up(bench: Bench) -> None:
    server: Any = bench.servers["server0"]
    end = begin(bench, "server lost", ("server0",))
    with pytest.raises(InstrumentError):
        server.commands.run(["ethtool", "ens1f0"])
    end()
