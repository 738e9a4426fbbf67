"""RESTCONF (RFC 8040) through httpx, on a connection of our own.

httpx words requests and reads answers; the bytes go over an `Exchange`, as those of any other
protocol without tags do, so that timeouts, closed connections and traces are those of the bench.
A trace shows a message's first line and body: its header fields say nothing of the switch, and
one of them is the password.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import h11
import httpx

from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError, InstrumentError, UnreachableError
from instruments.wire.deferred import Deferred, Deferring
from instruments.wire.exchange import Answer, Exchange
from instruments.wire.framing import FramingError
from instruments.wire.trace import Trace

DEFAULT_TIMEOUT = 10_000_000_000
"""How long an answer may take, in ns."""

MEDIA = "application/yang-data+json"
_LONGEST_WORDS = 300
_BEGINS = b"HTTP/1."


class Http:
    """HTTP/1.1 responses (RFC 9112)."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """The first response with head and body, interim ones before it included."""
        if not _BEGINS.startswith(buffer[: len(_BEGINS)]):
            raise FramingError(f"it does not begin with {_BEGINS.decode()}")
        parsed = _parsed(buffer)
        return None if parsed is None else (buffer[: parsed.taken], parsed.taken)

    def show(self, data: bytes) -> str:
        """Its first line and its body."""
        head, _, body = data.partition(b"\r\n\r\n")
        line = head.split(b"\r\n")[0]
        return b" ".join(filter(None, (line, body))).decode("utf-8", "backslashreplace")


class _Parsed(NamedTuple):
    """A whole response, and how many bytes it took."""

    head: h11.Response
    body: bytes
    taken: int


def _parsed(data: bytes) -> _Parsed | None:
    """The response that `data` begins with, None if it has not come whole.

    Raises `FramingError` where no response begins like this.
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
        # What stands behind a colon is what came, and nobody has masked that.
        raise FramingError(f"it is no HTTP: {str(error).partition(':')[0]}") from None


@dataclass(frozen=True, slots=True)
class RestconfReply:
    """An answer that is no error.

    Attributes:
        status: of HTTP.
        body: what its JSON says, None without a body.
        etag: the version of the resource, empty where the switch names none.
        sent: between which stamps the request was written.
        received: when the answer was there.
    """

    status: int
    body: Any
    etag: str
    sent: Span
    received: int


class PendingReply:
    """A request that was sent and not yet answered.

    Attributes:
        sent: between which stamps it was written.
    """

    def __init__(self, session: "RestconfSession", deferred: Deferred) -> None:
        self.sent = deferred.sent
        self._session = session
        self._deferred = deferred

    def result(self, timeout: int = DEFAULT_TIMEOUT) -> RestconfReply:
        """Wait for the answer, at most `timeout` ns; raises what `request` does."""
        return self._session.understood(self._deferred.result(timeout), self._deferred.command)


class RestconfSession:
    """One connection to a RESTCONF server; may be shared by threads, which take turns.

    Args:
        instrument: its name in error messages.
        host: name or address.
        port: TCP port.
        clock: the bench's clock.
        login: user and password for HTTP Basic, None for a server that asks for none.
        root: where the API begins.
        meanings: what status codes mean, and what to try, by code.
    """

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
    ) -> None:
        self.instrument = instrument
        self._where = f"{host}:{port}"
        self._root = root
        self._meanings = meanings or {}
        framing = Http()
        self._deferring = Deferring(instrument, host, port, clock, framing)
        wire = f"restconf://{self._where}"
        self._exchange = Exchange(instrument, self._deferring.open, clock, framing, wire=wire)
        self._deferring.trace = self._exchange.trace
        self._headers = {"Accept": MEDIA, "User-Agent": "lightrig"}
        if login:
            token = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
            for secret in (login[1], token):
                self._exchange.trace.mask(secret)

    @property
    def trace(self) -> Trace:
        """What went over the wire."""
        return self._exchange.trace

    def get(self, path: str, timeout: int = DEFAULT_TIMEOUT) -> RestconfReply:
        """The resource at `path`, which is relative to the API's root; see `request`."""
        return self.request("GET", path, timeout=timeout)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        version: str = "",
        timeout: int = DEFAULT_TIMEOUT,
    ) -> RestconfReply:
        """Send a request and wait for its answer, at most `timeout` ns.

        `version`, an ETag, lets the server do it only where the resource is still that one.

        Raises:
            DeniedError: the server answered a status of 300 or more; its code is the status.
            UnreachableError: no connection, or the server refused the login.
            NoReplyError, DisconnectedError, GarbledError: as `Exchange.ask`.
        """
        data, shown = self._worded(method, path, body, version)
        return self.understood(self._exchange.ask(data, timeout, shown=shown), shown)

    def submit(
        self, method: str, path: str, body: object = None, *, version: str = ""
    ) -> PendingReply:
        """Send a request and return at once; raises what `request` does before an answer."""
        data, shown = self._worded(method, path, body, version)
        deferred = self._deferring.begin(
            lambda: self._exchange.tell(data, shown=shown), shown, self._exchange.close
        )
        return PendingReply(self, deferred)

    def close(self) -> None:
        """End the connection; the next request would open another."""
        self._exchange.close()

    def understood(self, answer: Answer, shown: str) -> RestconfReply:
        """What an answer says; for `PendingReply`."""
        parsed = _parsed(answer.data)
        assert parsed is not None  # the framing has cut it by the same rules
        head, body, _ = parsed
        response = httpx.Response(head.status_code, headers=list(head.headers), content=body)
        if response.headers.get("Connection", "").lower() == "close":
            self._exchange.close()
        if response.status_code >= 300:
            raise self._refused(response, shown)
        try:
            content = response.json() if body.strip() else None
        except ValueError as error:
            raise self._exchange.failed(
                GarbledError,
                "answered something that is no JSON",
                shown,
                ("because", str(error)),
                ("answered", self.trace.masked(repr(body[:_LONGEST_WORDS]))),
            ) from error
        etag = response.headers.get("ETag", "")
        return RestconfReply(response.status_code, content, etag, answer.sent, answer.received)

    def _worded(self, method: str, path: str, body: object, version: str) -> tuple[bytes, str]:
        """A request as it is written, and as it is shown."""
        headers = self._headers | ({"If-Match": version} if version else {})
        content = None
        if body is not None:
            headers["Content-Type"] = MEDIA
            content = json.dumps(body, separators=(",", ":")).encode()
        url = f"http://{self._where}{self._root}/{path}"
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

    def _refused(self, response: httpx.Response, shown: str) -> InstrumentError:
        status = response.status_code
        words = self.trace.masked(_words(response))
        if status == httpx.codes.UNAUTHORIZED:
            return self._exchange.failed(
                UnreachableError,
                f"refused the login at {self._where}",
                shown,
                ("answered", f"{status} {words}"),
                ("try", "the credentials that `login:` names"),
            )
        return DeniedError(
            self.instrument,
            code=str(status),
            text=words,
            command=shown,
            details=list(zip(("meaning", "try"), self._meanings.get(status, ()), strict=False)),
            trace=self.trace.tail(),
        )


def _words(response: httpx.Response) -> str:
    """A refusal in the server's own words: its error messages, or whatever it sent."""
    try:
        errors = response.json()["ietf-restconf:errors"]["error"]
        said = [f"{e.get('error-tag', '')} {e.get('error-message', '')}".strip() for e in errors]
    except (ValueError, KeyError, TypeError, AttributeError):
        said = [response.text[:_LONGEST_WORDS].strip()]
    return "; ".join(filter(None, said)) or response.reason_phrase
