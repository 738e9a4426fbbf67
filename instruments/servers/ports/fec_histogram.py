"""Code words of a NIC port by their number of symbol errors, by the kernel's FEC histogram.

`ethtool -I --show-fec` prints it from Linux 6.18 on, where the device counts it: bins of one or
several numbers of symbol errors. Corrected code words are in a bin, lost ones are counted apart
(IEEE 802.3, 30.5.1.1.18).
"""

from collections.abc import Hashable
from dataclasses import replace

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import SymbolErrorHistogram
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.instruments.servers.host.commands import Reading, ToolFailedError, ToolMissingError
from lightrig.instruments.servers.ports.counter_gates import CounterGate
from lightrig.instruments.servers.ports.nic import Nic
from lightrig.instruments.servers.ports.register_doubts import Counted, RegisterDoubts
from lightrig.instruments.servers.tools.counters import Unknown
from lightrig.instruments.servers.tools.ethtool_fec import FecCount, FecReading

SYMBOL_BITS = 10
_AGE = 1_000_000_000
"""Age that a reading of the counters may have, in ns (a guess)."""

_KP4 = (544, 15)
_KR4 = (528, 7)
_KP4_LANE_BPS = 40e9
"""Lanes faster than this carry RS(544,514): 50 Gb/s and more, PAM4 (IEEE 802.3, clause 119)."""


class FecHistogram:
    """A port's histogram between two readings.

    The code follows from the rate of a lane; where the driver does not tell the lanes, it is the
    weaker one, RS(528,514), of which a code word counts as lost from eight symbol errors on.

    Args:
        name: the port's name for people.
        nic: the tools of its server.
        netdev: its network device.
        rate_bps: received bit rate, for drivers that do not count code words without error.
        clock: the bench's clock.
    """

    def __init__(self, name: str, nic: Nic, netdev: str, rate_bps: float, clock: Clock) -> None:
        self.name = name
        self._nic = nic
        self._netdev = netdev
        self._rate_bps = rate_bps
        self._clock = clock

    def count(self, *, duration: int) -> CounterGate[SymbolErrorHistogram]:
        """Read the histogram now, and again `duration` ns later.

        Raises `DeniedError` if the driver, the kernel or ethtool has none.
        """
        command = f"ethtool -I --show-fec {self._netdev}"
        try:
            first, _ = self._read()
        except (ToolFailedError, ToolMissingError) as error:
            text = f"its FEC counters cannot be read: {str(error).splitlines()[0]}"
            raise DeniedError(self.name, code=CANNOT, text=text, command=command) from error
        if not first.value.histogram or first.value.uncorrectable_blocks is None:
            text = "its driver has no histogram of FEC symbol errors (Linux 6.18 and ethtool 6.18)"
            raise DeniedError(self.name, code=CANNOT, text=text, command=command)
        code = self._code()
        doubts = RegisterDoubts(lambda: _values(self._read()[0]), _AGE, self._clock)
        opened, changes = self._read()
        doubts.begin(_values(first), _values(opened))

        def counted() -> SymbolErrorHistogram:
            last = self._read()
            found = self._between(opened, changes, code, last)
            return found if found.void else replace(found, void=doubts.found(_values(last[0])))

        return CounterGate(opened.at, duration, self._clock, counted)

    def _read(self) -> tuple[Reading[FecReading], int | None]:
        fec = self._nic.fec(self._netdev)
        return fec, self._nic.device(self._netdev).value.carrier_changes

    def _code(self) -> tuple[int, int]:
        link = self._nic.link(self._netdev).value
        if not link.lanes or not link.speed_bps:
            return _KR4
        return _KP4 if link.speed_bps / link.lanes > _KP4_LANE_BPS else _KR4

    def _between(
        self,
        first: Reading[FecReading],
        changes: int | None,
        code: tuple[int, int],
        now: tuple[Reading[FecReading], int | None],
    ) -> SymbolErrorHistogram:
        last, changes_now = now
        void = None
        if changes != changes_now or not last.value.active:
            void = "its link was down during the measurement"
        before = {(each.low, each.high): each.count for each in first.value.histogram}
        after = {(each.low, each.high): each.count for each in last.value.histogram}
        grown = {edges: count.since(before.get(edges)) for edges, count in after.items()}
        uncorrectable = _lost(last.value).since(_lost(first.value))
        unknown = [each for each in (*grown.values(), uncorrectable) if isinstance(each, Unknown)]
        if before.keys() != after.keys():
            unknown.append(Unknown("reset"))
        if unknown:
            void = unknown[0].explanation
        bins = tuple(
            (low, high, count)
            for (low, high), count in sorted(grown.items())
            if not isinstance(count, Unknown)
        )
        missed = 0 if isinstance(uncorrectable, Unknown) else uncorrectable
        counted = sum(count for _, _, count in bins) + missed
        if not any(low == 0 for low, _, _ in bins):
            apart = max(last.at.earliest - first.at.latest, 0)
            sent = int(self._rate_bps * apart / 1e9 / (code[0] * SYMBOL_BITS))
            counted = max(counted, sent)
        return SymbolErrorHistogram(first.at, last.at, bins, missed, counted, *code, void=void)


def _values(reading: Reading[FecReading]) -> Counted:
    """Return the counters of a reading by name, and when it was made."""
    fec = reading.value
    named: dict[Hashable, int] = {(each.low, each.high): each.count.total for each in fec.histogram}
    return {**named, "lost": _lost(fec).total}, reading.at


def _lost(fec: FecReading) -> FecCount:
    return fec.uncorrectable_blocks or FecCount(0)
