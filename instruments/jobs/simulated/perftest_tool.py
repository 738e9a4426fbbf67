"""perftest on simulated servers: `ib_write_bw`, `ib_send_lat` and their like, client and server.

Formats are those of perftest, src/perftest_parameters.h; an older build's [MB/sec] is not told.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightrig.instruments.jobs.flows.routing import NoRouteError
from lightrig.instruments.jobs.simulated.fabric_traffic import VERBS, FabricTraffic, Listener
from lightrig.instruments.jobs.simulated.host_launchers import Launch
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.testbeds import Port

PROGRAMS = {
    "ib_write_bw": "RDMA_Write BW Test",
    "ib_read_bw": "RDMA_Read BW Test",
    "ib_send_bw": "Send BW Test",
    "ib_write_lat": "RDMA_Write Latency Test",
    "ib_read_lat": "RDMA_Read Latency Test",
    "ib_send_lat": "Send Latency Test",
}
"""The tests that a server has, with their titles."""

_TCP_PORT = 18515
_LARGEST = 1 << 23
_FEWEST, _MOST = 5, 1_000_000
_LONGEST = 31
_START_UP = 150_000_000
_TRIES = 8
"""A first one and 7 retries, each of 4.096 us x 2^timeout."""

_MESSAGE_NS = 70.0
"""A NIC begins no message sooner after the last; a guess."""

_RULE = "-" * 87
_LATENCY_COLUMNS = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
    "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Asked:
    program: str
    device: str = ""
    host: str = ""
    sizes: tuple[int, ...] = ()
    iterations: int = 0
    port: int = _TCP_PORT
    gbits: bool = False
    timeout: int = 14

    @property
    def is_latency(self) -> bool:
        return self.program.endswith("_lat")


class _UsageError(Exception):
    """An argument that the test does not take, or a device that is not there."""


def run(traffic: FabricTraffic, host: str, launch: Launch) -> ProgramOutcome:
    """Run a test on `host`: as the server without a host's name, else as its client."""
    try:
        asked = _arguments(launch.argv)
        source = _device(traffic, host, asked)
    except (_UsageError, ValueError, IndexError) as error:
        return ProgramOutcome("", f" {error}\n", 1)
    if not asked.host:
        busy = f"bind() failed: Address already in use\n Couldn't listen to port {asked.port}\n"
        return traffic.listeners.listen(host, asked.port, launch.argv, busy)

    server = traffic.server_of_listener(host, asked.host, asked.port)
    return traffic.listeners.connect(
        host,
        server,
        asked.port,
        asked.program,
        lambda listener: _meet(traffic, asked, source, server or "", listener),
    )


def _meet(
    traffic: FabricTraffic, asked: _Asked, source: Port, server: str, listener: Listener | None
) -> tuple[ProgramOutcome, ProgramOutcome]:
    """Return the outcomes of client and server."""
    if listener is None:
        refused = (
            f"Couldn't connect to {asked.host}:{asked.port}\n Unable to open file descriptor "
            "for socket connection Unable to init the socket connection\n"
        )
        return ProgramOutcome("", refused, 1), ProgramOutcome("")
    server_arguments = _arguments(listener.argv)
    sink = _device(traffic, server, server_arguments)
    try:
        table, took = printed_table(traffic, asked, source, sink)
    except NoRouteError:
        took = _START_UP + _TRIES * 4096 * 2**asked.timeout
        failed = (
            " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"
            "scnt=1, ccnt=0\n"
        )
        return (
            ProgramOutcome(_head(asked, source), failed, 1, took),
            ProgramOutcome(_head(server_arguments, sink), "", 1, took),
        )
    return (
        ProgramOutcome(_head(asked, source) + table, took=took),
        ProgramOutcome(_waiting() + _head(server_arguments, sink) + table, took=took),
    )


def printed_table(
    traffic: FabricTraffic, asked: _Asked, source: Port, sink: Port
) -> tuple[str, int]:
    """Return the table that both ends print, and how long the messages took in ns."""
    row: Callable[[FabricTraffic, _Asked, float, float, int], tuple[str, float]]
    row = _latency if asked.is_latency else _bandwidth
    unit = "Gb" if asked.gbits else "MiB"
    columns = (
        _LATENCY_COLUMNS
        if asked.is_latency
        else f" #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   "
        "MsgRate[Mpps]"
    )
    lines, took = [columns], float(_START_UP)
    idle = traffic.wire_ns(source, sink, 0, VERBS)
    for size in asked.sizes:
        there = traffic.wire_ns(source, sink, size, VERBS)
        line, lasted = row(traffic, asked, idle, there, size)
        lines.append(line)
        took += lasted
    return "".join(f"{line}\n" for line in [*lines, _RULE]), round(took)


