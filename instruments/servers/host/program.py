"""Programs that are sent to a server as source, and answer requests there.

A program's first line of input is its source, compressed; every further line is a request, one JSON
object with an `id`. The reply is one line with that `id` and the stamps `at: [received, sent]` of
the server's clock. An event that a program sends without a request has `event` instead of `id`. See
docs/appendix/probe.md.
"""

import base64
import contextlib
import functools
import itertools
import json
import re
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import (
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
)
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.supervisor import supervised
from lightrig.instruments.wire.shell import Shell
from lightrig.instruments.wire.trace import Trace
from lightrig.testbeds.json_text import from_json

_PROGRAMS = "lightrig.instruments.servers.programs"

_OLD = "is too old, 3.8 is needed"
_TOO_OLD = re.compile(rf'python \d+\.\d+ {_OLD}|File "<string>", line 1\b[\s\S]*SyntaxError')
"""What a Python before 3.8 writes; that of version 2 cannot read the one line."""
_NOT_FOUND = re.compile("command not found|unknown command", re.IGNORECASE)
"""What csh and fish say of a missing program; only some shells end with status 127."""
_MOST_PRINTED = 5

_encode = json.JSONEncoder(separators=(",", ":")).encode

_MOST_NS = (1 << 63) - 1
GRACE = 10_000_000_000
"""Time allowed for a reply, in ns, beyond the duration of the request."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is sent to servers.

    Attributes:
        name: shown by `ps` on the server.
        called: its name in errors, such as "the probe".
        version: version of its protocol; it refuses to start as another one.
        modules: of `package` or `instruments.servers.programs`, in the order of their imports; the
            last one's `main` is the program.
        needs: its requirements, for the error if it does not reply.
    """

    name: str
    called: str
    version: int
    modules: tuple[str, ...]
    needs: str
    package: str = _PROGRAMS

    @property
    def bootstrap(self) -> str:
        """Python code that runs the modules in the first line of its input."""
        # One line, for launchers that pass their arguments line by line.
        return (
            "import base64,json,sys,types,zlib;sys.version_info<(3,8)and "
            f"sys.exit('python %d.%d {_OLD}'%sys.version_info[:2]);"
            "[exec(compile(s,n,'exec'),sys.modules.setdefault(n,types.ModuleType(n)).__dict__) "
            "for n,s in json.loads(zlib.decompress(base64.b64decode(sys.stdin.buffer.readline())))]"
            f";sys.exit(sys.modules['{self.package}.{self.modules[-1]}'].main())"
        )

    def sources(self) -> list[tuple[str, str]]:
        """Return the full name and the source of each module."""
        return [self._source(name) for name in self.modules]

    def _source(self, module: str) -> tuple[str, str]:
        package = self.package
        path = resources.files(package).joinpath(f"{module}.py")
        if not path.is_file():
            package = _PROGRAMS
            path = resources.files(package).joinpath(f"{module}.py")
        return f"{package}.{module}", path.read_text(encoding="utf-8")

    @functools.cache  # noqa: B019 - a handful of programs, which live as long as the process
    def packed(self) -> str:
        """Return the modules as that line."""
        return base64.b64encode(zlib.compress(json.dumps(self.sources()).encode())).decode()


