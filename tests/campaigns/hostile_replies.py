"""Hostile replies on every wire: each ends in a value or a typed error, in its time, on any thread.

`HOSTILE_REPLIES` (default 10,000) for each of TL1, SCPI, NETCONF, RESTCONF, gNMI and SSH
(`HOSTILE_WIRES`, by commas), made of right replies by `mutations.mutated` from `HOSTILE_SEED` (1).
They come over sockets of this machine, through the sessions that drivers use, so that reader
threads and the threads of the libraries read them too. Every other one of SSH is an answer of a
program, and the rest is what a server says before it has a key; the same for TLS of gNMI. A reply
may be sent in two pieces, and the connection may end behind it.

Counted as broken: an exception that is no `InstrumentError`, to the caller or on any thread, a call
that lasts `LIMIT_S` longer than its own time, and a session that does not answer a right reply
afterwards. What broke is written to `HOSTILE_FOUND` (default .hostile), by wire and number.
"""

import contextlib
import os
import random
import re
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import paramiko
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded
from h2.exceptions import ProtocolError
from pygnmi.spec.v080 import gnmi_pb2

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.servers.host.linux import PROBE
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import GRACE, ProgramRun
from lightrig.instruments.simulated.protocols.ssh_server import SshServer
from lightrig.instruments.simulated.protocols.tls_server import ServerCertificate
from lightrig.instruments.wire.gnmi import GnmiCredentials, GnmiSession
from lightrig.instruments.wire.netconf import NetconfSession
from lightrig.instruments.wire.restconf import RestconfSession
from lightrig.instruments.wire.scpi import scpi_session
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.instruments.wire.tl1 import Tl1Session
from lightrig.instruments.wire.trace import Trace
from tests.campaigns.mutations import mutated

MS = 1_000_000
WAIT = 40 * MS
"""Time of a call, in ns."""
LIMIT_S = 20.0
LOGIN = ("bench", "hunter2-and-more")
NC = b"urn:ietf:params:xml:ns:netconf:base:1.0"


class Server:
    """A server of streams, a thread each, whose `talk` may be exchanged at any time."""

    def __init__(self, talk: Callable[[socket.socket], None]) -> None:
        self._talk = talk
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                made, _ = self._listening.accept()
            except OSError:
                return
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(made,), daemon=True).start()

    def _serve(self, made: socket.socket) -> None:
        with made, contextlib.suppress(OSError, ProtocolError, paramiko.SSHException, EOFError):
            self._talk(made)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


class Wire:
    """One wire: a session with a hostile server, and what it answers next.

    Attributes:
        seeds: right replies, with `TAG` where a reply names what it answers.
        reply: what comes next; None for the right one.
        ends: whether the connection ends behind it.
    """

    seeds: Sequence[bytes] = ()

    def __init__(self) -> None:
        self.reply: bytes | None = None
        self.ends = False
        self.split = 0

    def ask(self) -> object:
        """Ask once; raises `InstrumentError`."""
        raise NotImplementedError

    def right(self) -> bytes:
        return self.seeds[0]

    def answer(self, made: Any, tag: bytes = b"") -> bool:
        """Send the next reply; return whether the connection goes on."""
        data = (self.right() if self.reply is None else self.reply).replace(b"TAG", tag)
        at = self.split % (len(data) + 1)
        made.sendall(data[:at])
        made.sendall(data[at:])
        return self.reply is None or not self.ends


class Lines(Wire):
    """A wire of commands with an end, over TCP."""

    end: bytes

    def __init__(self) -> None:
        super().__init__()
        self.server = Server(self._talk)

    def _talk(self, made: socket.socket) -> None:
        buffer = b""
        while data := made.recv(1 << 16):
            *commands, buffer = (buffer + data).split(self.end)
            for command in commands:
                if not self.answer(made, self.tag(command)):
                    return

    def tag(self, command: bytes) -> bytes:
        return b""


