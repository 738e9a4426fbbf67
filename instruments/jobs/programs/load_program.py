"""The program that loads a port of a server with datagrams; it is sent to a server as source.

It needs Python 3.8 or newer on Linux and no Lightrig. Requests and replies are those of the probe:
one JSON object per line, replied to by `id` with `at: [received, sent]`, times in integer
nanoseconds of the server's CLOCK_MONOTONIC.

- `hello`: `boot`.
- `receive` with `address`, `netdev`: `port`, at which datagrams are counted from now on.
- `send` with `address`, `port`, `netdev`, `size`, `at_once`, `duration_ns`: send datagrams of
  `size` bytes as fast as the port takes them, `at_once` of them by one call where the kernel
  divides what it is given (UDP_SEGMENT of udp(7)). Replies once it has ended: when it `began` and
  `ended`, the bytes `sent`, and how long the program `waited_ns` for a processor meanwhile.
- `received`: the bytes by the time at which the kernel received them, `bins` of [begin, bytes],
  since the last such request, once no more come; and `bin_ns`, their length.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable
from typing import IO, Any

from lightrig.instruments.servers.programs.replies import Replies
from lightrig.instruments.servers.programs.server_clock import boot_id, now

__all__ = ["LoadProgram", "main"]

_VERSION = 1
_SO_BINDTODEVICE = getattr(socket, "SO_BINDTODEVICE", 25)
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_UDP_SEGMENT, _UDP_GRO = 103, 104
_TIMESPEC = struct.Struct("@2q")
_BIN_NS = 2_000_000
_RECEIVE_BUFFER = 8 << 20
_SEND_BUFFER = 64 << 10
"""Less than a queue of the port holds, so that this program waits and nothing is dropped there."""
_SILENCE_S = 0.06
_LONGEST_DRAIN_S = 2.0
_MOST_SECONDS = 10


def _socket(netdev: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    made.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, netdev.encode() + b"\0")
    return made


def _waited() -> int:
    """Return how long this thread has waited for a processor, in ns; 0 where no kernel says."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class _Counter:
    """Counts what arrives at a socket, by the kernel's stamps."""

    def __init__(self, address: str, netdev: str) -> None:
        self._socket = _socket(netdev)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        with contextlib.suppress(PermissionError):  # then the system's limit holds
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        with contextlib.suppress(OSError):  # before Linux 5.0 each datagram is read by itself
            self._socket.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind((address, 0))
        self._socket.settimeout(_SILENCE_S)
        self.port: int = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        self._bins: dict[int, int] = {}
        self._silent = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                data, beside, _, _ = self._socket.recvmsg(1 << 16, 128)
            except socket.timeout:  # noqa: UP041 - another class before Python 3.10
                self._silent.set()
                continue
            except OSError:
                return
            at = now()
            for _, kind, content in beside:
                if kind == _SO_TIMESTAMPNS:
                    seconds, ns = _TIMESPEC.unpack_from(content)
                    at += seconds * 1_000_000_000 + ns - time.time_ns()
            with self._lock:
                self._bins[at // _BIN_NS] = self._bins.get(at // _BIN_NS, 0) + len(data)

    def take(self) -> list[list[int]]:
        """Return what has come since the last call, once no more comes."""
        self._silent.clear()
        self._silent.wait(_LONGEST_DRAIN_S)
        with self._lock:
            taken, self._bins = self._bins, {}
        return [[number * _BIN_NS, count] for number, count in sorted(taken.items())]


def _send(given: dict[str, Any]) -> dict[str, Any]:
    duration = min(given["duration_ns"], _MOST_SECONDS * 1_000_000_000)
    payload = bytes(given["size"] * given["at_once"])
    with _socket(given["netdev"]) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        try:
            sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, given["size"])
        except OSError:  # before Linux 4.18
            payload = bytes(given["size"])
        sock.connect((given["address"], given["port"]))
        sent, waited, began = 0, _waited(), now()
        ends = at = began
        ends += duration
        while at < ends:
            sent += sock.send(payload)
            at = now()
        return {"began": began, "ended": at, "sent": sent, "waited_ns": _waited() - waited}


class LoadProgram:
    """Answers the requests of one harness.

    out: where the replies are written.
    """

    def __init__(self, out: IO[str]) -> None:
        self._replies = Replies(out)
        self._counter: _Counter | None = None

    def serve(self, requests: Iterable[bytes]) -> None:
        """Answer requests, one a line, until there are no more."""
        for line in requests:
            received = now()
            request = json.loads(line)
            try:
                content = self._answer(request["do"], request)
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._replies.fail(request["id"], received, error)
            else:
                self._replies.reply(request["id"], received, content)

    def _answer(self, do: str, request: dict[str, Any]) -> dict[str, Any]:
        if do == "hello":
            return {"boot": boot_id()}
        if do == "receive":
            self._counter = _Counter(request["address"], request["netdev"])
            return {"port": self._counter.port}
        if do == "send":
            return _send(request)
        if do == "received" and self._counter is not None:
            return {"bins": self._counter.take(), "bin_ns": _BIN_NS}
        raise ValueError(f"there is no {do} here now")


def main() -> int:
    """Answer requests on stdin until it ends; returns the exit status."""
    if sys.argv[1:] not in ([], ["lightrig-load", str(_VERSION)]):
        print(f"this is lightrig-load {_VERSION}, started as {sys.argv[1:]}", file=sys.stderr)
        return 2
    LoadProgram(sys.stdout).serve(iter(sys.stdin.buffer.readline, b""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
