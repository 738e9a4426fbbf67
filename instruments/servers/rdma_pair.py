"""RDMA between two servers, measured by perftest: one waits, the other asks."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from instruments.clock import Span
from instruments.errors import InstrumentError
from instruments.rdma import RdmaBandwidth, RdmaLatency
from instruments.servers.commands import (
    CommandResult,
    Commands,
    Started,
    ToolFailedError,
    ToolMissingError,
)
from instruments.servers.tools import perftest
from instruments.servers.tools.output import ToolOutputError
from instruments.servers.tools.perftest import BandwidthRow, LatencyRow, PerftestReport

Row = TypeVar("Row", LatencyRow, BandwidthRow)

DEFAULT_TIMEOUT = 60_000_000_000
"""How long a test may take, in ns."""

RETRIES = 8
"""How often a message is sent: once, and the 7 times more that perftest sets."""

_PATIENCE = 5_000_000_000
_PAUSE = 200_000_000
_NO_PROGRAM = 127
_NOBODY_WAITS = "Couldn't connect"


@dataclass(frozen=True, slots=True)
class RdmaEnd:
    """One end: a server's programs, its RDMA device, and the host name that the other end uses."""

    commands: Commands
    device: str
    host: str


class RdmaPair:
    """Latency and bandwidth from one RDMA device to another.

    Args:
        source: sends, and is asked for the result.
        sink: waits for it.
        gid_index: which address of the device RoCE uses (-x); None leaves it to perftest.
        qp_timeout: exponent of the time after which a lost packet is sent again, 4.096 us x 2^n
            (-u); 7 retries of it and the connection is given up.
        port: TCP port by which both ends find each other (-p).

    Source: perftest, ib_write_bw(1).
    """

    def __init__(
        self,
        source: RdmaEnd,
        sink: RdmaEnd,
        *,
        gid_index: int | None = None,
        qp_timeout: int = 14,
        port: int = 18515,
    ) -> None:
        self._source = source
        self._sink = sink
        self.retry_ns = RETRIES * 4096 * 2**qp_timeout
        self._options = ["-F", "-u", str(qp_timeout), "-p", str(port)]
        if gid_index is not None:
            self._options += ["-x", str(gid_index)]

    def latency(
        self, size: int = 2, iterations: int = 1000, *, timeout: int = DEFAULT_TIMEOUT
    ) -> RdmaLatency:
        """One-way times of messages of `size` bytes (`ib_send_lat`).

        Raises:
            ToolMissingError: one of the servers has no perftest.
            ToolFailedError: the ends did not reach each other over RDMA.
            ToolOutputError: what was printed is no such measurement.
            NoReplyError: it did not end within `timeout` ns.
        """
        report, at = self._run("ib_send_lat", size, iterations, timeout)
        row = self._only(report.latencies, size, "ib_send_lat")
        if row.typical_ns is None:
            raise self._unlike("ib_send_lat", "a typical time", "an average alone")
        return RdmaLatency(row.size, row.iterations, row.typical_ns, row.p99_ns, at)

    def bandwidth(
        self, size: int = 65536, iterations: int = 5000, *, timeout: int = DEFAULT_TIMEOUT
    ) -> RdmaBandwidth:
        """Bandwidth of messages of `size` bytes (`ib_write_bw`); see `latency`."""
        report, at = self._run("ib_write_bw", size, iterations, timeout)
        row = self._only(report.bandwidths, size, "ib_write_bw")
        return RdmaBandwidth(row.size, row.iterations, row.average_bps, at)

    def _run(
        self, program: str, size: int, iterations: int, timeout: int
    ) -> tuple[PerftestReport, Span]:
        asked = [*self._options, "-s", str(size), "-n", str(iterations)]
        waiting = self._sink.commands.start([program, "-d", self._sink.device, *asked])
        command = [program, "-d", self._source.device, *asked, self._sink.host]
        try:
            result = self._connect(command, timeout)
        except InstrumentError:
            _give_up(waiting, 0)
            raise
        if result.status == 0:
            waiting.result(timeout)
        else:
            at_sink = _give_up(waiting, _PATIENCE)
            if at_sink is not None and at_sink.status == _NO_PROGRAM:
                raise ToolMissingError(self._sink.commands.server, program, program)
            raise ToolFailedError(self._source.commands.server, result, shlex.join(command))
        reading = self._source.commands.parsed(command, result, perftest.parse)
        return reading.value[0], reading.at

    def _connect(self, command: Sequence[str], timeout: int) -> CommandResult:
        """Run `command`, again as long as the other end is not yet there to be asked."""
        commands = self._source.commands
        deadline = commands.clock.now() + _PATIENCE
        while True:
            result = commands.run(command, timeout)
            nobody = _NOBODY_WAITS in result.stderr + result.stdout
            if result.status == 0 or not nobody or commands.clock.now() > deadline:
                return result
            commands.clock.sleep(_PAUSE)

    def _only(self, rows: Sequence[Row], size: int, program: str) -> Row:
        if [row.size for row in rows] != [size]:
            found = ", ".join(str(row.size) for row in rows) or "none"
            raise self._unlike(program, f"one row of {size} B", found)
        return rows[0]

    def _unlike(self, program: str, expected: str, found: str) -> ToolOutputError:
        where = f"{self._source.commands.server}: {program}"
        return ToolOutputError(perftest.TOOL, expected, found, where=where)


def _give_up(waiting: Started, patience: int) -> CommandResult | None:
    """How a program ended to which nobody will come; None if it has not, within `patience` ns."""
    try:
        return waiting.result(patience)
    except InstrumentError:
        return None
