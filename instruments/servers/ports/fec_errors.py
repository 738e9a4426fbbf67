"""Errors of a NIC port by the standard FEC counters of the kernel, for any driver.

`ethtool -I --show-fec` prints the counters that IEEE 802.3 defines for forward error correction,
under the same names for every driver that has them: corrected and uncorrectable code words
(30.5.1.1.17, 30.5.1.1.18), on some drivers corrected bits, on a few a histogram of code words by
their number of symbol errors.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

from lightrig.instruments.core.capabilities import ErrorCount, ErrorUnit
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.instruments.servers.host.commands import Reading, ToolFailedError, ToolMissingError
from lightrig.instruments.servers.ports.counter_gates import CounterGate, PortCounters
from lightrig.instruments.servers.ports.register_doubts import Counted, RegisterDoubts
from lightrig.instruments.servers.tools.counters import Unknown
from lightrig.instruments.servers.tools.ethtool_fec import FecCount, FecReading

SYMBOL_BITS = 10
CODEWORD_BITS = 5440
"""Bits of a code word of RS(544,514), the longer of the two codes: so the fewest code words."""

_BITS_EACH: dict[ErrorUnit, int] = {"bits": 1, "symbols": SYMBOL_BITS, "codewords": CODEWORD_BITS}


class _Sample(NamedTuple):
    """FEC counters, and how often the carrier had changed around their reading."""

    fec: FecReading
    carrier_changes: int | None


class FecErrors(PortCounters[_Sample]):
    """Errors before FEC, in the finest unit that the driver counts, or code words lost by it.

    Before FEC these are corrected bits; without them the symbol errors of the histogram; without
    that, code words with errors, which is no bit error ratio and is named otherwise. Errors in
    uncorrectable code words are not among the first two. After FEC they are uncorrectable code
    words.

    A line never rests, so the number of compared bits follows from rate and time. A change of
    carrier during the gate voids it.

    Attributes:
        unit: of the errors; known once the first gate was opened.
    """

    unit: ErrorUnit = "bits"

    def count(self, *, duration: int) -> CounterGate[ErrorCount]:
        """Read the counters now, and again `duration` ns later.

        Raises `DeniedError` if the driver has no FEC counters.
        """
        try:
            first = self._read()
        except (ToolFailedError, ToolMissingError) as error:
            text = f"its FEC counters cannot be read: {str(error).splitlines()[0]}"
            command = f"ethtool -I --show-fec {self._device}"
            raise DeniedError(self.name, code=CANNOT, text=text, command=command) from error
        unit = unit_of_errors(first.value.fec, after=self._after)
        if unit is None:
            text, command = self._lacking(first.value) or ("", "")
            raise DeniedError(self.name, code=CANNOT, text=text, command=command)
        self.bits_per_second *= _BITS_EACH[self.unit] / _BITS_EACH[unit]
        self.unit = unit
        doubts = RegisterDoubts(lambda: _values(self._read()), self.slack, self._clock)
        opened = self._read()
        doubts.begin(_values(first), _values(opened))

        def counted() -> ErrorCount:
            last = self._read()
            count = self._between(opened, last)
            void = count.void or doubts.found(_values(last))
            return replace(count, bits=0, errors=0, void=void) if void else count

        return CounterGate(opened.at, duration, self._clock, counted)

    def _read(self) -> Reading[_Sample]:
        fec = self._nic.fec(self._device)
        device = self._nic.device(self._device)
        return Reading(_Sample(fec.value, device.value.carrier_changes), fec.at)

    def _lacking(self, value: _Sample) -> tuple[str, str] | None:
        if unit_of_errors(value.fec, after=self._after) is not None:
            return None
        text = f"its driver has no FEC counters of errors {self._fec} FEC"
        return text, f"ethtool -I --show-fec {self._device}"

    def _between(self, first: Reading[_Sample], last: Reading[_Sample]) -> ErrorCount:
        before = _counts(first.value.fec, self.unit, after=self._after)
        after = _counts(last.value.fec, self.unit, after=self._after)
        errors, void = 0, None
        for each, count in after.items():
            grown = count.since(before.get(each))
            if isinstance(grown, Unknown):
                void = grown.explanation
            else:
                errors += each[1] * grown
        if not after or before.keys() - after.keys():
            void = "its driver has no such counters any more"
        if not errors and not void and not self._after and _corrected(first, last):
            void = f"its driver counted corrected code words and no {self.unit} in them"
        apart = max(last.at.earliest - first.at.latest, 0)
        most = max(last.at.latest - first.at.earliest, 0)
        changed = first.value.carrier_changes != last.value.carrier_changes
        return ErrorCount(
            first.at,
            last.at,
            0 if void else int(self.bits_per_second * apart / 1e9),
            0 if void else errors,
            sync_lost=False,
            clock_lost=changed or not last.value.fec.active,
            void=void,
            most_bits=None if void else int(self.bits_per_second * most / 1e9),
        )


def _values(reading: Reading[_Sample]) -> Counted:
    """Return the counters of a reading by name, and when it was made."""
    fec = reading.value.fec
    named: dict[Hashable, FecCount | None] = {
        "corrected bits": fec.corrected_bits,
        "corrected code words": fec.corrected_blocks,
        "uncorrectable code words": fec.uncorrectable_blocks,
        **{(each.low, each.high): each.count for each in fec.histogram},
    }
    return {name: count.total for name, count in named.items() if count is not None}, reading.at


def _corrected(first: Reading[_Sample], last: Reading[_Sample]) -> bool:
    before, after = first.value.fec.corrected_blocks, last.value.fec.corrected_blocks
    return before is not None and after is not None and after.total > before.total


def unit_of_errors(fec: FecReading, *, after: bool) -> ErrorUnit | None:
    """Return the finest unit that a driver counts; None where it counts nothing."""
    if after:
        return "codewords" if fec.uncorrectable_blocks is not None else None
    if fec.corrected_bits is not None:
        return "bits"
    if fec.histogram:
        return "symbols"
    return "codewords" if fec.corrected_blocks is not None else None


def _counts(fec: FecReading, unit: ErrorUnit, *, after: bool) -> dict[tuple[int, int], FecCount]:
    """Return the counters of a unit by the fewest and the most errors that one count stands for."""
    if unit == "symbols":
        return {(each.low, each.high): each.count for each in fec.histogram if each.high}
    blocks = fec.uncorrectable_blocks if after else fec.corrected_blocks
    count = fec.corrected_bits if unit == "bits" else blocks
    return {} if count is None else {(1, 1): count}
