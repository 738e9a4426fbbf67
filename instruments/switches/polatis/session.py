"""What one session with a Polatis can be asked, whichever wire it goes over."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from instruments.capabilities import Identity
from instruments.clock import Clock, Span
from instruments.errors import GarbledError
from instruments.wire.trace import Trace
from testbeds import Circuit

NAMESPACE = "http://www.polatis.com/yang/optical-switch"
MODULE = "optical-switch"

WINDOWS = {
    step: ms * 1_000_000 for step, ms in enumerate((10, 20, 50, 100, 200, 500, 1000, 2000), 1)
}
"""A monitor's averaging window in ns by its setting, 1 to 8.

The YANG module says that each step doubles the one before, from about 10 ms; a client of the
vendor's TL1 lists these. The longer is taken: it widens an interval, and never makes one untrue.
"""


class Readings(NamedTuple):
    """Power in dBm by port, and when the answer was there."""

    dbm: Mapping[int, float]
    received: int


class Voa(NamedTuple):
    """How an egress attenuates: its mode in full, and dBm or dB as the mode means it."""

    mode: str
    level: float


class Received(Protocol):
    """An answer with the moment at which it came."""

    @property
    def received(self) -> int:
        """When it was there."""


class Step(Protocol):
    """One command of a change, already sent."""

    @property
    def sent(self) -> Span:
        """Between which stamps it was written."""

    def result(self) -> Received:
        """Wait for its acknowledgement; raises what the switch objects to."""


class PatchOperation:
    """A change of circuits under way."""

    def __init__(self, steps: Sequence[Step], clock: Clock) -> None:
        now = clock.now()
        self._steps = steps
        self.sent = Span(steps[0].sent.earliest, steps[-1].sent.latest) if steps else Span(now, now)

    def done(self) -> Span:
        """Wait for every step's acknowledgement; when the last of them was there."""
        replies = [step.result() for step in self._steps]
        last = max((reply.received for reply in replies), default=self.sent.latest)
        return Span(last, last)


class PolatisSession(Protocol):
    """One session; it opens with the first question, and again after it was lost.

    Every method raises `InstrumentError` where the switch refuses, is silent, hangs up, or
    answers what makes no sense.
    """

    @property
    def trace(self) -> Trace:
        """What went over the wire."""

    def identity(self) -> Identity:
        """Maker, product code, serial number and software version."""

    def size(self) -> tuple[int, int]:
        """How many ingress and how many egress ports there are."""

    def circuits(self) -> frozenset[Circuit]:
        """Every circuit that the switch reports now."""

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> PatchOperation:
        """Start taking down `remove` and making `add`, touching no other circuit."""

    def monitored(self) -> frozenset[int]:
        """The ports that have a power monitor."""

    def powers(self, ports: Sequence[int]) -> Readings:
        """Power at `ports`."""

    def windows(self, ports: Sequence[int]) -> Mapping[int, int]:
        """Over how many ns the monitor of each of `ports` averages."""

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Whether the shutter of each of `ports` is open."""

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open the shutters of `ports`, or close them."""

    def voa(self, egress: int) -> Voa:
        """How `egress` attenuates."""

    def set_voa(self, egress: int, voa: Voa) -> None:
        """Let `egress` attenuate so; a relative level counts from the circuit's own ingress."""

    def close(self) -> None:
        """End the session."""


def garbled(name: str, trace: Trace, answered: object, what: str) -> GarbledError:
    """The error of an answer that is no `what`."""
    return GarbledError(
        name,
        f"answered something that is no {what}",
        details=[
            ("answered", str(answered)[:300]),
            ("try", "`lightrig check` the model in the testbed file"),
        ],
        trace=trace.tail(),
    )


def size_of(model: str) -> tuple[int, int] | None:
    """The size that a product code names: `N-VST-32x32-LU1-DMHNV-701`."""
    size = re.search(r"-(\d+)x(\d+)-", model)
    return (int(size[1]), int(size[2])) if size else None


def monitored_by_code(model: str, size: tuple[int, int]) -> frozenset[int]:
    """The ports with monitors by a product code, where the switch cannot be asked (a guess).

    Known are an OST without any and a `...-801` with monitors on both sides; most have them at
    their egress ports.
    """
    egress = range(size[0] + 1, sum(size) + 1)
    if "-OST-" in model:
        return frozenset()
    return frozenset(range(1, sum(size) + 1)) if model.endswith("-801") else frozenset(egress)


def staying(remove: Iterable[Circuit], add: Collection[Circuit]) -> list[Circuit]:
    """What of `remove` no circuit of `add` moves by itself, in order."""
    moved = {port for circuit in add for port in circuit}
    return sorted(circuit for circuit in remove if moved.isdisjoint(circuit))
