"""A NIC port's wrong bits by its driver's counters, or by a test pattern that it checks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from instruments.capabilities import ErrorCount, FecSide
from instruments.clock import Clock, Span
from instruments.servers.commands import Reading
from instruments.servers.counter_gates import CounterGate, PortCounters
from instruments.servers.nic import Nic, PrbsMode
from instruments.servers.tools.counters import Unknown, changes, ethtool_kind

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


class PortErrors(PortCounters[dict[str, int]]):
    """Wrong bits before FEC, or wrong symbols after it, by the port's own counters.

    Before FEC the raw errors of all lanes are counted, or where the driver has none the bits
    that FEC put right. After it the symbols that were still wrong are, of all symbols.

    Source: the kernel's documentation of mlx5 counters.
    """

    def __init__(
        self, name: str, nic: Nic, netdev: str, fec: FecSide, rate_bps: float, clock: Clock
    ) -> None:
        super().__init__(name, nic, netdev, fec, rate_bps, clock)
        self.bits_per_second = rate_bps / self._bits_each

    @property
    def _bits_each(self) -> int:
        return SYMBOL_BITS if self._after else 1

    def _read(self) -> Reading[dict[str, int]]:
        return self._nic.counters(self._device)

    def _lacking(self, value: dict[str, int]) -> tuple[str, str] | None:
        if self._wrong(value) is not None and _BITS in value:
            return None
        text = f"its driver does not count received bits and errors {self._fec} FEC"
        return text, f"ethtool -S {self._device}"

    def _between(self, first: Reading[dict[str, int]], last: Reading[dict[str, int]]) -> ErrorCount:
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
            0 if void else bits // self._bits_each,
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

    def count(self, *, duration: int) -> CounterGate:
        """Clear the counters and let them count for `duration` ns."""
        before = self._clock.now()
        self._mode.clear()
        began = Span(before, self._clock.now())
        return CounterGate(began, duration, self._clock, lambda: self._since(began))

    def _since(self, began: Span) -> ErrorCount:
        test, at = self._mode.read()
        followed = bool(test.locked) and all(test.locked)
        counted = followed and test.errors is not None
        bits = int(self.bits_per_second * max(at.earliest - began.latest, 0) / 1e9)
        return ErrorCount(
            began,
            at,
            bits if counted else 0,
            sum(test.errors or ()) if counted else 0,
            sync_lost=not followed,
            clock_lost=False,
            void="it told no errors" if followed and test.errors is None else None,
        )


@contextmanager
def pattern_errors(
    name: str, nic: Nic, device: str, pattern: str, rate_bps: float, clock: Clock
) -> Iterator[PatternErrors]:
    """A port in test mode for as long as the context lasts; its link is given back then."""
    with nic.prbs(device, pattern) as mode:
        yield PatternErrors(name, mode, rate_bps, clock)