class ProgramRun:
    """One running program; when it ends, its pending requests fail.

    Args:
        name: the server's name in the testbed.
        shell: starts programs there.
        clock: the bench's clock.
        trace: notes every line in both directions.
        clocks: updated with the stamps of each request and reply.
        program: the program to run.
        on_event: called with each event and its stamp on the server's clock, on the reader
            thread: it must not wait.
        become: prefix with which it is started, such as `sudo -n`.

    Attributes:
        printed: first lines before the program's first answer: its login shell's.
    """

    def __init__(
        self,
        name: str,
        shell: Shell,
        clock: Clock,
        trace: Trace,
        clocks: ClockMap,
        program: Program,
        on_event: Callable[[dict[str, Any], int], None] | None = None,
        become: Sequence[str] = (),
    ) -> None:
        self._on_event = on_event
        self.name = name
        self.program = program
        self._clock = clock
        self._trace = trace
        self._clocks = clocks
        self._lock = threading.Lock()
        self._pending: dict[int, ProgramRequest] = {}
        self._end: str | None = None
        self._python = shell.python
        self._answers = False
        self.printed: list[str] = []
        self._numbers = itertools.count(1)
        command = [shell.python, "-u", "-c", program.bootstrap, program.name, str(program.version)]
        self._channel = shell.start([*become, *supervised(command, reads=True)], self)
        self._send(program.packed())

    @property
    def over(self) -> bool:
        """Whether the program has ended."""
        return self._end is not None

    @property
    def reason(self) -> str:
        """Why the program has ended, as far as is known; "" while it runs."""
        return self._end or ""

    def submit(self, verb: str, body: Mapping[str, Any], duration: int = 0) -> "ProgramRequest":
        """Send a request; resolve it with an error at once if the program has ended.

        duration: time that it may take, in ns.
        """
        number = next(self._numbers)
        text = _encode({"id": number, "do": verb, **body})
        request = ProgramRequest(self, number, text, self._clock, duration + GRACE)
        with self._lock:
            end = self._end
            if end is None:
                self._pending[number] = request
        self._trace.sent(_shortened(request.text))
        request.sent = self._clock.now()
        if end is None:
            self._send(request.text)
        else:
            self._lose(request, end)
        return request

    def close(self) -> None:
        """End the program."""
        self._channel.close()

    def line(self, text: str) -> None:
        """Take one line of the program's output."""
        received = self._clock.now()
        self._trace.received(_shortened(text))
        try:
            answer = from_json(text)
            there = (_ns(answer["at"][0]), _ns(answer["at"][1]))
            slewed = answer.get("slewed")
            slew = None if slewed is None else _ns(slewed)
            if self._on_event is not None and "event" in answer:
                self._on_event(dict(answer["event"]), there[0])
                return
            number = int(answer["id"])
            if "ok" not in answer and "error" not in answer:
                raise KeyError("ok")
        except (ValueError, KeyError, TypeError, IndexError, OverflowError):
            self._trace.remarked(f"not an answer of {self.program.called}")
            if not self._answers and len(self.printed) < _MOST_PRINTED:
                self.printed.append(text)
            return
        self._answers = True
        with self._lock:
            request = self._pending.pop(number, None)
        if request is None:
            self._trace.remarked("set aside: no request waits for it")
            return
        # A program that does not report it leaves the slew to what exchanges contradict.
        known = 0 if slew is None else slew - self._clock.slewed()
        request.answered_there = there[1]
        self._clocks.exchanged(request.sent, there[0], there[1], received, known)
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
        """Take the end of the program, or of the connection to it."""
        self._trace.remarked(reason)
        with self._lock:
            self._end = reason
            lost, self._pending = list(self._pending.values()), {}
        for request in lost:
            self._lose(request, reason)

    def cancel(self, request: "ProgramRequest") -> bool:
        """Stop waiting for `request`; False if its reply has just come."""
        with self._lock:
            return self._pending.pop(request.number, None) is not None

    def garbled(self, what: str, request: "ProgramRequest", answer: object) -> InstrumentError:
        """Return an error about a reply that violates the program's protocol."""
        details = ("answered", str(answer)[:300])
        return self.error(GarbledError, f"answered something that is {what}", request.text, details)

    def error(
        self, kind: type[InstrumentError], problem: str, command: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """Return an error about this server with the last lines of its trace."""
        trace = [_shortened(line, 500) for line in self._trace.tail()]
        return kind(self.name, problem, command=command, details=details, trace=trace)

    def _send(self, text: str) -> None:
        # A failed write means that the program has ended: `ended`, on the reader thread, knows why.
        with contextlib.suppress(OSError):
            self._channel.send(text)

    def _lose(self, request: "ProgramRequest", reason: str) -> None:
        problem = f"ended {self.program.called} before it had answered"
        details = [("because", reason)]
        if not self._answers:
            python, status = self._python, self._channel.status
            details += [("printed", line[:300]) for line in self.printed[-1:]]
            advice = "install a python3 of 3.8 or newer, or name one by `python:` of the server"
            if _TOO_OLD.search(reason):
                problem = f"has as {python} a python that cannot run {self.program.called}"
                details.append(("try", advice))
            elif status in {126, 127} or (status and _NOT_FOUND.search(reason)):
                problem = f"has no {python} that can run {self.program.called}"
                details.append(("try", advice))
        request.resolve(self.error(DisconnectedError, problem, request.text, *details))


def _ns(value: object) -> int:
    """Return a number of ns that a kernel can have stamped; raises `ValueError` or `TypeError`."""
    if type(value) is not int:
        raise TypeError(f"found {value!r}, expected a number of ns")
    if abs(value) > _MOST_NS:
        raise ValueError("found more ns than a clock has")
    return value


def _shortened(text: str, longest: int = 100_000) -> str:
    """Return a text, or its begin: a trace keeps no bulk data."""
    return text if len(text) <= longest else f"{text[:longest]} ..."


class ProgramRequest:
    """A request that was sent to the program.

    Attributes:
        sent: when, on the bench's clock, in ns.
        answered_there: when the program sent its reply, on the server's clock, in ns.
    """

    def __init__(self, run: ProgramRun, number: int, text: str, clock: Clock, timeout: int) -> None:
        self.run = run
        self.number = number
        self.text = text
        self.sent = 0
        self.answered_there = 0
        self._timeout = timeout
        self._answered = clock.event()
        self._outcome: dict[str, Any] | InstrumentError | None = None

    def resolve(self, outcome: dict[str, Any] | InstrumentError) -> None:
        """Set the reply or the error."""
        self._outcome = outcome
        self._answered.set()

    def result(self) -> dict[str, Any]:
        """Wait for the reply; raises `InstrumentError` if there is none."""
        if not self._answered.is_set() and not self._answered.wait(self._timeout):
            if self.run.cancel(self):
                raise self.run.error(
                    NoReplyError,
                    f"did not answer within {self._timeout / 1e9:g} s",
                    self.text,
                    *(("printed", line[:300]) for line in self.run.printed[-1:]),
                    ("try", f"is the server reachable, has it {self.run.program.needs}?"),
                )
            self._answered.wait()
        if isinstance(self._outcome, InstrumentError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome
