"""The probe: a program that observes the ports of a server; it is sent there as source.

It needs Python 3.8 or newer on Linux and nothing else, which is why it is one file. Requests come
as one JSON object per line on stdin, replies go to stdout; docs/probe.md has the protocol. All
times are integer nanoseconds of this server's CLOCK_MONOTONIC.

Observations are intervals. A poller reads sysfs as fast as it can: a change happened after the last
read with the old value and before the first with the new one. Datagrams with sequence numbers and
the send time of their predecessor bound an outage on the link itself. Netlink is only a
cross-check, since the kernel announces carriers late and rate-limited.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import json
import os
import platform
import select
import signal
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lightrig.instruments.servers.programs.kernel_stamps import KernelStamps
from lightrig.instruments.servers.programs.replies import Replies
from lightrig.instruments.servers.programs.server_clock import boot_id, now

__all__ = ["main"]

_VERSION = 1
_NET = "/sys/class/net"
_RDMA = "/sys/class/infiniband"
_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1_000
_LONGEST_PERIOD_NS = 1_000_000_000
_IDLE_NS = 100_000_000
_SILENCE_PERIODS, _SILENCE_NS = 5, 5_000_000
_DEPARTURES_STORED = 1 << 16

_RTMGRP_LINK, _RTM_NEWLINK, _IFF_LOWER_UP = 1, 16, 0x10000
_SO_BINDTODEVICE = getattr(socket, "SO_BINDTODEVICE", 25)
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_RECEIVE_BUFFER = 4 << 20
_LARGEST_IN_BUFFER = 4352  # what a small datagram may take there: a page and its descriptor

_MAGIC = b"LRP1"
# magic, sender's token, boot id, sequence, send ns, previous send ns; then "host\0port"
_DATAGRAM = struct.Struct("!4sI16sQQQ")


class _Refused(Exception):  # noqa: N818 - a reply to a request, not an internal error
    """A request that gets an error reply."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Event(NamedTuple):
    """A change of a port's stage between `earliest` and `latest`; sent as a JSON list.

    `datagram` is evidence by its sender's clock. Before an up event: boot id and send time of a
    datagram that did not arrive. Before a down event: token, boot id, number and send time of the
    last one that did.
    """

    port: str
    stage: str
    up: bool
    earliest: int | None
    latest: int
    source: str
    datagram: tuple[Any, ...] | None = None

    def fields(self) -> tuple[Any, ...]:
        return self[:6] if self.datagram is None else tuple(self)


class _Gap(NamedTuple):
    """A loss of datagrams between two that a port received; sent as a JSON list.

    `last` is the last one before the gap: its sender's token and boot id, its number and its send
    time on its sender's clock. `first` is the first one after it, with the send time of its
    predecessor instead. `received` is the time of reception of `first`, on this server's clock.
    `backlog` says that the port's receive buffer may have been full: what is missing may have
    arrived.
    """

    port: str
    last: tuple[int, bytes, int, int]
    first: tuple[int, bytes, int, int]
    received: int
    backlog: bool = False

    def fields(self) -> tuple[Any, ...]:
        return self.port, _named(*self.last), _named(*self.first), self.received, self.backlog


def _named(token: int, boot: bytes, *numbers: int) -> tuple[Any, ...]:
    return token, str(uuid.UUID(bytes=boot)), *numbers


class _Log:
    """Events since the last reply to `settle`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list[_Event] = []
        self._gaps: list[_Gap] = []
        self._failure: _Refused | None = None

    def add(self, event: _Event) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def add_gap(self, gap: _Gap) -> None:
        with self._changed:
            self._gaps.append(gap)

    def fail(self, failure: _Refused) -> None:
        """Fail all present and later requests with the reason why watching ended."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def settle(
        self, wanted: set[tuple[str, str]], timeout_ns: int
    ) -> tuple[set[tuple[str, str]], list[_Event], list[_Gap]]:
        """Wait for "up" of each wanted port and stage; return those missing, events and gaps."""
        deadline = now() + timeout_ns
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                seen = {(e.port, e.stage) for e in self._events if e.up and e.source != "netlink"}
                left = deadline - now()
                if wanted <= seen or left <= 0:
                    events = sorted(self._events, key=lambda event: event.latest)
                    gaps, self._gaps = self._gaps, []
                    self._events.clear()
                    return wanted - seen, events, gaps
                self._changed.wait(left / 1e9)


