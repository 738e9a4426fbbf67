"""Bit errors of a NIC port by its driver's counters, or by a test pattern that it checks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import ErrorCount, FecSide
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.ports.counter_gates import CounterGate, PortCounters
from lightrig.instruments.servers.ports.nic import Nic, PrbsMode
from lightrig.instruments.servers.tools.counters import Unknown, changes, ethtool_kind

SYMBOL_BITS = 10
"""Bits in a symbol of the Reed-Solomon codes of IEEE 802.3 (clauses 91 and 119)."""

_BITS = "rx_bits_phy"
_LANES = re.compile(r"rx_err_lane_\d+_phy")
_CORRECTED = "rx_corrected_bits_phy"
_LEFT = "rx_pcs_symbol_err_phy"
_DOWNS = "link_down_events_phy"


class PortErrors(PortCounters[dict[str, int]]):
    """Bit errors before FEC, or symbol errors after it, by the port's counters.

    Before FEC the raw errors of all lanes are counted or, without such counters, the bits that
    FEC corrected. After FEC it is the symbols that FEC could not correct, out of all symbols.

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
        void = next((each.explanation for each in used if isinstance(each, Unknown)), None)
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
        """Return the counters whose sum is the number of errors, None without them."""
        if self._after:
            return [_LEFT] if _LEFT in counters else None
        lanes = sorted(filter(_LANES.fullmatch, counters))
        return lanes or ([_CORRECTED] if _CORRECTED in counters else None)


class PatternErrors:
    """Bit errors of a test pattern that a port checks.

    The number of compared bits is not reported: the least number between clearing and reading
    the counters is used.
    """

    def __init__(self, name: str, mode: PrbsMode, rate_bps: float, clock: Clock) -> None:
        self.name = name
        self.bits_per_second = rate_bps
        self.slack = 0
        self._mode = mode
        self._clock = clock

    def count(self, *, duration: int) -> CounterGate[ErrorCount]:
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
            void="it reported no errors" if followed and test.errors is None else None,
            most_bits=int(self.bits_per_second * (at.latest - began.earliest) / 1e9),
        )


@contextmanager
def pattern_errors(
    name: str, nic: Nic, device: str, pattern: str, rate_bps: float, clock: Clock
) -> Iterator[PatternErrors]:
    """Put a port into test mode, and restore its link at the end of the context."""
    with nic.prbs(device, pattern) as mode:
        yield PatternErrors(name, mode, rate_bps, clock)
