"""Recovery of RDMA after circuits changed: operations are tried until one comes through."""

from collections.abc import Iterator
from dataclasses import dataclass

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.links import LINK_TIMEOUT
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.core.rdma import RdmaLink
from lightrig.testbeds import LightrigError, Link, Plan

SIZE, ITERATIONS = 8, 100
"""Of a try: bytes of a message, and how many."""

STARTING = 10_000_000_000
"""Time for the start of both ends of a try, in ns, beyond that for which they send again."""


class RdmaDownError(LightrigError):
    """RDMA did not run again in time."""


@dataclass(frozen=True, slots=True)
class RdmaRecovery:
    """One change of plan, as RDMA on one new link saw it.

    Attributes:
        after: how long after the command messages came through: not yet when the last try that
            failed was begun, and all of them when the first that did not had ended, in ns.
        sent: stamps around the command to the switches, on the bench's clock.
        tries: how many it took.
    """

    link: Link
    plan: str
    after: Span
    sent: Span
    tries: int


def measure_rdma_recovery(
    fabric: Fabric, recording: Recording, ends: RdmaLink, link: Link, plan: Plan
) -> RdmaRecovery:
    """Apply `plan` and record when RDMA runs over its new `link`; raises `RdmaDownError`."""
    found = first_rdma(fabric, plan, link, ends, timeout=LINK_TIMEOUT)
    recording.record(rdma_recovery_rows(found, ends, recording.next_event()))
    return found


def first_rdma(
    fabric: Fabric, plan: Plan, link: Link, ends: RdmaLink, *, timeout: int
) -> RdmaRecovery:
    """Apply `plan` and try RDMA over `link`, which is one of its new links, until it works.

    A try that fails takes as long as the ends send again, so that is how finely the moment is
    known. Soft-RoCE sends again without end: there a try fails by its limit.

    Raises `RdmaDownError` after `timeout` ns, from what the last try said.
    """
    clock = fabric.bench.clock
    transition = fabric.prepare(plan)
    sent = transition.begin()
    transition.acknowledged()
    transition.verify()
    failed_at, tries = sent.latest, 0
    while True:
        began, tries = clock.now(), tries + 1
        try:
            limit = ends.retry_ns + STARTING
            done = ends.latency(SIZE, ITERATIONS, timeout=limit).at.latest
        except InstrumentError as error:
            failed_at = began
            if clock.now() - sent.latest > timeout:
                raise RdmaDownError(
                    f"RDMA over {link} of {plan.name} did not run within {timeout / 1e9:g} s, in "
                    f"{tries} tries; is the link up, and its devices' ports active?"
                ) from error
            continue
        after = Span(failed_at - sent.latest, done - sent.earliest)
        return RdmaRecovery(link, plan.name, after, sent, tries)


def rdma_recovery_rows(found: RdmaRecovery, ends: RdmaLink, number: int) -> Iterator[Row]:
    """The event as a row; how long ends send again before they give up goes with it."""
    low, high = found.after
    conditions: dict[str, Scalar] = {
        "event": number,
        "plan": found.plan,
        "tries": found.tries,
        "retry_ns": ends.retry_ns,
        "size": SIZE,
        "iterations": ITERATIONS,
    }
    middle, time = (low + high) // 2, found.sent.earliest
    yield Row(str(found.link), "rdma.recovered", middle, low, high, "ns", time, conditions)