class _Sensor:
    """A sysfs file whose first byte shows whether a stage of a port is up."""

    def __init__(self, port: str, stage: str, path: str, up_byte: bytes) -> None:
        self.port, self.stage = port, stage
        self._path, self._up_byte = path, up_byte
        self._descriptor: int | None = None
        self._seen = now()
        self.up = self._read()

    def _read(self) -> bool:
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptor, 1, 0) == self._up_byte
        except OSError as error:
            # EINVAL: the device is administratively down. ENODEV, ENOENT: it was removed, and a
            # new one may appear under the same name.
            if error.errno == errno.EINVAL:
                return False
            if error.errno in (errno.ENODEV, errno.ENOENT):
                self.close()
                return False
            raise

    def sample(self, log: _Log) -> None:
        before = now()  # the old value was certain only up to the last read's start
        up = self._read()
        if up != self.up:
            log.add(_Event(self.port, self.stage, up, self._seen, now(), "sysfs"))
            self.up = up
        self._seen = before

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _attach_filter(sock: socket.socket, token: int) -> None:
    """Attach a BPF filter: only datagrams of probes, and not the copies of our broadcasts."""
    udp_header = 8
    program = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, udp_header),  # load the magic
            (0x15, 0, 3, int.from_bytes(_MAGIC, "big")),
            (0x20, 0, 0, udp_header + 4),  # load the token
            (0x15, 1, 0, token),
            (0x06, 0, 0, 0xFFFF),  # accept
            (0x06, 0, 0, 0),  # drop
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, description)


def _enlarge_buffer(sock: socket.socket) -> int:
    """Enlarge the receive buffer, so that a pause of this program loses nothing; return its size.

    Beyond the system's limit only where the program may.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    with contextlib.suppress(PermissionError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


class _Stream:
    """The numbered datagrams that one port sends and receives."""

    stamps: KernelStamps | None = None

    def __init__(self, port: str, boot: bytes, udp_port: int, period_ns: int) -> None:
        self.port = port
        self.sent = self.received = self.idle = 0
        self._boot = boot
        self._names = f"{platform.node()}\0{port}".encode()
        self._target = ("255.255.255.255", udp_port)
        self._silence = max(_SILENCE_PERIODS * period_ns, _SILENCE_NS)
        self.token = int.from_bytes(os.urandom(4), "big")
        self._departures = array.array("q", bytes(8 * _DEPARTURES_STORED))
        self._up = False
        self._last_sent = 0
        self._last_stamp = self._down_since = self._empty_at = now()
        self._last_after = self._empty_at
        self._unread = 0
        self._last: tuple[int, bytes, int, int] | None = None
        self.socket = socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, port.encode() + b"\0")
            self._capacity = _enlarge_buffer(self.socket) // _LARGEST_IN_BUFFER
            _attach_filter(self.socket, self.token)
            self.stamps = KernelStamps(self.socket, port)
            self.socket.bind(("", udp_port))
        except OSError:
            self.socket.close()
            raise

    def send(self) -> None:
        at, number = now(), self.sent + 1
        head = _DATAGRAM.pack(_MAGIC, self.token, self._boot, number, at, self._last_sent or at)
        self._last_sent = at
        # Without link, address or buffer space the datagram is lost, like one on the fiber.
        with contextlib.suppress(OSError):
            self.socket.sendto(head + self._names, self._target)
        self._departures[number % _DEPARTURES_STORED] = now()
        self.sent = number

    def departure(self, number: int) -> int | None:
        """Return the send time of a datagram by number; None if it is not stored (any more)."""
        if not max(0, self.sent - _DEPARTURES_STORED) < number <= self.sent:
            return None
        return self._departures[number % _DEPARTURES_STORED] or None

    def receive(self, log: _Log) -> None:
        try:
            if self.stamps is None:
                data, at = self.socket.recv(2048), now()
            else:
                data, at = self.stamps.receive(self.socket)
        except OSError:
            # Nothing to read after a bad checksum, or the device went down.
            return
        if len(data) < _DATAGRAM.size:
            return
        _, token, boot, sequence, sent, previous = _DATAGRAM.unpack_from(data)
        self.received += 1
        self._unread += 1
        last = self._last
        consecutive = last is not None and last[0] == token and last[2] == sequence - 1
        if last is not None and not consecutive:
            backlog = self._unread > self._capacity
            log.add_gap(_Gap(self.port, last, (token, boot, sequence, previous), at, backlog))
        self._last = (token, boot, sequence, sent)
        self._last_stamp, self._last_after = at, self._empty_at
        if self._up:
            return
        self._up = True
        earliest, source, lost = self._down_since, "udp", None
        if consecutive:
            # No number is missing: the sender paused, and the link may have been up all along.
            self.idle += 1
            source = "idle"
        elif boot == self._boot:
            # Same clock: its predecessor was lost, so the link was still down when that was sent.
            earliest = max(earliest, previous)
        else:
            # Another clock: the harness, which knows both clocks, tightens the bound.
            lost = (str(uuid.UUID(bytes=boot)), previous)
        log.add(_Event(self.port, "datagram", True, earliest, at, source, lost))

    def listen_for_silence(self, log: _Log, empty_at: int) -> None:
        """Declare the stage down after silence; the socket was empty at `empty_at`.

        Measured from `empty_at` and not from now: a datagram that came since is not silence.
        The last one may have waited for a reader that was not scheduled: it came after the
        socket had been empty for the last time.
        """
        self._empty_at, self._unread = empty_at, 0
        if self.stamps is not None:
            self.stamps.emptied()
        if self._up and empty_at - self._last_stamp > self._silence:
            self._up = False
            self._down_since = since = self._last_after
            last = None if self._last is None else _named(*self._last)
            # Not the time of this line: a sender that pauses may have gone on since.
            log.add(_Event(self.port, "datagram", False, since, empty_at, "udp", last))


def _open_netlink() -> socket.socket | None:
    """Open a netlink socket for link changes; None if the kernel has none."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        sock = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
        )
    except OSError:
        return None
    sock.bind((0, _RTMGRP_LINK))
    return sock


