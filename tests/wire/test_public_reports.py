"""What others have reported of servers on these wires; docs/appendix/trials.md lists sources."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real_time import LONG, over_soon
from scripted_netconf import HELLO, NC, ScriptedServer, served_netconf

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import (
    DeniedError,
    GarbledError,
    InstrumentError,
    UnreachableError,
)
from lightrig.instruments.wire.netconf import NetconfSession
from lightrig.instruments.wire.restconf import RestconfSession

CRITERIA = '<box xmlns="urn:box"/>'


def leaf(session: NetconfSession) -> str:
    return session.get(CRITERIA, LONG).leaves("box")["leaf"]


def test_a_hello_in_chunks_is_named_at_once(system_clock: Clock, tmp_path: Path) -> None:
    """clixon 532 (2024): a back end that speaks in chunks from its first byte."""
    text = HELLO.removesuffix("]]>]]>")
    server = ScriptedServer(lambda call: call.data("x"), f"\n#{len(text)}\n{text}\n##\n")
    with (
        served_netconf(server, system_clock, tmp_path) as session,
        over_soon(),
        pytest.raises(UnreachableError, match="hello comes in chunks"),
    ):
        leaf(session)


def test_our_hello_is_never_in_chunks(system_clock: Clock, tmp_path: Path) -> None:
    """ncclient 524 (to 2024): it is, where the server's comes first; the session then hangs."""
    server = ScriptedServer(lambda call: call.data("right"))  # its hello is the first thing it does
    for _ in range(20):
        with served_netconf(server, system_clock, tmp_path) as session:
            assert leaf(session) == "right"


def test_an_rpc_is_framed_by_itself(system_clock: Clock, tmp_path: Path) -> None:
    """scrapligo 251 (2026): its chunks began with the line end of the message before."""
    received: list[bytes] = []

    class Session:
        def __init__(self, line: Any) -> None:
            self._line = line
            line.send(HELLO.encode())

        def received(self, data: bytes) -> None:
            received.append(data)
            for number in range(1, 3):
                if f'message-id="{number}"'.encode() in data:
                    inner = "<data><box><leaf>right</leaf></box></data>"
                    text = f'<rpc-reply xmlns="{NC}" message-id="{number}">{inner}</rpc-reply>'
                    self._line.send(f"\n#{len(text)}\n{text}\n##\n".encode())

        def closed(self) -> None:
            pass

    with served_netconf(lambda line, _: Session(line), system_clock, tmp_path) as session:
        assert [leaf(session), leaf(session)] == ["right", "right"]
    hello, _, rpcs = b"".join(received).partition(b"]]>]]>")
    assert hello.strip().endswith(b"hello>")
    first, _, rest = rpcs.partition(b"\n##\n")
    for message in (first, rest.removesuffix(b"\n##\n")):
        head, _, body = message.removeprefix(b"\n#").partition(b"\n")
        assert message.startswith(b"\n#")
        assert int(head) == len(body)


def test_an_empty_reply_is_no_confirmation(system_clock: Clock, tmp_path: Path) -> None:
    """netopeer2 1759 (2025): an rpc whose output has no content is answered by nothing at all."""
    server = ScriptedServer(lambda call: call.reply(""))
    with (
        served_netconf(server, system_clock, tmp_path) as session,
        pytest.raises(GarbledError, match="answered without ok or output"),
    ):
        session.call('<port-set-state xmlns="urn:box"/>')


def test_the_server_s_own_message_is_shown(system_clock: Clock, tmp_path: Path) -> None:
    """netconf-cli 25 (2025): "Node is not opaque" in place of the error of the server."""
    error = (
        "<rpc-error><error-type>protocol</error-type><error-tag>data-missing</error-tag>"
        "<error-severity>error</error-severity><error-app-tag>instance-required</error-app-tag>"
        "<error-path xmlns:a=\"urn:a\">/a:box[a:leaf='16 (GHz)']</error-path>"
        '<error-message xml:lang="en">Required leafref does not exist</error-message></rpc-error>'
    )
    server = ScriptedServer(lambda call: call.reply(error))
    with (
        served_netconf(server, system_clock, tmp_path) as session,
        pytest.raises(DeniedError, match="Required leafref does not exist") as raised,
    ):
        leaf(session)
    assert raised.value.code == "data-missing"
    assert "16 (GHz)" in str(raised.value)


