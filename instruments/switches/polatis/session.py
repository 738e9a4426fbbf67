"""The interface of a session with a Polatis, the same over every wire."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, Operation
from lightrig.instruments.core.errors import DeniedError, GarbledError
from lightrig.testbeds import Circuit

if TYPE_CHECKING:  # `lightrig check` imports drivers, and needs none of their wires
    from lightrig.instruments.wire.trace import Trace

NAMESPACE = "http://www.polatis.com/yang/optical-switch"
MODULE = "optical-switch"

WINDOWS = {
    step: ms * 1_000_000 for step, ms in enumerate((10, 20, 50, 100, 200, 500, 1000, 2000), 1)
}
"""A monitor's averaging window in ns by its setting, 1 to 8.

Source: PyPolatis, the vendor's wrapper of TL1. The YANG module says that each step doubles.
"""


_MOST_DBM = 100.0
"""Power that no fiber carries, 10 MW."""


class Readings(NamedTuple):
    """Power in dBm by port, and when the reply was received."""

    dbm: Mapping[int, float]
    received: int


class Voa(NamedTuple):
    """Attenuation of an egress: the mode's full name, and a level in dBm or dB by the mode."""

    mode: str
    level: float


class Received(Protocol):
    """A reply with its time."""

    @property
    def received(self) -> int:
        """Time by which the reply had been received."""

    @property
    def not_before(self) -> int:
        """Latest time at which the reply had not come yet."""


class SentCommand(Protocol):
    """One command of a change, already sent."""

    @property
    def sent(self) -> Span:
        """Between which stamps it was written."""

    def result(self) -> Received:
        """Wait for the acknowledgement; raises `DeniedError` where the switch refuses."""


class PatchOperation:
    """A change of circuits under way.

    Attributes:
        sent: the stamps around the writing of its commands. The thread that writes may lose the
            processor between its write and its second stamp, so that the interval ends later
            than the acknowledgement that another thread stamps; `done` then shortens it.
    """

    def __init__(self, steps: Sequence[SentCommand], clock: Clock) -> None:
        now = clock.now()
        self._steps = steps
        self.sent = Span(steps[0].sent.earliest, steps[-1].sent.latest) if steps else Span(now, now)

    def done(self) -> Span:
        """Wait for every step's acknowledgement and return when the last was received."""
        replies = [step.result() for step in self._steps]
        if not replies:
            return Span(self.sent.latest, self.sent.latest)
        last = max(reply.received for reply in replies)
        # A command is written before it is acknowledged.
        self.sent = Span(self.sent.earliest, min(self.sent.latest, last))
        return Span(max(reply.not_before for reply in replies), last)


class TriedOperation:
    """A change in one of two forms, to a switch of which it is unknown which form it takes.

    Where the usual form is denied nothing has changed, and the other form is sent, unless the
    code names another reason: such as the circuits in the way taken down first, for a switch that
    does not move ports in use.

    Args:
        begin: sends the change in the usual form (True) or in the other one.
        learned: takes whether the switch takes the usual form.
        related: whether the code of a denial may be about the form.

    Attributes:
        sent: the stamps around the writing of the commands that were carried out.
    """

    def __init__(
        self,
        begin: Callable[[bool], PatchOperation],
        learned: Callable[[bool], None],
        related: Callable[[str], bool],
    ) -> None:
        self._begin = begin
        self._related = related
        self._learned = learned
        self._operation = begin(True)

    @property
    def sent(self) -> Span:
        """The stamps around the writing of the commands that were carried out."""
        return self._operation.sent

    def done(self) -> Span:
        """Wait for every acknowledgement; raises `DeniedError` where both ways are denied."""
        try:
            done = self._operation.done()
        except DeniedError as error:
            if not self._related(error.code):
                raise
            self._operation = self._begin(False)
            done = self._operation.done()
            self._learned(False)
        else:
            self._learned(True)
        return done