class _Netlink:
    """Carrier changes as announced by the kernel: late and rate-limited, so a cross-check."""

    def __init__(self, sock: socket.socket, carriers: dict[str, bool]) -> None:
        self.socket = sock
        self._ports = {socket.if_nametoindex(port): port for port in carriers}
        self._up = dict(carriers)

    def receive(self, log: _Log) -> None:
        try:
            data = self.socket.recv(65536)
        except OSError:
            # ENOBUFS: messages were lost. The next one has the present state.
            return
        at = now()
        for index, up in self._carriers(data):
            port = self._ports.get(index)
            if port is not None and self._up[port] != up:
                self._up[port] = up
                log.add(_Event(port, "carrier", up, None, at, "netlink"))

    @staticmethod
    def _carriers(data: bytes) -> Iterator[tuple[int, bool]]:
        offset = 0
        while offset + 32 <= len(data):
            length, kind = struct.unpack_from("=IH", data, offset)
            if kind == _RTM_NEWLINK:
                index, flags = struct.unpack_from("=iI", data, offset + 20)
                yield index, bool(flags & _IFF_LOWER_UP)
            offset += max(16, (length + 3) & ~3)


class _Watch:
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
        self.log = _Log()
        self._period_ns = period_ns
        self._stop = threading.Event()
        self._streams: list[_Stream] = []
        self._datagram_period_ns = 0
        self._sensors: list[_Sensor] = []
        self._netlink: _Netlink | None = None
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
            self._sensors.append(_Sensor(port, "carrier", f"{_NET}/{port}/carrier", b"1"))
            if rdma is not None:
                path = f"{_RDMA}/{rdma}/ports/1/phys_state"
                self._sensors.append(_Sensor(port, "firmware", path, b"5"))  # "5: LinkUp"
            if datagrams is not None:
                udp_port, self._datagram_period_ns = datagrams
                self._streams.append(_Stream(port, boot, udp_port, self._datagram_period_ns))
        sock = _open_netlink()
        if sock is not None:
            carriers = {s.port: s.up for s in self._sensors if s.stage == "carrier"}
            self._netlink = _Netlink(sock, carriers)

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

    def departures(self, port: str, numbers: list[Any]) -> list[int | None]:
        for stream in self._streams:
            if stream.port == port:
                return [stream.departure(number) for number in numbers]
        raise _Refused("unknown_port", f"no datagrams are sent from {port!r}")

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._close_files()
        self.log.fail(_Refused("not_watching", "unwatch came while this request waited"))

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
            self.log.fail(_Refused("watch_failed", str(error)))

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


