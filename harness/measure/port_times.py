"""Ports that take longer than the others of the same events of one test, as rows."""

from array import array
from collections import defaultdict
from collections.abc import Iterator

from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.quantities.declarations import PORT_EXCESS
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.unlike_ports import by_event_and_port, unlike_ports
from lightrig.instruments.core.stages import StageName

ERROR = 0.01
"""Chance that any port of a test is named where all are alike."""

STATISTIC = "median over events of its time less the median of the other ports"


class PortTimes:
    """Bounds of each stage of each port after the command, by event."""

    def __init__(self) -> None:
        self._ports: defaultdict[StageName, list[str]] = defaultdict(list)
        self._numbers: defaultdict[StageName, array[float]] = defaultdict(lambda: array("d"))

    def add(self, event: Reconfiguration, number: int) -> None:
        """Add an event of that number."""
        for seen, (earliest, latest) in zip(event.seen, event.seen_after, strict=True):
            self._ports[seen.stage].append(seen.subject)
            self._numbers[seen.stage].extend((number, earliest, latest))

    def rows(self, at: int) -> Iterator[Row]:
        """Yield a row for each port and stage that differ from the others'. at: now, in ns."""
        for stage, subjects in self._ports.items():
            events, low, high = (self._numbers[stage][place::3] for place in range(3))
            ports, tables = by_event_and_port(events, subjects, low, high)
            for found in unlike_ports(*tables, error=ERROR / len(self._ports)):
                stated: dict[str, Scalar] = {
                    "stage": stage,
                    "statistic": STATISTIC,
                    "share": found.excess / found.usual,
                    "others_ms": found.usual / 1e6,
                    "events": found.n,
                    "confidence": found.confidence,
                }
                ends = found.excess, found.lower, found.upper
                yield Row(ports[found.port], PORT_EXCESS, *ends, "ns", at, stated)
