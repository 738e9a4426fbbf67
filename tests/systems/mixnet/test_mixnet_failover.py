"""Traffic goes another way when something fails, on the kernel's links; ranks are stand-ins."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.statistics.quantiles import NotEnough
from lightrig.harness.systems.mixnet.measurements import failover
from lightrig.harness.systems.mixnet.measurements.exchanges import (
    Exchanged,
    Speedup,
    WrongExchangeError,
    bring_in,
    exchange_rows,
    run_exchange,
    speedup,
    speedup_row,
)
from lightrig.harness.systems.mixnet.measurements.failover import (
    UnnoticedError,
    failover_rows,
    under_traffic,
    with_a_new_rank,
)
from lightrig.harness.systems.mixnet.planning.cross_connects import plan_testbed
from lightrig.harness.systems.mixnet.planning.demand import pair_demand
from lightrig.harness.systems.mixnet.planning.region import Failures
from lightrig.harness.systems.mixnet.runtime.exchanges import Exchanges
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.core.collectives import Exchange, ExchangeMeasurement
from lightrig.instruments.jobs.core.traffic import Traffic
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Plan, Port, load

MS = 1_000_000
TRAFFIC = np.array([[0, 4000, 400], [800, 0, 80], [8, 40, 0]])
CONNECT = (
    "import socket,sys\n"
    "for address in sys.argv[1:]:\n"
    "    s=socket.socket()\n"
    "    s.settimeout(5)\n"
    "    try: s.connect((address,9))\n"
    "    except OSError as error: print(type(error).__name__)"
)
THREE = """
name: three
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 16x16, options: {rerouting: true}}
  eps: {kind: packet, model: bridge, ports: 4, rate: 1G, transceiver: lr4}
servers:
  server[0-2]:
    address: netns://{name}
    nics:
      nic[0-2]: {netdev: "fabric{n}", ip: "192.0.2.{k}/24", rate: 1G, transceiver: lr4}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
fibers:
  - server[0-2].nic0 <-> ocs
  - server[0-2].nic1 <-> ocs
  - server[0-2].nic2 <-> eps.[1-3]
plans:
  double:
    - server0.nic[0-1] <-> server1.nic[0-1]
simulation:
  switches:
    ocs:
      acknowledge: {mean: 5 ms, sd: 0 ms}
      dark:        {mean: 1 ms, sd: 0 ms}
      settle:      {mean: 5 ms, sd: 0 ms}
