"""RESTCONF (RFC 8040) over a `QuerySession`.

httpx and h11 encode requests and decode replies; the bytes go over a `QuerySession`, as those of
any protocol without tags, so that timeouts, closed connections and traces are those of the bench.
A trace shows a message's first line and body: its header fields carry nothing about the switch,
and one of them is the password.
"""

import base64
import json
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h11
import httpx

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
)
from lightrig.instruments.wire.framing import LONGEST, FramingError
from lightrig.instruments.wire.pipelined import DEFAULT_TIMEOUT, Pipeline, PipelinedReply
from lightrig.instruments.wire.session import Answer, LayeredSession, QuerySession
from lightrig.instruments.wire.tcp import CONNECT_TIMEOUT, TLS_TIMEOUT
from lightrig.instruments.wire.tls import encrypt
from lightrig.testbeds.parts import WireTimeouts

MEDIA = "application/yang-data+json"
_LONGEST_TEXT = 300
_BEGINS = b"HTTP/1."
_REPEATED = frozenset({"GET", "PUT", "DELETE"})
_MOVED = frozenset({301, 302, 303, 307, 308})
_ELSEWHERE = (
    "the server has this at another address",
    "that address in the testbed file; for https `options: {tls: true}`",
)


class Http:
    """HTTP/1.1 responses (RFC 9112)."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first response with head and body, with interim ones before it."""
        if not _BEGINS.startswith(buffer[: len(_BEGINS)]):
            raise FramingError(f"it does not begin with {_BEGINS.decode()}")
        parsed = _parsed(buffer)
        return None if parsed is None else (buffer[: parsed.taken], parsed.taken)

    def show(self, data: bytes) -> str:
        """Return its first line and its body."""
        head, _, body = data.partition(b"\r\n\r\n")
        line = head.split(b"\r\n")[0]
        return b" ".join(filter(None, (line, body))).decode("utf-8", "backslashreplace")


class _Parsed(NamedTuple):
    """A whole response, and its length in bytes."""

    head: h11.Response
    body: bytes
    taken: int


def _parsed(data: bytes) -> _Parsed | None:
    """Return the response at the beginning of `data`, None while it is incomplete.

    Raises `FramingError` if no response begins like this.
    """
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "-")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    response: h11.Response | None = None
    body = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert response is not None
                return _Parsed(response, body, len(data) - len(connection.trailing_data[0]))
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError as error:
        # Behind the colon h11 quotes the bytes, in which secrets are not masked.
        raise FramingError(f"it is no HTTP: {str(error).partition(':')[0]}") from None


@dataclass(frozen=True, slots=True)
class RestconfReply:
    """A reply that is no error.

    Attributes:
        status: of HTTP.
        body: the decoded JSON, None without a body.
        etag: the version of the resource, empty if the switch names none. A weak one is none: a
            server compares what If-Match names strongly, so that a weak one never matches
            (RFC 9110, 8.8.3.2 and 13.1.1).
        sent: stamps before and after the request was written.
        received: stamp of the reply, after it was read.
        not_before: when it had not come yet.
    """

    status: int
    body: Any
    etag: str
    sent: Span
    received: int
    not_before: int


class PendingReply:
    """The reply to a request that was submitted.

    Attributes:
        sent: stamps before and after the request was written.
    """

    def __init__(self, session: "RestconfSession", reply: PipelinedReply) -> None:
        self.sent = reply.sent
        self._session = session
        self._reply = reply

    def result(self, timeout: int | None = None) -> RestconfReply:
        """Wait for the reply, at most `timeout` ns; raises what `request` raises."""
        return self._session.decoded(self._reply.result(timeout), self._reply.command)


