"""A collective over many sizes: checked results, and rows that carry the topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lightrig.harness.bench import Fabric
from lightrig.harness.host_limits import with_host
from lightrig.harness.jobs.measure.collectives.topology import Topology
from lightrig.harness.jobs.measure.collectives.topology import topology as topology_of
from lightrig.harness.jobs.statistics.latency_bandwidth import (
    LatencyBandwidth,
    NoLine,
    latency_bandwidth,
)
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.harness.record.row import Scalar
from lightrig.instruments.jobs.core.collectives import (
    DEFAULT_TIMEOUT,
    CollectiveCall,
    CollectiveMeasurement,
    CollectiveRunner,
)
from lightrig.instruments.jobs.flows.bandwidth import (
    Collective,
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
)
from lightrig.testbeds import LightrigError, Plan
from lightrig.testbeds.out_of_service import ports_of_plan


class WrongResultsError(LightrigError):
    """A collective came out wrong: its times mean nothing."""


class UncheckedResultsError(LightrigError):
    """A runner did not say whether its results were right."""


@dataclass(frozen=True)
class Sweep:
    """One collective over many sizes.

    Attributes:
        topology: what it ran over.
        measurements: one a size.
    """

    topology: Topology
    measurements: tuple[CollectiveMeasurement, ...]

    @property
    def collective(self) -> Collective:
        """The collective that was run."""
        return self.measurements[0].collective

    @property
    def largest(self) -> CollectiveMeasurement:
        """The measurement of the largest size."""
        return max(self.measurements, key=lambda each: each.size)

    def bus_bandwidths(self, measurement: CollectiveMeasurement) -> list[int]:
        """Return the bus bandwidth of each operation, in bit/s per link of the ring."""
        ranks = len(measurement.ranks)
        return [
            round(bus_bandwidth(measurement.collective, ranks, measurement.size, time))
            for time in measurement.times_ns
        ]

    def uses(self) -> list[float]:
        """Bus bandwidth as a share of the line rate, in each operation of the largest size."""
        rate = self.topology.line_rate_bps
        return [bandwidth / rate for bandwidth in self.bus_bandwidths(self.largest)]

    def fit(self) -> LatencyBandwidth | NoLine:
        """Latency, and the algorithm bandwidth that large sizes approach, from median times."""
        return latency_bandwidth(
            [each.size for each in self.measurements],
            [float(np.median(each.times_ns)) for each in self.measurements],
        )


def measure_collective(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    runner: CollectiveRunner,
    call: CollectiveCall,
    plan: Plan,
) -> Sweep:
    """Run `call` on the links of `plan`, which is in place and up, and record every operation.

    Limits on `collective.utilization`, the share of the line rate, are on the largest size.

    Raises:
        RanksError: the plan's links do not join the ranks.
        CollectiveFailedError: it ended with an error, or did not end.
        WrongResultsError: it came out wrong; nothing is recorded.
    """
    links.pause()  # on servers that are one machine, watching takes what others need
    found = sweep(runner, call, topology_of(fabric.testbed, plan, call.ranks))
    ports = ports_of_plan(fabric.testbed, plan)
    recording.record(with_host(rows(found), fabric.bench, ports))
    return found


def sweep(
    runner: CollectiveRunner,
    call: CollectiveCall,
    topology: Topology,
    *,
    timeout: int = DEFAULT_TIMEOUT,
) -> Sweep:
    """Run `call` over `topology` and check what came out.

    Raises:
        WrongResultsError: values were not as expected.
        UncheckedResultsError: the tool did not check its results.
        CollectiveFailedError: it ended with an error, or not within `timeout` ns.
    """
    measurements = tuple(runner.run(call, timeout=timeout))
    for each in measurements:
        what = f"{each.collective} of {each.size} B among {topology.ring} ({each.tool})"
        if each.wrong is None:
            raise UncheckedResultsError(f"{what} was not checked; let the tool check its results")
        if each.wrong:
            raise WrongResultsError(
                f"{what} came out wrong in {each.wrong} values; its times are not recorded. "
                "Look for errors after FEC at both ends of each link"
            )
    return Sweep(topology, measurements)


def rows(sweep: Sweep) -> Iterator[Row]:
    """Every operation as rows, and the fitted line; the topology goes with each."""
    subject = f"{sweep.collective} {sweep.topology.ring}"
    for each in sweep.measurements:
        row_conditions = _conditions(sweep.topology, each)
        at = each.at.latest
        for time, bus in zip(each.times_ns, sweep.bus_bandwidths(each), strict=True):
            algorithm = round(algorithm_bandwidth(each.size, time))
            yield Row(subject, "collective.time", time, time, time, "ns", at, row_conditions)
            for name, value in (("algorithm", algorithm), ("bus", bus)):
                quantity = f"collective.{name}_bandwidth"
                yield Row(subject, quantity, value, None, None, "bit/s", at, row_conditions)
    last = sweep.largest
    row_conditions = _conditions(sweep.topology, last)
    for use in sweep.uses():
        yield Row(
            subject,
            "collective.utilization",
            use,
            None,
            None,
            "share",
            last.at.latest,
            row_conditions,
        )
    yield from _fitted(sweep, subject)


def _fitted(sweep: Sweep, subject: str) -> Iterator[Row]:
    found = sweep.fit()
    if isinstance(found, NoLine):
        return
    last = sweep.largest
    row_conditions = {
        name: value
        for name, value in _conditions(sweep.topology, last).items()
        if name not in ("size", "averaged_over")
    } | {"points": found.points, "misfit": found.misfit}
    factor = bus_factor(sweep.collective, len(last.ranks))
    low, middle, high = found.bandwidth_lower, found.bandwidth, found.bandwidth_upper
    upper = high * factor if np.isfinite(high) else None
    at = last.at.latest
    yield Row(
        subject,
        "collective.latency",
        found.latency,
        found.latency_lower,
        found.latency_upper,
        "ns",
        at,
        row_conditions,
    )
    yield Row(
        subject,
        "collective.fitted_bus_bandwidth",
        middle * factor,
        low * factor,
        upper,
        "bit/s",
        at,
        row_conditions,
    )


def _conditions(topology: Topology, measurement: CollectiveMeasurement) -> Mapping[str, Scalar]:
    return {
        **measurement.environment,
        **topology.conditions(),
        "collective": measurement.collective,
        "size": measurement.size,
        "averaged_over": measurement.averaged_over,
        "tool": measurement.tool,
    }


def doubling(least: int, most: int, factor: int = 2) -> Sequence[int]:
    """Sizes in bytes from `least` to at most `most`, each `factor` times the one before."""
    sizes = [least]
    while sizes[-1] * factor <= most:
        sizes.append(sizes[-1] * factor)
    return sizes
