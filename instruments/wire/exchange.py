"""Questions and answers over a stream without tags: one at a time, and never mixed up.

Nothing in such an answer says which question it belongs to, so step is all there is. Whoever
asks first notes the question as unanswered and crosses it out with its answer in hand. What is
still noted when the next question comes, for whatever reason, means that step was lost; so do
bytes that nobody asked for. Then the stream is opened anew, and what came late comes nowhere.
Where the other end outlives that (a serial line, a gateway), a question whose answer can be
recognised is asked first, and what comes before its answer is set aside. If that one went
unanswered too, it is asked in other words, as long as the protocol has some; then only silence
can tell that nothing late will come.

What no untagged protocol can exclude: an instrument that answers twice, and the second time only
after the next question was written. That is noticed when the true answer turns out to be one too
many, before the question after that. An instrument that answers a question with another's answer
is told by what is asked, not here.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from instruments.clock import Clock, Span
from instruments.errors import (
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
)
from instruments.wire.framing import Framing, FramingError
from instruments.wire.messages import Messages
from instruments.wire.stream import OpenStream, StreamClosedError
from instruments.wire.trace import Trace
from instruments.wire.turns import Turns

DEFAULT_TIMEOUT = 5_000_000_000
"""How long an answer may take, in ns."""


class Answer(NamedTuple):
    """An instrument's answer.

    Attributes:
        data: the message, without its end.
        sent: between which stamps the question was written.
        received: when the last byte of the answer was read.
    """

    data: bytes
    sent: Span
    received: int

    @property
    def text(self) -> str:
        """The message as text without what surrounds it; other bytes than ASCII are escaped."""
        return self.data.decode("ascii", "backslashreplace").strip()


@dataclass(frozen=True, slots=True)
class Resync:
    """How a way whose other end outlives a failure is brought back into step.

    Attributes:
        quiet: silence, in ns, after which nothing late is expected any more, where the way is
            not opened anew.
        question: what is asked then, or empty if the protocol has nothing to ask for this.
        recognises: whether a message is the answer to `question`.
        reopens: whether opening it anew makes its other end forget what was not yet sent.
    """

    quiet: int = 300_000_000
    question: bytes = b""
    recognises: Callable[[bytes], bool] = lambda _: True
    reopens: bool = False

    def variant(self, number: int) -> tuple[bytes, Callable[[bytes], bool]]:
        """A question and what recognises its answer; another for each number, if there are."""
        return self.question, self.recognises


_VARIANTS = 3
"""How many variants are tried before one is asked again, whose earlier answer may still come."""


class AskInTurn(Protocol):
    """Asks as `Exchange.ask` does, in a turn that was taken already."""

    def __call__(self, data: bytes, timeout: int = ..., *, shown: str | None = None) -> Answer:
        """Write `data` and wait for its answer."""


class Exchange:
    """One way to one instrument; may be shared by threads, which take turns.

    It opens with the first question, and again with the first one after a failure.

    Args:
        instrument: its name in error messages.
        open_stream: opens the way there.
        framing: where an answer ends.
        resync: for a way whose other end outlives a failure; None where opening is enough.
        wire: the address, for recordings.

    Attributes:
        openings: how often the way was opened, or brought back into step, so far.
    """

    def __init__(
        self,
        instrument: str,
        open_stream: OpenStream,
        clock: Clock,
        framing: Framing,
        *,
        resync: Resync | None = None,
        wire: str = "",
    ) -> None:
        self.instrument = instrument
        self.trace = Trace(clock, instrument)
        self.openings = 0
        self._open_stream = open_stream
        self._clock = clock
        self._framing = framing
        self._resync = resync
        self._wire = wire
        self._turns = Turns(clock)
        self._messages: Messages | None = None
        self._unanswered: set[bytes] = set()
        self._doubted: set[bytes] = set()
        self._begun: Begun | None = None

    def tell(self, data: bytes, *, shown: str | None = None) -> Span:
        """Write `data`, which has no answer; between which stamps that was.

        `shown` stands for it in the trace and in errors. Raises what `ask` does.
        """
        shown = shown or self._framing.show(data).strip()
        with self._turns:
            messages = self._ready(DEFAULT_TIMEOUT, shown)
            try:
                span = self._write(messages, data, shown)
            except StreamClosedError as error:
                raise self._given_up(error, 0, shown) from error
            self._unanswered.discard(data)
            return span

    def ask(
        self, data: bytes, timeout: int = DEFAULT_TIMEOUT, *, shown: str | None = None
    ) -> Answer:
        """Write `data` and wait for its answer, at most `timeout` ns.

        Bringing a way back into step before takes at most as long again, and its silence.

        Raises:
            UnreachableError: there was no way to the instrument, and none could be opened.
            DisconnectedError: it hung up before it had answered.
            NoReplyError: no whole answer came in time.
            GarbledError: what came is no message of its protocol.
        """
        with self._turns:
            return self._ask(data, timeout, shown=shown)

    def begin(
        self, data: bytes, timeout: int = DEFAULT_TIMEOUT, *, shown: str | None = None
    ) -> "Begun":
        """Write `data` and return at once; whoever comes next waits for its answer first.

        `timeout` is for that answer, in ns. Raises what `tell` does.
        """
        shown = shown or self._framing.show(data).strip()
        with self._turns:
            messages = self._ready(timeout, shown)
            try:
                sent = self._write(messages, data, shown)
            except StreamClosedError as error:
                raise self._given_up(error, 0, shown) from error
            self._begun = Begun(self, data, timeout, shown, sent)
            return self._begun

    def settle(self, begun: "Begun") -> None:
        """Wait for the answer of what was begun, if nobody has yet; for `Begun` only."""
        with self._turns:
            if self._begun is begun:
                self._settle(begun)

    @contextlib.contextmanager
    def alone(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> Iterator[AskInTurn]:
        """A turn for several questions, which nobody else's come between, on an open way.

        `command` is what they are for, and `timeout` what regaining step may take, in ns. Raises
        what `ask` does.
        """
        with self._turns:
            self._ready(timeout, command)
            yield self._ask

    def close(self) -> None:
        """End the stream; the next question would open it again."""
        with self._turns:
            self._drop()

    def failed(
        self,
        kind: type[InstrumentError],
        problem: str,
        command: str,
        *details: tuple[str, str],
    ) -> InstrumentError:
        """An error about this instrument with the last lines of its trace.

        After a `GarbledError` step is lost: who knows what such an answer was the answer to.
        """
        if issubclass(kind, GarbledError):
            self._unanswered.add(command.encode())
        shown = self.trace.masked(command)
        return kind(
            self.instrument, problem, command=shown, details=details, trace=self.trace.tail()
        )

    # ---------------------------------------------------------------- one at a time here

    def _ask(
        self, data: bytes, timeout: int = DEFAULT_TIMEOUT, *, shown: str | None = None
    ) -> Answer:
        shown = shown or self._framing.show(data).strip()
        messages = self._ready(timeout, shown)
        try:
            sent = self._write(messages, data, shown)
            message, received = messages.next(sent.latest, timeout)
        except (TimeoutError, StreamClosedError, FramingError) as error:
            raise self._given_up(error, timeout, shown) from error
        self._unanswered.discard(data)
        return Answer(message, sent, received)

    def _ready(self, timeout: int, shown: str) -> Messages:
        """A way on which the next answer can only be the next question's."""
        if self._begun is not None:
            self._settle(self._begun)
        messages = self._messages
        if messages is not None:
            try:
                if messages.are_waiting():
                    messages.set_aside("unasked for")
                    self._unanswered.add(b"")
            except StreamClosedError as error:
                self.trace.ended(str(error))
                self._drop()
            if not self._unanswered and self._messages is messages:
                return messages
        return self._reopened(timeout, shown)

    def _reopened(self, timeout: int, shown: str) -> Messages:
        """The way, opened or brought back into step."""
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

    def _settle(self, begun: "Begun") -> None:
        """Hear the answer of what was begun before."""
        self._begun = None
        messages = self._messages
        try:
            if messages is None:
                raise StreamClosedError("the connection was given up")
            left = max(0, begun.sent.latest + begun.timeout - self._clock.now())
            message, received = messages.next(begun.sent.latest, left)
        except (TimeoutError, StreamClosedError, FramingError) as error:
            begun.outcome = self._given_up(error, begun.timeout, begun.shown)
            return
        self._unanswered.discard(begun.data)
        begun.outcome = Answer(message, begun.sent, received)

    def _write(self, messages: Messages, data: bytes, shown: str) -> Span:
        self._unanswered.add(data)
        return messages.write(data, shown)

    def _given_up(
        self, error: Exception, timeout: int, shown: str, *before: tuple[str, str]
    ) -> InstrumentError:
        """What is raised for an exchange that ended in `error`."""
        came = self._messages.given_up() if self._messages is not None else 0
        rest = f"{came} bytes of an unfinished answer came" if came else "nothing came"
        if isinstance(error, StreamClosedError):
            self.trace.ended(str(error))
        if self._resync is None or self._resync.reopens or isinstance(error, StreamClosedError):
            self._drop()
        if isinstance(error, TimeoutError):
            return self.failed(
                NoReplyError,
                f"did not answer within {timeout / 1e9:g} s",
                shown,
                *before,
                ("because", rest),
                ("try", "is it busy, is the command one that it answers?"),
            )
        if isinstance(error, FramingError):
            return self.failed(
                GarbledError,
                "answered something that its protocol does not allow",
                shown,
                *before,
                ("because", str(error)),
            )
        return self.failed(
            DisconnectedError,
            "closed the connection before it had answered",
            shown,
            *before,
            ("because", f"{error}; {rest}"),
        )

    def _drop(self) -> None:
        messages, self._messages = self._messages, None
        self._doubted.clear()
        if messages is not None:
            messages.close()

    # ------------------------------------------------------------------ back into step

    def _bring_into_step(
        self, messages: Messages, resync: Resync, timeout: int, shown: str
    ) -> None:
        """Leave behind what may still come; `shown` is the command that waits for this."""
        try:
            quiet = resync.reopens or messages.drained(resync.quiet, timeout)
            question, recognises, fresh = self._recognisable(resync)
            if not question:
                if not quiet:
                    raise FramingError("it does not stop sending what nobody asked for")
                return
            sent = self._write(messages, question, self._framing.show(question).strip())
            while not recognises(message := messages.next(sent.latest, timeout)[0]):
                self.trace.remarked(f"set aside: {self._framing.show(message)}")
            if fresh:
                self._doubted.clear()
            else:  # there may be one more such answer, now or later
                messages.drained(resync.quiet, timeout)
                self._doubted.add(question)
            if messages.are_waiting():
                messages.set_aside("set aside")
        except (TimeoutError, StreamClosedError, FramingError) as error:
            told = ("before", "the command was not sent: step was lost, and this was to regain it")
            raise self._given_up(error, timeout, shown, told) from error

    def _recognisable(self, resync: Resync) -> tuple[bytes, Callable[[bytes], bool], bool]:
        """A question for regaining step, and whether no answer to it is still to come."""
        asked = {question.strip().upper() for question in self._unanswered | self._doubted}
        variants = [resync.variant(number) for number in range(_VARIANTS)]
        for question, recognises in variants:
            if question.strip().upper() not in asked:
                return question, recognises, True
        return *variants[0], False


class Begun:
    """A question that was written and whose answer nobody has waited for yet.

    Attributes:
        data, timeout, shown: what was written, for how long it may take in ns, how it is shown.
        sent: between which stamps it was written.
        outcome: the answer or the error, once somebody has waited for it.
    """

    def __init__(
        self, exchange: Exchange, data: bytes, timeout: int, shown: str, sent: Span
    ) -> None:
        self._exchange = exchange
        self.data = data
        self.timeout = timeout
        self.shown = shown
        self.sent = sent
        self.outcome: Answer | InstrumentError | None = None

    def result(self) -> Answer:
        """Wait for the answer; it may have come any time before. Raises what `ask` does."""
        self._exchange.settle(self)
        if isinstance(self.outcome, Answer):
            return self.outcome
        raise self.outcome or self._exchange.failed(  # the wait for it was interrupted
            NoReplyError, "was not waited for until it answered", self.shown
        )
