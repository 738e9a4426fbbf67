"""All-to-alls of unequal shares over the circuits of a plan, against the model of flows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy.typing as npt

from harness.bench import Fabric
from harness.bench.exchanges import Exchanges
from harness.fabrics.mixnet import Failures, Routing
from harness.measure.links import LinksDownError
from harness.record import Row, Scalar
from harness.statistics import NotEnough, Quantile, quantile
from instruments.collectives import ExchangeMeasurement
from testbeds import LightrigError, Plan
from testbeds.flows import fabric_links

POLL = 10_000_000
"""How often servers are asked for their carriers, in ns."""

LINK_TIMEOUT = 60_000_000_000
"""How long links may take to come up, in ns."""


class WrongExchangeError(LightrigError):
    """An all-to-all came out wrong: its times mean nothing."""


@dataclass(frozen=True)
class Exchanged:
    """An all-to-all over one plan, run again and again.

    Attributes:
        plan: whose circuits carried it.
        measurement: what was run, and how long each operation took.
        predicted: how long one should take by the model of flows, in ns.
    """

    plan: Plan
    measurement: ExchangeMeasurement
    predicted: float

    def median(self) -> Quantile | NotEnough:
        """The median time in ns, with its 95 % interval."""
        times = self.measurement.times_ns
        return quantile(times, times, 0.5)


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times as long one plan takes as another; bounds from both 95 % intervals."""

    value: float
    lower: float
    upper: float
    predicted: float
    n: int

    @property
    def off(self) -> float:
        """How far the value is from what the model predicts, as a share of that."""
        return abs(self.value / self.predicted - 1)


def speedup(slow: Exchanged, fast: Exchanged) -> Speedup | NotEnough:
    """How many times as long `slow` takes, by medians."""
    one, other = slow.median(), fast.median()
    for median in (one, other):
        if isinstance(median, NotEnough):
            return median
    assert isinstance(one, Quantile)
    assert isinstance(other, Quantile)
    assert one.lower is not None
    assert other.lower is not None
    return Speedup(
        one.value / other.value,
        one.lower / other.upper,
        one.upper / other.lower,
        slow.predicted / fast.predicted,
        min(one.n, other.n),
    )


def bring_in(fabric: Fabric, over: Exchanges, plan: Plan, failures: Failures) -> Routing:
    """Set the circuits of `plan`, wait for carriers, and lead packets by them.

    Raises `LinksDownError` where a port that should have a carrier gets none.
    """
    fabric.apply(plan)
    routing = over.routing(plan, failures)
    used = {port for link in routing.links for port in (link.a, link.b)}
    used |= {port for server in routing.region.servers for port in server.packet}
    clock = fabric.bench.clock
    deadline = clock.now() + LINK_TIMEOUT
    while dark := over.dark(used):
        if clock.now() > deadline:
            fabric.bench.check_world()
            raise LinksDownError([(port, "carrier") for port in sorted(dark)], LINK_TIMEOUT)
        clock.sleep(POLL)
    over.route(routing)
    return routing


def run_exchange(
    fabric: Fabric, over: Exchanges, plan: Plan, traffic: npt.ArrayLike, iterations: int
) -> Exchanged:
    """Run an all-to-all of `traffic`, bytes from each server to each, over `plan`.

    Raises:
        LinksDownError: a port of the plan has no carrier.
        CollectiveFailedError: it ended with an error, or did not end.
        WrongExchangeError: values were not as expected.
    """
    routing = bring_in(fabric, over, plan, Failures())
    what = over.exchange(routing, traffic)
    found = over.runner.exchange(what, warm_up=1, iterations=iterations)
    if found.wrong:
        raise WrongExchangeError(
            f"{found.wrong} values of an all-to-all over {plan.name} came out wrong "
            f"({found.tool}); its times are not recorded"
        )
    return Exchanged(plan, found, over.predicted(plan, routing, what))


def exchange_rows(found: Exchanged, fabric: Fabric) -> Iterator[Row]:
    """What the plan set, and every operation."""
    measurement, plan = found.measurement, found.plan
    subject, at = f"all-to-all over {plan.name}", measurement.at.latest
    links = fabric_links(fabric.testbed, plan)
    told = ", ".join(str(link) for link in links)
    yield Row(subject, "exchange.links", len(links), None, None, "1", at, {"links": told})
    held: dict[str, Scalar] = {
        "plan": plan.name,
        "ranks": len(measurement.exchange.ranks),
        "size": measurement.exchange.size,
        "tool": measurement.tool,
        "predicted_ns": round(found.predicted),
    }
    for time in measurement.times_ns:
        yield Row(subject, "exchange.time", time, time, time, "ns", at, held)


def speedup_row(slow: Exchanged, fast: Exchanged, found: Speedup) -> Row:
    """The ratio of two plans, with what the model says of it."""
    held: dict[str, Scalar] = {
        "against": slow.plan.name,
        "n": found.n,
        "predicted": found.predicted,
    }
    return Row(
        f"{slow.plan.name} / {fast.plan.name}",
        "exchange.speedup",
        found.value,
        found.lower,
        found.upper,
        "1",
        fast.measurement.at.latest,
        held,
    )
