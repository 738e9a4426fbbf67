"""RailX's rails at run time, with servers that note what they are asked; cabling by hand."""

from types import SimpleNamespace
from typing import Any

import pytest
from slept_clock import SleptClock

from lightrig.harness.systems.railx.planning.physical import Fabric, RailPort, RailxError
from lightrig.harness.systems.railx.runtime import rails
from lightrig.harness.systems.railx.runtime.rails import NotDrainedError, NotRestoredError, Rails
from lightrig.testbeds import Port

UNEVEN = Fabric(mesh=3, ports=2, columns=4, rows=5, radix=10)


def test_counts_of_an_uneven_fabric() -> None:
    """3 x 3 chips, 2 ports on an edge: 6 rails; 4 columns and 5 rows."""
    assert (UNEVEN.rails, UNEVEN.nodes, UNEVEN.chips) == (6, 20, 180)
    # A switch for each rail of 5 rows and of 4 columns; plus and minus in two dimensions.
    assert (UNEVEN.switches, UNEVEN.optical_ports, UNEVEN.interfaces) == (54, 480, 8)
    assert [UNEVEN.length(each) for each in ("x", "y")] == [4, 5]
    assert [UNEVEN.lines(each) for each in ("x", "y")] == [5, 4]
    full = Fabric.full(8, 3, 2)
    assert (full.mesh, full.ports, full.columns, full.rows, full.radix) == (3, 2, 4, 4, 8)


def test_ports_are_cabled_to_the_switch_of_their_line_and_rail() -> None:
    assert UNEVEN.switch_port(RailPort(2, 3, "x", 5, True)) == ("x", 3, 5, 5)
    assert UNEVEN.switch_port(RailPort(2, 3, "x", 5, False)) == ("x", 3, 5, 6)
    assert UNEVEN.switch_port(RailPort(2, 3, "y", 4, True)) == ("y", 2, 4, 7)
    assert UNEVEN.switch_port(RailPort(2, 3, "y", 4, False)) == ("y", 2, 4, 8)
    cabling = list(UNEVEN.cabling())
    assert len(cabling) == len(dict(cabling)) == len({port for _, port in cabling}) == 480
    assert {port.i for port, _ in cabling} == set(range(4))
    assert {port.j for port, _ in cabling} == set(range(5))
    assert {port.rail for port, _ in cabling} == set(range(6))


def test_a_line_may_have_as_many_ports_as_its_switch() -> None:
    for sizes in ((0, 2, 4, 5), (3, 0, 4, 5), (3, 2, 0, 5), (3, 2, 4, 0)):
        with pytest.raises(RailxError, match="every size is at least 1"):
            Fabric(*sizes, radix=10)
    for columns, rows in ((4, 5), (5, 4)):
        Fabric(1, 1, columns, rows, radix=10)
        with pytest.raises(RailxError, match=r"5 nodes in a line need 10 switch ports"):
            Fabric(1, 1, columns, rows, radix=9)


def rails_of(**parts: Any) -> Any:
    made: Any = object.__new__(Rails)
    for name, value in parts.items():
        setattr(made, name, value)
    return made


def test_rails_are_drained_before_circuits_move_and_led_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[Any] = []
    made = rails_of(
        drain=lambda: order.append("drain"),
        route=lambda plan: order.append(("route", plan)),
        _lanes=SimpleNamespace(dark="dark"),
    )
    a, b, c = Port("n0", "a"), Port("n1", "a"), Port("n2", "a")
    links = [SimpleNamespace(a=a, b=b), SimpleNamespace(a=b, b=c)]
    fabric: Any = SimpleNamespace(
        apply=lambda plan: order.append(("apply", plan)),
        links=lambda plan: links if plan == "plan" else None,
        bench="bench",
    )
    monkeypatch.setattr(rails, "await_carriers", lambda *given: order.append(given))
    made.apply(fabric, "plan")
    assert order == [
        "drain", ("apply", "plan"), ("bench", "dark", {a, b, c}), ("route", "plan"),
    ]  # fmt: skip


def test_draining_waits_for_acknowledgements_for_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SleptClock(3_000_000_000)
    left = {"n0": [40, 0, 0], "n1": [8, 8, 0]}
    lanes = SimpleNamespace(
        servers={name: SimpleNamespace(commands=name) for name in left},
        addresses={"n0": ["10.0.0.1"], "n1": ["10.0.0.2"]},
    )
    asked: list[Any] = []

    def unacknowledged(commands: str, addresses: list[str]) -> int:
        asked.append((commands, addresses))
        return left[commands].pop(0) if len(left[commands]) > 1 else left[commands][0]

    monkeypatch.setattr(rails, "unacknowledged", unacknowledged)
    made = rails_of(_bench=SimpleNamespace(clock=clock), _lanes=lanes)
    made.drain()
    assert asked[:2] == [("n0", ["10.0.0.1"]), ("n1", ["10.0.0.2"])]
    assert clock.sleeps == [20_000_000] * 2
    left["n1"] = [8]
    begin = clock.at
    with pytest.raises(NotDrainedError, match=r"^8 of n1: bytes that were not acknowledged 10 s"):
        made.drain()
    # Looked at at the deadline, and given up at the next look.
    assert clock.at == begin + 10_000_000_000 + 20_000_000


def test_what_was_there_is_compared_once_all_is_closed() -> None:
    order: list[str] = []

    def present() -> dict[str, list[str]]:
        order.append("look")
        return {"n0": ["1.2.3.4/24"], "n1": ["more"]}

    made = rails_of(
        runner=SimpleNamespace(close=lambda: order.append("runner")),
        _lanes=SimpleNamespace(close=lambda: order.append("lanes")),
        _found={"n0": ["1.2.3.4/24"], "n1": ["more"]},
        _routes_of_servers=present,
    )
    made.close()
    assert order == ["runner", "lanes", "look"]
    made._found = {"n0": ["1.2.3.4/24"], "n1": []}
    with pytest.raises(NotRestoredError, match=r"n1 .*more \['more'\], missing none"):
        made.close()
