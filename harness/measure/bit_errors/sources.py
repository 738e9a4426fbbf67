"""Sources of bit error counts behind one protocol: `instruments.capabilities.ErrorCounter`.

Servers provide the counters of NIC ports; a channel of a bit error tester is adapted here.
"""

import math
from dataclasses import dataclass
from typing import get_args

from lightrig.harness.statistics.sensitivity import Modulation
from lightrig.instruments.core.capabilities import BitErrorTester, PendingCount
from lightrig.testbeds import InstrumentSpec, LightrigError, QuantityError, parse_rate

DEFAULT_PATTERN = "PRBS31"

SLACK = 10_000_000
"""A tester's own clock may open a gate later than it says, in ns."""


class MissingParameterError(LightrigError):
    """The testbed file does not say something that the measurement needs."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A tester's signal: pattern, bit/s, extinction ratio in dB where it is known.

    burst: declared mean number of errors in a burst, None where nothing is declared.
    modulation: NRZ, or PAM4, whose patterns end with Q (PRBS13Q, PRBS31Q: IEEE 802.3, 120.5.11).
    """

    pattern: str
    bits_per_second: float
    extinction_ratio_db: float | None
    burst: float | None = None
    modulation: Modulation = "NRZ"

    @classmethod
    def stated(cls, spec: InstrumentSpec) -> "Signal":
        """As the tester's options in the testbed say.

        They are `rate`, `pattern`, `modulation`, `extinction_ratio` (dB) and `errors_per_burst`.
        Raises `MissingParameterError` where there is no rate, less than one error in a burst, or
        a modulation that is none or not the pattern's.
        """
        options = spec.options
        try:
            rate = parse_rate(str(options.get("rate", "")))
        except QuantityError as error:
            raise MissingParameterError(
                f"{spec.name}: options: rate: {error}; at which bit rate shall it be used?"
            ) from error
        ratio = options.get("extinction_ratio")
        pattern = str(options.get("pattern", DEFAULT_PATTERN))
        return cls(
            pattern,
            float(rate),
            None if ratio is None else float(ratio),
            _declared_burst(spec),
            _modulation(spec, pattern),
        )


def _modulation(spec: InstrumentSpec, pattern: str) -> Modulation:
    of_pattern: Modulation = "PAM4" if pattern.endswith("Q") else "NRZ"
    stated = spec.options.get("modulation", of_pattern)
    for known in get_args(Modulation):
        if stated == known and (known == "PAM4" or of_pattern == "NRZ"):
            return known  # type: ignore[no-any-return]
    expected = "PAM4, which the pattern has" if of_pattern == "PAM4" else "NRZ or PAM4"
    raise MissingParameterError(
        f"{spec.name}: options: modulation: found {stated!r}, expected {expected}"
    )


def _declared_burst(spec: InstrumentSpec) -> float | None:
    found = spec.options.get("errors_per_burst")
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 1 <= found < math.inf:
        raise MissingParameterError(
            f"{spec.name}: options: errors_per_burst: found {found!r}, expected the mean number of "
            "errors in a burst, 1 or more, such as 4"
        )
    return float(found)


class TesterChannel:
    """A channel of a bit error tester that sends and expects a pattern; an `ErrorCounter`."""

    def __init__(self, tester: BitErrorTester, channel: int, signal: Signal) -> None:
        self.name = f"{tester.name}.{channel}"
        self.bits_per_second = signal.bits_per_second
        self.slack = SLACK
        self.signal = signal
        self._tester = tester
        self._channel = channel

    def prepare(self) -> None:
        """Send the pattern and find threshold and phase; raises `NotDoneError` without light."""
        signal = self.signal
        self._tester.prepare(
            self._channel, pattern=signal.pattern, bits_per_second=signal.bits_per_second
        )
        self._tester.align(self._channel)

    def count(self, *, duration: int) -> PendingCount:
        """Open the gate for `duration` ns."""
        return self._tester.count(self._channel, duration=duration)
