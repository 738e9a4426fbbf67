"""RailX's rails at run time, with servers that note what they are asked; cabling by hand."""

from types import SimpleNamespace
from typing import Any

import pytest
from slept_clock import SleptClock

from lightrig.harness.jobs.bench.collectives import NoCollectivesError
from lightrig.harness.systems.railx.planning.physical import RailFabric, RailPort, RailxError
from lightrig.harness.systems.railx.runtime import rails
from lightrig.harness.systems.railx.runtime.rails import (
    NotDrainedError,
    NotRestoredError,
    Rails,
    RailsInUseError,
)
from lightrig.instruments.jobs.traffic.mpi import NoMpiError
from lightrig.testbeds import Link, Port

UNEVEN = RailFabric(mesh=3, ports=2, columns=4, rows=5, radix=10)


def test_counts_of_an_uneven_fabric() -> None:
    """3 x 3 chips, 2 ports on an edge: 6 rails; 4 columns and 5 rows."""
    assert (UNEVEN.rails, UNEVEN.nodes, UNEVEN.chips) == (6, 20, 180)
    # A switch for each rail of 5 rows and of 4 columns; plus and minus in two dimensions.
    assert (UNEVEN.switches, UNEVEN.optical_ports, UNEVEN.interfaces) == (54, 480, 8)
    assert [UNEVEN.length(each) for each in ("x", "y")] == [4, 5]
    assert [UNEVEN.lines(each) for each in ("x", "y")] == [5, 4]
    full = RailFabric.full(8, 3, 2)
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
            RailFabric(*sizes, radix=10)
    for columns, rows in ((4, 5), (5, 4)):
        RailFabric(1, 1, columns, rows, radix=10)
        with pytest.raises(RailxError, match=r"5 nodes in a line need 10 switch ports"):
            RailFabric(1, 1, columns, rows, radix=9)


class Row:
    """A row of three nodes with two NICs each, whose lanes, ranks and routes are stand-ins."""

    def __init__(self, has_mpi: bool = True) -> None:
        self.clock = SleptClock(3_000_000_000)
        self.order: list[Any] = []
        self.present = {"n0": ["1.2.3.4/24"], "n1": ["more"], "n2": []}
        self.has_mpi = has_mpi
        self.dark: list[set[Port]] = [set()]
        nodes = {name: SimpleNamespace(nics=["x0", "x1"]) for name in self.present}
        a, b = (Link(Port(f"n{n}", "x0.plus"), Port(f"n{n + 1}", "x0.minus")) for n in (0, 1))
        testbed = SimpleNamespace(
            only_local_namespaces=True, servers=nodes, path="row.yaml", links=lambda _: [a, b]
        )
        self.bench: Any = SimpleNamespace(testbed=testbed, clock=self.clock)
        self.circuits: dict[str, str] = {"ocs": "none"}
        self.fabric: Any = SimpleNamespace(
            bench=self.bench, links=lambda _: [a, b], apply=self._apply,
            present=lambda name: (self.circuits[name], frozenset()),
        )  # fmt: skip

    def open(self) -> Rails:
        return Rails(self.bench, self._lanes, self._ranks, self._routes)

    def _apply(self, plan: Any) -> None:
        self.order.append(("apply", plan.name))
        self.circuits.update(plan.circuits)

    def applied(self) -> list[str]:
        """Return the plans that have been set since the last call."""
        found = [each[1] for each in self.order if each[0] == "apply"]
        self.order.clear()
        return found

    def _lanes(self, bench: Any, count: int, settings: Any) -> Any:
        self.order.append(("lanes", count))
        return SimpleNamespace(
            devices=["lane0", "lane1"],
            servers={name: SimpleNamespace(commands=name) for name in self.present},
            addresses={name: [f"{name}.0", f"{name}.1"] for name in self.present},
            route=lambda ways: self.order.append(("route", [sorted(each) for each in ways])),
            dark=self._dark, close=lambda: self.order.append("lanes closed"),
        )  # fmt: skip

    def _dark(self, ports: Any) -> set[Port]:
        self.order.append(("dark", sorted(map(str, ports))))
        return self.dark.pop(0) if len(self.dark) > 1 else self.dark[0]

    def _ranks(self, servers: Any, clock: Any, *, interface: str, lanes: Any) -> Any:
        if not self.has_mpi:
            raise NoMpiError("no mpiexec")
        self.order.append(("ranks", sorted(servers), interface, lanes))
        return SimpleNamespace(close=lambda: self.order.append("ranks closed"))

    def _routes(self, _: Any) -> dict[str, list[str]]:
        self.order.append("look")
        return {name: list(found) for name, found in self.present.items()}


@pytest.fixture
def row() -> Row:
    return Row()


def test_a_node_has_a_lane_for_each_of_its_nics(row: Row) -> None:
    assert row.open().nodes == ("n0", "n1", "n2")
    assert row.order == ["look", ("lanes", 2), ("ranks", ["n0", "n1", "n2"], "lane0", ["lane1"])]


