"""The program that exchanges blocks over one TCP connection; it is sent to a server as source.

It needs Python 3.8 or newer on Linux and no Lightrig. Requests and replies are those of the probe:
one JSON object per line, replied to by `id` with `at: [received, sent]`, times in integer
nanoseconds of the server's CLOCK_MONOTONIC.

- `hello`: `boot`.
- `listen` with `address`, `netdev`: `port`, on which one connection is answered from now on: each
  block by its complement.
- `exchange` with `address`, `port`, `netdev`, `size`, `user_timeout_ns` (0: the system's): connect,
  then send one block of `size` bytes after the other, each when the one before was answered, and
  check every byte of every answer. Replies once connected.
- `state`: `exchanges` that have ended, `wrong` answers, `slow` ones of 1 ms and more as [began,
  ended], `began` of the present one, `error` and `failed` (when), null without; and of the
  connection, as TCP_INFO has them, `rto_us`, `backoff` and `retransmits` in a row.
- `stop`: end it; the same as `state`, at the end.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

from lightrig.instruments.servers.programs.replies import Replies
from lightrig.instruments.servers.programs.server_clock import boot_id, now

__all__ = ["Exchanges", "StreamProgram", "answer_of", "block", "main", "open_socket"]

_VERSION = 1
_SO_BINDTODEVICE = getattr(socket, "SO_BINDTODEVICE", 25)
_TCP_INFO, _TCP_USER_TIMEOUT = 11, 18
_CONNECT_S = 10.0
_KEEPALIVE_S = 1
"""Least time without data before the kernel queries the other end, and between queries."""
_SLOW_NS = 1_000_000
_MOST_SLOW = 20_000
_NUMBER = struct.Struct("!Q")
_PATTERN = bytes(range(251))
_COMPLEMENT = bytes(255 - value for value in range(256))


def block(number: int, size: int) -> bytes:
    """Return a block: its number, then bytes that are others in each of 251 blocks in a row."""
    first = number % len(_PATTERN)
    text = (_PATTERN * (size // len(_PATTERN) + 2))[first : first + size - _NUMBER.size]
    return _NUMBER.pack(number) + text


def answer_of(sent: bytes) -> bytes:
    """Return the answer to a block: the complement of each byte."""
    return sent.translate(_COMPLEMENT)


def _received(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("the other end has closed the connection")
        parts += part
    return bytes(parts)


def open_socket(netdev: str) -> socket.socket:
    """Open a socket of TCP on one network device; raises `OSError`."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    made.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, netdev.encode() + b"\0")
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Exchanges:
    """Blocks sent and answered in turn over one connection, by a thread of its own.

    Args:
        connection: whose other end answers.
        size: of a block, in bytes.
        most_slow: number of slow ones that are kept.
    """

    def __init__(self, connection: socket.socket, size: int, most_slow: int = _MOST_SLOW) -> None:
        self._connection, self._size, self._most_slow = connection, size, most_slow
        self.exchanges = self.wrong = 0
        self.slow: list[list[int]] = []
        self.began, self.failed = now(), None  # type: int, int | None
        self.error: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                sent = block(self.exchanges, self._size)
                self.began = now()
                self._connection.sendall(sent)
                answer = _received(self._connection, self._size)
                ended = now()
                self.wrong += answer != answer_of(sent)
                self.exchanges += 1
                if ended - self.began >= _SLOW_NS and len(self.slow) < self._most_slow:
                    self.slow.append([self.began, ended])
        except OSError as error:
            if not self._over.is_set():
                self.failed, self.error = now(), f"{type(error).__name__}: {error}"

    def state(self) -> dict[str, Any]:
        """Return the reply to `state`."""
        try:
            info = self._connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 104)
            (rto,) = struct.unpack_from("=I", info, 8)  # struct tcp_info of linux/tcp.h
            known = {"retransmits": info[2], "backoff": info[4], "rto_us": rto}
        except OSError:
            known = {"retransmits": None, "backoff": None, "rto_us": None}
        return {
            "exchanges": self.exchanges,
            "wrong": self.wrong,
            "slow": self.slow,
            "began": self.began,
            "error": self.error,
            "failed": self.failed,
            **known,
        }

    def stop(self) -> dict[str, Any]:
        """End it; return the reply to `stop`."""
        state = self.state()
        self._over.set()
        self._close()
        self._thread.join(_CONNECT_S)
        return state

    def _close(self) -> None:
        with contextlib.suppress(OSError):  # the connection may be over already
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class _Listener:
    """Answers the blocks of one connection."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self._socket = sock
        self._socket.bind((address, 0))
        self._socket.listen(1)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the other end reports how its exchanges ended
            connection, _ = self._socket.accept()
            self._socket.close()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while part := connection.recv(1 << 16):
                    connection.sendall(answer_of(part))

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it has answered one already, or does so now
            # Closing alone would not end a wait for a connection, which would be answered then.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _connected(connection: socket.socket, given: dict[str, Any]) -> Exchanges:
    try:
        if given["user_timeout_ns"]:
            milliseconds = given["user_timeout_ns"] // 1_000_000
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, milliseconds)
            # While an answer is on its way nothing of this end waits for an acknowledgement: then
            # the timeout applies to queries whether the other end is there (tcp(7)).
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for each in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
                connection.setsockopt(socket.IPPROTO_TCP, each, _KEEPALIVE_S)
        connection.settimeout(_CONNECT_S)
        connection.connect((given["address"], given["port"]))
        connection.settimeout(None)
    except OSError:
        connection.close()
        raise
    return Exchanges(connection, given["size"])


class StreamProgram:
    """Answers the requests of one harness.

    Args:
        out: where the replies are written.
        sockets: opens one on a network device.
    """

    def __init__(self, out: IO[str], sockets: Callable[[str], socket.socket] = open_socket) -> None:
        self._replies, self._open_socket = Replies(out), sockets
        self._listener: _Listener | None = None
        self._running: Exchanges | None = None

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
        if do == "listen":
            if self._listener is not None:
                self._listener.close()
            address, sock = request["address"], self._open_socket(request["netdev"])
            self._listener = _Listener(sock, address)
            return {"port": self._listener.port}
        if do == "exchange":
            self._running = _connected(self._open_socket(request["netdev"]), request)
            return {}
        if do in ("state", "stop") and self._running is not None:
            return self._running.state() if do == "state" else self._running.stop()
        raise ValueError(f"there is no {do} here now")


def main() -> int:
    """Answer requests on stdin until it ends; returns the exit status."""
    if sys.argv[1:] not in ([], ["lightrig-stream", str(_VERSION)]):
        print(f"this is lightrig-stream {_VERSION}, started as {sys.argv[1:]}", file=sys.stderr)
        return 2
    StreamProgram(sys.stdout).serve(iter(sys.stdin.buffer.readline, b""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
