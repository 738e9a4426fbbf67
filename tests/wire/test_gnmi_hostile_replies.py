"""A server of gNMI that answers what no server should: typed errors at once, on no thread's stderr.

Frames are made by h2, with which the expectations have nothing in common but the standard.
"""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_time import LONG

pytest.importorskip("pygnmi", reason="the extra gnmi is not installed")
pytest.importorskip("h2", reason="the extra gnmi is not installed")

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import (
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.simulated.protocols.tls_server import ServerCertificate
from lightrig.instruments.wire.gnmi import GnmiCredentials, GnmiSession
from lightrig.instruments.wire.tls import encrypt

HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]
COMPRESSED = struct.pack("!BI", 1, 4) + b"abcd"


def trailers(status: bytes) -> Callable[[H2Connection, int], None]:
    def answer(made: H2Connection, stream: int) -> None:
        made.send_headers(stream, HEAD)
        made.send_headers(stream, [(b"grpc-status", status)], end_stream=True)

    return answer


def compressed_and_trailers(made: H2Connection, stream: int) -> None:
    made.send_headers(stream, HEAD)
    made.send_data(stream, COMPRESSED)
    made.send_headers(stream, [(b"grpc-status", b"0")], end_stream=True)


def no_text(made: H2Connection, stream: int) -> None:
    made.send_headers(stream, [*HEAD, (b"x", b"\xff\xfe")])


def reset_and_data(made: H2Connection, stream: int) -> None:
    made.send_headers(stream, [(b":status", b"503"), *HEAD[1:]], end_stream=True)


KINDS = {
    "no digit": trailers("²".encode()),
    "digits of others": trailers("٣".encode()),
    "long": trailers(b"9" * 5000),
    "negative": trailers(b"-1"),
    "empty": trailers(b""),
    "compressed": compressed_and_trailers,
    "no text": no_text,
    "ended and bad": reset_and_data,
}


@contextlib.contextmanager
def hostile(
    certificate: ServerCertificate, folder: Path, answer: Callable[[H2Connection, int], None]
) -> Iterator[int]:
    """Answer one connection; yields the port."""
    (folder / "key.pem").write_text(certificate.key() + certificate.text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "key.pem")
    context.set_alpn_protocols(["h2"])

    def serve() -> None:
        plain, _ = listening.accept()
        with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as made:
            about = H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
            http = H2Connection(about)
            http.initiate_connection()
            made.sendall(http.data_to_send())
            while data := made.recv(65536):
                for event in http.receive_data(data):
                    if isinstance(event, StreamEnded):
                        answer(http, event.stream_id)
                made.sendall(http.data_to_send())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(60)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_reply_ends_in_a_typed_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Not by the call's time, while the thread that reads ends by a traceback."""
    from pygnmi.spec.v080 import gnmi_pb2

    ended: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    certificate = ServerCertificate("hostile")
    (tmp_path / "trusted.pem").write_text(certificate.text)
    clock = SystemClock()
    with hostile(certificate, tmp_path, KINDS[kind]) as port:
        credentials = GnmiCredentials(None, tmp_path / "trusted.pem")
        session = GnmiSession("ocs", "127.0.0.1", port, clock, credentials)
        with pytest.raises(InstrumentError) as raised:
            session.call("Get", gnmi_pb2.GetRequest(), LONG)
        session.close()
    clock.close()
    assert not isinstance(raised.value, NoReplyError)
    assert ended == []


def test_a_handshake_in_small_parts_ends_in_its_time(tmp_path: Path) -> None:
    """Each byte was allowed the whole time anew."""
    certificate = ServerCertificate("slow")
    (tmp_path / "trusted.pem").write_text(certificate.text)
    over = threading.Event()

    def drip() -> None:
        made, _ = listening.accept()
        with made, contextlib.suppress(OSError):
            made.recv(65536)
            made.sendall(struct.pack("!BHH", 22, 0x0303, 16_000))
            while not over.wait(0.05):
                made.sendall(b"\0")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip)
        thread.start()
        connection = socket.create_connection(listening.getsockname())
        with pytest.raises(UnreachableError, match="began no TLS: timed out"):
            encrypt("ocs", connection, "127.0.0.1", tmp_path / "trusted.pem", 0.5)
        over.set()
        thread.join(60)
