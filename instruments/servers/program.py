"""Programs that are sent to a server as source, and answer requests there.

A program's first line of input is its source, compressed; every further line is a request,
one JSON object with an `id`, and each is answered by one line with that `id` and the stamps
`at: [received, sent]` of the server's clock. What a program says unasked, where it does, is a
line with `tell` instead of an `id`. See docs/probe.md.
"""

import base64
import contextlib
import itertools
import json
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from instruments.clock import Clock
from instruments.errors import DisconnectedError, GarbledError, InstrumentError, NoReplyError
from instruments.servers.offset import ClockMap
from instruments.wire.shell import Shell
from instruments.wire.trace import Trace

GRACE = 10_000_000_000
"""How long an answer may be late, in ns, beyond what the request itself may take."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is sent to servers.

    Attributes:
        name: what `ps` shows there.
        called: the word for it in errors, such as "the probe".
        version: of its protocol; it refuses to start as another.
        file: its source, in `instruments.servers`.
        needs: what the server must have, for the error where it does not answer.
    """

    name: str
    called: str
    version: int
    file: str
    needs: str

    @property
    def bootstrap(self) -> str:
        """What runs the program that arrives as the first line of its input."""
        return (
            "import base64,sys,zlib;"
            "exec(compile(zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())),"
            f"{self.name!r},'exec'))"
        )

    def packed(self) -> str:
        """The program as that line."""
        source = resources.files("instruments.servers").joinpath(self.file).read_bytes()
        return base64.b64encode(zlib.compress(source)).decode()


class ProgramRun:
    """One run of a program: the requests that wait for it end with it, and no others.

    Args:
        name: the server's name in the testbed.
        shell: how programs are started there.
        clock: the bench's clock.
        trace: where every line in both directions goes.
        clocks: learns the server's clock from each exchange.
        program: which program.
        told: takes what the program says unasked and when, on the server's clock, in the thread
            that reads: it must not wait.
    """

    def __init__(
        self,
        name: str,
        shell: Shell,
        clock: Clock,
        trace: Trace,
        clocks: ClockMap,
        program: Program,
        told: Callable[[dict[str, Any], int], None] | None = None,
    ) -> None:
        self._told = told
        self.name = name
        self.program = program
        self._clock = clock
        self._trace = trace
        self._clocks = clocks
        self._lock = threading.Lock()
        self._pending: dict[int, ProgramRequest] = {}
        self._end: str | None = None
        self._numbers = itertools.count(1)
        self._channel = shell.start(
            [shell.python, "-u", "-c", program.bootstrap, program.name, str(program.version)], self
        )
        self._send(program.packed())

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._end is not None

    def ask(self, verb: str, body: Mapping[str, Any], patience: int = 0) -> "ProgramRequest":
        """Send a request, or resolve it if nobody is there to answer it.

        patience: how long it may take, in ns.
        """
        number = next(self._numbers)
        text = json.dumps({"id": number, "do": verb, **body}, separators=(",", ":"))
        request = ProgramRequest(self, number, text, self._clock, patience + GRACE)
        with self._lock:
            end = self._end
            if end is None:
                self._pending[number] = request
        self._trace.sent(request.text)
        request.sent = self._clock.now()
        if end is None:
            self._send(request.text)
        else:
            self._lose(request, end)
        return request

    def close(self) -> None:
        """End it."""
        self._channel.close()

    def line(self, text: str) -> None:
        """Take one line from the program."""
        received = self._clock.now()
        self._trace.received(text)
        try:
            answer = json.loads(text)
            there = (int(answer["at"][0]), int(answer["at"][1]))
            if self._told is not None and "tell" in answer:
                self._told(dict(answer["tell"]), there[0])
                return
            number = int(answer["id"])
            if "ok" not in answer and "error" not in answer:
                raise KeyError("ok")
        except (ValueError, KeyError, TypeError, IndexError):
            self._trace.remarked(f"not an answer of {self.program.called}")
            return
        with self._lock:
            request = self._pending.pop(number, None)
        if request is None:
            self._trace.remarked("set aside: nobody waits for it")
            return
        self._clocks.exchanged(request.sent, there[0], there[1], received)
        if "error" in answer:
            request.resolve(
                self.error(
                    InstrumentError,
                    f"could not do what {self.program.called} was asked",
                    request.text,
                    ("answered", str(answer["error"])),
                )
            )
        elif isinstance(answer["ok"], dict):
            request.resolve(answer["ok"])
        else:
            request.resolve(self.garbled("no answer to what was asked", request, answer["ok"]))

    def ended(self, reason: str) -> None:
        """Learn that the program or the way to it is gone."""
        self._trace.remarked(reason)
        with self._lock:
            self._end = reason
            lost, self._pending = list(self._pending.values()), {}
        for request in lost:
            self._lose(request, reason)

    def forget(self, request: "ProgramRequest") -> bool:
        """Stop waiting for `request`; False if its answer came just now."""
        with self._lock:
            return self._pending.pop(request.number, None) is not None

    def garbled(self, what: str, request: "ProgramRequest", answer: object) -> InstrumentError:
        """An error about an answer that the program's protocol does not allow."""
        details = ("answered", str(answer)[:300])
        return self.error(GarbledError, f"answered something that is {what}", request.text, details)

    def error(
        self, kind: type[InstrumentError], problem: str, command: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """An error about this server with the last lines of its trace."""
        trace = [line if len(line) <= 500 else f"{line[:500]} ..." for line in self._trace.tail()]
        return kind(self.name, problem, command=command, details=details, trace=trace)

    def _send(self, text: str) -> None:
        # Where it cannot be written, whoever reads from the channel learns why.
        with contextlib.suppress(OSError):
            self._channel.send(text)

    def _lose(self, request: "ProgramRequest", reason: str) -> None:
        problem = f"ended {self.program.called} before it had answered"
        request.resolve(self.error(DisconnectedError, problem, request.text, ("because", reason)))


class ProgramRequest:
    """One request that the program has not yet answered."""

    def __init__(
        self, run: ProgramRun, number: int, text: str, clock: Clock, patience: int
    ) -> None:
        self.run = run
        self.number = number
        self.text = text
        self.sent = 0
        self._patience = patience
        self._answered = clock.event()
        self._outcome: dict[str, Any] | InstrumentError | None = None

    def resolve(self, outcome: dict[str, Any] | InstrumentError) -> None:
        """Give it its answer, or what became of it."""
        self._outcome = outcome
        self._answered.set()

    def result(self) -> dict[str, Any]:
        """Wait for the answer; raises `InstrumentError` where there is none."""
        if not self._answered.wait(self._patience):
            if self.run.forget(self):
                raise self.run.error(
                    NoReplyError,
                    f"did not answer within {self._patience / 1e9:g} s",
                    self.text,
                    ("try", f"is the server reachable, has it {self.run.program.needs}?"),
                )
            self._answered.wait()
        if isinstance(self._outcome, InstrumentError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome
