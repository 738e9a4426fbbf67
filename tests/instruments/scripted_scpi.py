"""A SCPI instrument on a real socket that replies by a script."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lightrig.instruments.core.endpoint import Endpoint

Reply = bytes | None
"""Bytes to reply with; None for none, and b"" to close the connection."""

USUAL = {":SYST:ERR?": b'+0,"No error"\n', "*IDN?": b"Maker,Model,Serial,1.0\n"}


@dataclass
class ScriptedDevice:
    """Its endpoint, and every command that it received."""

    endpoint: Endpoint
    received: list[str] = field(default_factory=list)


@contextlib.contextmanager
def scripted_scpi(script: Callable[[str], Reply]) -> Iterator[ScriptedDevice]:
    """Reply to every line by `script`, and where it has none as a working instrument does."""
    listener = socket.create_server(("127.0.0.1", 0))
    device = ScriptedDevice(Endpoint("scpi", *listener.getsockname()))
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    command = line.decode()
                    device.received.append(command)
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
        yield device
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
