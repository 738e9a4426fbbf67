"""Switching times that a run has measured, as what a simulated change of circuits takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightrig.testbeds import LightrigError

QUANTITIES = (
    "reconfiguration.first_datagram",
    "reconfiguration.carrier_up",
    "reconfiguration.signal_recovered",
    "reconfiguration.acknowledged",
)
"""From the command until the links of a change could be used: the last stage that was measured."""


class SwitchingRunError(LightrigError):
    """A run that is not there, or has measured no reconfiguration."""


@dataclass(frozen=True, slots=True)
class MeasuredSwitching:
    """Changes of circuits of a run, in ns, one each; `simulated`: in a lab that is none."""

    run: str
    quantity: str
    testbed: str
    samples: tuple[int, ...]
    simulated: bool

    @property
    def median(self) -> int:
        """The median, in ns; of an even number the lower of the middle two."""
        return sorted(self.samples)[(len(self.samples) - 1) // 2]

    def draws(self, seed: int) -> Callable[[], int]:
        """Return what draws a change's time from the samples, the same for the same seed."""
        generator = random.Random(seed)  # noqa: S311 - no secret
        return lambda: generator.choice(self.samples)

    def assumption(self) -> str:
        """Return what an answer says of them."""
        simulated = ", in a simulated lab" if self.simulated else ""
        return (
            f"each change takes what one of the {len(self.samples):,} of run {self.run} took "
            f"({self.quantity} of {self.testbed}{simulated}), drawn with replacement"
        )


def measured_switching(place: str, run: str, testbed: str | None = None) -> MeasuredSwitching:
    """Return the switching times of a run, "last" or how it begins, on a testbed or on all.

    The middle of each interval counts, and of a test that was repeated the last attempt.
    Raises `SwitchingRunError`.
    """
    # Data frames take a second to import, which no other switching time needs.
    from lightrig.harness.record import RecordError, Results  # noqa: PLC0415

    try:
        results = Results(place)
        name = results.find(run).run
        frame = results.frame(run=name, quantity="reconfiguration.*")
    except RecordError as error:
        raise SwitchingRunError(str(error)) from None
    found = sorted(set(frame["testbed"])) if len(frame) else []
    if testbed in found:
        frame, found = frame[frame["testbed"] == testbed], [testbed]
    if len(found) > 1:
        raise SwitchingRunError(
            f"{place}: run {name} has reconfigurations of {', '.join(found)}: name the file of one "
            "of these testbeds as FABRIC"
        )
    quantity = next((each for each in QUANTITIES if each in set(frame["quantity"])), None)
    if quantity is None:
        there = ", ".join(sorted(set(frame["quantity"]))) or "no reconfiguration at all"
        raise SwitchingRunError(
            f"{place}: run {name} has none of {', '.join(QUANTITIES)}: it has {there}"
        )
    frame = frame[frame["quantity"] == quantity]
    if "attempt" in frame and frame["attempt"].notna().any():
        attempt = frame["attempt"].fillna(1)
        frame = frame[attempt == attempt.groupby(frame["test"]).transform("max")]
    samples = _positive(name, quantity, frame["value"])
    simulated = bool(frame["simulated"].any())
    return MeasuredSwitching(name, quantity, str(found[0]), samples, simulated)


def _positive(run: str, quantity: str, values: Sequence[float]) -> tuple[int, ...]:
    samples = tuple(round(value) for value in values)
    if min(samples) < 0:
        raise SwitchingRunError(f"run {run}: {quantity} is {min(samples):,} ns in an event")
    return samples
