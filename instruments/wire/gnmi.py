"""gNMI (openconfig/gnmi, version 0.8) over gRPC and TLS: calls, subscriptions, errors, traces.

Needs the extra `lightrig[gnmi]`, which is imported when a session is made. Its package pygnmi has
the classes of the published protocol file; grpc's own library is not loaded.

A trace has one piece per message. Where it is recorded, a piece's bytes are `#CALL METHOD`, a line
end and the message with gRPC's prefix, or `#CALL`, a line end and what came: a message, or the
trailers as gRPC-Web writes them (PROTOCOL-WEB.md: flag 0x80). Login and certificates are no part
of a message.
"""

import json
import re
import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lightrig.instruments.clock import Clock, Event, Span
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.wire.framing import FramingError
from lightrig.instruments.wire.pipelined import Pending, TaggedSession
from lightrig.instruments.wire.stream import StreamClosedError
from lightrig.instruments.wire.tcp import TLS_TIMEOUT, handshake_timeout
from lightrig.instruments.wire.tls import encrypt
from lightrig.testbeds import LightrigError
from lightrig.testbeds.parts import WireTimeouts

PORT = 8080
"""TCP port of SONiC's gNMI server (sonic-gnmi, `-port`)."""

_UNAUTHENTICATED = 16
_NO_GNMI = "answered something that is no gNMI"
_TRAILERS = 0x80

CODES = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]
"""Names of gRPC's status codes, by number (gRPC, statuscodes.md)."""


_READING = {"Capabilities", "Get"}
"""Calls that change nothing, and may be made twice."""

_LONGEST_SHOWN = 1 << 18
_LONGEST_VALUE = 1000

_PATH = re.compile(r'(?:origin: "([^"]*)" )?((?:elem \{ name: "[^"]*" \}\s?)+)')


class MissingExtraError(LightrigError):
    """Raised where a gNMI address is used and the extra is not installed."""


class GnmiCredentials(NamedTuple):
    """Login and certificates of a session.

    Attributes:
        login: user and password, sent as metadata with every call; None for none.
        trusted: file of trusted certificates; None for those that the system trusts.
        certificate: file of the client's own certificate, and of its key behind it; None for none.
    """

    login: tuple[str, str] | None
    trusted: Path | None = None
    certificate: Path | None = None


@dataclass(frozen=True, slots=True)
class GnmiReply:
    """A message of the switch.

    Attributes:
        message: of the class that the protocol file names for the call.
        received: stamp of its arrival, after it was read.
        not_before: when it had not come yet.
    """

    message: Any
    received: int
    not_before: int

    @property
    def arrived(self) -> Span:
        """Between which stamps it came."""
        return Span(self.not_before, self.received)


