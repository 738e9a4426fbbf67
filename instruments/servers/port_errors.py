"""A NIC port's counters of wrong bits as a gate: what lies between two readings of them.

A gate is only as good as its counters: where they wrapped, stood at their top, began anew or
may not have been refreshed yet, the count says so and bounds nothing.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from instruments.capabilities import ErrorCount, FecSide
from instruments.clock import Clock, Span
from instruments.errors import DeniedError
from instruments.servers.commands import Reading
from instruments.servers.nic import Nic, PrbsMode
from instruments.servers.tools.counters import Unknown, changes, ethtool_kind

T = TypeVar("T")

SYMBOL_BITS = 10
"""Bits in a symbol of the Reed-Solomon codes of IEEE 802.3 (clauses 91 and 119)."""

_BITS = "rx_bits_phy"
_LANES = re.compile(r"rx_err_lane_\d+_phy")
_CORRECTED = "rx_corrected_bits_phy"
_LEFT = "rx_pcs_symbol_err_phy"
_DOWNS = "link_down_events_phy"
_WORDS = {
    "reset": "its counters began anew while they were watched",
    "wrapped or reset": "its counters fell: they wrapped or began anew",
    "saturated": "a counter stands at its top",
    "too soon": "its counters may not have been refreshed yet",
    "too large": "a counter shows more than it can hold",
    "not known": "nobody knows how its counters behave",
}


SLACK = 1_000_000_000
"""How old a counter may be that a driver tells, in ns (a guess)."""


class PortErrors:
    """Wrong bits before FEC, or wrong symbols after it, by the port's own counters.

    Before FEC the raw errors of all lanes are counted, or where the driver has none the bits
    that FEC put right. After it the symbols that were still wrong are, of all symbols.

    Source: the kernel's documentation of mlx5 counters.

    Args:
        name: the port's name for people.
        nic: the tools of its server.
        netdev: the port's network device.
        fec: which side of forward error correction.
        rate_bps: bits a second that it receives.
        clock: the bench's clock.
    """

    def __init__(
        self, name: str, nic: Nic, netdev: str, fec: FecSide, rate_bps: float, clock: Clock
    ) -> None:
        self.name = name
        self._nic = nic
        self._netdev = netdev
        self._clock = clock
        self._after = fec == "after"
        self.bits_per_second = rate_bps / (SYMBOL_BITS if self._after else 1)
        self.slack = SLACK

    def count(self, *, duration: int) -> "CounterGate[dict[str, int]]":
        """Read the counters now, and again `duration` ns later.

        Raises `DeniedError` where the port's driver does not count such errors.
        """
        first = self.read()
        if self._wrong(first.value) is None or _BITS not in first.value:
            side = "after" if self._after else "before"
            raise DeniedError(
                self.name,
                code="cannot",
                text=f"its driver does not count received bits and errors {side} FEC",
                command=f"ethtool -S {self._netdev}",
            )
        return CounterGate(self, first, duration, self._clock)

    def read(self) -> Reading[dict[str, int]]:
        """All counters of the port's driver."""
        return self._nic.counters(self._netdev)

    def between(self, first: Reading[dict[str, int]], last: Reading[dict[str, int]]) -> ErrorCount:
        """What was counted from one reading to another."""
        apart = last.at.earliest - first.at.latest
        grown = changes(first.value, last.value, ethtool_kind, apart_ns=apart)
        names = self._wrong(last.value) or []
        used = [grown.get(name, Unknown("reset")) for name in (_BITS, *names)]
        void = next((_WORDS[each.reason] for each in used if isinstance(each, Unknown)), None)
        bits, *errors = (0 if isinstance(each, Unknown) else each for each in used)
        downs = grown.get(_DOWNS, 0)
        return ErrorCount(
            first.at,
            last.at,
            0 if void else bits // (SYMBOL_BITS if self._after else 1),
            0 if void else sum(errors),
            sync_lost=False,
            clock_lost=not isinstance(downs, Unknown) and downs > 0,
            void=void,
        )

    def _wrong(self, counters: dict[str, int]) -> list[str] | None:
        """The counters whose sum is the errors, None where there are none."""
        if self._after:
            return [_LEFT] if _LEFT in counters else None
        lanes = sorted(filter(_LANES.fullmatch, counters))
        return lanes or ([_CORRECTED] if _CORRECTED in counters else None)


class Counters(Protocol[T]):
    """Counters that can be read, and compared with what was read before."""

    def read(self) -> Reading[T]:
        """What they show now."""

    def between(self, first: Reading[T], last: Reading[T]) -> ErrorCount:
        """What was counted from one reading to another."""


class CounterGate(Generic[T]):
    """Counters that were read once, and will be again."""

    def __init__(self, port: Counters[T], first: Reading[T], duration: int, clock: Clock) -> None:
        self._port = port
        self._first = first
        self._duration = duration
        self._clock = clock

    def result(self) -> ErrorCount:
        """Wait until the time is over and read the counters."""
        self._clock.sleep(self._first.at.latest + self._duration - self._clock.now())
        return self.now()

    def now(self) -> ErrorCount:
        """What was counted so far."""
        return self._port.between(self._first, self._port.read())

    def stop(self) -> ErrorCount:
        """What was counted so far; the counters themselves never stop."""
        return self.now()


class PatternErrors:
    """Wrong bits of a test pattern that a port checks.

    How many bits were compared is not told: the fewest that the time between clearing and
    reading the counters holds are taken.
    """

    def __init__(self, name: str, mode: PrbsMode, rate_bps: float, clock: Clock) -> None:
        self.name = name
        self.bits_per_second = rate_bps
        self.slack = 0
        self._mode = mode
        self._clock = clock

    def count(self, *, duration: int) -> "PatternGate":
        """Clear the counters and let them count for `duration` ns."""
        before = self._clock.now()
        self._mode.clear()
        began = Span(before, self._clock.now())
        return PatternGate(self._mode, began, duration, self.bits_per_second, self._clock)


class PatternGate:
    """A test pattern that is being checked since its counters were cleared."""

    def __init__(
        self, mode: PrbsMode, began: Span, duration: int, rate_bps: float, clock: Clock
    ) -> None:
        self._mode = mode
        self._began = began
        self._duration = duration
        self._rate_bps = rate_bps
        self._clock = clock

    def result(self) -> ErrorCount:
        """Wait until the time is over and read the errors."""
        self._clock.sleep(self._began.latest + self._duration - self._clock.now())
        return self.now()

    def now(self) -> ErrorCount:
        """The errors so far."""
        test, at = self._mode.read()
        followed = bool(test.locked) and all(test.locked)
        counted = followed and test.errors is not None
        bits = int(self._rate_bps * max(at.earliest - self._began.latest, 0) / 1e9)
        return ErrorCount(
            self._began,
            at,
            bits if counted else 0,
            sum(test.errors or ()) if counted else 0,
            sync_lost=not followed,
            clock_lost=False,
            void="it told no errors" if followed and test.errors is None else None,
        )

    def stop(self) -> ErrorCount:
        """The errors so far."""
        return self.now()


@contextmanager
def pattern_errors(
    name: str, nic: Nic, device: str, pattern: str, rate_bps: float, clock: Clock
) -> Iterator[PatternErrors]:
    """A port in test mode for as long as the context lasts; its link is given back then."""
    with nic.prbs(device, pattern) as mode:
        yield PatternErrors(name, mode, rate_bps, clock)