"""


class Ranks:
    """Ranks that say they exchange something without end, and that `kill` may end."""

    def __init__(self, servers: Any, addresses: Any, clock: Any, **_: Any) -> None:
        self.clock = clock
        self.gone: tuple[str, ...] = ()
        self.wrong = 0
        self.asked: list[Exchange] = []
        self.over = False

    def load(self, ranks: Any) -> None:
        pass

    def ended(self) -> tuple[str, ...]:
        return self.gone

    def start_exchange(self, what: Exchange) -> "Ranks":
        self.asked.append(what)
        self.over = False
        return self

    def stop(self) -> Traffic:
        self.over, now = True, self.clock.now()
        once = ((Span(now, now), Span(now, now)),)
        ranks = self.asked[-1].ranks
        return Traffic(ranks, 0, dict.fromkeys(ranks, once), self.wrong, {}, "made up")

    def abandon(self) -> None:
        self.over = True

    def exchange(self, what: Exchange, **_: Any) -> ExchangeMeasurement:
        self.asked.append(what)
        now = self.clock.now()
        return ExchangeMeasurement(what, (4, 5), self.wrong, "made up", Span(now, now))

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    if reason := kernel.available():
        pytest.skip(reason)
    file = tmp_path_factory.mktemp("three") / "three.yaml"
    file.write_text(THREE)
    bench = bind(load(file), "simulated", 1)
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def over(bench: Bench) -> Iterator[Exchanges]:
    ranks: Any = Ranks
    opened = Exchanges(bench, open_ranks=ranks)
    yield opened
    opened.close()


@pytest.fixture
def ranks(over: Exchanges) -> Ranks:
    found: Any = over.runner
    found.gone, found.wrong, found.asked = (), 0, []
    return found


@pytest.fixture
def fabric(bench: Bench, over: Exchanges, ranks: Ranks) -> Fabric:
    fabric = Fabric(bench)
    bring_in(fabric, over, fabric.plans["double"], Failures())
    return fabric


def reached(over: Exchanges, source: str) -> list[str]:
    """Return the results of connections to all lanes of other servers; refused is reached."""
    others = [a for name, own in over.lanes.addresses.items() if name != source for a in own]
    return (
        over.lanes.servers[source]
        .commands.run([sys.executable, "-c", CONNECT, *others])
        .stdout.split()
    )


def replan(over: Exchanges) -> failover.Replan:
    def anew(failures: Failures, plan: Plan) -> Plan:
        return plan_testbed(over.testbed, pair_demand(TRAFFIC), "anew", plan, failures)

    return anew


@pytest.mark.parametrize("case", ["link", pytest.param("packet NIC", marks=pytest.mark.long)])
def test_packets_stand_in_for_a_circuit_and_circuits_for_packets(
    fabric: Fabric, over: Exchanges, case: str
) -> None:
    plan, undo = fabric.plans["double"], []
    nics = [Port("server0", f"nic{n}") for n in range(3)]

    def fail() -> None:
        if case == "link":  # one of two parallel ones
            undo.append(over.cut([nics[0], Port("server1", "nic0")]))
        else:
            undo.append(over.take_down([nics[2]]))

    try:
        found = under_traffic(
            fabric, over, case, plan, TRAFFIC, fail, replan(over), before=MS, after=MS
        )
        assert reached(over, "server0") == 6 * ["ConnectionRefusedError"]
    finally:
        undo.pop()()
    if case == "link":
        assert {str(link) for link in found.failures.links} == {"server0.nic0 <-> server1.nic0"}
    else:
        assert found.failures == Failures(nics=frozenset({nics[2]}))
        # A lifeline to whom it has most to say, besides what the demand asks for.
        assert fabric.links(found.plan)
    assert found.survived
    assert found.rerouted is not None
    assert 0 < found.noticed.latest <= found.rerouted.latest
    rows = {row.quantity: row for row in failover_rows(found, fabric, 4)}
    assert rows["failover.survived"].value == 1
    assert rows["failover.noticed"].conditions == {"event": 4, "failed": case, "plan": "anew"}


@pytest.mark.parametrize("case", ["GPU", pytest.param("server", marks=pytest.mark.long)])
def test_a_rank_that_ended_begins_anew_elsewhere(
    fabric: Fabric, over: Exchanges, ranks: Ranks, case: str
) -> None:
    plan, undo = fabric.plans["double"], []

    def fail() -> None:
        ranks.gone = ("server1",)
        if case == "server":
            undo.append(over.take_down([Port("server1", f"nic{n}") for n in range(3)]))

    def backup(failures: Failures, ended: Any) -> list[str]:
        assert ended == ("server1",)
        assert failures.servers == ({"server1"} if case == "server" else set())
        return ["server0", "server2"]

    among = [[0, 40], [8, 0]]
    try:
        found = with_a_new_rank(
            fabric,
            over,
            case,
            plan,
            among,
            ["server0", "server1"],
            fail,
            replan(over),
            backup,
            before=MS,
        )
    finally:
        for each in undo:
            each()
    assert ranks.over
    assert [what.ranks for what in ranks.asked] == [("server0", "server1"), ("server0", "server2")]
    lit = {port.owner for link in fabric.links(found.plan) for port in (link.a, link.b)}
    assert ("server1" in lit) == (case == "GPU")
    rows = {row.quantity: row for row in failover_rows(found, fabric, 0)}
    assert rows["failover.survived"].value == 0
    assert "failover.rerouted" not in rows
    assert rows["failover.first_collective"].value > rows["failover.noticed"].value


def test_an_unnoticed_failure_is_an_error(
    fabric: Fabric, over: Exchanges, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "NOTICE_TIMEOUT", 50 * MS)
    plan = fabric.plans["double"]
    with pytest.raises(UnnoticedError, match=r"within 0\.05 s"):
        under_traffic(
            fabric, over, "nothing", plan, TRAFFIC, list, replan(over), before=MS, after=MS
        )
    assert ranks.over


def test_wrong_values_are_no_figures(fabric: Fabric, over: Exchanges, ranks: Ranks) -> None:
    ranks.wrong = 7
    with pytest.raises(WrongExchangeError, match="7 values of an all-to-all over double"):
        run_exchange(fabric, over, fabric.plans["double"], TRAFFIC, 2)


def test_an_exchange_is_compared_with_the_flow_model(fabric: Fabric, over: Exchanges) -> None:
    """Parallel links share the largest share evenly; TCP leaves 95.6 % of a frame to the data."""
    found = run_exchange(fabric, over, fabric.plans["double"], TRAFFIC * 1000, 2)
    assert found.predicted == pytest.approx(8e9 * 2_000_000 / 0.956407e9, rel=0.01)
    rows = list(exchange_rows(found, fabric))
    assert [row.quantity for row in rows] == ["exchange.links", "exchange.time", "exchange.time"]
    assert rows[0].value == 5
    assert "server0.nic0 <-> server1.nic0" in str(rows[0].conditions["links"])
    assert rows[1].conditions["predicted_ns"] == round(found.predicted)


# --------------------------------------------------------------------------- the speedup


def exchanged(name: str, predicted: float, *times: int) -> Exchanged:
    what = Exchange(("server0", "server1"), (((0, 4), (4, 0)),))
    return Exchanged(
        Plan(name), ExchangeMeasurement(what, times, 0, "made up", Span(0, 1)), predicted
    )


def test_a_ratio_has_the_reach_of_both_intervals() -> None:
    slow = exchanged("uniform", 200, *range(195, 206))
    fast = exchanged("chosen", 100, *range(95, 106))
    found = speedup(slow, fast)
    assert isinstance(found, Speedup)
    assert (found.value, found.predicted, found.n, found.off) == (2.0, 2.0, 11, 0.0)
    low, high = slow.median(), fast.median()
    assert not isinstance(low, NotEnough)
    assert not isinstance(high, NotEnough)
    assert low.lower is not None
    assert high.lower is not None
    assert (found.lower, found.upper) == (low.lower / high.upper, low.upper / high.lower)
    row = speedup_row(slow, fast, found)
    assert (row.subject, row.value, row.unit) == ("uniform / chosen", 2.0, "1")
    assert row.conditions == {"against": "uniform", "n": 11, "predicted": 2.0}


def test_a_ratio_of_too_few_is_none() -> None:
    many, few = exchanged("uniform", 2, *range(20)), exchanged("chosen", 1, 1, 2, 3)
    assert speedup(many, few) == NotEnough(3, 6)
    assert speedup(few, many) == NotEnough(3, 6)