class Tl1(Lines):
    end = b";"
    seeds = (
        b'\r\n\n   ocs 26-01-02 03:04:05\r\nM  TAG COMPLD\r\n   "1:2,3"\r\n;',
        b"\r\n\n   ocs 26-01-02 03:04:05\r\nM  TAG DENY\r\n   IIAC\r\n   /* no */\r\n;",
        b'\r\n\n   ocs 26-01-02 03:04:05\r\nM  TAG COMPLD\r\n   "a"\r\n>'
        b'\r\n\n   ocs 26-01-02 03:04:05\r\nM  TAG COMPLD\r\n   "b"\r\n;',
        b'\r\n\n   ocs 26-01-02 03:04:05\r\n*C  7 REPT ALM EQPT\r\n   "1:CR"\r\n;'
        b"IP TAG\r\n<\r\n\n   ocs 26-01-02 03:04:05\r\nM  TAG COMPLD\r\n;",
    )

    def __init__(self, clock: SystemClock) -> None:
        super().__init__()
        self.session = Tl1Session("ocs", "127.0.0.1", self.server.port, clock)

    def tag(self, command: bytes) -> bytes:
        return (command.split(b":") + [b""] * 4)[3]

    def ask(self) -> object:
        return self.session.command("RTRV-PATCH", "1", timeout=WAIT)


class Scpi(Lines):
    end = b"\n"
    seeds = (
        b"Maker,Model,1,2\n",
        b"-3.25\n",
        b'0,"No error"\n',
        b"#15hello\n",
        b"#800000003abc;1,2,3\n",
        b"1;(@1,2:4);+9.91E37\n",
    )

    def __init__(self, clock: SystemClock) -> None:
        super().__init__()
        endpoint = Endpoint.parse(f"scpi://127.0.0.1:{self.server.port}", None)
        self.session = scpi_session("meter", endpoint, clock)
        self.turn = 0

    def ask(self) -> object:
        self.turn += 1
        if self.turn % 3 == 0:
            return self.session.query_block("TRAC?", WAIT)
        if self.turn % 3 == 1:
            return self.session.do("OUTP ON", WAIT)
        return self.session.query("POW?", WAIT)


class Restconf(Lines):
    end = b"\r\n\r\n"
    seeds = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/yang-data+json\r\nContent-Length: 13\r\n"
        b'\r\n{"value": 17}',
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: "7"\r\n\r\n'
        b"5;a=b\r\n[1,2]\r\n0\r\nX: y\r\n\r\n",
        b'HTTP/1.1 409 Conflict\r\nContent-Type: application/json; charset="utf-8"\r\n'
        b'Content-Length: 70\r\n\r\n{"ietf-restconf:errors":'
        b'{"error":[{"error-tag":"in-use","error-type":1}]}}',
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 23\r\n\r\n"
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x8b6\xd41\x8a\x05\x00\x92\xf5\xa8\x1c\x05\x00",
        b"HTTP/1.0 500 Oops\r\n\r\n<html>oops</html>",
    )

    def __init__(self, clock: SystemClock) -> None:
        super().__init__()
        self.session = RestconfSession("ocs", "127.0.0.1", self.server.port, clock, LOGIN)

    def ask(self) -> object:
        return self.session.get("/data/x", WAIT)


class Channel:
    """An SSH channel as what a reply is sent to."""

    def __init__(self, line: Any) -> None:
        self.sendall = line.send