class GnmiSession(TaggedSession[GnmiReply, Any]):
    """One connection to a gNMI server; several calls may be in flight.

    It connects with the first call, and again with the first one after the connection was lost or
    a reply did not come.

    Args:
        instrument: the switch's name in error messages.
        host: name or address, which the server's certificate must name.
        port: TCP port.
        clock: the bench's clock.
        credentials: what is shown and trusted.
        meanings: meaning and remedy of names of status codes.
        timeouts: time limits that the testbed file states.

    Attributes:
        messages: the module with the classes of the protocol file.
    """

    _scheme = "gnmi"
    usual_connect = TLS_TIMEOUT
    _advice = "is the switch busy, does it answer Capabilities to another client?"
    _closed = "had its connection closed before it answered"
    _ends_on_timeout = True

    def __init__(
        self,
        instrument: str,
        host: str,
        port: int,
        clock: Clock,
        credentials: GnmiCredentials,
        meanings: Mapping[str, tuple[str, str]] | None = None,
        timeouts: WireTimeouts = WireTimeouts(),  # noqa: B008 -- frozen
    ) -> None:
        secrets = credentials.login[1:] if credentials.login else ()
        super().__init__(instrument, (host, port), clock, meanings, secrets, timeouts)
        self.messages = _protocol(instrument)
        self._credentials = credentials
        self._methods: dict[str, str] = {}
        self._partial: dict[str, GnmiReply] = {}

    def call(self, method: str, request: Any, timeout: int | None = None) -> GnmiReply:
        """Call `method`, such as "Get", and wait for its reply, at most `timeout` ns.

        A server may close a connection at any time while it is idle (telemetry.go of sonic-gnmi:
        after 5 s), with the status UNAVAILABLE or without. A call that only reads and ends so is
        made once more (gRPC, statuscodes.md: transient, and may be repeated).

        Raises what `submit` and `Pending.result` raise.
        """
        try:
            return self.submit(method, request).result(timeout)
        except (DisconnectedError, DeniedError) as error:
            transient = not isinstance(error, DeniedError) or error.code == "UNAVAILABLE"
            if method not in _READING or not transient:
                raise
        self.trace.remarked("once more: the connection ended, or the server was not available")
        return self.submit(method, request).result(timeout)

    def submit(self, method: str, request: Any) -> Pending[GnmiReply]:
        """Call `method` and return at once.

        Raises:
            UnreachableError: no connection could be opened, or no certificate was trusted.
            DisconnectedError: it ended while the request was written.
        """
        pending = Pending(self, "", "", self._clock)
        self._send(method, request, pending)
        return pending

    def subscribe(self, request: Any) -> "Subscription":
        """Send a SubscribeRequest; raises what `submit` raises."""
        subscription = Subscription(self, self._clock)
        self._send("Subscribe", request, subscription)
        return subscription

    def end_subscription(self, subscription: "Subscription") -> None:
        """Tell the switch that no more is wanted; for `Subscription`."""
        self._pop(subscription.tag)
        connection = self._connection
        if connection is not None and not connection.over:
            try:
                connection.cancel(int(subscription.tag))
            except StreamClosedError as error:
                self.trace.remarked(str(error))

    def _what_came(self) -> str:
        return "no whole reply came, or its call was not ended"

    # ------------------------------------------------------------------------- calling

    def _send(self, method: str, request: Any, waiting: Pending[GnmiReply]) -> None:
        path, body = f"/gnmi.gNMI/{method}", request.SerializeToString(deterministic=True)
        shown = self.trace.masked(f"{method} {_shown(request)}")
        waiting.command = shown
        with self._opening:
            connection = self._opened()
            try:
                number = connection.begin(path)
            except StreamClosedError as error:
                raise self._unsent(shown, error) from error
            waiting.tag = tag = str(number)
            with self._lock:
                self._methods[tag] = method
                self._pending[tag] = waiting
            before = self.trace.sent(shown, f"#{tag} {path}\n".encode() + _framed(body))
            waiting.since = before
            self._clock.delay_write()
            try:
                connection.send(number, body, last=not isinstance(waiting, Subscription))
            except StreamClosedError as error:
                self._pop(tag)
                raise self._unsent(shown, error) from error
            self._clock.delay_write(written=True)
            waiting.sent = Span(before, self._clock.now())

    def _unsent(self, shown: str, error: Exception) -> InstrumentError:
        problem = "closed the connection while a call was written"
        return self.failed(DisconnectedError, problem, shown, ("because", str(error)))

    def _open(self) -> Any:
        # Loads h2, of the extra.
        from lightrig.instruments.wire.grpc_connection import GrpcConnection  # noqa: PLC0415

        self._drop(self._connection)  # one that takes no further call
        host, port = self._address
        connection = self._connect()
        encrypted: socket.socket = encrypt(
            self.instrument,
            connection,
            host,
            self._credentials.trusted,
            handshake_timeout(self.connect_timeout, self._clock),
            protocols=("h2",),
            certificate=self._credentials.certificate,
        )
        login = self._credentials.login
        metadata = dict(zip(("username", "password"), login, strict=True)) if login else {}
        self._note_opening()
        try:
            opened = GrpcConnection(encrypted, self._clock, f"{host}:{port}", metadata, self)
        except StreamClosedError as error:  # a server of TLS 1.3 verifies after the handshake
            raise self.failed(
                UnreachableError,
                f"closed the connection at {host}:{port} when TLS had begun",
                "",
                ("because", str(error)),
                ("try", "`options: {client: FILE}` with a certificate that the switch trusts"),
            ) from error

        self._connection = opened
        return opened

    def _pop_all(self) -> list[Pending[GnmiReply]]:
        self._partial.clear()
        return super()._pop_all()

    # ------------------------------------------------------------- on the reader thread

    def message(self, call: int, data: bytes, not_before: int) -> None:
        """Take one message of a call."""
        tag = str(call)
        method = self._methods.get(tag, "")
        try:
            parsed = getattr(self.messages, _REPLIES[method]).FromString(data)
        except Exception as error:  # DecodeError of one of protobuf's implementations
            self.trace.received(f"{method}: {data[:60]!r}", f"#{call}\n".encode() + _framed(data))
            self.garbled(call, FramingError(f"it is no {_REPLIES[method]}: {error}"))
            return
        shown = f"{_REPLIES[method]} {_shown(parsed)}"
        at = self.trace.received(shown, f"#{call}\n".encode() + _framed(data))
        waiting = self._pending.get(tag)
        if isinstance(waiting, Subscription):
            waiting.resolve(GnmiReply(parsed, at, max(not_before, waiting.since)))
        elif tag in self._partial:
            self.garbled(call, FramingError("a second message came"))
        else:
            self._partial[tag] = GnmiReply(parsed, at, not_before)

    def ended(self, call: int, status: int, text: str, not_before: int) -> None:
        """Take the end of a call."""
        tag = str(call)
        text = self.trace.masked(text)
        name = CODES[status] if status < len(CODES) else str(status)
        trailers = f"grpc-status:{status}\r\ngrpc-message:{text}\r\n".encode()
        piece = f"#{call}\n".encode() + _framed(trailers, _TRAILERS)
        at = self.trace.received(f"{name} {text}".rstrip(), piece)
        self._methods.pop(tag, None)
        reply = self._partial.pop(tag, None)
        waiting = self._pop(tag)
        if waiting is None:
            return
        if status == _UNAUTHENTICATED:
            where = ":".join(map(str, self._address))
            outcome: GnmiReply | InstrumentError = self.login_refused(
                where, waiting.command, f"{name} {text}", ", or `options: {client: FILE}`"
            )
        elif status:
            outcome = self.denied(name, text, waiting.command)
        elif isinstance(waiting, Subscription):
            outcome = self.failed(DisconnectedError, "ended a subscription", waiting.command)
        elif reply is None:
            outcome = self.failed(GarbledError, "ended a call without a reply", waiting.command)
        else:
            # The reply is whole with the status behind it.
            outcome = GnmiReply(reply.message, at, max(not_before, waiting.since))
        waiting.resolve(outcome)

    def garbled(self, call: int, error: FramingError) -> None:
        """Take that an answer violates the protocol."""
        because = ("because", self.trace.masked(str(error)))
        self.trace.remarked(str(error))
        with self._lock:
            waiting = self._pending.pop(str(call), None)
            lost = [waiting] if waiting else [] if call else self._pop_all()
            self._partial.pop(str(call), None)
        self._fail(lost, GarbledError, _NO_GNMI, because)

    def disconnected(self, connection: object, reason: str) -> None:
        """Take the end of a connection."""
        self.trace.ended(reason)
        problem = "closed the connection before it had answered"
        self._lose(connection, DisconnectedError, problem, ("because", reason))


