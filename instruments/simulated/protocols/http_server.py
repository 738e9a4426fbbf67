"""A server's end of HTTP/1.1: requests, answers, persistent connections.

What requests do is a model's part. Written from RFC 9110 and RFC 9112; h11 reads and words.
"""

import base64
import binascii
import http
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import h11

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection

PROCESSING = 500_000
"""Time to read a request, and to write its response, in ns."""

LONGEST_BODY = 1 << 20


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request.

    Attributes:
        method: such as GET.
        target: as it came, with its query.
        headers: by name in small letters.
        body: may be empty.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def login(self) -> tuple[str, str] | None:
        """User and password of HTTP Basic (RFC 7617), None without one that can be read."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            user, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return (user, password) if colon else None


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer, after how many ns it comes, and what to do at that moment."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    after: int = 0
    then: Callable[[], None] = lambda: None


class HttpServerSession:
    """Device end of one client's connection: requests are answered one after the other.

    Args:
        connection: where answers go.
        owner: the connection's name on the clock's agenda.
        handle: answers a request; called at the moment at which it is carried out.
    """

    def __init__(
        self,
        connection: DeviceConnection,
        clock: Clock,
        owner: str,
        handle: Callable[[HttpRequest], HttpResponse],
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._owner = owner
        self._handle = handle
        self._lock = threading.Lock()
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = b""

    def received(self, data: bytes) -> None:
        """Take bytes; a whole request is carried out when its turn comes."""
        with self._lock:
            if self._http.their_state is h11.ERROR:
                return
            self._http.receive_data(data)
            self._go_on()

    def closed(self) -> None:
        """Do nothing: responses are discarded by the closed connection."""

    def _go_on(self) -> None:
        """Read the next request, unless one is being answered."""
        try:
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    self._head, self._body = event, b""
                    if self._http.they_are_waiting_for_100_continue:
                        going_on = h11.InformationalResponse(status_code=100, headers=[])
                        self._send(going_on)
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > LONGEST_BODY:
                        raise h11.RemoteProtocolError("too long", error_status_hint=413)
                elif isinstance(event, h11.EndOfMessage):
                    self._schedule()
                else:
                    return
        except h11.RemoteProtocolError as error:
            if self._http.their_http_version is None:  # not even a request line, such as TLS
                self._connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            else:
                self._answer(HttpResponse(error.error_status_hint), "GET")
            self._connection.close()

    def _schedule(self) -> None:
        assert self._head is not None
        request = HttpRequest(
            self._head.method.decode(),
            self._head.target.decode(),
            {name.decode(): value.decode("latin-1") for name, value in self._head.headers},
            self._body,
        )
        self._clock.schedule(
            self._clock.now() + PROCESSING, self._owner, lambda: self._carry_out(request)
        )

    def _carry_out(self, request: HttpRequest) -> None:
        answer = self._handle(request)

        def finish() -> None:
            answer.then()
            with self._lock:
                self._answer(answer, request.method)
                if self._http.our_state is not h11.DONE:
                    self._connection.close()
                    return
                self._http.start_next_cycle()
                self._go_on()

        self._clock.schedule(self._clock.now() + answer.after + PROCESSING, self._owner, finish)

    def _answer(self, answer: HttpResponse, method: str) -> None:
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        headers = dict(answer.headers)
        if answer.status != http.HTTPStatus.NO_CONTENT:
            headers["Content-Length"] = str(len(answer.body))
        phrase = http.HTTPStatus(answer.status).phrase.encode()
        head = h11.Response(status_code=answer.status, headers=list(headers.items()), reason=phrase)
        pieces: list[h11.Event] = [head]
        if answer.body and method != "HEAD":
            pieces.append(h11.Data(data=answer.body))
        self._send(*pieces, h11.EndOfMessage())

    def _send(self, *events: h11.Event) -> None:
        data = b"".join(filter(None, map(self._http.send, events)))
        self._connection.send(data)
