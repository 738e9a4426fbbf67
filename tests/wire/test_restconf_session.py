"""With any fault of an HTTP server: the right error in time, and the next request works."""

import contextlib
import json
import socket
import threading
import time
import tracemalloc
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from real_time import LONG, over_soon, slack, until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.http_server import HttpResponse, HttpServerSession
from lightrig.instruments.wire.restconf import RestconfSession

MS = 1_000_000
SHORT = 100 * MS
"""Time in which a scripted server has sent its reply."""
LOGIN = ("bench", "hunter2-and-more")
TOKEN = "YmVuY2g6aHVudGVyMi1hbmQtbW9yZQ=="
JSON = "Content-Type: application/yang-data+json\r\n"


def response(body="", status="200 OK", headers=""):
    data = body.encode()
    return (f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n{headers}\r\n").encode() + data


@dataclass
class Call:
    """One request, and the connection for its reply."""

    head: str
    body: bytes
    line: socket.socket

    def write(self, data):
        self.line.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def value(self, value):
        self.write(response(json.dumps({"value": value}), headers=JSON))

    def hang_up(self):
        self.line.shutdown(socket.SHUT_RDWR)

    def reset(self):
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.line.close()


class ScriptedServer:
    """A server with one thread per connection, which replies by `scripts`, then correctly."""

    def __init__(self, scripts):
        self.scripts = list(scripts)
        self.calls = []
        self.connections = 0
        self.done = 0
        self._lines, self._threads = [], []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def close(self):
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

    def _accept(self):
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            self._lines.append(line)
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(line,)))
            self._threads[-1].start()

    def _serve(self, line):
        buffer = b""
        with contextlib.suppress(OSError):
            while data := line.recv(1 << 16):
                buffer += data
                while b"\r\n\r\n" in buffer:
                    head, _, rest = buffer.partition(b"\r\n\r\n")
                    length = next(
                        (
                            int(field.partition(b":")[2])
                            for field in head.split(b"\r\n")
                            if field.lower().startswith(b"content-length")
                        ),
                        0,
                    )
                    if len(rest) < length:
                        break
                    body, buffer = rest[:length], rest[length:]
                    call = Call(head.decode(), body, line)
                    self.calls.append(call)
                    if len(self.calls) <= len(self.scripts):
                        self.scripts[len(self.calls) - 1](call)
                    else:
                        call.value("next")
                    self.done += 1


@pytest.fixture
def against(system_clock):
    with contextlib.ExitStack() as stack:

        def make(*scripts, **options):
            server = ScriptedServer(scripts)
            stack.callback(server.close)
            session = RestconfSession("ocs", *server.address, system_clock, LOGIN, **options)
            stack.callback(session.close)
            return session, server

        yield make


def ask(session, timeout=LONG):
    return session.get("data/box", timeout).body["value"]


def assert_names(error: InstrumentError, *details: str) -> None:
    text = str(error)
    assert error.instrument == "ocs"
    assert text.startswith("ocs ")
    assert error.command == "GET /api/data/box"
    assert error.command in text
    assert any(error.command in line for line in error.trace)
    assert all(line in text for line in error.trace)
    for detail in details:
        assert detail in text


def test_request_on_the_wire(against):
    session, server = against()
    session.request("PUT", "data/box=1", {"leaf": "ü"}, version='"7"')
    session.get("data/box")
    put, get = server.calls
    assert put.head.split("\r\n")[0] == "PUT /api/data/box=1 HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in put.head.split("\r\n")[1:])
    assert fields["Authorization"] == f"Basic {TOKEN}"
    assert fields["If-Match"] == '"7"'
    assert fields["Accept"] == fields["Content-Type"] == "application/yang-data+json"
    assert fields["Host"] == f"127.0.0.1:{server.address[1]}"
    assert json.loads(put.body) == {"leaf": "ü"}
    assert get.body == b""
    assert server.connections == 1


def in_pieces(call):
    for byte in response('{"value": "here"}'):
        call.line.sendall(bytes([byte]))
        time.sleep(0.0002)