class Subscription(Pending[GnmiReply]):
    """A Subscribe call: the messages that the switch sends until it is closed."""

    def __init__(self, session: GnmiSession, clock: Clock) -> None:
        super().__init__(session, "", "", clock)
        self._gnmi, self._clock = session, clock
        self._came: deque[GnmiReply | InstrumentError] = deque()
        self._waiting: Event | None = None

    def next(self, timeout: int | None = None) -> GnmiReply:
        """Return the next message, at most `timeout` ns from now; None for the limit of replies.

        Raises:
            NoReplyError: none came in time.
            DeniedError, DisconnectedError, GarbledError, UnreachableError: the call has ended.
        """
        if timeout is None:
            timeout = self._gnmi.reply_timeout(None)
        # Made first: what comes before the look into the queue is found there.
        waiting = self._waiting = self._clock.event()
        if not self._came:
            waiting.wait(timeout)
        if not self._came:
            problem = f"sent nothing more within {timeout / 1e9:g} s"
            raise self._gnmi.failed(NoReplyError, problem, self.command)
        found = self._came.popleft()
        if isinstance(found, InstrumentError):
            self._came.append(found)  # nothing will come behind it
            raise found
        return found

    @property
    def over(self) -> bool:
        """Whether the call has ended and all that came before was taken."""
        return bool(self._came) and isinstance(self._came[0], InstrumentError)

    def resolve(self, outcome: GnmiReply | InstrumentError) -> None:
        """Take a message, or the error that ended the call; for the session only."""
        self._came.append(outcome)
        if self._waiting is not None:
            self._waiting.set()

    def close(self) -> None:
        """End the call."""
        self._gnmi.end_subscription(self)


