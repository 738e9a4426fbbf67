"""What a server says before there are keys is a typed error, whatever it is.

Packets are made by RFC 4253, 6 and 7.1.
"""

import contextlib
import socket
import struct
import threading
from pathlib import Path

import pytest

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.wire.ssh import SshLogin, SshShell

BANNER = b"SSH-2.0-OpenSSH_9.6\r\n"


def packet(payload: bytes) -> bytes:
    padding = 8 - (len(payload) + 5) % 8 + 8
    return struct.pack("!IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def key_exchange(*lists: bytes) -> bytes:
    named = b"".join(struct.pack("!I", len(each)) + each for each in lists)
    return packet(b"\x14" + bytes(16) + named + bytes(5))


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xfe\r\n" * 3,
        BANNER + key_exchange(*[b"\xff\xfe"] * 10),
        BANNER + key_exchange(b"curve25519-sha256", b"x"),
        BANNER + key_exchange(*[b""] * 10),
        BANNER + struct.pack("!IB", 1 << 31, 255) + bytes(64),
        BANNER + packet(b"\x01" + struct.pack("!II", 2, 2) + b"\xff\xfe" + bytes(4)),
        BANNER + packet(b"\xc8"),
        BANNER + packet(b""),
    ],
)
def test_what_a_server_says_first_is_a_typed_error(tmp_path: Path, said: bytes) -> None:
    (tmp_path / "known_hosts").touch()

    def serve() -> None:
        made, _ = listening.accept()
        with made, contextlib.suppress(OSError):
            made.sendall(said)
            made.shutdown(socket.SHUT_WR)
            while made.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listening.getsockname()
        (tmp_path / "known_hosts").write_text(
            f"[{host}]:{port} ssh-ed25519 "
            "AAAAC3NzaC1lZDI1NTE5AAAAIJ2PqIGJlIjEMwm5zk5eYHu3d5gqyTZ9WpXl8DpzM9Yk\n"
        )
        login = SshLogin("a", "b", tmp_path / "known_hosts", Path("/dev/null"))
        with (
            contextlib.closing(SystemClock()) as clock,
            pytest.raises(UnreachableError, match=rf"{host}:{port}"),
        ):
            SshShell("server0", host, clock, port=port, login=login)
        thread.join(60)
