"""OSU micro-benchmarks on simulated servers: MPI from memory to memory over the fabric.

Formats are those of version 5.7.1.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from instruments.simulated.host_launchers import Launch
from instruments.simulated.ssh_peer import Outcome
from instruments.simulated.traffic import MPI, FabricTraffic
from testbeds.flows import Collective, Flow, NoRouteError, RanksError, Step, schedule_of
from testbeds.flows import rank_vertices as gpu_vertices

VERSION = "5.7.1"

_COLLECTIVES: dict[str, tuple[Collective, str]] = {
    "osu_allreduce": ("all_reduce", "MPI Allreduce Latency Test"),
    "osu_allgather": ("all_gather", "MPI Allgather Latency Test"),
    "osu_reduce_scatter": ("reduce_scatter", "MPI Reduce_scatter Latency Test"),
    "osu_alltoall": ("all_to_all", "MPI All-to-All Personalized Exchange Latency Test"),
}
_PAIRS = {
    "osu_latency": ("MPI Latency Test", "Latency (us)"),
    "osu_bw": ("MPI Bandwidth Test", "Bandwidth (MB/s)"),
}
PROGRAMS = (*_COLLECTIVES, *_PAIRS)
"""The benchmarks that a server has."""

_START_UP = 900_000_000
_HUNG = 24 * 3_600_000_000_000
_MOST, _LARGEST = 10_000, 1 << 32
_WINDOW = 64
"""Messages that are under way at once in a test of bandwidth."""


@dataclass(frozen=True, slots=True)
class _Asked:
    program: str
    least: int = 4
    most: int = 1 << 20
    iterations: int = 200
    full: bool = False

    @property
    def sizes(self) -> list[int]:
        found = [max(self.least, 1)]
        while found[-1] * 2 <= self.most:
            found.append(found[-1] * 2)
        return found


def run(traffic: FabricTraffic, host: str, launch: Launch) -> Outcome:
    """Run a benchmark among the ranks of `launch`, begun on `host`.

    Ranks that cannot reach each other wait for good, as MPI does over TCP.
    """
    try:
        asked = _arguments(launch.argv)
        ranks = [_server(traffic, name) for name in launch.hosts or (host,)]
        if (asked.program in _PAIRS and len(ranks) != 2) or len(ranks) < 2:
            return Outcome("", "This test requires exactly two processes\n", 1)
        text, took = _table(traffic, asked, ranks)
    except NoRouteError:
        return Outcome("", took=_HUNG)
    except (RanksError, LookupError, ValueError) as error:
        return Outcome("", f"Invalid option or host: {error}\n", 1)
    return Outcome(launch.printed(text), took=took)


def _table(traffic: FabricTraffic, asked: _Asked, ranks: Sequence[str]) -> tuple[str, int]:
    # A rank is a server's memory, unless several share a server.
    alone = len(set(ranks)) == len(ranks)
    vertices = list(ranks) if alone else list(gpu_vertices(traffic.testbed, ranks))
    if asked.program in _PAIRS:
        return _pair(traffic, asked, vertices)
    collective, title = _COLLECTIVES[asked.program]
    more = f"{'Min Latency(us)':>18}{'Max Latency(us)':>18}{'Iterations':>12}" if asked.full else ""
    lines = ["", f"# OSU {title} v{VERSION}", f"# Size{'Avg Latency(us)':>22}{more}"]
    took = _START_UP
    for size in asked.sizes:
        # MPI counts what one rank gives, the model what all of them share.
        whole = size if collective in ("all_reduce", "reduce_scatter") else size * len(ranks)
        times = traffic.times(schedule_of(collective, vertices, whole), MPI, asked.iterations)
        took += sum(times)
        line = f"{size:<10}{statistics.fmean(times) / 1e3:>18.2f}"
        if asked.full:
            line += f"{min(times) / 1e3:>18.2f}{max(times) / 1e3:>18.2f}{len(times):>12}"
        lines.append(line)
    return "".join(f"{line}\n" for line in lines), took


def _pair(traffic: FabricTraffic, asked: _Asked, ranks: Sequence[str]) -> tuple[str, int]:
    title, column = _PAIRS[asked.program]
    lines = [f"# OSU {title} v{VERSION}", f"# Size{column:>22}"]
    took, many = _START_UP, _WINDOW if asked.program == "osu_bw" else 1
    for size in asked.sizes:
        sent = [Step((Flow(ranks[0], ranks[1], many * size),))]
        times = traffic.times(sent, MPI, asked.iterations)
        took += 2 * sum(times)
        mean = statistics.fmean(times)
        told = many * size / mean * 1e3 if asked.program == "osu_bw" else mean / 1e3
        lines.append(f"{size:<10}{told:>18.2f}")
    return "".join(f"{line}\n" for line in lines), took


def _server(traffic: FabricTraffic, host: str) -> str:
    server = traffic.server(host)
    if server is None:
        raise LookupError(f"could not resolve hostname {host}")
    return server


def _arguments(argv: Sequence[str]) -> _Asked:
    told: dict[str, int] = {}
    words, full = list(argv[1:]), False
    while words:
        option = words.pop(0)
        if option == "-f":
            full = True
        elif option == "-m":
            low, colon, high = words.pop(0).partition(":")
            told |= {"least": int(low), "most": int(high)} if colon else {"most": int(low)}
        elif option == "-i":
            told["iterations"] = int(words.pop(0))
        elif option == "-x":
            words.pop(0)
        else:
            raise ValueError(option)
    asked = _Asked(argv[0].rpartition("/")[2], **told, full=full)
    if not (0 < asked.iterations <= _MOST and asked.most <= _LARGEST):
        raise ValueError("iterations or sizes out of range")
    return asked