def _bandwidth(
    traffic: FabricTraffic, asked: _Asked, idle: float, there: float, size: int
) -> tuple[str, float]:
    """Return one row and its time in ns: messages are pipelined, so only the first pays latency."""
    each = max(there - idle, _MESSAGE_NS) * statistics.fmean(traffic.deviates(VERBS.spread, 32))
    lasted = each * asked.iterations + idle
    rate = asked.iterations / lasted * 1e3  # in millions a second
    average = rate * 8 * size * (1e6 / 1e9 if asked.gbits else 1e6 / 8 / _MIB)
    peak = average * 1.0005
    rates = "".join(f" {value:<18.{6 if value < 0.1 else 2}f}" for value in (peak, average))
    return f" {size:<10} {asked.iterations:<14}{rates} {rate:.6f}", lasted


def _latency(
    traffic: FabricTraffic, asked: _Asked, idle: float, there: float, size: int
) -> tuple[str, float]:
    """Return one row of one-way times; of reads the round trip."""
    mean = (there + idle if "read" in asked.program else there) / 1e3
    times = sorted(mean * each for each in traffic.deviates(VERBS.spread, asked.iterations))

    def at(share: float) -> float:
        return times[min(int(share * len(times)), len(times) - 1)]

    statistic = [times[0], times[-1], at(0.5), statistics.fmean(times), statistics.pstdev(times)]
    columns = "".join(f" {value:<14.2f}" for value in [*statistic, at(0.99), at(0.999)])
    return f" {size:<7} {asked.iterations:<10}{columns}", 2e3 * sum(times)


def _head(asked: _Asked, port: Port) -> str:
    lines = [
        _RULE,
        f"                    {PROGRAMS[asked.program]}",
        f" Dual-port       : OFF\t\tDevice         : {asked.device}",
        " Number of qps   : 1\t\tTransport type : IB",
        " Connection type : RC\t\tUsing SRQ      : OFF",
        " TX depth        : 128" if not asked.is_latency else " TX depth        : 1",
        " Mtu             : 4096[B]",
        " Link type       : Ethernet",
        " GID index       : 3",
        " Max inline data : 0[B]",
        " rdma_cm QPs     : OFF",
        " Data ex. method : Ethernet",
        _RULE,
        f" local address: LID 0000 QPN 0x{len(str(port)):04x} PSN 0x53494d",
        _RULE,
    ]
    return "".join(f"{line}\n" for line in lines)


def _waiting() -> str:
    stars = "*" * 36
    return f"\n{stars}\n* Waiting for client to connect... *\n{stars}\n"


def _device(traffic: FabricTraffic, server: str, asked: _Asked) -> Port:
    port = traffic.port(server, asked.device)
    if port is None:
        raise _UsageError(
            f"IB device {asked.device} not found\n Unable to find the Infiniband/RoCE device"
        )
    return port


def _arguments(argv: Sequence[str]) -> _Asked:
    program = argv[0].rpartition("/")[2]
    given: dict[str, object] = {}
    size = 2 if program.endswith("_lat") else 65536
    sizes: tuple[int, ...] = (size,)
    tokens = list(argv[1:])
    while tokens:
        word = tokens.pop(0)
        match word:
            case "-d" | "--ib-dev":
                given["device"] = tokens.pop(0)
            case "-s" | "--size":
                sizes = (int(tokens.pop(0)),)
            case "-a" | "--all":
                sizes = tuple(1 << power for power in range(1, _LARGEST.bit_length()))
            case "-n" | "--iters":
                given["iterations"] = int(tokens.pop(0))
            case "-p" | "--port":
                given["port"] = int(tokens.pop(0))
            case "-u" | "--qp-timeout":
                given["timeout"] = int(tokens.pop(0))
            case "-x" | "--gid-index" | "-q" | "--qp" | "-m" | "--mtu" | "-t" | "--tx-depth":
                tokens.pop(0)
            case "--report_gbits":
                given["gbits"] = True
            case "-F" | "--CPU-freq" | "-R" | "--rdma_cm":
                pass
            case _ if word.startswith("-"):
                raise _UsageError(f"Invalid Command line. Please check command rerun: {word}")
            case _:
                given["host"] = word
    given.setdefault("iterations", 1000 if program.endswith("_lat") else 5000)
    asked = _Asked(program, sizes=sizes, **given)  # type: ignore[arg-type]
    if not (_FEWEST <= asked.iterations <= _MOST and min(sizes) > 0 and max(sizes) <= _LARGEST):
        raise _UsageError("Number of iterations or size of messages out of range")
    if not (0 <= asked.timeout <= _LONGEST and 0 < asked.port < 1 << 16):
        raise _UsageError("Queue pair timeout or port out of range")
    return asked
