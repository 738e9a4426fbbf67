"""All-to-alls of unequal shares over the circuits of a plan, against the model of flows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy.typing as npt

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.links import await_carriers
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile
from lightrig.harness.systems.mixnet.planning.region import Failures
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.harness.systems.mixnet.runtime.exchanges import Exchanges
from lightrig.instruments.jobs.core.collectives import ExchangeMeasurement
from lightrig.instruments.jobs.flows.of_testbed import fabric_links
from lightrig.testbeds import LightrigError, Plan


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
    """Ratio of the times of two plans; bounds from both 95 % intervals."""

    value: float
    lower: float
    upper: float
    predicted: float
    n: int

    @property
    def off(self) -> float:
        """Deviation of the value from the model's prediction, as a share of it."""
        return abs(self.value / self.predicted - 1)


def speedup(slow: Exchanged, fast: Exchanged) -> Speedup | NotEnough:
    """Return the ratio of the medians."""
    slow_median, fast_median = slow.median(), fast.median()
    for median in (slow_median, fast_median):
        if isinstance(median, NotEnough):
            return median
    assert isinstance(slow_median, Quantile)
    assert isinstance(fast_median, Quantile)
    assert slow_median.lower is not None
    assert fast_median.lower is not None
    return Speedup(
        slow_median.value / fast_median.value,
        slow_median.lower / fast_median.upper,
        slow_median.upper / fast_median.lower,
        slow.predicted / fast.predicted,
        min(slow_median.n, fast_median.n),
    )


def bring_in(fabric: Fabric, over: Exchanges, plan: Plan, failures: Failures) -> Routing:
    """Set the circuits of `plan`, wait for carriers, and lead packets by them.

    Raises `LinksDownError` where a port that should have a carrier gets none.
    """
    fabric.apply(plan)
    routing = over.routing(plan, failures)
    used = {port for link in routing.links for port in (link.a, link.b)}
    used |= {port for server in routing.region.servers for port in server.packet}
    await_carriers(fabric.bench, over.lanes.dark, used)
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
    """Yield the links of the plan, and the time of every operation."""
    measurement, plan = found.measurement, found.plan
    subject, at = f"all-to-all over {plan.name}", measurement.at.latest
    links = fabric_links(fabric.testbed, plan)
    listed = ", ".join(str(link) for link in links)
    yield Row(subject, "exchange.links", len(links), None, None, "1", at, {"links": listed})
    conditions: dict[str, Scalar] = {
        "plan": plan.name,
        "ranks": len(measurement.exchange.ranks),
        "size": measurement.exchange.size,
        "tool": measurement.tool,
        "predicted_ns": round(found.predicted),
    }
    for time in measurement.times_ns:
        yield Row(subject, "exchange.time", time, time, time, "ns", at, conditions)


def speedup_row(slow: Exchanged, fast: Exchanged, found: Speedup) -> Row:
    """The ratio of two plans, with what the model says of it."""
    conditions: dict[str, Scalar] = {
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
        conditions,
    )