def test_lanes_are_closed_where_there_is_no_mpi() -> None:
    row = Row(has_mpi=False)
    with pytest.raises(NoCollectivesError, match="no mpiexec"):
        row.open()
    assert row.order[-1] == "lanes closed"


def test_rails_are_drained_before_circuits_move_and_led_after(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The middle node has both links; the ends reach each other through it."""
    made = row.open()
    monkeypatch.setattr(rails, "unacknowledged", lambda *_: row.order.append("drained?") or 0)
    row.order.clear()
    row.dark = [{Port("n1", "x0.plus")}, set()]
    made.apply(row.fabric, phase("rings"))
    ends = ["n0.x0.plus", "n1.x0.minus", "n1.x0.plus", "n2.x0.minus"]
    pairs = [(f"n{a}", f"n{b}") for a in range(3) for b in range(3) if a != b]
    assert row.order == [
        *["drained?"] * 3, ("apply", "rings"), ("dark", ends), ("dark", ends),
        ("route", [sorted(pairs)]),
    ]  # fmt: skip


def phase(name: str) -> Any:
    """Return a plan that sets one switch."""
    return SimpleNamespace(name=name, circuits={"ocs": name})


@pytest.fixture
def undrained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is not acknowledged by each node at each look, the last one for ever."""
    left = [0]
    monkeypatch.setattr(
        rails, "unacknowledged", lambda *_: left.pop(0) if len(left) > 1 else left[0]
    )
    return left


def test_exchanges_of_a_phase_share_its_circuits(row: Row, undrained: list[int]) -> None:
    made = row.open()
    for name in ("rings", "rings", "all-to-all", "rings"):
        with made.phase(row.fabric, phase(name)):
            row.order.append("exchange")
    assert row.applied() == ["rings", "all-to-all", "rings"]
    with made.phase(row.fabric, phase("rings")), made.phase(row.fabric, phase("rings")):
        pass
    assert row.applied() == []


def test_no_phase_begins_amid_an_exchange_of_another(row: Row, undrained: list[int]) -> None:
    made = row.open()
    with made.phase(row.fabric, phase("rings")):
        with pytest.raises(RailsInUseError, match="all-to-all: an exchange in another phase"):
            made.apply(row.fabric, phase("all-to-all"))
        assert row.circuits == {"ocs": "rings"}
    made.apply(row.fabric, phase("all-to-all"))
    assert row.circuits == {"ocs": "all-to-all"}


def test_a_phase_that_failed_is_begun_anew(row: Row, undrained: list[int]) -> None:
    """Once while bytes are under way, which leaves circuits alone; then all is as at first."""
    made = row.open()
    made.apply(row.fabric, phase("rings"))
    undrained[:] = [7]
    with pytest.raises(NotDrainedError):
        made.apply(row.fabric, phase("all-to-all"))
    assert row.applied() == ["rings"]
    undrained[:] = [0]
    made.apply(row.fabric, phase("rings"))
    made.apply(row.fabric, phase("all-to-all"))
    assert row.applied() == ["rings", "all-to-all"]


def test_circuits_that_something_else_has_set_are_set_again(row: Row, undrained: list[int]) -> None:
    made = row.open()
    made.apply(row.fabric, phase("rings"))
    row.circuits["ocs"] = "other"
    made.apply(row.fabric, phase("rings"))
    assert row.applied() == ["rings", "rings"]


def test_draining_waits_for_acknowledgements_for_ten_seconds(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {"n0": [40, 0, 0], "n1": [8, 8, 0], "n2": [0]}
    asked: list[Any] = []

    def unacknowledged(commands: str, addresses: list[str]) -> int:
        asked.append((commands, addresses))
        return left[commands].pop(0) if len(left[commands]) > 1 else left[commands][0]

    monkeypatch.setattr(rails, "unacknowledged", unacknowledged)
    made = row.open()
    made.drain()
    assert asked[:3] == [(name, [f"{name}.0", f"{name}.1"]) for name in ("n0", "n1", "n2")]
    assert row.clock.sleeps == [20_000_000] * 2
    left["n1"] = [8]
    begin = row.clock.at
    with pytest.raises(NotDrainedError, match=r"^8 of n1: bytes that were not acknowledged 10 s"):
        made.drain()
    # Looked at at the deadline, and given up at the next look.
    assert row.clock.at == begin + 10_000_000_000 + 20_000_000


def test_what_was_there_is_compared_once_all_is_closed(row: Row) -> None:
    made = row.open()
    row.order.clear()
    made.close()
    assert row.order == ["ranks closed", "lanes closed", "look"]
    made = row.open()
    row.present["n1"] = ["more", "left"]
    with pytest.raises(NotRestoredError, match=r"n1 .*more \['left'\], missing none"):
        made.close()
    row.present["n1"], row.present["n0"] = ["more"], []
    with pytest.raises(NotRestoredError, match=r"n0 .*more none, missing \['1.2.3.4/24'\]"):
        made.close()