CHUNKED = (
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    '5\r\n{"val\r\nc\r\nue": "here"}\r\n0\r\n\r\n'
)
SUCCESSES = {
    "plain": lambda call: call.value("here"),
    "one byte at a time": in_pieces,
    "in chunks": lambda call: call.write(CHUNKED),
    "after going on": lambda call: (
        call.write("HTTP/1.1 100 Continue\r\n\r\n"),
        call.value("here"),
    ),
    "slow": lambda call: (time.sleep(0.1), call.value("here")),
    "twice": lambda call: call.write(response('{"value": "here"}') * 2),
    "and closing": lambda call: (
        call.write(response('{"value": "here"}', headers="Connection: close\r\n")),
        call.hang_up(),
    ),
    "and closing without a word": lambda call: (call.value("here"), call.hang_up()),
}


@pytest.mark.parametrize("fault", SUCCESSES.values(), ids=SUCCESSES)
def test_reply_is_found(against, system_clock, fault):
    session, server = against(fault)
    assert ask(session) == "here"
    until(lambda: server.done, system_clock)
    if fault is SUCCESSES["and closing without a word"]:
        until(lambda: has_ended(server.address[1]), system_clock)  # a request before that is lost
    assert ask(session) == "next"


def has_ended(port):
    """Whether no connection to `port` is established here any more: state 01 of proc(5)."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return not any(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def test_reply_without_a_body(against):
    session, _ = against(lambda call: call.write("HTTP/1.1 204 No Content\r\nETag: x\r\n\r\n"))
    reply = session.request("DELETE", "data/box=1")
    assert (reply.status, reply.body, reply.etag) == (204, None, "x")
    assert reply.sent.latest <= reply.received


ERRORS = '{"ietf-restconf:errors": {"error": [{"error-tag": "in-use", "error-message": "by 3"}]}}'
REFUSALS = {
    "400": ("400 Bad Request", ERRORS, "in-use by 3"),
    "404": ("404 Not Found", "", "Not Found"),
    "409": ("409 Conflict", ERRORS, "in-use by 3"),
    "500": ("500 Internal Server Error", "<html>oh no</html>", "<html>oh no</html>"),
    "503": (
        "503 Service Unavailable",
        '{"ietf-restconf:errors": 7}',
        '{"ietf-restconf:errors": 7}',
    ),
    "302": ("302 Found", "", "Found"),
}


@pytest.mark.parametrize(("status", "body", "text"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_keeps_status_and_message(against, status, body, text):
    code = int(status.split(" ")[0])
    session, _ = against(
        lambda call: call.write(response(body, status)), meanings={code: ("why", "what")}
    )
    with pytest.raises(DeniedError) as raised:
        ask(session)
    assert (raised.value.code, raised.value.text) == (str(code), text)
    assert_names(raised.value, f"answered  {code} {text}", "meaning   why", "try       what")
    assert ask(session) == "next"


def test_a_redirect_names_its_target(against):
    session, server = against(
        lambda call: call.write(
            response("", "301 Moved Permanently", "Location: https://ocs.lab/api/\r\n")
        )
    )
    with pytest.raises(DeniedError) as raised:
        ask(session)
    assert_names(raised.value, "301 Moved Permanently, to https://ocs.lab/api/", "tls: true")
    assert server.connections == 1  # nothing was sent there


@pytest.mark.parametrize("name", ["ietf-restconf:errors", "errors"])
@pytest.mark.parametrize("several", [True, False])
def test_messages_of_a_refusal_in_all_its_forms(against, name, several):
    """IOS-XE and clixon leave the module's name out; converters from XML make one an object."""
    error = {"error-tag": "in-use", "error-message": "by 3"}
    body = json.dumps({name: {"error": [error] if several else error}})
    session, _ = against(lambda call: call.write(response(body, "409 Conflict")))
    with pytest.raises(DeniedError) as raised:
        ask(session)
    assert raised.value.text == "in-use by 3"


