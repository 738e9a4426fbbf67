"""The probe: a program that observes the ports of a server; it is sent there as source.

It needs Python 3.8 or newer on Linux and nothing else; it and the modules it imports are sent
together. Requests come as one JSON object per line on stdin, replies go to stdout;
docs/appendix/probe.md has the protocol. All times are integer nanoseconds of this server's
CLOCK_MONOTONIC.

Observations are intervals. A poller reads sysfs as fast as it can: a change happened after the last
read with the old value and before the first with the new one. A carrier that went and came again
between two reads shows in the kernel's count of its changes. Datagrams with sequence numbers and
the send time of their predecessor bound an outage on the link itself. Netlink is only a
cross-check, since the kernel announces carriers late and rate-limited.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import select
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import IO, Any

from lightrig.instruments.servers.programs.probe_datagrams import DatagramStream, open_stream
from lightrig.instruments.servers.programs.probe_events import EventLog, Refused
from lightrig.instruments.servers.programs.probe_kernel import KernelLogFile
from lightrig.instruments.servers.programs.probe_links import (
    NET,
    RDMA,
    LinkMessages,
    Sensor,
    describe_port,
    open_netlink,
)
from lightrig.instruments.servers.programs.probe_modules import (
    EthtoolSocket,
    ModuleReads,
    read_place,
)
from lightrig.instruments.servers.programs.replies import Replies
from lightrig.instruments.servers.programs.server_clock import boot_id, kernel_status, now

__all__ = ["Probe", "Watch", "main", "open_watch"]

_VERSION = 1
_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1_000
_LONGEST_PERIOD_NS = 1_000_000_000
_IDLE_NS = 100_000_000


class Watch:
    """Observation of ports by two threads: one polls sysfs, one handles sockets.

    Two, since a poll every 50 us must not wait for a datagram to be handled.

    Args:
        sensors: files of sysfs, which are read every `period_ns`.
        streams: datagrams, of which each sends one every `datagram_period_ns`.
        netlink: where the kernel announces carriers; None where it does not.
        close_files: is called when both threads have ended.
    """

    def __init__(
        self,
        sensors: list[Sensor],
        streams: list[DatagramStream],
        netlink: LinkMessages | None,
        period_ns: int,
        datagram_period_ns: int,
        close_files: Callable[[], None],
    ) -> None:
        self.log = EventLog(lambda: min([s.read_until for s in self._sensors], default=now()))
        self._sensors, self._streams, self._netlink = sensors, streams, netlink
        self._period_ns, self._datagram_period_ns = period_ns, datagram_period_ns
        self._close_files = close_files
        self._stop = threading.Event()
        self.stages = {(sensor.port, sensor.stage) for sensor in sensors}
        self.stages |= {(stream.port, "datagram") for stream in streams}
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), daemon=True)
            for loop in (self._poll, self._listen)
        ]

    def state(self) -> dict[str, dict[str, bool | None]]:
        """Return whether each stage of each port is up; None for one without a file."""
        state: dict[str, dict[str, bool | None]] = {}
        for sensor in self._sensors:
            state.setdefault(sensor.port, {"carrier": None, "firmware": None})
            state[sensor.port][sensor.stage] = sensor.up
        return state

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return the numbers of datagrams of each port."""
        return {
            s.port: {
                "sent": s.sent,
                "received": s.received,
                "idle": s.idle,
                "late": s.late,
                "duplicates": s.duplicates,
                "heard": s.heard(),
            }
            for s in self._streams
        }

    def partners(self) -> dict[str, tuple[int, int] | None]:
        """Return whose datagram each port has received last, and when."""
        return {stream.port: stream.partner() for stream in self._streams}

    def tokens(self) -> dict[str, int]:
        """Return the token of each port's datagrams."""
        return {stream.port: stream.token for stream in self._streams}

    def check_senders(self, ports: Iterable[str]) -> None:
        """Raise `Refused` for a port from which no datagrams are sent."""
        senders = {stream.port for stream in self._streams}
        for port in ports:
            if port not in senders:
                raise Refused("unknown_port", f"no datagrams are sent from {port!r}")

    def departures(self, wanted: dict[str, list[int]]) -> dict[str, list[int | None]]:
        """Return the send times of datagrams by number; see `DatagramStream`."""
        return {
            stream.port: [stream.departure(number) for number in wanted[stream.port]]
            for stream in self._streams
            if stream.port in wanted
        }

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End both threads, close the files, and fail the requests that wait."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._close_files()
        self.log.fail(Refused("not_watching", "unwatch came while this request waited"))

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except OSError as error:
            self.log.fail(Refused("watch_failed", str(error)))

    def _poll(self) -> None:
        pause = self._period_ns / 1e9
        stopped, sensors, log = self._stop.is_set, self._sensors, self.log
        while not stopped():
            for sensor in sensors:
                sensor.sample(log)
            time.sleep(pause)

    def _listen(self) -> None:
        receivers: dict[socket.socket, Any] = {s.socket: s for s in self._streams}
        if self._netlink is not None:
            receivers[self._netlink.socket] = self._netlink
        sockets = list(receivers)
        next_send = now()
        while not self._stop.is_set():
            at = now()
            if not self._streams:
                wait = _IDLE_NS
            else:
                if at >= next_send:
                    for stream in self._streams:
                        stream.send()
                    # A late sender does not catch up: the period is a minimum distance.
                    next_send = max(next_send + self._datagram_period_ns, at)
                    at = now()
                wait = max(0, next_send - at)
            readable, _, _ = select.select(sockets, [], [], wait / 1e9)
            for sock in readable:
                receivers[sock].receive(self.log)
            for stream in self._streams:
                if stream.socket not in readable:
                    stream.listen_for_silence(self.log, at)


