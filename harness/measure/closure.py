"""Closure rows: whether recorded intervals hold the ground truth of a simulated world.

Each has its verdict, as condition `closed`, and a test that records one that is not closed
fails: the harness, not the device, has measured wrong.
"""

from collections.abc import Iterable, Iterator

from lightrig.harness.findings import CLOSURE, Finding
from lightrig.harness.quantities import declarations
from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.closure import ClosureVerdict


def closure_row(
    subject: str, quantity: str, verdict: ClosureVerdict, time: int, event: int | None = None
) -> Row:
    """The share of intervals that hold the truth, their number and the verdict."""
    conditions: dict[str, Scalar] = {"n": verdict.n, "closed": int(verdict.closed)}
    if event is not None:
        conditions["event"] = event
    share = verdict.share
    return Row(subject, quantity, share, share, share, "1", time, conditions)


def unclosed(rows: Iterable[Row]) -> Iterator[Finding]:
    """A finding for each closure row among `rows` that is not closed."""
    for row in rows:
        conditions = row.conditions
        if conditions.get("closed", 1) or not is_closure(row.quantity):
            continue
        event = conditions.get("event")
        where = row.subject if event is None else f"{row.subject}, event {event}"
        sentence = (
            f"{row.quantity} of {where} is not closed: {row.value:.0%} of {conditions['n']} "
            "intervals hold the true value"
        )
        yield Finding(CLOSURE, sentence, (row.subject,))


def is_closure(quantity: str) -> bool:
    """Whether a quantity compares measurements with the ground truth."""
    return quantity_of(quantity, "1").section == declarations.CLOSURE