def test_a_weak_version_is_none(against):
    """If-Match compares strongly (RFC 9110, 13.1.1): with a weak one no change would ever pass."""
    session, _ = against(
        lambda call: call.write(response('{"value": 1}', headers='ETag: W/"7"\r\n')),
        lambda call: call.write(response('{"value": 1}', headers='ETag: "7"\r\n')),
    )
    assert [session.get("data/box").etag for _ in range(2)] == ["", '"7"']
    assert any('weak ETag W/"7"' in piece.text for piece in session.trace.pieces())


def once_then_hang_up(call):
    """Close a connection silently as its second request comes."""
    call.hang_up()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_idempotent_request_is_repeated_once(against, method):
    session, server = against(lambda call: call.value("one"), once_then_hang_up)
    assert ask(session) == "one"
    assert session.request(method, "data/box").body == {"value": "next"}
    _, lost, repeated = server.calls
    assert (lost.head, lost.body) == (repeated.head, repeated.body)
    assert server.connections == 2


def test_a_removal_repeated_finds_nothing_and_has_happened(against):
    session, _ = against(
        lambda call: call.value("one"),
        once_then_hang_up,
        lambda call: call.write(response("", "404 Not Found")),
    )
    assert ask(session) == "one"
    assert session.request("DELETE", "data/box=1").status == 204


@pytest.mark.parametrize(
    ("method", "version"),
    [("POST", ""), ("PATCH", ""), ("PUT", '"7"')],
    ids=["post", "patch", "if"],
)
def test_other_requests_are_not_repeated(against, method, version):
    session, server = against(lambda call: call.value("one"), once_then_hang_up)
    assert ask(session) == "one"
    with over_soon(), pytest.raises(DisconnectedError):
        session.request(method, "data/box", version=version)
    assert len(server.calls) == 2


def test_a_request_is_repeated_only_once(against):
    session, server = against(lambda call: call.value("one"), once_then_hang_up, once_then_hang_up)
    assert ask(session) == "one"
    with over_soon(), pytest.raises(DisconnectedError):
        ask(session)
    assert len(server.calls) == 3