def open_watch(
    ports: dict[str, str | None], period_ns: int, datagrams: tuple[int, int] | None, boot: bytes
) -> Watch:
    """Open the files and sockets of ports; raises `OSError`, and then leaves none open.

    Args:
        ports: network devices, each with its RDMA device or None.
        period_ns: between two readings of a file.
        datagrams: UDP port and period in ns; None: without.
        boot: identity of this boot of the machine.
    """
    sensors: list[Sensor] = []
    streams: list[DatagramStream] = []
    netlink = None
    udp_port, datagram_period_ns = datagrams or (0, 0)
    with contextlib.ExitStack() as opened:
        for port, rdma in ports.items():
            base = f"{NET}/{port}/carrier"
            sensors.append(Sensor(port, "carrier", base, b"1", f"{base}_changes"))
            opened.callback(sensors[-1].close)
            if rdma is not None:
                path = f"{RDMA}/{rdma}/ports/1/phys_state"
                sensors.append(Sensor(port, "firmware", path, b"5"))  # "5: LinkUp"
                opened.callback(sensors[-1].close)
            if datagrams is not None:
                streams.append(open_stream(port, boot, udp_port, datagram_period_ns))
                opened.callback(streams[-1].close)
        sock = open_netlink()
        if sock is not None:
            opened.callback(sock.close)
            netlink = LinkMessages(sock, [each for each in sensors if each.stage == "carrier"])
        close_files = opened.pop_all().close
    return Watch(sensors, streams, netlink, period_ns, datagram_period_ns, close_files)


def _field(
    source: dict[str, Any], name: str, kind: type, least: int = 0, most: int = 1 << 53
) -> Any:
    """Return a field of a request: of the right type and, if a number, within bounds."""
    value = source.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Refused("bad_request", f'"{name}" must be {kind.__name__}, not {value!r}')
    if isinstance(value, int) and not least <= value <= most:
        raise Refused("bad_request", f'"{name}" must be {least} to {most}, not {value}')
    return value