# ------------------------------------------------------------------------------------- HTTP

Answer = Callable[[int, bytes], bytes]
"""The bytes that answer a request, by its number and head; ends with !CLOSE to hang up."""


@contextlib.contextmanager
def http(answer: Answer, clock: Clock) -> Iterator[tuple[RestconfSession, list[bytes]]]:
    """Yield a session with a server that answers so, and the heads of its requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    heads: list[bytes] = []
    lines: list[socket.socket] = []

    def serve(line: socket.socket) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while data := line.recv(1 << 16):
                buffer += data
                while b"\r\n\r\n" in buffer:
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    heads.append(head)
                    reply = answer(len(heads), head)
                    line.sendall(reply.removesuffix(b"!CLOSE"))
                    if reply.endswith(b"!CLOSE"):
                        line.shutdown(socket.SHUT_RDWR)
                        return

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                lines.append(listener.accept()[0])
                threading.Thread(target=serve, args=(lines[-1],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    session = RestconfSession("ocs", *listener.getsockname(), clock)
    try:
        yield session, heads
    finally:
        session.close()
        listener.close()
        for line in lines:
            line.close()


def ok(body: bytes, fields: bytes = b"", version: bytes = b"1.1") -> bytes:
    head = b"HTTP/%s 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (version, len(body), fields)
    return head + body


SERVERS: dict[str, Answer] = {
    # openthread/ot-br-posix 1774, home-assistant/addons 2834 (2023)
    "closes after each reply, and says nothing": lambda number, _: ok(b"%d" % number) + b"!CLOSE",
    # kalbasit/ncps 1391 (2026)
    "HTTP/1.0, closes after each reply": lambda number, _: (
        ok(b"%d" % number, b"", b"1.0") + b"!CLOSE"
    ),
    # RFC 9110, 8.6: what nginx does of a HEAD, and proxies that add a header of their own
    "headers of a proxy before": lambda number, _: ok(
        b"%d" % number, b"Via: 1.1 a, 1.0 b\r\nAge: 0\r\nX-A: \xc3\xa4\r\n"
    ),
    # RFC 9112, 7.1.2: trailers behind the chunks
    "trailers": lambda number, _: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        b"1\r\n%d\r\n0\r\nX-Sum: 1\r\n\r\n" % number
    ),
}


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_a_server_s_habits_do_not_matter(system_clock: Clock, server: Answer) -> None:
    with http(server, system_clock) as (session, heads):
        for _ in range(5):
            assert session.get("data/box", LONG).body in range(1, len(heads) + 1)


# encode/httpx 1862, pydantic/httpx2 622 (2023 to 2026): proxies that say chunked twice
TWICE = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\n7\r\n0\r\n\r\n"
)
# injaeryou/resumable-upload 31 (2026): an error's body is not counted, and precedes the next reply
UNCOUNTED = b'HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n{"error": "in use"}'


@pytest.mark.parametrize("spoilt", [TWICE, UNCOUNTED], ids=["chunked twice", "uncounted body"])
def test_a_spoilt_reply_is_typed_and_the_next_one_is_right(
    system_clock: Clock, spoilt: bytes
) -> None:
    with http(lambda number, _: spoilt if number == 1 else ok(b"2"), system_clock) as (session, _):
        with over_soon(), pytest.raises((GarbledError, DeniedError)) as raised:
            session.get("data/box", LONG)
        assert isinstance(raised.value, InstrumentError)
        for _ in range(3):
            assert session.get("data/box", LONG).body == 2


# --------------------------------------------------------------------------------- SSH


def test_a_failed_handshake_is_not_printed_beside_its_error() -> None:
    """paramiko 965, netcommon 46: a traceback on stderr, beside the exception of the same."""
    script = (
        "import lightrig.instruments.wire.ssh_connection, logging;"
        "logging.getLogger('paramiko.transport').error('Error reading SSH protocol banner')"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert ran.stderr == b""
