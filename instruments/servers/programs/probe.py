"""The probe: a program that observes the ports of a server; it is sent there as source.

It needs Python 3.8 or newer on Linux and nothing else; it and the modules it imports are sent
together. Requests come as one JSON object per line on stdin, replies go to stdout; docs/probe.md
has the protocol. All times are integer nanoseconds of this server's CLOCK_MONOTONIC.

Observations are intervals. A poller reads sysfs as fast as it can: a change happened after the last
read with the old value and before the first with the new one. A carrier that went and came again
between two reads shows in the kernel's count of its changes. Datagrams with sequence numbers and
the send time of their predecessor bound an outage on the link itself. Netlink is only a
cross-check, since the kernel announces carriers late and rate-limited.
"""

from __future__ import annotations

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
from typing import Any

from lightrig.instruments.servers.programs.probe_datagrams import DatagramStream
from lightrig.instruments.servers.programs.probe_events import EventLog, Refused
from lightrig.instruments.servers.programs.probe_links import (
    NET,
    RDMA,
    LinkMessages,
    Sensor,
    describe_port,
    open_netlink,
)
from lightrig.instruments.servers.programs.replies import Replies
from lightrig.instruments.servers.programs.server_clock import boot_id, kernel_status, now

__all__ = ["main"]

_VERSION = 1
_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1_000
_LONGEST_PERIOD_NS = 1_000_000_000
_IDLE_NS = 100_000_000


class Watch:
    """Observation of ports by two threads: one polls sysfs, one handles sockets.

    Two, since a poll every 50 us must not wait for a datagram to be handled.
    """

    def __init__(
        self,
        ports: dict[str, str | None],
        period_ns: int,
        datagrams: tuple[int, int] | None,
        boot: bytes,
    ) -> None:
        self.log = EventLog()
        self._period_ns = period_ns
        self._stop = threading.Event()
        self._streams: list[DatagramStream] = []
        self._datagram_period_ns = 0
        self._sensors: list[Sensor] = []
        self._netlink: LinkMessages | None = None
        try:
            self._open(ports, datagrams, boot)
        except OSError:
            self._close_files()
            raise
        self.stages = {(sensor.port, sensor.stage) for sensor in self._sensors}
        self.stages |= {(stream.port, "datagram") for stream in self._streams}
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), daemon=True)
            for loop in (self._poll, self._listen)
        ]

    def _open(
        self, ports: dict[str, str | None], datagrams: tuple[int, int] | None, boot: bytes
    ) -> None:
        for port, rdma in ports.items():
            base = f"{NET}/{port}/carrier"
            self._sensors.append(Sensor(port, "carrier", base, b"1", f"{base}_changes"))
            if rdma is not None:
                path = f"{RDMA}/{rdma}/ports/1/phys_state"
                self._sensors.append(Sensor(port, "firmware", path, b"5"))  # "5: LinkUp"
            if datagrams is not None:
                udp_port, self._datagram_period_ns = datagrams
                self._streams.append(DatagramStream(port, boot, udp_port, self._datagram_period_ns))
        sock = open_netlink()
        if sock is not None:
            carriers = {s.port: s.up for s in self._sensors if s.stage == "carrier"}
            self._netlink = LinkMessages(sock, carriers)

    def state(self) -> dict[str, dict[str, bool | None]]:
        state: dict[str, dict[str, bool | None]] = {}
        for sensor in self._sensors:
            state.setdefault(sensor.port, {"carrier": None, "firmware": None})
            state[sensor.port][sensor.stage] = sensor.up
        return state

    def counts(self) -> dict[str, dict[str, int]]:
        return {
            s.port: {"sent": s.sent, "received": s.received, "idle": s.idle} for s in self._streams
        }

    def tokens(self) -> dict[str, int]:
        return {stream.port: stream.token for stream in self._streams}

    def check_senders(self, ports: Iterable[str]) -> None:
        senders = {stream.port for stream in self._streams}
        for port in ports:
            if port not in senders:
                raise Refused("unknown_port", f"no datagrams are sent from {port!r}")

    def departures(self, wanted: dict[str, list[int]]) -> dict[str, list[int | None]]:
        return {
            stream.port: [stream.departure(number) for number in wanted[stream.port]]
            for stream in self._streams
            if stream.port in wanted
        }

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._close_files()
        self.log.fail(Refused("not_watching", "unwatch came while this request waited"))

    def _close_files(self) -> None:
        for sensor in self._sensors:
            sensor.close()
        for stream in self._streams:
            stream.socket.close()
            if stream.stamps is not None:
                stream.stamps.close()
        if self._netlink is not None:
            self._netlink.socket.close()

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


class _Probe:
    """Replies to the requests of one harness."""

    def __init__(self) -> None:
        self._boot = boot_id()
        self._watch: Watch | None = None
        self._replies = Replies(sys.stdout)
        self._verbs = {
            "hello": self._hello,
            "ports": self._ports,
            "watch": self._start_watch,
            "unwatch": self._end_watch,
        }

    def serve(self) -> None:
        """Reply to requests until stdin ends."""
        for line in iter(sys.stdin.buffer.readline, b""):
            self._take(line, now())
        if self._watch is not None:
            self._watch.close()

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
        self._watch = Watch(ports, period, datagrams, uuid.UUID(self._boot).bytes)
        state = self._watch.state()
        self._watch.start()
        return {"state": state, "tokens": self._watch.tokens()}

    def _watching(self) -> Watch:
        if self._watch is None:
            raise Refused("not_watching", "watch first")
        return self._watch

    def _end_watch(self, _: dict[str, Any]) -> dict[str, Any]:
        self._watching().close()
        self._watch = None
        return {}

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
            missing, events, gaps, steps = watch.log.settle(wanted, timeout_ns)
        except Refused as error:
            self._replies.refuse(number, received, error.kind, str(error))
            return
        content = {
            "settled": not missing,
            "missing": sorted(missing),
            "events": [event.fields() for event in events],
            "gaps": [gap.fields() for gap in gaps],
            "steps": steps,
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
    _Probe().serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