class ReroutingSession(ABC):
    """Changes of circuits by a switch of which it may be unknown whether it moves ports in use.

    Args:
        rerouting: whether it does; None where the first change is to find out.

    Attributes:
        unrelated_codes: codes of denials that have nothing to do with a port in use.
    """

    keyed_by_ingress: ClassVar[bool] = False
    unrelated_codes: ClassVar[Collection[str]]

    def __init__(self, rerouting: bool | None) -> None:
        self._rerouting = rerouting

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, in as few commands as the switch allows."""
        if self._rerouting is None and moves_a_port(remove, add):
            return TriedOperation(
                lambda rerouting: self._change(remove, add, rerouting=rerouting),
                self._learn,
                lambda code: code not in self.unrelated_codes,
            )
        return self._change(remove, add, rerouting=bool(self._rerouting))

    def commands(self, remove: Collection[Circuit], add: Collection[Circuit]) -> int:
        """Return how many commands a change is; ports are taken to be moved until one is denied."""
        stays = remove if self._rerouting is False else not_replaced(remove, add)
        return bool(stays) + bool(add)

    def _learn(self, rerouting: bool) -> None:
        self._rerouting = rerouting

    @abstractmethod
    def _change(
        self, remove: Collection[Circuit], add: Collection[Circuit], *, rerouting: bool
    ) -> PatchOperation:
        """Send the commands of a change to a switch that moves ports in use, or does not."""


def moves_a_port(remove: Collection[Circuit], add: Collection[Circuit]) -> bool:
    """Return whether a circuit of `add` takes a port of one of `remove`."""
    return len(not_replaced(remove, add)) < len(remove)


class PolatisSession(Protocol):
    """One session; it connects when first used, and again after it was lost.

    Every method raises `InstrumentError` where the switch refuses, does not reply, closes the
    connection, or replies with something that its manual does not allow.
    """

    keyed_by_ingress: ClassVar[bool]
    """Whether a circuit is an entry of a list whose key is the ingress, so that one change states
    one circuit of an ingress: public servers keep the last of several without an error (sysrepo,
    issue 3449)."""

    @property
    def trace(self) -> "Trace":
        """Trace of what went over the wire."""

    def identity(self) -> Identity:
        """Return manufacturer, product code, serial number and software version."""

    def size(self) -> tuple[int, int]:
        """Return the numbers of ingress and of egress ports."""

    def circuits(self) -> frozenset[Circuit]:
        """Return every circuit that the switch reports now."""

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, without touching any other circuit."""

    def commands(self, remove: Collection[Circuit], add: Collection[Circuit]) -> int:
        """Return how many commands `change` is."""

    def monitored(self) -> frozenset[int]:
        """Return the ports that have a power monitor."""

    def powers(self, ports: Sequence[int]) -> Readings:
        """Return the power at `ports`."""

    def windows(self, ports: Sequence[int]) -> Mapping[int, int]:
        """Return the averaging window of the monitor of each of `ports`, in ns."""

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether the shutter of each of `ports` is open."""

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open the shutters of `ports`, or close them."""

    def attenuation_kind(self) -> str | None:
        """Return the kind of attenuation that the switch states; None where it has no query."""

    def voa(self, egress: int) -> Voa:
        """Return the attenuation of `egress`."""

    def set_voa(self, egress: int, voa: Voa) -> None:
        """Set the attenuation of `egress`; a relative level counts from the circuit's ingress."""

    def close(self) -> None:
        """End the session."""


SHUTTER_STATES = frozenset({"ENABLED", "DISABLED", "FAILED"})
"""States of a port that say whether its shutter is open, without the prefix of their type.

UNSUPPORTED, of a port without a shutter, is not one of them.
"""


def garbled(
    name: str, trace: "Trace", answered: object, what: str, *details: tuple[str, str]
) -> GarbledError:
    """Return the error of a reply that is no `what`."""
    return GarbledError(
        name,
        f"answered something that is no {what}",
        details=[
            ("answered", str(answered)[:300]),
            *details,
            ("try", "`lightrig check` the model in the testbed file"),
        ],
        trace=trace.tail(),
    )


def size_of(model: str) -> tuple[int, int] | None:
    """Return the size that a product code names: `N-VST-32x32-LU1-DMHNV-701`.

    `16xCC` has 16 ports, each of which can be connected to each (ONOS, drivers/polatis/netconf).
    The first half of them counts as ingress, so that a light's direction is known.
    """
    size = re.search(r"-(\d+)x(\d+|CC)(?:-|$)", model)
    if size is None:
        return None
    first = int(size[1])
    return (first // 2, first - first // 2) if size[2] == "CC" else (first, int(size[2]))


def level(reported: object) -> float:
    """Return a power in dBm as a switch reports it; raises ValueError, TypeError.

    -inf is no light. Not a number, and values that no fiber carries, are no reading: SCPI-99 has
    9.91e37 for that.
    """
    dbm = float(reported)  # type: ignore[arg-type]
    if not dbm < _MOST_DBM:
        raise ValueError(f"no power: {reported}")
    return dbm


def monitored_by_code(model: str, size: tuple[int, int]) -> frozenset[int]:
    """Return the ports with monitors by a product code, where there is no query (a guess).

    Known are an OST without any and a `...-801` with monitors on both sides; most have them at
    their egress ports.
    """
    egress = range(size[0] + 1, sum(size) + 1)
    if "-OST-" in model:
        return frozenset()
    return frozenset(range(1, sum(size) + 1)) if model.endswith("-801") else frozenset(egress)


def not_replaced(remove: Iterable[Circuit], add: Collection[Circuit]) -> list[Circuit]:
    """Return the circuits of `remove` that share no port with `add`, in order."""
    moved = {port for circuit in add for port in circuit}
    return sorted(circuit for circuit in remove if moved.isdisjoint(circuit))
