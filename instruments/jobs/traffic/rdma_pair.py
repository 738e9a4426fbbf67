"""RDMA between two servers, measured by perftest: one end listens, the other connects."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.core.rdma import DEFAULT_TIMEOUT, RdmaBandwidth, RdmaLatency
from lightrig.instruments.jobs.tools import perftest
from lightrig.instruments.jobs.tools.perftest import BandwidthRow, LatencyRow, PerftestReport
from lightrig.instruments.servers.host.commands import (
    CommandResult,
    Commands,
    Started,
    ToolFailedError,
    ToolMissingError,
)
from lightrig.instruments.servers.tools.output import ToolOutputError

Row = TypeVar("Row", LatencyRow, BandwidthRow)

RETRIES = 8
"""Number of transmissions of a message: one, and the 7 retries that perftest sets."""

QP_TIMEOUT = 14
"""Exponent of the retransmission timeout that perftest sets, 67 ms."""

_UNIT_NS, _LONGEST = 4096, 31

RENDEZVOUS = 18515
"""TCP port at which perftest's ends meet, where none is stated."""

_ENDS_TIMEOUT = 5_000_000_000
"""Time in which the listening end prints and ends once the other has ended, in ns."""

_PAUSE = 200_000_000
_NO_PROGRAM = 127
_NOT_LISTENING = "Couldn't connect"


@dataclass(frozen=True, slots=True)
class RdmaEnd:
    """One end: programs on a server, its RDMA device, its host name for the peer."""

    commands: Commands
    device: str
    host: str


class RdmaPair:
    """Latency and bandwidth from one RDMA device to another.

    Args:
        source: connects and sends; prints the result.
        sink: listens.
        gid_index: index of the RoCE address (-x); None leaves it to perftest.
        qp_timeout: exponent of the retransmission timeout, 4.096 us x 2^n (-u); the connection
            fails after 7 retries.
        port: TCP port of the rendezvous (-p).

    Source: perftest, ib_write_bw(1).
    """

    def __init__(
        self,
        source: RdmaEnd,
        sink: RdmaEnd,
        *,
        gid_index: int | None = None,
        qp_timeout: int = QP_TIMEOUT,
        port: int = RENDEZVOUS,
    ) -> None:
        self._source = source
        self._sink = sink
        self.retry_ns = RETRIES * 4096 * 2**qp_timeout
        self._options = ["-F", "-u", str(qp_timeout), "-p", str(port)]
        if gid_index is not None:
            self._options += ["-x", str(gid_index)]

    def latency(
        self, size: int = 2, iterations: int = 1000, *, timeout: int | None = None
    ) -> RdmaLatency:
        """Measure one-way times of messages of `size` bytes (`ib_send_lat`).

        Raises:
            ToolMissingError: one of the servers has no perftest.
            ToolFailedError: the ends did not reach each other over RDMA.
            ToolOutputError: the output is no such measurement.
            NoReplyError: it did not end within `timeout` ns; None is `DEFAULT_TIMEOUT`, or what
                the servers' tools may take, if that is longer.
        """
        report, at = self._run("ib_send_lat", size, iterations, timeout)
        row = self._only(report.latencies, size, "ib_send_lat")
        if row.typical_ns is None:
            raise self._unlike("ib_send_lat", "a typical time", "an average alone")
        index = _gid_index(report)
        return RdmaLatency(row.size, row.iterations, row.typical_ns, row.p99_ns, at, index)

    def bandwidth(
        self, size: int = 65536, iterations: int = 5000, *, timeout: int | None = None
    ) -> RdmaBandwidth:
        """Measure the bandwidth of messages of `size` bytes (`ib_write_bw`); see `latency`."""
        report, at = self._run("ib_write_bw", size, iterations, timeout)
        row = self._only(report.bandwidths, size, "ib_write_bw")
        return RdmaBandwidth(row.size, row.iterations, row.average_bps, at, _gid_index(report))

    def _run(
        self, program: str, size: int, iterations: int, timeout: int | None
    ) -> tuple[PerftestReport, Span]:
        if timeout is None:
            ends = self._source.commands, self._sink.commands
            timeout = max(DEFAULT_TIMEOUT, *(end.timeout_ns for end in ends))
        asked = [*self._options, "-s", str(size), "-n", str(iterations)]
        listening = [program, "-d", self._sink.device, *asked]
        waiting = self._sink.commands.start(listening, 2 * timeout + _ENDS_TIMEOUT)
        command = [program, "-d", self._source.device, *asked, self._sink.host]
        try:
            result = self._connect(command, timeout, waiting)
        except InstrumentError:
            _give_up(waiting, 0)
            raise
        if result.status == 0:
            waiting.result(timeout)
        else:
            refused = _is_refused(result)
            at_sink = _give_up(waiting, 0 if refused else _ENDS_TIMEOUT)
            if at_sink is not None and at_sink.status == _NO_PROGRAM:
                raise ToolMissingError(self._sink.commands.server, program, program)
            if at_sink is not None and at_sink.status and refused:
                raise ToolFailedError(self._sink.commands.server, at_sink, shlex.join(listening))
            raise ToolFailedError(self._source.commands.server, result, shlex.join(command))
        reading = self._source.commands.parsed(command, result, perftest.parse)
        return reading.value[0], reading.at

    def _connect(self, command: Sequence[str], timeout: int, waiting: Started) -> CommandResult:
        """Run `command`, again and again while the peer runs but does not listen yet.

        A busy server takes seconds to start a program, and prints nothing once it listens.
        """
        commands = self._source.commands
        deadline = commands.clock.now() + timeout
        while True:
            ended = waiting.has_ended
            result = commands.run(command, timeout)
            if not _is_refused(result) or ended or commands.clock.now() > deadline:
                return result
            commands.clock.sleep(_PAUSE)

    def _only(self, rows: Sequence[Row], size: int, program: str) -> Row:
        if [row.size for row in rows] != [size]:
            found = ", ".join(str(row.size) for row in rows) or "none"
            raise self._unlike(program, f"one row of {size} B", found)
        return rows[0]

    def _unlike(self, program: str, expected: str, found: str) -> ToolOutputError:
        error = ToolOutputError(perftest.TOOL, expected, found)
        return error.at(self._source.commands.server, program)


def retransmission_exponent(timeout_ns: int) -> int:
    """Return the least exponent n of 4.096 us x 2^n that is `timeout_ns` at least, or the greatest.

    Source: InfiniBand Architecture Specification, volume 1, 9.9.2.1.1 (Local ACK Timeout).
    """
    return min(max((-(-timeout_ns // _UNIT_NS) - 1).bit_length(), 1), _LONGEST)


def _gid_index(report: PerftestReport) -> int | None:
    """Return the index that perftest states above its table; InfiniBand has none."""
    stated = report.settings.get("GID index", "")
    return int(stated) if stated.isascii() and stated.isdigit() else None


def _is_refused(result: CommandResult) -> bool:
    """Whether nothing listened at the peer."""
    return result.status != 0 and _NOT_LISTENING in result.stderr + result.stdout


def _give_up(waiting: Started, timeout: int) -> CommandResult | None:
    """Return how a listening program ended; None if it has not ended within `timeout` ns."""
    try:
        return waiting.result(timeout)
    except InstrumentError:
        return None