def _place(value: Any) -> tuple[int, ...]:
    """Return address, page, offset and length of what is read of a module."""
    if type(value) is not list or len(value) != 4 or any(type(one) is not int for one in value):
        raise Refused("bad_request", f"address, page, offset and length of a read, not {value!r}")
    if not all(0 <= one < 256 for one in value):
        raise Refused("bad_request", f"a read is of numbers below 256, not {value!r}")
    return tuple(value)


def _check_ports(ports: Iterable[str]) -> None:
    known = os.listdir(NET)
    for port in ports:
        if port not in known:
            raise Refused("unknown_port", f"there is no network device {port!r}")


class Probe:
    """Replies to the requests of one harness.

    Args:
        out: where the replies are written.
        watch: opens what is watched.
    """

    def __init__(self, out: IO[str], watch: Callable[..., Watch] = open_watch) -> None:
        self._open_watch = watch
        self._boot = boot_id()
        self._watch: Watch | None = None
        self._kernel: KernelLogFile | None = None
        self._modules: ModuleReads | None = None
        self._replies = Replies(out)
        self._verbs = {
            "hello": self._hello,
            "ports": self._ports,
            "watch": self._start_watch,
            "partners": self._partners,
            "unwatch": self._end_watch,
            "messages": self._messages,
            "module": self._module,
            "read_modules": self._read_modules,
            "module_readings": self._module_readings,
        }

    def serve(self, requests: Iterable[bytes]) -> None:
        """Reply to requests, one a line, until there are no more."""
        for line in requests:
            self._take(line, now())
        self._replies.end()
        if self._watch is not None:
            self._watch.close()
        if self._kernel is not None:
            self._kernel.close()
        self._module_readings({})

    def _take(self, line: bytes, received: int) -> None:
        number: Any = None
        try:
            try:
                request = json.loads(line)
            except ValueError as error:
                raise Refused("bad_json", str(error)) from None
            if not isinstance(request, dict):
                raise Refused("bad_request", "a request is a JSON object")
            number = request.get("id")
            verb = request.get("do")
            if verb == "settle":
                self._begin_settle(number, received, request)
                return
            handler = self._verbs.get(verb) if isinstance(verb, str) else None
            if handler is None:
                raise Refused("unknown_request", f"there is no request {verb!r}")
            self._replies.reply(number, received, handler(request))
        except Refused as error:
            self._replies.refuse(number, received, error.kind, str(error))
        except OSError as error:
            self._replies.refuse(number, received, "os_error", str(error))

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        netlink = open_netlink()
        if netlink is not None:
            netlink.close()
        return {
            "probe": _VERSION,
            "host": platform.node(),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "boot": self._boot,
            "netlink": netlink is not None,
        }

    def _ports(self, _: dict[str, Any]) -> dict[str, Any]:
        return {port: describe_port(port) for port in sorted(os.listdir(NET)) if port != "lo"}

    def _start_watch(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._watch is not None:
            raise Refused("already_watching", "unwatch first")
        ports: dict[str, str | None] = {}
        for port, options in _field(request, "ports", dict).items():
            rdma = options.get("rdma") if isinstance(options, dict) else options
            if rdma is not None and not isinstance(rdma, str):
                raise Refused("bad_request", f'"{port}" must be an object with "rdma"')
            if port not in os.listdir(NET):
                raise Refused("unknown_port", f"there is no network device {port!r}")
            if rdma is not None and rdma not in os.listdir(RDMA):
                raise Refused("unknown_port", f"there is no RDMA device {rdma!r}")
            ports[port] = rdma
        datagrams = None
        if request.get("datagrams") is not None:
            wanted = _field(request, "datagrams", dict)
            datagrams = (
                _field(wanted, "udp_port", int, 1, 65535),
                _field(wanted, "period_ns", int, 1, _LONGEST_PERIOD_NS),
            )
        period = _field(request, "period_ns", int, 1, _LONGEST_PERIOD_NS)
        self._watch = self._open_watch(ports, period, datagrams, uuid.UUID(self._boot).bytes)
        state = self._watch.state()
        self._watch.start()
        return {"state": state, "tokens": self._watch.tokens()}

    def _watching(self) -> Watch:
        if self._watch is None:
            raise Refused("not_watching", "watch first")
        return self._watch

    def _partners(self, _: dict[str, Any]) -> dict[str, Any]:
        return self._watching().partners()

    def _end_watch(self, _: dict[str, Any]) -> dict[str, Any]:
        self._watching().close()
        self._watch = None
        return {}

    def _messages(self, _: dict[str, Any]) -> dict[str, Any]:
        if self._kernel is None:
            self._kernel = KernelLogFile()
        return self._kernel.messages()

    def _module(self, request: dict[str, Any]) -> dict[str, Any]:
        port, place = _field(request, "port", str), _place(request.get("read"))
        _check_ports([port])
        ethtool = EthtoolSocket()
        try:
            return {"reading": read_place(ethtool, port, place)}
        finally:
            ethtool.close()

    def _read_modules(self, request: dict[str, Any]) -> dict[str, Any]:
        ports = _field(request, "ports", dict)
        _check_ports(ports)
        places = [(port, _place(each)) for port in ports for each in _field(ports, port, list)]
        period = _field(request, "period_ns", int, 1, _LONGEST_PERIOD_NS)
        self._module_readings({})
        if places:
            self._modules = ModuleReads(places, period)
        return {}

    def _module_readings(self, _: dict[str, Any]) -> dict[str, Any]:
        modules, self._modules = self._modules, None
        return {"readings": [] if modules is None else modules.end()}

    def _begin_settle(self, number: Any, received: int, request: dict[str, Any]) -> None:
        watch = self._watching()
        wanted = set()
        for port, stages in _field(request, "ports", dict).items():
            for stage in stages if isinstance(stages, list) else [stages]:
                if not isinstance(stage, str) or (port, stage) not in watch.stages:
                    raise Refused("unknown_stage", f"{stage!r} of {port!r} is not watched")
                wanted.add((port, stage))
        numbers = _field({"numbers": {}, **request}, "numbers", dict)
        for each in numbers.values():
            if type(each) is not list or not all(type(one) is int for one in each):
                raise Refused("bad_request", '"numbers" must be whole numbers of each port')
        watch.check_senders(numbers)
        timeout = _field(request, "timeout_ns", int)
        thread = threading.Thread(
            target=self._settle,
            args=(number, received, watch, wanted, timeout, numbers),
            daemon=True,
        )
        thread.start()

    def _settle(
        self,
        number: Any,
        received: int,
        watch: Watch,
        wanted: set[tuple[str, str]],
        timeout_ns: int,
        numbers: dict[str, list[int]],
    ) -> None:
        try:
            taken = watch.log.settle(wanted, timeout_ns)
        except Refused as error:
            self._replies.refuse(number, received, error.kind, str(error))
            return
        content = {
            "settled": not taken.missing,
            "missing": sorted(taken.missing),
            "read": taken.read,
            "events": [event.fields() for event in taken.events],
            "gaps": [gap.fields() for gap in taken.gaps],
            "late": taken.late,
            "steps": taken.steps,
            "datagrams": watch.counts(),
            "departures": watch.departures(numbers),
            "clock": kernel_status(),
        }
        self._replies.reply(number, received, content)


def main() -> int:
    """Reply to requests on stdin until it ends; return the exit status."""
    if sys.argv[1:] not in ([], ["lightrig-probe", str(_VERSION)]):
        print(f"this is lightrig-probe {_VERSION}, started as {sys.argv[1:]}", file=sys.stderr)
        return 2
    # Ctrl-C reaches the whole process group, and the harness still needs the probe to clean up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Sleeps of 50 us need less than the default timer slack of 50 us; threads inherit it.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_TIMER_SLACK_NS), 0, 0, 0)
    # The longest wait of a thread for the interpreter lock, and so the error of its stamps.
    sys.setswitchinterval(50e-6)
    Probe(sys.stdout).serve(iter(sys.stdin.buffer.readline, b""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
