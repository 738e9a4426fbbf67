"""iperf3 on simulated servers: TCP over one NIC port each, told as version 3.12 tells it.

Without `--json` a real one prints tables; this one knows JSON only.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from instruments.simulated.host_launchers import Launch
from instruments.simulated.listeners import Listener
from instruments.simulated.ssh_peer import Outcome
from instruments.simulated.traffic import TCP, FabricTraffic
from testbeds import Port
from testbeds.flows import NoRouteError

VERSION = "iperf 3.12"

_TCP_PORT = 5201
_BLOCK = 131_072
_SECOND = 1_000_000_000
_MANY = 1 << 40
_MOST_STREAMS = 128


@dataclass(frozen=True, slots=True)
class _Asked:
    host: str = ""
    server: bool = False
    daemon: bool = False
    port: int = _TCP_PORT
    seconds: int = 10
    streams: int = 1
    device: str = ""
    reverse: bool = False


def run(traffic: FabricTraffic, host: str, launch: Launch) -> Outcome:
    """Run iperf3 on `host`, as a server (`-s`, `-1`, `-D`) or as a client (`-c`)."""
    try:
        asked = _arguments(launch.argv)
    except (ValueError, IndexError) as error:
        return Outcome("", f"iperf3: parameter error - {error}\n", 1)
    if asked.server:
        busy = "iperf3: error - unable to start listener for connections: Address already in use\n"
        begin = traffic.listeners.stay if asked.daemon else traffic.listeners.listen
        return begin(host, asked.port, launch.argv, busy)
    return _client(traffic, host, asked)


def _client(traffic: FabricTraffic, host: str, asked: _Asked) -> Outcome:
    there = traffic.server(asked.host)

    def meeting(listener: Listener | None) -> tuple[Outcome, Outcome]:
        joined = _joined(traffic, host, there or "", asked.device)
        if listener is None:
            ended = _failed("unable to connect to server: Connection refused")
        elif joined is None:
            ended = _failed("unable to connect to server: No route to host")
        else:
            ended = _measured(traffic, asked, *joined)
        return ended, Outcome("", took=ended.took)

    return traffic.listeners.meet(host, there, asked.port, "iperf3", meeting)


def _joined(traffic: FabricTraffic, host: str, there: str, device: str) -> tuple[Port, Port] | None:
    """The first link between two servers, or that of the device that a client is bound to."""
    own = traffic.port(host, device) if device else None
    for link in sorted(traffic.up()):
        for source, sink in ((link.a, link.b), (link.b, link.a)):
            if (source.owner, sink.owner) == (host, there) and own in (None, source):
                return source, sink
    return None


def _measured(traffic: FabricTraffic, asked: _Asked, source: Port, sink: Port) -> Outcome:
    ends = (sink, source) if asked.reverse else (source, sink)
    try:
        whole = traffic.wire_ns(*ends, _MANY, TCP)
    except NoRouteError:
        return _failed("unable to connect to server: No route to host")
    rate = 8e9 * _MANY / whole
    intervals: list[dict[str, Any]] = []
    sent = [0] * asked.streams
    for second, factor in enumerate(traffic.deviates(TCP.spread, asked.seconds)):
        # Whole blocks, as a program writes them.
        each = round(rate / factor / 8 / asked.streams / _BLOCK) * _BLOCK
        sent = [total + each for total in sent]
        flows = [
            {"socket": 5 + 2 * n, **_flow(second, second + 1, each), "retransmits": 0}
            for n in range(asked.streams)
        ]
        total = {**_flow(second, second + 1, each * asked.streams), "retransmits": 0}
        intervals.append({"streams": flows, "sum": total})
    ended = [
        {
            "sender": {"socket": 5 + 2 * n, **_flow(0, asked.seconds, total), "retransmits": 0},
            "receiver": {"socket": 5 + 2 * n, **_flow(0, asked.seconds, total)},
        }
        for n, total in enumerate(sent)
    ]
    document = {
        "start": {
            "connected": [],
            "version": VERSION,
            "system_info": "Linux SIM",
            "test_start": {
                "protocol": "TCP",
                "num_streams": asked.streams,
                "blksize": _BLOCK,
                "omit": 0,
                "duration": asked.seconds,
                "bytes": 0,
                "blocks": 0,
                "reverse": int(asked.reverse),
                "tos": 0,
                "target_bitrate": 0,
            },
        },
        "intervals": intervals,
        "end": {
            "streams": ended,
            "sum_sent": {**_flow(0, asked.seconds, sum(sent)), "retransmits": 0},
            "sum_received": _flow(0, asked.seconds, sum(sent)),
        },
    }
    return Outcome(json.dumps(document, indent="\t") + "\n", took=asked.seconds * _SECOND)


def _flow(start: int, end: int, count: int) -> dict[str, Any]:
    return {
        "start": start,
        "end": end,
        "seconds": end - start,
        "bytes": count,
        "bits_per_second": 8 * count / (end - start),
        "omitted": False,
        "sender": True,
    }


def _failed(error: str) -> Outcome:
    """A run that failed; iperf3 ends with status 0 all the same."""
    document = {
        "start": {"connected": [], "version": VERSION, "system_info": "Linux SIM"},
        "intervals": [],
        "end": {},
        "error": error,
    }
    return Outcome(json.dumps(document, indent="\t") + "\n", took=_SECOND // 20)


def _arguments(argv: Sequence[str]) -> _Asked:
    told: dict[str, Any] = {}
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        match word:
            case "-c" | "--client":
                told["host"] = words.pop(0)
            case "-s" | "--server":
                told["server"] = True
            case "-D" | "--daemon":
                told["daemon"] = True
            case "-1" | "--one-off" | "-J" | "--json":
                pass
            case "-p" | "--port":
                told["port"] = int(words.pop(0))
            case "-t" | "--time":
                told["seconds"] = int(words.pop(0))
            case "-P" | "--parallel":
                told["streams"] = int(words.pop(0))
            case "--bind-dev":
                told["device"] = words.pop(0)
            case "-R" | "--reverse":
                told["reverse"] = True
            case _:
                raise ValueError(f"unknown option {word}")
    asked = _Asked(**told)
    if not asked.server and not asked.host:
        raise ValueError("must either be a client (-c) or server (-s)")
    if not (0 < asked.seconds <= 86_400 and 0 < asked.streams <= _MOST_STREAMS):
        raise ValueError("-t from 1 to 86400, -P from 1 to 128")
    return asked
