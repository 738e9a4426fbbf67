"""A SCPI instrument on a real socket that lies as its script says."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from instruments.way import Way

Answer = bytes | None
"""What to write back; None for nothing, and b"" to hang up."""

USUAL = {":SYST:ERR?": b'+0,"No error"\n', "*IDN?": b"Maker,Model,Serial,1.0\n"}


@dataclass
class Liar:
    """Where it listens, and every command that it was sent."""

    way: Way
    heard: list[str] = field(default_factory=list)


@contextlib.contextmanager
def lying(script: Callable[[str], Answer]) -> Iterator[Liar]:
    """Answer every line by `script`, and what it leaves open as an instrument that is well."""
    listener = socket.create_server(("127.0.0.1", 0))
    liar = Liar(Way("scpi", *listener.getsockname()))
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    command = line.decode()
                    liar.heard.append(command)
                    answer = script(command)
                    if answer is None:
                        answer = USUAL.get(command.upper())
                    if answer == b"":
                        connection.shutdown(socket.SHUT_RDWR)
                    elif answer is not None:
                        connection.sendall(answer)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield liar
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        acceptor.join()
        listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for connection in connections:
            connection.close()
