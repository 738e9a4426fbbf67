"""A VXI-11 instrument (ONC RPC over TCP), just enough for a VISA client."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

CREATE_LINK, WRITE, READ, CLEAR, DESTROY_LINK = 10, 11, 12, 15, 23
TIMED_OUT = 15
ENDS = 4
CLOSE = b"close"
HALF = b"half"

Answer = Callable[[bytes], bytes | None]
"""Reply by command: None for silence, CLOSE or HALF to close the connection."""


@dataclass
class Vxi11Instrument:
    """Its resource name and the calls it received."""

    resource: str
    heard: list[bytes] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)


def _opaque(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data + b"\0" * (-len(data) % 4)


@contextlib.contextmanager
def vxi11_instrument(answer: Answer) -> Iterator[Vxi11Instrument]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    instrument = Vxi11Instrument(f"TCPIP::127.0.0.1,{port}::inst0::INSTR")
    lines: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(line: socket.socket) -> None:
        waiting = b""
        with contextlib.suppress(OSError, struct.error, ConnectionError):
            while True:
                size = struct.unpack("!I", _exactly(line, 4))[0] & 0x7FFFFFFF
                call = _exactly(line, size)
                number, _, _, _, _, procedure = struct.unpack_from("!6I", call)
                arguments = call[40:]
                instrument.calls.append(procedure)
                result = b"\0\0\0\0"
                if procedure == CREATE_LINK:
                    result = struct.pack("!4I", 0, 1, 0, 4096)
                elif procedure == WRITE:
                    length = struct.unpack_from("!5I", arguments)[4]
                    command = arguments[20 : 20 + length]
                    instrument.heard.append(command)
                    waiting = answer(command) or b""
                    result = struct.pack("!2I", 0, length)
                elif procedure == READ:
                    _, wanted, timeout, *_ = struct.unpack_from("!6I", arguments)
                    if waiting in {CLOSE, HALF}:
                        line.sendall(b"\x80\0" if waiting == HALF else b"")
                        break
                    if not waiting:
                        time.sleep(timeout / 1000)
                        result = struct.pack("!2I", TIMED_OUT, 0) + _opaque(b"")
                    else:
                        part, waiting = waiting[:wanted], waiting[wanted:]
                        reason = 0 if waiting else ENDS
                        result = struct.pack("!2I", 0, reason) + _opaque(part)
                elif procedure == CLEAR:
                    waiting = b""
                reply = struct.pack("!6I", number, 1, 0, 0, 0, 0) + result
                line.sendall(struct.pack("!I", 0x80000000 | len(reply)) + reply)
        line.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listener.accept()
                lines.append(line)
                threads.append(threading.Thread(target=serve, args=(line,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield instrument
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        acceptor.join()
        listener.close()
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = line.recv(count - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data
