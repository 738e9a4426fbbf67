"""RDMA over one link: latency of small messages, bandwidth of large ones."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from lightrig.harness.bench import Fabric
from lightrig.harness.host_limits import with_host
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.harness.record.row import Scalar
from lightrig.instruments.core.errors import NoReplyError
from lightrig.instruments.jobs.core.rdma import (
    DEFAULT_TIMEOUT,
    RdmaBandwidth,
    RdmaLatency,
    RdmaLink,
)
from lightrig.instruments.jobs.flows.of_testbed import link_rate_bps
from lightrig.testbeds import Link, Plan, Testbed

SMALL, LARGE = 8, 1 << 20
"""Sizes in bytes: of messages that are timed, and of those that fill a link."""

_TIMED, FILLING = 1000, 1000
_FEWER = 50
"""Messages on a link on which the usual ones do not end in time, such as an emulated one."""

T = TypeVar("T")


def measure_rdma(
    fabric: Fabric, recording: Recording, ends: RdmaLink, link: Link, plan: Plan
) -> None:
    """Record latency and bandwidth of RDMA over `link` of `plan`, which is in place and up.

    Raises `InstrumentError` where the ends do not reach each other.
    """
    rows = rdma_rows(ends, link, plan, fabric.testbed)
    recording.record(with_host(rows, fabric.bench, (link.a, link.b)))


def rdma_rows(ends: RdmaLink, link: Link, plan: Plan, testbed: Testbed) -> Iterator[Row]:
    """Measure a link of `plan` once; raises what `RdmaLink` does.

    `rdma.latency` is the median of its messages, one way; `rdma.utilization` is the bandwidth as
    a share of the link's rate. The rows state the number of messages.
    """
    line_rate = link_rate_bps(testbed, link)
    conditions: dict[str, Scalar] = {"plan": plan.name, "line_rate_bps": line_rate}
    subject = str(link)
    timed = _in_time(partial(ends.latency, SMALL), _TIMED)
    known = {**conditions, "size": timed.size, "iterations": timed.iterations}
    known |= _gid_index(timed)
    at = timed.at.latest
    for name, ns in (("latency", timed.typical_ns), ("latency_p99", timed.p99_ns)):
        if ns is not None:
            yield Row(subject, f"rdma.{name}", ns, ns, ns, "ns", at, known)
    filled = _in_time(partial(ends.bandwidth, LARGE), FILLING)
    known = {**conditions, "size": filled.size, "iterations": filled.iterations}
    known |= _gid_index(filled)
    at, rate = filled.at.latest, filled.average_bps
    yield Row(subject, "rdma.bandwidth", rate, None, None, "bit/s", at, known)
    yield Row(subject, "rdma.utilization", rate / line_rate, None, None, "share", at, known)


def _gid_index(measured: RdmaLatency | RdmaBandwidth) -> dict[str, Scalar]:
    """Return the index of the RoCE address as a condition, where the tool states it."""
    return {} if measured.gid_index is None else {"gid_index": measured.gid_index}


def _in_time(measured: Callable[..., T], messages: int) -> T:
    """Return what is measured with `messages`, or with fewer where those do not end in time.

    Servers whose tools may take longer get that time for the fewer messages alone.
    """
    try:
        return measured(messages, timeout=DEFAULT_TIMEOUT)
    except NoReplyError:
        return measured(_FEWER)