@pytest.mark.parametrize(
    ("head", "connections"),
    [("HTTP/1.0 200 OK\r\n", 2), ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", 1)],
)
def test_http_1_0_closes_unless_it_says_not(against, head, connections):
    """RFC 9112, 9.3: its connection is not used for a second request."""
    body = '{"value": "here"}'
    text = f"{head}Content-Length: {len(body)}\r\n\r\n{body}"
    session, server = against(lambda call: call.write(text))
    assert [ask(session), ask(session)] == ["here", "next"]
    assert server.connections == connections


def compressed(data, coding="gzip"):
    """As a server that compresses unasked; a gigabyte of one byte takes one megabyte."""
    packer = zlib.compressobj(9, wbits={"gzip": 31, "deflate": 15}.get(coding, 31))
    body = packer.compress(data) + packer.flush()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nContent-Encoding: {coding}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("coding", ["gzip", "deflate", "GZIP"])
def test_a_compressed_reply_is_read(against, coding):
    data = compressed(b'{"value": "here"}', coding.lower())
    session, server = against(lambda call: call.write(data.replace(b": gzip", b": GZIP")))
    assert ask(session) == "here"
    assert "accept-encoding: identity" in server.calls[0].head.lower()


BOMBS = {
    "gzip": (
        lambda: compressed(bytes(200 << 20)),
        "longer than 16,777,216 bytes once decompressed",
    ),
    "no gzip": (lambda: compressed(b"").replace(b"\x1f\x8b", b"{}"), "not gzip"),
    "brotli": (lambda: compressed(b"{}", "br"), "coded as br"),
}


@pytest.mark.parametrize(("packed", "message"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_garbled_and_bounded(against, packed, message):
    data = packed()
    session, _ = against(lambda call: call.write(data))
    tracemalloc.start()
    try:
        with pytest.raises(GarbledError) as raised:
            ask(session)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert_names(raised.value, message)
    assert ask(session) == "next"


@pytest.mark.parametrize("charset", ["zlib", "bz2", "hex", "rot13", "idna", "utf-7", "none such"])
def test_a_charset_is_no_command(against, charset):
    """Python knows charsets that decompress, and such that take quadratic time."""
    body = zlib.compress(bytes(50 << 20)).decode("latin-1")
    headers = f"Content-Type: text/html; charset={charset}\r\n"
    data = response("", "400 Bad Request", headers).replace(b"Length: 0", b"Length: %d" % len(body))
    session, _ = against(lambda call: call.write(data + body.encode("latin-1")))
    with over_soon(), pytest.raises(DeniedError) as raised:
        ask(session)
    assert len(raised.value.text) <= 300
    assert ask(session) == "next"


def test_refused_login_is_unreachable(against):
    session, _ = against(lambda call: call.write(response("", "401 Unauthorized")))
    with pytest.raises(UnreachableError, match="refused the login at 127") as raised:
        ask(session)
    assert_names(raised.value, "401 Unauthorized", "`login:`")
    assert ask(session) == "next"


SILENCES = {
    "silent": (lambda call: None, "nothing came"),
    "unfinished": (
        lambda call: call.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
        "bytes",
    ),
    "half a line": (lambda call: call.write("HTTP/1.1 2"), "10 bytes of an unfinished"),
    "only going on": (lambda call: call.write("HTTP/1.1 100 Continue\r\n\r\n"), "bytes"),
    "endless": (lambda call: call.write("HTTP/1.1 200 OK\r\n\r\n{}"), "bytes of an unfinished"),
}


@pytest.mark.parametrize(("fault", "message"), SILENCES.values(), ids=SILENCES)
def test_missing_reply_is_an_error_at_the_timeout(against, fault, message):
    session, server = against(fault)
    with (
        over_soon(after=SHORT),
        pytest.raises(NoReplyError, match=r"did not answer within 0\.1 s") as raised,
    ):
        ask(session, SHORT)
    assert_names(raised.value, message)
    assert ask(session) == "next"
    assert server.connections == 2


GARBAGE = {
    "words": b"M  1 COMPLD\r\n;\r\n\r\n",
    "eight bits": bytes(range(128, 256)) + b"\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "no length": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "bad chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no JSON": response("<html>"),
    "no text": response().replace(b"0", b"2") + b"\xff\xfe",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_malformed_reply_raises_garbled_error(against, garbage):
    session, _ = against(lambda call: call.write(garbage))
    with over_soon(), pytest.raises(GarbledError) as raised:
        ask(session)
    assert_names(raised.value)
    assert ask(session) == "next"


ENDS = {
    "before": lambda call: call.hang_up(),
    "in the middle": lambda call: (
        call.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
        call.hang_up(),
    ),
    "by a reset": lambda call: call.reset(),
}


@pytest.mark.parametrize("pipelined", [False, True], ids=["asked", "pipelined"])
@pytest.mark.parametrize("fault", ENDS.values(), ids=ENDS)
def test_close_is_noticed_at_once(against, fault, pipelined):
    session, server = against(fault)
    with over_soon(), pytest.raises(DisconnectedError, match="closed the connection") as raised:
        _ = session.submit("GET", "data/box").result(LONG) if pipelined else ask(session)
    assert_names(raised.value)
    assert ask(session) == "next"
    assert server.connections == 2


@pytest.mark.parametrize(("fault", "message"), SILENCES.values(), ids=SILENCES)
def test_pipelined_reply_times_out(against, fault, message):
    session, server = against(fault)
    pending = session.submit("GET", "data/box")
    with pytest.raises(NoReplyError, match=r"did not answer within 0\.1 s") as raised:
        pending.result(SHORT)
    assert_names(raised.value)
    assert ask(session) == "next"
    assert server.connections == 2


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_pipelined_reply_may_be_malformed(against, garbage):
    session, _ = against(lambda call: call.write(garbage))
    pending = session.submit("GET", "data/box")
    with pytest.raises(GarbledError) as raised:
        pending.result(LONG)
    assert_names(raised.value)
    assert ask(session) == "next"


def test_pipelined_replies_come_in_order_before_later_queries(against):
    scripts = [
        lambda call: (time.sleep(0.1), call.value("first")),
        lambda call: call.value("second"),
        lambda call: call.value("third"),
    ]
    session, server = against(*scripts)
    one, two = session.submit("GET", "data/box"), session.submit("GET", "data/box")
    assert ask(session) == "third"
    assert two.result(LONG).body == {"value": "second"}
    first = one.result(LONG)
    assert first.body == {"value": "first"}
    assert first.received - first.sent.earliest >= 100 * MS
    assert one.result(LONG) == first
    assert server.connections == 1


def test_close_fails_pipelined_requests(against, system_clock):
    session, server = against(lambda call: None)
    pending = session.submit("GET", "data/box")
    until(lambda: server.calls, system_clock)  # else the script's step would meet the next request
    session.close()
    with pytest.raises(DisconnectedError, match="closed the connection"):
        pending.result(LONG)
    assert ask(session) == "next"


def test_password_is_in_no_error_and_no_trace(against):
    leak = f"did you mean {LOGIN[1]}, in base64 {TOKEN}?"
    session, _ = against(
        lambda call: call.write(response("", f"401 {leak}")),
        lambda call: call.write(response(leak, "409 Conflict")),
        lambda call: call.write(response(leak)),
        lambda call: (call.write(leak), call.hang_up()),
    )
    shown = []
    for _ in range(4):
        with pytest.raises(InstrumentError) as raised:
            session.request("PUT", "data/box", {"is it": LOGIN[1]})
        error = raised.value
        shown += [str(error), repr(error), *error.trace, error.command, *map(str, error.args)]
        shown += [repr(error.__cause__), repr(error.__context__)]
    shown += [str(piece) for piece in session.trace.pieces()]
    assert LOGIN[1] not in "\n".join(shown)
    assert TOKEN not in "\n".join(shown)
    assert "***" in "\n".join(shown)


def test_concurrent_threads_get_matching_replies(against):
    def echo(call):
        call.value(call.head.split(" ")[1].rpartition("/")[2])

    session, server = against(*[echo] * 80)
    wrong = []

    def go(name):
        for number in range(20):
            path = f"{name}{number}"
            method = session.submit("GET", path).result if number % 2 else None
            reply = method() if method else session.get(path)
            if reply.body != {"value": path}:
                wrong.append((path, reply.body))

    threads = [threading.Thread(target=go, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert server.connections == 1


@pytest.mark.parametrize("make_clock", [SystemClock, VirtualClock])
def test_pipelined_and_waiting_requests_on_any_clock(make_clock):
    clock = make_clock()

    def handle(request):
        after = 40 * MS if request.method == "PUT" else 0
        return HttpResponse(200, b'{"value": 1}', {}, after)

    server = DeviceServer(clock)
    host, port = server.listen(lambda line, index: HttpServerSession(line, clock, "http", handle))
    session = RestconfSession("ocs", host, port, clock, LOGIN)
    for _ in range(3):
        pending = session.submit("PUT", "data/box", {})
        assert ask(session) == 1  # after the other, on the same connection
        reply = pending.result()
        took = reply.received - reply.sent.earliest
        assert 40 * MS <= took <= 41 * MS + slack(clock)
    session.close()
    server.close()
    clock.close()


def test_timeouts_in_virtual_time():
    clock = VirtualClock(stall_timeout=20)
    server = DeviceServer(clock)

    class Deaf:
        def received(self, data):
            pass

        def closed(self):
            pass

    host, port = server.listen(lambda line, index: Deaf())
    session = RestconfSession("ocs", host, port, clock)
    with over_soon():
        with pytest.raises(NoReplyError, match="within 30 s"):
            session.get("data/box", LONG)
        with pytest.raises(NoReplyError, match="within 30 s"):
            session.submit("GET", "data/box").result(LONG)
    assert clock.now() == 2 * LONG
    session.close()
    server.close()
    clock.close()
