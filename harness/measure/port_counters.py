"""Counters of NIC ports around each test, and a reading of every module each night.

Counters are read after a test; the reading after the test before is where its differences begin, so
a test costs one reading, never within an event. It is left out where it would take more than 2 % of
the time since the last one; the next reading covers both tests then. The firmware's counters and
the modules take longer: all are read before the first test, and after each test, in what is left of
these 2 %, as many as fit, those first whose reading is the oldest. Modules are read at most every
30 s: their bus is slow, and a reading occupies it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lightrig.harness.bench import Bench
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.core.capabilities import HasNic, HasPortCounters, PortCounts
from lightrig.testbeds import LightrigError, NicPortSpec

FAMILY, MODULE = "port_counter", "transceiver"

MOST_COST = 0.02
"""Greatest part of the time of a test that its reading takes."""

MODULES_APART = 30_000_000_000
"""Shortest time between two readings of the modules, in ns."""


CHANGED: Mapping[str, float] = {"dBm": 0.5, "°C": 2.0, "mA": 2.0}
"""Difference between two readings of a module beyond which it is a change, by unit."""


@dataclass(slots=True)
class PortCounters:
    """The last reading of all ports of a bench.

    Attributes:
        bench: whose NIC ports are read.
    """

    bench: Bench
    _last: dict[str, PortCounts] = field(default_factory=dict)
    _at: int = 0
    _cost: int = 0
    _modules_at: int = 0
    _module_at: dict[str, int] = field(default_factory=dict)
    _first_of_modules: list[Row] = field(default_factory=list)
    _cost_of_module: int = 0
    _firmware: dict[str, tuple[PortCounts, int]] = field(default_factory=dict)
    _cost_of_firmware: int = 0
    _stated: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def is_wanted(self) -> bool:
        """Whether counters are read: of hardware always, of a simulation if a limit asks."""
        return bool(self.judged_families) or self.bench.world is None

    @property
    def judged_families(self) -> tuple[str, ...]:
        """The families that limits of the testbed ask for."""
        asked = {name.partition(".")[0] for name in self.bench.testbed.limits}
        return tuple(sorted(asked & {FAMILY, MODULE}))

    def begin(self) -> None:
        """Read the counters, and the modules, before the first test."""
        if self.is_wanted and not self._at:
            for spec in self.bench.testbed.working_ports:
                self._read_firmware(spec)
            self._first_of_modules = list(self._module_rows())
            self._read()

    def record(self, recording: Recording) -> None:
        """Record what the counters have counted since the last reading, and the modules' state.

        Raises `LimitExceededError` where that breaks a limit of the testbed.
        """
        began = self.bench.clock.now()
        if not self.is_wanted or began - self._at < self._cost / MOST_COST:
            return
        before, since = self._last, self._at
        self._read()
        of_all = {"event": recording.next_event()}
        recording.record(self._first_of_modules, of_all)
        self._first_of_modules = []
        recording.record(list(self._rows(before, {"window_s": (self._at - since) / 1e9})), of_all)
        for read in self._slow_readings():
            recording.record(list(read(began + int(MOST_COST * (began - since)))), of_all)
        if families := self.judged_families:
            recording.judge(*families)

    def changes(self, *, whole: bool = False) -> list[Row]:
        """Read counters and modules; return what has changed since the last call.

        Counters that have counted, and values of modules that differ by more than `CHANGED` from
        the row before; whole: every value of a module. For what is watched for days.
        """
        if not self.is_wanted:
            return []
        before, since = self._last, self._at
        self._read()
        window = {"window_s": (self._at - since) / 1e9}
        rows = [row for row in self._rows(before, window) if row.value or "doubt" in row.conditions]
        rows += (row for row in self._firmware_rows(1 << 62) if row.value)
        for row in self._module_rows():
            key, most = (row.subject, row.quantity), CHANGED.get(row.unit, 0.0)
            stated = self._stated.get(key)
            if whole or stated is None or abs(row.value - stated) > most:
                self._stated[key] = row.value
                rows.append(row)
        return rows

    def _slow_readings(self) -> Sequence[Callable[[int], Iterator[Row]]]:
        """Return what reads until a time, in ns: first what was read the longest ago."""
        found: list[tuple[int, Callable[[int], Iterator[Row]]]] = []
        if self.bench.clock.now() - self._modules_at >= MODULES_APART:
            found.append((self._modules_at, self._module_rows))
        if self._firmware:
            found.append((min(at for _, at in self._firmware.values()), self._firmware_rows))
        return [read for _, read in sorted(found, key=lambda each: each[0])]

    def _rows(
        self, before: Mapping[str, PortCounts], conditions: Mapping[str, Scalar]
    ) -> Iterator[Row]:
        for port, counts in self._last.items():
            if port in before:
                yield from _grown(port, before[port], counts, self._at, conditions)

    def _firmware_rows(self, end: int) -> Iterator[Row]:
        """Read the firmware of as many ports as can be read until `end`, in ns."""
        specs = {str(spec.port): spec for spec in self.bench.testbed.nic_ports}
        for port in sorted(self._firmware, key=lambda each: self._firmware[each][1]):
            if self.bench.clock.now() + self._cost_of_firmware > end:
                return
            before, since = self._firmware[port]
            self._read_firmware(specs[port])
            if port in self._firmware:
                counts, at = self._firmware[port]
                conditions = {"window_s": (at - since) / 1e9}
                yield from _grown(port, before, counts, at, conditions)

    def _read_firmware(self, spec: NicPortSpec) -> None:
        """Read the firmware's counters of a port; one that has none is not asked again."""
        server, port = self.bench.servers.get(spec.port.owner), str(spec.port)
        self._firmware.pop(port, None)
        if spec.rdma is None or server is None or not isinstance(server, HasPortCounters):
            return
        began = self.bench.clock.now()
        counts, at = server.firmware_counts(spec.rdma), self.bench.clock.now()
        if counts:
            self._firmware[port] = counts, at
            self._cost_of_firmware = max(self._cost_of_firmware, at - began)

    def _read(self) -> None:
        began = self.bench.clock.now()
        servers = {
            name: server
            for name, server in self.bench.servers.items()
            if isinstance(server, HasPortCounters)
        }

        def read(name: str) -> dict[str, PortCounts]:
            return {
                str(spec.port): servers[name].port_counts(spec.netdev, spec.rdma)
                for spec in self.bench.testbed.working_ports
                if spec.port.owner == name
            }

        found = self.bench.clock.parallel(*(partial(read, name) for name in servers))
        self._last = {port: counts for of_server in found for port, counts in of_server.items()}
        self._at = self.bench.clock.now()
        self._cost = self._at - began

    def _module_rows(self, end: int | None = None) -> Iterator[Row]:
        """Read modules, one of each server at a time, until `end`, in ns; all of them without."""
        clock, waiting = self.bench.clock, dict[str, list[NicPortSpec]]()
        for spec in self.bench.testbed.working_ports:
            waiting.setdefault(spec.port.owner, []).append(spec)
        for specs in waiting.values():
            specs.sort(key=lambda spec: self._module_at.get(str(spec.port), 0), reverse=True)
        while any(waiting.values()):
            began = clock.now()
            if end is not None and began + self._cost_of_module > end:
                return
            these = [specs.pop() for specs in waiting.values() if specs]
            found = clock.parallel(*(partial(self._read_module, spec) for spec in these))
            self._modules_at = clock.now()
            self._module_at |= {str(spec.port): self._modules_at for spec in these}
            self._cost_of_module = max(self._cost_of_module, self._modules_at - began)
            for rows in found:
                yield from rows

    def _read_module(self, spec: NicPortSpec) -> list[Row]:
        server, port = self.bench.servers.get(spec.port.owner), str(spec.port)
        if server is None or not isinstance(server, HasNic):
            return []
        try:
            module = server.nic.module(spec.netdev).value
        except LightrigError:
            return []  # a cable, or a tool that is not there
        found = [(port, "temperature", module.temperature_c, "°C")]
        for lane in module.lanes_in_use:
            of_lane = f"{port}.lane{lane.number}"
            found += [
                (of_lane, "received_power", lane.rx_power_dbm, "dBm"),
                (of_lane, "sent_power", lane.tx_power_dbm, "dBm"),
                (of_lane, "bias", lane.tx_bias_ma, "mA"),
            ]
        at = self.bench.clock.now()
        # Without light there is no power in dBm: `doctor` and the links say that.
        return [
            Row(subject, f"{MODULE}.{name}", value, value, value, unit, at)
            for subject, name, value, unit in found
            if value is not None and math.isfinite(value)
        ]


def _grown(
    port: str, before: PortCounts, after: PortCounts, at: int, conditions: Mapping[str, Scalar]
) -> Iterator[Row]:
    for name, (least, most, doubt) in after.since(before).items():
        of_this = dict(conditions) if doubt is None else {**conditions, "doubt": doubt}
        yield Row(port, f"{FAMILY}.{name}", least, least, most, "1", at, of_this)