class Netconf(Wire):
    seeds = (
        b'<rpc-reply xmlns="%b" message-id="TAG"><data><box><leaf>1</leaf></box></data></rpc-reply>'
        % NC,
        b'<rpc-reply xmlns="%b" message-id="TAG"><ok/></rpc-reply>' % NC,
        b'<?xml version="1.0"?><rpc-reply xmlns="%b" message-id="TAG"><rpc-error><error-type>rpc'
        b"</error-type><error-tag>in-use</error-tag><error-severity>error</error-severity>"
        b"<error-message xml:lang='en'>no</error-message></rpc-error></rpc-reply>" % NC,
        b'<notification xmlns="urn:ietf:params:xml:ns:netconf:notification:1.0"><eventTime>'
        b"2026-01-01T00:00:00Z</eventTime><x/></notification>",
        b'<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
        b'<rpc-reply xmlns="%b" message-id="TAG"><data>&b;</data></rpc-reply>' % NC,
    )

    def __init__(self, clock: SystemClock, stack: contextlib.ExitStack) -> None:
        super().__init__()
        sys.path.append(str(Path(__file__).parents[1] / "wire"))
        from scripted_netconf import scripted_netconf

        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = scripted_netconf(clock, folder, self._script)
        self.session: NetconfSession = stack.enter_context(made)[0]

    def _script(self, call: Any) -> None:
        if self.reply is None or self.split % 3:
            # The frame is right, and what is in it is not.
            data = (self.right() if self.reply is None else self.reply).replace(
                b"TAG", call.id.encode()
            )
            call.raw(b"\n#%d\n%b\n##\n" % (len(data), data))
            if self.reply is not None and self.ends:
                call.line.close()
            return
        self.answer(Channel(call.line), call.id.encode())

    def ask(self) -> object:
        return self.session.get("<box/>", WAIT)


def grpc(*messages: bytes, status: bytes = b"0") -> bytes:
    """Return the frames of one answer on stream 1: headers, data, trailers."""
    about = H2Configuration(client_side=False, header_encoding=None)
    made = H2Connection(about)
    made.initiate_connection()
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(
        1, [(":method", "POST"), (":path", "/"), (":scheme", "https"), (":authority", "a")]
    )
    client.end_stream(1)
    made.receive_data(client.data_to_send())
    made.data_to_send()
    made.send_headers(1, [(b":status", b"200"), (b"content-type", b"application/grpc")])
    for message in messages:
        made.send_data(1, struct.pack("!BI", 0, len(message)) + message)
    made.send_headers(1, [(b"grpc-status", status), (b"grpc-message", b"a%20b")], end_stream=True)
    return cast("bytes", made.data_to_send())


class Gnmi(Wire):
    def __init__(self, clock: SystemClock, stack: contextlib.ExitStack) -> None:
        super().__init__()
        value = gnmi_pb2.TypedValue(json_ietf_val=b'{"a": [1, "b"]}')
        path = gnmi_pb2.Path(elem=[gnmi_pb2.PathElem(name="ports", key={"name": "1"})])
        update = gnmi_pb2.Update(path=path, val=value)
        got = gnmi_pb2.GetResponse(notification=[gnmi_pb2.Notification(update=[update])])
        self.seeds = [
            grpc(got.SerializeToString()),
            grpc(status=b"5"),
            grpc(got.SerializeToString(), got.SerializeToString()),
            grpc(b"", status=b"16"),
        ]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        certificate = ServerCertificate("hostile")
        (folder / "trusted.pem").write_text(certificate.text)
        (folder / "key.pem").write_text(certificate.key() + certificate.text)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "key.pem")
        self._context.set_alpn_protocols(["h2"])
        self._trusted, self._clock = folder / "trusted.pem", clock
        self.server = Server(self._talk)

    def _talk(self, plain: socket.socket) -> None:
        if self.reply is not None and self.split % 4 == 0:
            plain.recv(1 << 16)  # a ClientHello, which what follows does not answer
            self.answer(plain)
            return
        with self._context.wrap_socket(plain, server_side=True) as made:
            http = H2Connection(H2Configuration(client_side=False, header_encoding=None))
            http.initiate_connection()
            made.sendall(http.data_to_send())
            while data := made.recv(1 << 16):
                for event in http.receive_data(data):
                    if isinstance(event, StreamEnded) and not self.answer(made):
                        return
                if self.reply is None:
                    made.sendall(http.data_to_send())

    def ask(self) -> object:
        credentials = GnmiCredentials(None, self._trusted)
        session = GnmiSession("ocs", "127.0.0.1", self.server.port, self._clock, credentials)
        try:
            return session.call("Get", gnmi_pb2.GetRequest(), WAIT * 5)
        finally:
            session.close()


