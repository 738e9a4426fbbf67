"""Query sessions over a stream without tags: one query at a time, each with its reply.

Nothing in a reply says which query it answers, so the order is all there is: the next message is
the reply to the last query. A session is in step while that holds. Each query is noted as
unanswered before it is written and removed from the set once its reply is read. A query that is
still noted when the next one comes (after a timeout, an interrupt, a refused reply) means that
its reply may yet arrive, and so do bytes that came without a query. Then the session is brought
back into step before anything else is written:

- where opening the stream anew discards what the instrument still had to send, it is opened anew;
- where the instrument outlives the stream (a serial line, a gateway), a query with a
  recognisable reply is sent, and everything before that reply is discarded. If that query is
  itself unanswered, a variant of it is sent whose reply can be told from the first one's. Only
  without a variant left does silence have to do.

An untagged protocol cannot exclude two cases. An instrument that replies twice, the second time
after the next query was written, is noticed one query later, when the true reply is one too many.
An instrument that answers a query with the reply to another is not noticed here at all.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lightrig.instruments.clock import Clock, FairLock, Span
from lightrig.instruments.core.errors import GarbledError, InstrumentError, NoReplyError
from lightrig.instruments.wire.framing import Framing, FramingError
from lightrig.instruments.wire.messages import Messages
from lightrig.instruments.wire.stream import OpenStream, StreamClosedError
from lightrig.instruments.wire.wire_session import WireSession
from lightrig.testbeds.parts import WireTimeouts

DEFAULT_TIMEOUT = 5_000_000_000
"""Time allowed for a reply, in ns."""


class Answer(NamedTuple):
    """A reply of an instrument.

    Attributes:
        data: the message, without its end.
        sent: stamps before and after the query was written.
        received: stamp of the reply's last byte, after it was read.
        not_before: when its last byte had not come yet.
    """

    data: bytes
    sent: Span
    received: int
    not_before: int

    @property
    def text(self) -> str:
        """The message as stripped text; bytes outside ASCII are escaped."""
        return self.data.decode("ascii", "backslashreplace").strip()


@dataclass(frozen=True, slots=True)
class Resync:
    """Rules for bringing a session back into step whose instrument outlives the stream.

    Attributes:
        quiet: silence, in ns, after which no late reply is expected any more.
        question: query with a recognisable reply; empty if the protocol has none.
        recognises: whether a message is the reply to `question`.
        reopens: whether opening the stream anew discards what the instrument still had to send.
    """

    quiet: int = 300_000_000
    question: bytes = b""
    recognises: Callable[[bytes], bool] = lambda _: True
    reopens: bool = False

    def variant(self, number: int) -> tuple[bytes, Callable[[bytes], bool]]:
        """Return query number `number` and its recogniser; they differ where the protocol can."""
        return self.question, self.recognises


_VARIANTS = 3
"""Number of variants tried before one is repeated whose earlier reply may still come."""


class ExclusiveQuery(Protocol):
    """`QuerySession.query` for a thread that already has the session to itself."""

    def __call__(
        self, data: bytes, timeout: int | None = ..., *, shown: str | None = None
    ) -> Answer:
        """Write `data` and wait for its reply."""


class QuerySession(WireSession):
    """A session with one instrument; threads may share it and are served one after another.

    It opens with the first query, and again with the first one after a failure.

    Args:
        instrument: its name in error messages.
        open_stream: opens the stream.
        framing: finds the end of a reply.
        resync: for an instrument that outlives the stream; None where opening anew is enough.
        wire: the address, for recordings.
        timeouts: time limits that the testbed file states.

    Attributes:
        openings: number of times the stream was opened or brought back into step.
    """

    usual_timeout = DEFAULT_TIMEOUT

    def __init__(
        self,
        instrument: str,
        open_stream: OpenStream,
        clock: Clock,
        framing: Framing,
        *,
        resync: Resync | None = None,
        wire: str = "",
        timeouts: WireTimeouts = WireTimeouts(),  # noqa: B008 -- frozen
    ) -> None:
        super().__init__(instrument, clock, timeouts=timeouts)
        self.openings = 0
        self._open_stream = open_stream
        self._framing = framing
        self._resync = resync
        self._wire = wire
        self._lock = FairLock(clock)
        self._messages: Messages | None = None
        # Queries whose reply has not been read. Empty means: in step.
        self._unanswered: set[bytes] = set()
        # Resync queries of which one reply was read and a second one may still come.
        self._ambiguous: set[bytes] = set()
        self._submitted: PendingReply | None = None

    def write(self, data: bytes, *, shown: str | None = None) -> Span:
        """Write `data`, which has no reply; return the stamps before and after it.

        `shown` replaces it in the trace and in errors. Raises what `query` raises.
        """
        shown = shown or self._framing.show(data).strip()
        with self._lock:
            messages = self._in_step(self.reply_timeout(None), shown)
            try:
                span = self._send(messages, data, shown)
            except StreamClosedError as error:
                raise self._failure(error, 0, shown) from error
            self._unanswered.discard(data)
            return span

    def query(self, data: bytes, timeout: int | None = None, *, shown: str | None = None) -> Answer:
        """Write `data` and wait for its reply, at most `timeout` ns; None for the usual limit.

        Getting back into step before takes at most as long again, plus the time of silence.

        Raises:
            UnreachableError: no stream was open and none could be opened.
            DisconnectedError: the instrument closed the connection before its reply.
            NoReplyError: no whole reply came in time.
            GarbledError: the reply violates the instrument's protocol.
        """
        with self._lock:
            return self._query(data, timeout, shown=shown)

    def submit(
        self, data: bytes, timeout: int | None = None, *, shown: str | None = None
    ) -> "PendingReply":
        """Write `data` and return at once; the next call on this session reads its reply first.

        `timeout` is for that reply, in ns. Raises what `write` raises.
        """
        shown = shown or self._framing.show(data).strip()
        timeout = self.reply_timeout(timeout)
        with self._lock:
            messages = self._in_step(timeout, shown)
            try:
                sent = self._send(messages, data, shown)
            except StreamClosedError as error:
                raise self._failure(error, 0, shown) from error
            self._submitted = PendingReply(self, data, timeout, shown, sent)
            return self._submitted

    def collect(self, pending: "PendingReply") -> None:
        """Wait for a submitted query's reply unless it was read before; for `PendingReply`."""
        with self._lock:
            if self._submitted is pending:
                self._collect(pending)

    @contextlib.contextmanager
    def exclusive(self, command: str, timeout: int | None = None) -> Iterator[ExclusiveQuery]:
        """Keep other threads out for several queries; yields a function that sends one.

        `command` names their purpose in errors; `timeout`, in ns, is for getting back into step.
        Raises what `query` raises.
        """
        with self._lock:
            self._in_step(self.reply_timeout(timeout), command)
            yield self._query

    def close(self) -> None:
        """Close the stream; the next query would open it again."""
        with self._lock:
            self._drop()

    def failed(
        self,
        kind: type[InstrumentError],
        problem: str,
        command: str,
        *details: tuple[str, str],
    ) -> InstrumentError:
        """Return an error about this instrument with the last lines of its trace.

        After a `GarbledError` the session is out of step: it is unknown which query such a reply
        belongs to.
        """
        if issubclass(kind, GarbledError):
            self._unanswered.add(command.encode())
        return super().failed(kind, problem, command, *details)

    # ------------------------------------------------------------- with the lock acquired

    def _query(
        self, data: bytes, timeout: int | None = None, *, shown: str | None = None
    ) -> Answer:
        shown = shown or self._framing.show(data).strip()
        timeout = self.reply_timeout(timeout)
        messages = self._in_step(timeout, shown)
        try:
            sent = self._send(messages, data, shown)
            message, received = messages.next(sent.latest, timeout)
        except (TimeoutError, StreamClosedError, FramingError) as error:
            raise self._failure(error, timeout, shown) from error
        self._unanswered.discard(data)
        return Answer(message, sent, received, sent.earliest)

    def _in_step(self, timeout: int, shown: str) -> Messages:
        """Return an open stream on which the next message can only be the next query's reply."""
        if self._submitted is not None:
            self._collect(self._submitted)
        messages = self._messages
        if messages is not None:
            try:
                if messages.pending():
                    messages.discard("unasked for")
                    self._unanswered.add(b"")
            except StreamClosedError as error:
                self.trace.ended(str(error))
                self._drop()
            if not self._unanswered and self._messages is messages:
                return messages
        return self._reopened(timeout, shown)

    def _reopened(self, timeout: int, shown: str) -> Messages:
        """Open the stream where it is closed, and bring it back into step where it is not."""
        if self._unanswered and (self._resync is None or self._resync.reopens):
            self._drop()
        if self._messages is None:
            stream = self._open_stream()
            self._messages = Messages(stream, self._framing, self._clock, self.trace)
            self.openings += 1
            self.trace.opened("connected", self._wire)
        if self._unanswered:
            if self._resync is not None:
                self._bring_into_step(self._messages, self._resync, timeout, shown)
                self.openings += not self._resync.reopens
            self._unanswered.clear()
        return self._messages

    def _collect(self, pending: "PendingReply") -> None:
        """Read the reply of a submitted query; a failure is kept for `PendingReply.result`."""
        self._submitted = None
        messages = self._messages
        try:
            if messages is None:
                raise StreamClosedError("the connection was given up")
            left = max(0, pending.sent.latest + pending.timeout - self._clock.now())
            message, received = messages.next(pending.sent.latest, left)
        except (TimeoutError, StreamClosedError, FramingError) as error:
            pending.outcome = self._failure(error, pending.timeout, pending.shown)
            return
        self._unanswered.discard(pending.data)
        pending.outcome = Answer(message, pending.sent, received, pending.sent.earliest)

    def _send(self, messages: Messages, data: bytes, shown: str) -> Span:
        # Noted before the write: after an interrupt in the middle of it, part of `data` may have
        # gone out, and a reply to it may come.
        self._unanswered.add(data)
        return messages.write(data, shown)

    def _failure(
        self, error: Exception, timeout: int, shown: str, *before: tuple[str, str]
    ) -> InstrumentError:
        """Return the error of a query that ended in `error`; drop the stream where that helps."""
        came = self._messages.discard_partial() if self._messages is not None else 0
        rest = f"{came} bytes of an unfinished answer came" if came else "nothing came"
        if isinstance(error, StreamClosedError):
            self.trace.ended(str(error))
        if self._resync is None or self._resync.reopens or isinstance(error, StreamClosedError):
            self._drop()
        return self.unanswered(error, timeout, shown, rest, *before)

    def _drop(self) -> None:
        messages, self._messages = self._messages, None
        self._ambiguous.clear()
        if messages is not None:
            messages.close()

    # ------------------------------------------------------------------ back into step

    def _bring_into_step(
        self, messages: Messages, resync: Resync, timeout: int, shown: str
    ) -> None:
        """Discard what may still come; `shown` is the command that waits for this.

        Silence alone proves little (a slow instrument is silent as well), so it is used only
        where the protocol has no recognisable reply.
        """
        try:
            quiet = resync.reopens or messages.drain(resync.quiet, timeout)
            question, recognises, fresh = self._recognisable(resync)
            if not question:
                if not quiet:
                    raise FramingError("it keeps sending without a query")
                return
            sent = self._send(messages, question, self._framing.show(question).strip())
            while not recognises(message := messages.next(sent.latest, timeout)[0]):
                self.trace.remarked(f"set aside: {self._framing.show(message)}")
            if fresh:
                self._ambiguous.clear()
            else:
                # All variants were unanswered already, so this reply may have been an earlier
                # query's. The second one comes now, or later: then it is found unasked for.
                messages.drain(resync.quiet, timeout)
                self._ambiguous.add(question)
            if messages.pending():
                messages.discard("set aside")
        except (TimeoutError, StreamClosedError, FramingError) as error:
            unsent = (
                "before",
                "the command was not sent: step was lost, and this was to regain it",
            )
            raise self._failure(error, timeout, shown, unsent) from error

    def _recognisable(self, resync: Resync) -> tuple[bytes, Callable[[bytes], bool], bool]:
        """Return a resync query, its recogniser, and whether no earlier reply to it can come."""
        # Case and white space do not tell two queries apart to an instrument.
        open_queries = {query.strip().upper() for query in self._unanswered | self._ambiguous}
        variants = [resync.variant(number) for number in range(_VARIANTS)]
        for question, recognises in variants:
            if question.strip().upper() not in open_queries:
                return question, recognises, True
        return *variants[0], False


