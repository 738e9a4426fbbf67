"""Light at the egress ports of a plan, read all the time from the switches' monitors."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from lightrig.harness.bench import Bench
from lightrig.harness.measure.light import NO_LIGHT_DBM
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerMonitor, PowerReading
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import Plan, Port

_READINGS, _CHANGES = 256, 32
"""Readings of a switch, and changes of an egress port, that stay in memory."""

NOT_READ = "light not read meanwhile"
NO_MONITOR = "no monitor of its light"
STAYED = "light stayed"


@dataclass(slots=True)
class Spread:
    """Least, greatest and mean of the readings of one value, and how many there were."""

    count: int = 0
    least: float = math.inf
    greatest: float = -math.inf
    total: float = 0.0

    def add(self, value: float) -> None:
        """Add a reading."""
        self.count += 1
        self.least, self.greatest = min(self.least, value), max(self.greatest, value)
        self.total += value

    @property
    def mean(self) -> float:
        """The mean of the readings, of which there must be one."""
        return self.total / self.count


@dataclass(slots=True)
class _Darkness:
    """A time without light at an egress port: both ends between bounds, on the bench's clock."""

    lost: Span
    back: Span | None = None


@dataclass(slots=True)
class _Egress:
    lit: bool | None = None
    dark: deque[_Darkness] = field(default_factory=lambda: deque(maxlen=_CHANGES))
    spread: Spread = field(default_factory=Spread)


class PathLight:
    """Readings of all monitors on the paths of a plan.

    Raises nothing for a switch that does not answer: its readings are missing.
    """

    def __init__(self, bench: Bench, plan: Plan) -> None:
        self._bench = bench
        self._egress: dict[tuple[str, int], _Egress] = {}
        self._readings: dict[str, deque[Span]] = {}
        self._numbers: dict[str, list[int]] = {}
        for switch, circuits in plan.circuits.items():
            if isinstance(bench.switches.get(switch), PowerMonitor) and circuits:
                self._numbers[switch] = sorted(circuit.egress for circuit in circuits)
                self._readings[switch] = deque(maxlen=_READINGS)
                self._egress |= {(switch, n): _Egress() for n in self._numbers[switch]}

    def read(self) -> None:
        """Take a reading of each switch; these are not in the traces of a run."""
        for switch, numbers in self._numbers.items():
            monitor = self._bench.switches[switch]
            assert isinstance(monitor, PowerMonitor)
            try:
                with self._bench.untraced():
                    reading = monitor.power(numbers)
            except InstrumentError:
                continue
            self._note(switch, reading)

    def spreads(self) -> Iterator[tuple[str, Spread]]:
        """Yield the powers of each egress with light since the last call, in dBm."""
        for (switch, number), egress in self._egress.items():
            if egress.spread.count:
                yield f"{switch}.{number}", egress.spread
                egress.spread = Spread()

    def relation(self, port: Port, down: Span, up: Span | None) -> str:
        """Return what monitors showed of the light to `port` while its carrier was lost.

        down, up: bounds of the loss of carrier and of its return, on the bench's clock.
        """
        source = self._bench.testbed.cabling.egress_of(port)
        egress = self._egress.get(source) if source is not None else None
        if egress is None or source is None:
            return NO_MONITOR
        name = f"{source[0]}.{source[1]}"
        for dark in egress.dark:
            ended = up is not None and dark.lost.earliest > up.latest
            before = dark.back is not None and dark.back.latest < down.earliest
            if not (ended or before):
                if dark.lost.latest < down.earliest:
                    return f"light at {name} lost before"
                if dark.lost.earliest > down.latest:
                    return f"light at {name} lost after"
                return f"light at {name} lost too"
        within = (
            reading
            for reading in self._readings[source[0]]
            if reading.earliest >= down.latest and (up is None or reading.latest <= up.earliest)
        )
        return STAYED if next(within, None) is not None else NOT_READ

    def _note(self, switch: str, reading: PowerReading) -> None:
        """Note a reading: the sample lies between its window before `asked` and `answered`."""
        at = Span(reading.asked - reading.window, reading.answered)
        before = self._readings[switch][-1] if self._readings[switch] else at
        self._readings[switch].append(at)
        for number, dbm in reading.dbm.items():
            egress = self._egress[switch, number]
            lit = dbm > NO_LIGHT_DBM
            if lit:
                egress.spread.add(dbm)
            between = Span(before.earliest, at.latest)
            if egress.lit is not None and egress.lit and not lit:
                egress.dark.append(_Darkness(between))
            elif egress.lit is not None and not egress.lit and lit and egress.dark:
                egress.dark[-1].back = between
            egress.lit = lit