VALUES = (
    "null",
    "true",
    "-1",
    "1e308",
    "1e999",
    "9" * 40,
    '"x"',
    '"7"',
    "[]",
    "{}",
    "[[]]",
    "[1]",
    '"\\ud800"',
)


def exchanged_fields() -> list[bytes]:
    """Return answers of a program, each with another kind of value in one place."""
    fields = {
        "id": "TAG",
        "at": "[1000, 2000]",
        "slewed": "3",
        "ok": '{"a": 1}',
        "event": '{"x": 1}',
    }
    answers = []
    for name in fields:
        for value in VALUES:
            among = {**fields, name: value}
            if name != "event":
                del among["event"]
            pairs = ", ".join(f'"{key}": {text}' for key, text in among.items())
            answers.append(f"{{{pairs}}}\n".encode())
    for value in VALUES:
        answers.append(f'{{"id": TAG, "at": [{value}, 5], "ok": {{}}}}\n'.encode())
        answers.append(f'{{"id": TAG, "at": [5, {value}], "slewed": 1, "ok": {{}}}}\n'.encode())
    return answers


class Ssh(Wire):
    """A probe's answers over SSH, and what a server says before there are keys."""

    seeds = (
        b'{"id": TAG, "at": [1000, 2000], "ok": {"settled": true, "events": []}}\n',
        b'{"id": TAG, "at": [1000, 2000], "slewed": 3, "error": "no such port"}\n',
        b'{"event": {"carrier": "ens1f0", "up": false}, "at": [5, 6]}\n'
        b'{"id": TAG, "at": [7, 8], "ok": {"a": [1, 2.5, null]}}\n',
        b'Welcome!\n{"id": TAG, "at": [7, 8], "slewed": null, "ok": {}}\n',
    )
    greetings = (
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"Notice\r\nSSH-2.0-x\r\n" + struct.pack("!IBB", 300, 4, 20) + bytes(range(256)) * 2,
        b"SSH-2.0-OpenSSH_9.6\r\n"
        + struct.pack("!IBB", 12, 6, 1)
        + b"\0\0\0\2"
        + b"bye"
        + bytes(9),
        b"SSH-1.99-old\n" + struct.pack("!IBB", 1 << 30, 255, 31) + bytes(64),
    )

    def __init__(self, clock: SystemClock, stack: contextlib.ExitStack) -> None:
        super().__init__()
        self.seeds = [*self.seeds, *exchanged_fields()]
        self._clock = clock
        self.host = SshServer("server0", clock, LOGIN, self._start)
        stack.callback(self.host.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        known = folder / "known_hosts"
        known.write_text(self.host.known_hosts_line())
        self._login = SshLogin(*LOGIN, known, Path("/dev/null"))
        self._shell = SshShell(
            "server0", "127.0.0.1", clock, port=self.host.address[1], login=self._login
        )
        stack.callback(self._shell.close)
        self._run: ProgramRun | None = None
        self._greeter = Server(self._greet)

    def _start(self, write: Callable[[str], None]) -> Any:
        owner = self

        class Program:
            def line(self, text: str) -> None:
                found = re.search(r'"id": ?(\d+)', text)
                data = owner.right() if owner.reply is None else owner.reply
                tag = found[1].encode() if found else b"0"
                write(data.replace(b"TAG", tag).decode("latin-1").rstrip("\n"))

            def close(self) -> None:
                pass

        return Program()

    def _greet(self, made: socket.socket) -> None:
        self.answer(made)

    def ask(self) -> object:
        if self.reply is not None and self.split % 8 == 0:
            self.reply = mutated(random.Random(self.split), list(self.greetings))
            self.ends = True
            login = SshLogin(*LOGIN, self._login.known_hosts, Path("/dev/null"))
            return SshShell(
                "server0", "127.0.0.1", self._clock, port=self._greeter.port, login=login
            )
        if self._run is None or self._run.over:
            trace, clocks = Trace(self._clock), ClockMap()
            events: list[tuple[Any, int]] = []
            self._run = ProgramRun(
                "server0", self._shell, self._clock, trace, clocks, PROBE,
                lambda event, at: events.append((event, at)),
            )  # fmt: skip
        return self._run.submit("hello", {}, WAIT - GRACE).result()


def wires(clock: SystemClock, stack: contextlib.ExitStack) -> dict[str, Callable[[], Wire]]:
    return {
        "tl1": lambda: Tl1(clock),
        "scpi": lambda: Scpi(clock),
        "restconf": lambda: Restconf(clock),
        "netconf": lambda: Netconf(clock, stack),
        "gnmi": lambda: Gnmi(clock, stack),
        "ssh": lambda: Ssh(clock, stack),
    }


@contextlib.contextmanager
def threads_watched() -> Iterator[list[str]]:
    """Collect what ends a thread by an exception, instead of its traceback."""
    found: list[str] = []

    def note(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "?"
        found.append(f"thread {name}: {args.exc_type.__name__}: {args.exc_value}"[:300])

    before, threading.excepthook = threading.excepthook, note
    try:
        yield found
    finally:
        threading.excepthook = before


def tried(name: str, wire: Wire, count: int, seed: str, store: Path) -> bool:
    """Send `count` replies; return whether all ended well."""
    dice = random.Random(f"{seed} {name}")
    outcomes: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    longest, began = 0.0, time.monotonic()
    with threads_watched() as ended:
        for number in range(count):
            wire.reply = mutated(dice, list(wire.seeds))
            wire.ends, wire.split = dice.random() < 0.3, dice.randrange(1 << 16)
            before = time.monotonic()
            problem = ""
            try:
                outcome = f"value {type(wire.ask()).__name__}"
            except InstrumentError as error:
                outcome = type(error).__name__
            except Exception as error:
                outcome, problem = "UNTYPED", f"{type(error).__name__}: {error}"[:300]
            took = time.monotonic() - before
            longest = max(longest, took)
            outcomes[outcome] += 1
            if took > LIMIT_S:
                problem = problem or f"took {took:.1f} s"
            if ended:
                problem = problem or ended[0]
                ended.clear()
            if problem:
                broken[re.sub(r"\d+", "*", problem)[:120]] += 1
                store.mkdir(parents=True, exist_ok=True)
                (store / f"{name}.{number}").write_bytes(wire.reply or b"")
        wire.reply, wire.ends = None, False
        for attempt in range(20):
            try:
                wire.ask()
                break
            except InstrumentError as error:
                if attempt == 19:
                    broken[f"afterwards: {error}"[:200]] += 1
        for late in ended:
            broken[re.sub(r"\d+", "*", late)[:120]] += 1
    took = time.monotonic() - began
    print(f"{name}: {count} replies in {took:.0f} s, longest {longest:.1f} s, {dict(outcomes)}")
    for problem, times in broken.most_common():
        print(f"  BROKEN {times} times: {problem}")
    sys.stdout.flush()
    return not broken


def main() -> bool:
    """Try all wires; return whether nothing broke."""
    setting = os.environ.get
    count, seed = int(setting("HOSTILE_REPLIES", "10000")), setting("HOSTILE_SEED", "1")
    store = Path(setting("HOSTILE_FOUND", ".hostile"))
    good = True
    with contextlib.ExitStack() as stack:
        clock = SystemClock()
        stack.callback(clock.close)
        makers = wires(clock, stack)
        for name in setting("HOSTILE_WIRES", ",".join(makers)).split(","):
            good &= tried(name, makers[name](), count, seed, store)
    return good