_REPLIES = {
    "Capabilities": "CapabilityResponse",
    "Get": "GetResponse",
    "Set": "SetResponse",
    "Subscribe": "SubscribeResponse",
}


def _framed(message: bytes, flag: int = 0) -> bytes:
    return struct.pack("!BI", flag, len(message)) + message


def _protocol(instrument: str) -> Any:
    """Return the module with the protocol's classes; raises `MissingExtraError`."""
    try:
        import h2  # noqa: F401, PLC0415
        from pygnmi.spec.v080 import gnmi_pb2  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            f"{instrument}: a gnmi:// address needs the extra lightrig[gnmi], which is not "
            f"installed: {error}\n  try       python -m pip install 'lightrig[gnmi]'"
        ) from error
    return gnmi_pb2


def _shown(message: Any) -> str:
    """Return a message as text on one line, its paths as `sonic-db:/CONFIG_DB/localhost/...`.

    Of a long reply values are shortened: text of a table of 8 MB takes longer than the table.
    """
    from google.protobuf import text_format  # noqa: PLC0415 - of the extra

    if message.ByteSize() > _LONGEST_SHOWN:
        message = _shortened(message)
    text = text_format.MessageToString(message, as_one_line=True)
    return _PATH.sub(_short_path, text).replace('\\"', '"')


def _shortened(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    for notification in getattr(made, "notification", ()):
        for update in notification.update:
            value = update.val.json_ietf_val
            if len(value) > _LONGEST_VALUE:
                update.val.json_ietf_val = value[:_LONGEST_VALUE] + b"... of %d bytes" % len(value)
    return made


def _short_path(found: re.Match[str]) -> str:
    origin = f"{found[1]}:" if found[1] else ""
    return origin + "".join(f"/{name}" for name in re.findall(r'"([^"]*)"', found[2]))


def path_of(messages: Any, names: Sequence[str]) -> Any:
    """Return the path `/sonic-db:NAME/...` of gNMI: an origin and an element for each name."""
    elements = [messages.PathElem(name=name) for name in names]
    return messages.Path(origin="sonic-db", elem=elements)


def json_value(value: Any) -> Any:
    """Return the JSON of a TypedValue; raises ValueError for one of another kind."""
    kind = value.WhichOneof("value")
    if kind not in {"json_ietf_val", "json_val"}:
        raise ValueError(f"it is {kind or 'empty'}, not JSON")
    return json.loads(getattr(value, kind))