class RestconfSession(LayeredSession):
    """One connection to a RESTCONF server; threads may share it.

    Args:
        instrument: its name in error messages.
        host: name or address.
        port: TCP port.
        clock: the bench's clock.
        login: user and password for HTTP Basic, None for a server without login.
        root: path of the API.
        meanings: meaning and remedy of status codes, by code.
        tls: whether it is encrypted; the certificate of the server is verified.
        certificates: file of trusted certificates; None for those that the system trusts.
        timeouts: time limits that the testbed file states.
    """

    usual_timeout = DEFAULT_TIMEOUT

    def __init__(
        self,
        instrument: str,
        host: str,
        port: int,
        clock: Clock,
        login: tuple[str, str] | None = None,
        *,
        root: str = "/api",
        meanings: Mapping[int, tuple[str, str]] | None = None,
        tls: bool = False,
        certificates: Path | None = None,
        timeouts: WireTimeouts = WireTimeouts(),  # noqa: B008 -- frozen
    ) -> None:
        self._where = f"{host}:{port}"
        self._root = root
        framing = Http()
        self._scheme = "https" if tls else "http"

        def wrap(connection: socket.socket) -> socket.socket:
            if not tls:
                return connection
            seconds = timeouts.connect_seconds(TLS_TIMEOUT)
            return encrypt(instrument, connection, host, certificates, seconds)

        connecting = timeouts.connect_seconds(CONNECT_TIMEOUT)
        self._pipeline = Pipeline(instrument, host, port, clock, framing, wrap, connecting)
        wire = f"restconf://{self._where}"
        queries = QuerySession(
            instrument, self._pipeline.open, clock, framing, wire=wire, timeouts=timeouts
        )
        super().__init__(queries, clock, dict.fromkeys(_MOVED, _ELSEWHERE) | dict(meanings or {}))
        # Without Accept-Encoding a server may compress (RFC 9110, 12.5.3).
        self._headers = {"Accept": MEDIA, "Accept-Encoding": "identity", "User-Agent": "lightrig"}
        if login:
            token = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
            for secret in (login[1], token):
                self.trace.mask(secret)

    def get(self, path: str, timeout: int | None = None) -> RestconfReply:
        """Return the resource at `path`, relative to the API's root; see `request`."""
        return self.request("GET", path, timeout=timeout)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        version: str = "",
        timeout: int | None = None,
    ) -> RestconfReply:
        """Send a request and wait for its reply, at most `timeout` ns.

        `version`, an ETag, makes the server refuse it if the resource has changed since.

        A server may close a connection at any time between two requests. So a request that ends
        so on a connection that had served others is sent once more, on a new one, if its effect is
        the same twice (RFC 9112, 9.3.1). One with `version` is not: it may have changed that.

        Raises:
            DeniedError: the server answered a status of 300 or more; its code is the status.
            UnreachableError: no connection, or the server refused the login.
            NoReplyError, DisconnectedError, GarbledError: as `QuerySession.query`.
        """
        timeout = self.reply_timeout(timeout)
        data, shown = self._encoded(method, path, body, version)
        openings = self._queries.openings
        try:
            return self.decoded(self._queries.query(data, timeout, shown=shown), shown)
        except DisconnectedError:
            if method not in _REPEATED or version or self._queries.openings != openings:
                raise
        self.trace.remarked("once more: the server closed a connection that it kept open before")
        answer = self._queries.query(data, timeout, shown=shown)
        try:
            return self.decoded(answer, shown)
        except DeniedError as error:
            if method != "DELETE" or error.code != str(httpx.codes.NOT_FOUND.value):
                raise
            times = answer.sent, answer.received, answer.not_before
            return RestconfReply(httpx.codes.NO_CONTENT, None, "", *times)  # by the first one

    def submit(
        self, method: str, path: str, body: object = None, *, version: str = ""
    ) -> PendingReply:
        """Send a request and return at once; raises what `request` raises before a reply."""
        data, shown = self._encoded(method, path, body, version)
        reply = self._pipeline.submit(self, lambda: self._queries.write(data, shown=shown), shown)
        return PendingReply(self, reply)

    def decoded(self, answer: Answer, shown: str) -> RestconfReply:
        """Return a reply's content, or raise its error; for `PendingReply`."""
        parsed = _parsed(answer.data)
        assert parsed is not None  # the framing has cut it by the same rules
        head, body, _ = parsed
        headers = httpx.Headers(list(head.headers))
        wanted = headers.get("Connection", "").lower()
        if "close" in wanted or (head.http_version < b"1.1" and "keep-alive" not in wanted):
            self.close()
        body = self._uncompressed(body, headers.get("Content-Encoding", ""), shown)
        if head.status_code >= 300:
            raise self._refused(head, headers.get("Location", ""), body, shown)
        try:
            content = json.loads(body) if body.strip() else None
        except (ValueError, RecursionError) as error:  # the latter: nested too deeply
            raise self.failed(
                GarbledError,
                "answered something that is no JSON",
                shown,
                ("because", str(error)),
                ("answered", self.trace.masked(repr(body[:_LONGEST_TEXT]))),
            ) from error
        etag = headers.get("ETag", "")
        if etag.startswith("W/"):
            self.trace.remarked(f"weak ETag {etag}: changes are sent without If-Match")
            etag = ""
        return RestconfReply(
            head.status_code, content, etag, answer.sent, answer.received, answer.not_before
        )

    def _uncompressed(self, body: bytes, coding: str, shown: str) -> bytes:
        """Return a body without the coding that the server chose unasked; raises `GarbledError`."""
        if coding.strip().lower() in {"", "identity"}:
            return body
        if coding.strip().lower() not in {"gzip", "x-gzip", "deflate"}:
            why = f"its body is coded as {coding[:40]}, though asked for as it is"
        else:
            try:
                plain = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, LONGEST + 1)
            except zlib.error as error:
                why = f"its body is not {coding}: {error}"
            else:
                if len(plain) <= LONGEST:
                    return plain
                why = f"its body is longer than {LONGEST:,} bytes once decompressed"
        problem = "answered something that cannot be read"
        raise self.failed(GarbledError, problem, shown, ("because", self.trace.masked(why)))

    def _encoded(self, method: str, path: str, body: object, version: str) -> tuple[bytes, str]:
        """Return a request's bytes, and its text for the trace."""
        headers = self._headers | ({"If-Match": version} if version else {})
        content = None
        if body is not None:
            headers["Content-Type"] = MEDIA
            content = json.dumps(body, separators=(",", ":")).encode()
        url = f"{self._scheme}://{self._where}{self._root}/{path}"
        request = httpx.Request(method, url, headers=headers, content=content)
        connection = h11.Connection(h11.CLIENT)
        target = request.url.raw_path
        pieces = [
            connection.send(h11.Request(method=method, target=target, headers=request.headers.raw)),
            connection.send(h11.Data(data=content)) if content else b"",
            connection.send(h11.EndOfMessage()),
        ]
        shown = f"{method} {target.decode()} {content.decode() if content else ''}".rstrip()
        return b"".join(filter(None, pieces)), self.trace.masked(shown)

    def _refused(
        self, head: h11.Response, location: str, body: bytes, shown: str
    ) -> InstrumentError:
        status = head.status_code
        text = self.trace.masked(_error_text(body) or head.reason.decode("ascii", "replace"))
        if status == httpx.codes.UNAUTHORIZED:
            return self.login_refused(self._where, shown, f"{status} {text}")
        if status in _MOVED and location:
            place = self.trace.masked(location[:_LONGEST_TEXT])
            text = f"{text}, to {place}"
        return self.denied(status, text, shown)


def _error_text(body: bytes) -> str:
    """Return the error messages of a refusal (RFC 8040, section 7.1), or else its body.

    The body is read as UTF-8, whatever charset it states: Python knows charsets that decompress.
    """
    try:
        answer = json.loads(body)
        found = answer.get("ietf-restconf:errors") or answer["errors"]  # some leave the module out
        errors = found["error"]
        listed = [errors] if isinstance(errors, Mapping) else errors
        texts = [f"{e.get('error-tag', '')} {e.get('error-message', '')}".strip() for e in listed]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        texts = [body[: 4 * _LONGEST_TEXT].decode("utf-8", "replace")[:_LONGEST_TEXT].strip()]
    return "; ".join(filter(None, texts))
