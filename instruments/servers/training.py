"""Training jobs on servers: a program of ours on each runs a script that knows nothing of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from instruments.clock import Clock, Span
from instruments.errors import InstrumentError
from instruments.servers.gloo import LOADING, NoPyTorchError
from instruments.servers.linux import LinuxServer, this_boot_id
from instruments.servers.offset import ClockMap
from instruments.servers.program import Program, ProgramRequest
from instruments.wire.trace import Trace

TRAINING = Program(
    "lightrig-training", "the training's program", 1, "training_program.py", "PyTorch"
)

Control: TypeAlias = Literal["none", "watched", "held"]
"""Whether a script has PyTorch to itself, its operations are recorded, or wait for a word."""

LONGEST = 3_600_000_000_000
"""How long a script may run, in ns."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An operation as a rank has announced it.

    index counts those of its group from 0; size is in bytes.
    """

    group: str
    index: int
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class Done:
    """An operation that has run, and when on the bench's clock.

    asked: when the rank wanted it, and waited if it was held.
    """

    operation: Wanted
    asked: Span
    began: Span
    ended: Span


class RankListener(Protocol):
    """Who follows the ranks of a job; called on the threads that read from them."""

    def wants(self, rank: int, number: int, operation: Wanted) -> None:
        """A rank waits to begin an operation; `TrainingRank.go` answers. It must not wait."""

    def ended(self, rank: int, number: int) -> None:
        """An operation has ended on a rank."""

    def said(self, rank: int, line: str, at: Span) -> None:
        """A rank's script has printed a line, when on the bench's clock."""


@dataclass(frozen=True, slots=True)
class Script:
    """What every rank runs: its source, its name, its arguments."""

    source: str
    name: str
    arguments: tuple[str, ...] = ()


class TrainingFailedError(InstrumentError):
    """A rank's script has failed."""


class TrainingRank:
    """The program of one rank on its server.

    Raises `NoPyTorchError` from `loaded` where the server has none.
    """

    def __init__(self, rank: int, server: LinuxServer, clock: Clock) -> None:
        self.rank, self.name = rank, server.name
        self._clocks = ClockMap()
        self._listener: RankListener | None = None
        self._run = server.start(TRAINING, Trace(clock), self._clocks, self._told)
        self._hello = self._run.ask("hello", {}, LOADING)

    def loaded(self) -> str:
        """Wait until PyTorch is there; returns its version."""
        answer = self._hello.result()
        self._clocks.same_clock = answer.get("boot") == this_boot_id()
        if answer.get("torch") is None:
            raise NoPyTorchError(self.name, str(answer.get("why")))
        return str(answer["torch"])

    def train(
        self,
        script: Script,
        listener: RankListener,
        control: Control,
        groups: Mapping[str, Sequence[int]],
        environment: Mapping[str, str],
        store: str = "",
    ) -> "RunningScript":
        """Begin to run `script`.

        groups: name and ranks of those that the rail carries. environment: beside the server's
        own. store: a file that all ranks can write, by which they find each other; without one
        they do it as the script says.
        """
        self._listener = listener
        body = {
            "script": script.source,
            "name": script.name,
            "argv": list(script.arguments),
            "environment": dict(environment),
            "control": control,
            "rank": self.rank,
            "ranks": int(environment["WORLD_SIZE"]),
            "groups": {name: list(ranks) for name, ranks in groups.items()},
            "store": store,
        }
        return RunningScript(self, self._run.ask("train", body, LONGEST), self._clocks)

    def go(self, number: int, refused: str | None = None) -> None:
        """Let an operation run that was announced, or refuse it."""
        body = {"number": number} | ({"refused": refused} if refused is not None else {})
        self._run.ask("go", body)

    def close(self) -> None:
        """End the program, and what it runs."""
        self._run.close()

    def _told(self, what: dict[str, Any], at: int) -> None:
        listener = self._listener
        if listener is None:
            return
        if "wants" in what:
            listener.wants(self.rank, int(what["wants"]), Wanted(*what["operation"]))
        elif "ended" in what:
            listener.ended(self.rank, int(what["ended"]))
        elif "said" in what:
            listener.said(self.rank, str(what["said"]), self._clocks.here(at))


class RunningScript:
    """A script that was begun on one rank."""

    def __init__(self, rank: TrainingRank, request: ProgramRequest, clocks: ClockMap) -> None:
        self._rank, self._request, self._clocks = rank, request, clocks

    def result(self) -> list[Done]:
        """Wait for its end; its operations, in the order in which they were begun.

        Raises `TrainingFailedError`, and `InstrumentError` where the program ended.
        """
        answer = self._request.result()
        if answer.get("failure"):
            lines = str(answer["failure"]).strip().splitlines()
            raise TrainingFailedError(
                self._rank.name,
                f"failed as rank {self._rank.rank} of a training job",
                details=[("because", line.strip()) for line in lines[-4:]],
            )
        here = self._clocks.here
        return [
            Done(Wanted(group, index, kind, size), here(asked), here(began), here(ended))
            for group, index, kind, size, asked, began, ended in answer["operations"]
        ]
