"""A TL1 server on a real socket that replies as a script wants, also wrongly."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

HEADER = "\r\n\n   ocs 26-01-02 03:04:05\r\n"


def block(tag: str, *lines: str, status: str = "COMPLD", ends: str = ";") -> str:
    """Return one reply in the format of a switch."""
    data = "".join(f'   "{line}"\r\n' for line in lines)
    return f"{HEADER}M  {tag} {status}\r\n{data}{ends}"


def denial(tag: str, *lines: str, status: str = "DENY") -> str:
    return f"{HEADER}M  {tag} {status}\r\n" + "".join(f"   {line}\r\n" for line in lines) + ";"


def report(text: str, number: int = 1) -> str:
    return f'{HEADER}A  {number} REPT EVT EQPT\r\n   "{text}"\r\n;'


@dataclass
class Call:
    """One command, and the connection for its reply."""

    text: str
    number: int
    connection: int
    line: socket.socket

    @property
    def verb(self) -> str:
        return self.text.split(":")[0]

    @property
    def aid(self) -> str:
        return self.text.split(":")[2]

    @property
    def tag(self) -> str:
        return self.text.split(":")[3]

    def write(self, data: str | bytes) -> None:
        self.line.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def done(self, *lines: str) -> None:
        self.write(block(self.tag, *lines))

    def dribble(self, data: str) -> None:
        for byte in data.encode():
            self.line.sendall(bytes([byte]))
            time.sleep(0.0002)

    def hang_up(self) -> None:
        self.line.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.line.close()


Script = Callable[[Call], None]


class ScriptedServer:
    """A server with one thread per connection, which calls `script` with each command."""

    def __init__(self, script: Script | None) -> None:
        self.script = script
        self.calls: list[str] = []
        self.connections = 0
        self.on_connect: Callable[[socket.socket], None] = lambda line: None
        self._lines: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for line in self._lines:
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines.append(line)
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(line, self.connections))
            self._threads.append(thread)
            thread.start()

    def _serve(self, line: socket.socket, connection: int) -> None:
        buffer = ""
        with contextlib.suppress(OSError):
            self.on_connect(line)
            while data := line.recv(1 << 16):
                *commands, buffer = (buffer + data.decode()).split(";")
                for text in commands:
                    self.calls.append(text)
                    call = Call(text, len(self.calls), connection, line)
                    if self.script is not None:
                        self.script(call)


@contextlib.contextmanager
def scripted_tl1(script: Script | None) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script)
    try:
        yield server
    finally:
        server.close()