def _read_text(path: str) -> str | None:
    """Read a sysfs or proc file; None if the kernel has no value."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def _describe(port: str) -> dict[str, Any]:
    base = f"{_NET}/{port}"
    carrier, speed = _read_text(f"{base}/carrier"), int(_read_text(f"{base}/speed") or -1)
    driver = f"{base}/device/driver"
    return {
        "carrier": None if carrier is None else carrier == "1",
        "carrier_changes": int(_read_text(f"{base}/carrier_changes") or 0),
        "speed_mbps": speed if speed > 0 else None,
        "driver": os.path.basename(os.readlink(driver)) if os.path.islink(driver) else None,
        "mac": _read_text(f"{base}/address"),
    }


def _field(
    source: dict[str, Any], name: str, kind: type, least: int = 0, most: int = 1 << 53
) -> Any:
    """Return a field of a request: of the right type and, if a number, within bounds."""
    value = source.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _Refused("bad_request", f'"{name}" must be {kind.__name__}, not {value!r}')
    if isinstance(value, int) and not least <= value <= most:
        raise _Refused("bad_request", f'"{name}" must be {least} to {most}, not {value}')
    return value


class _Probe:
    """Replies to the requests of one harness."""

    def __init__(self) -> None:
        self._boot = boot_id()
        self._watch: _Watch | None = None
        self._replies = Replies(sys.stdout)
        self._verbs = {
            "hello": self._hello,
            "ports": self._ports,
            "watch": self._start_watch,
            "unwatch": self._end_watch,
            "departures": self._departures,
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
                raise _Refused("bad_json", str(error)) from None
            if not isinstance(request, dict):
                raise _Refused("bad_request", "a request is a JSON object")
            number = request.get("id")
            verb = request.get("do")
            if verb == "settle":
                self._begin_settle(number, received, request)
                return
            handler = self._verbs.get(verb) if isinstance(verb, str) else None
            if handler is None:
                raise _Refused("unknown_request", f"there is no request {verb!r}")
            self._replies.reply(number, received, handler(request))
        except _Refused as error:
            self._replies.refuse(number, received, error.kind, str(error))
        except OSError as error:
            self._replies.refuse(number, received, "os_error", str(error))

    def _hello(self, _: dict[str, Any]) -> dict[str, Any]:
        netlink = _open_netlink()
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
        return {port: _describe(port) for port in sorted(os.listdir(_NET)) if port != "lo"}

    def _start_watch(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._watch is not None:
            raise _Refused("already_watching", "unwatch first")
        ports: dict[str, str | None] = {}
        for port, options in _field(request, "ports", dict).items():
            rdma = options.get("rdma") if isinstance(options, dict) else options
            if rdma is not None and not isinstance(rdma, str):
                raise _Refused("bad_request", f'"{port}" must be an object with "rdma"')
            if port not in os.listdir(_NET):
                raise _Refused("unknown_port", f"there is no network device {port!r}")
            if rdma is not None and rdma not in os.listdir(_RDMA):
                raise _Refused("unknown_port", f"there is no RDMA device {rdma!r}")
            ports[port] = rdma
        datagrams = None
        if request.get("datagrams") is not None:
            wanted = _field(request, "datagrams", dict)
            datagrams = (
                _field(wanted, "udp_port", int, 1, 65535),
                _field(wanted, "period_ns", int, 1, _LONGEST_PERIOD_NS),
            )
        period = _field(request, "period_ns", int, 1, _LONGEST_PERIOD_NS)
        self._watch = _Watch(ports, period, datagrams, uuid.UUID(self._boot).bytes)
        state = self._watch.state()
        self._watch.start()
        return {"state": state, "tokens": self._watch.tokens()}

    def _departures(self, request: dict[str, Any]) -> dict[str, Any]:
        numbers = _field(request, "numbers", list)
        if not all(type(number) is int for number in numbers):
            raise _Refused("bad_request", '"numbers" must be whole numbers')
        return {"at": self._watching().departures(_field(request, "port", str), numbers)}

    def _watching(self) -> _Watch:
        if self._watch is None:
            raise _Refused("not_watching", "watch first")
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
                    raise _Refused("unknown_stage", f"{stage!r} of {port!r} is not watched")
                wanted.add((port, stage))
        timeout = _field(request, "timeout_ns", int)
        thread = threading.Thread(
            target=self._settle, args=(number, received, watch, wanted, timeout), daemon=True
        )
        thread.start()

    def _settle(
        self,
        number: Any,
        received: int,
        watch: _Watch,
        wanted: set[tuple[str, str]],
        timeout_ns: int,
    ) -> None:
        try:
            missing, events, gaps = watch.log.settle(wanted, timeout_ns)
        except _Refused as error:
            self._replies.refuse(number, received, error.kind, str(error))
            return
        content = {
            "settled": not missing,
            "missing": sorted(missing),
            "events": [event.fields() for event in events],
            "gaps": [gap.fields() for gap in gaps],
            "datagrams": watch.counts(),
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