@dataclass(eq=False)
class PendingReply:
    """The reply to a query that was submitted.

    Attributes:
        data, timeout, shown: the query, the time for its reply in ns, its text in errors.
        sent: stamps before and after it was written.
        outcome: the reply or the error, once one of them is known.
    """

    _session: QuerySession
    data: bytes
    timeout: int
    shown: str
    sent: Span
    outcome: Answer | InstrumentError | None = field(default=None, init=False)

    def result(self) -> Answer:
        """Wait for the reply; it may have come any time before. Raises what `query` raises."""
        self._session.collect(self)
        if isinstance(self.outcome, Answer):
            return self.outcome
        raise self.outcome or self._session.failed(  # the wait for it was interrupted
            NoReplyError, "was not waited for until it answered", self.shown
        )


class LayeredSession(WireSession):
    """A session of a protocol whose messages go over a `QuerySession`.

    Args:
        queries: the session below.
        meanings: see `WireSession`.
    """

    usual_timeout = DEFAULT_TIMEOUT

    def __init__(
        self,
        queries: QuerySession,
        clock: Clock,
        meanings: Mapping[Any, tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(
            queries.instrument, clock, meanings, trace=queries.trace, timeouts=queries.timeouts
        )
        self._queries = queries

    def failed(
        self, kind: type[InstrumentError], problem: str, command: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """Return an error about this instrument; see `QuerySession.failed`."""
        return self._queries.failed(kind, problem, command, *details)

    def close(self) -> None:
        """Close the session; the next command would open it again."""
        self._queries.close()
