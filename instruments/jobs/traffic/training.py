"""Training jobs on servers: a program on each server runs an unchanged training script."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.errors import DisconnectedError, InstrumentError
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.traffic.gloo import LOADING, pytorch_of
from lightrig.instruments.jobs.traffic.rank_launcher import start_on
from lightrig.instruments.jobs.traffic.rendezvous import RendezvousStore
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import Program, ProgramRequest

TRAINING = Program(
    "lightrig-training",
    "the training's program",
    1,
    (
        "server_clock",
        "replies",
        "training_gate",
        "training_store",
        "training_front_end",
        "training_groups",
        "training_program",
    ),
    "PyTorch",
    programs.__name__,
)

Control: TypeAlias = Literal["none", "watched", "gated"]
"""Control over a script's operations: none, recorded, or each waits for permission."""

LONGEST = 3_600_000_000_000
"""Longest duration of a script, in ns."""


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
    """An operation that has run, with its stamps on the bench's clock.

    asked: when the rank requested it; a gated one has waited from then to `began`. line: of the
    script that caused it, where that is known. parts: the directions, s or r, of the sends and
    receives that are joined in it.
    """

    operation: Wanted
    asked: Span
    began: Span
    ended: Span
    line: int | None = None
    parts: str = ""


@dataclass(frozen=True, slots=True)
class RankResult:
    """Operations of a rank whose script has ended.

    Attributes:
        operations: those of the rails, in order of their start.
        front_end: those that the control connection carried, in order of their end.
        steps: how many of the rails had begun before the end of each step of an optimizer.
        optimizers: how many of PyTorch's the script has made.
    """

    operations: Sequence[Done]
    front_end: Sequence[Done]
    steps: Sequence[int]
    optimizers: int


class RankListener(Protocol):
    """Receiver of the events of a job's ranks; called on their reader threads."""

    def wants(self, rank: int, number: int, operation: Wanted) -> None:
        """A rank waits to start an operation; `TrainingRank.go` permits it. Must not wait."""

    def ended(self, rank: int, number: int) -> None:
        """An operation has ended on a rank."""

    def printed(self, rank: int, line: str, at: Span) -> None:
        """A rank's script has printed a line, when on the bench's clock."""

    def stepped(self, rank: int, at: Span) -> None:
        """A step of the script's first optimizer has ended on a rank, when on the bench's clock."""


class PrintedLines:
    """Listener that keeps what ranks print, and leaves their operations alone.

    lines: of each rank, in order, with the time on the bench's clock.
    steps: end of each step of each rank, as far as its script has an optimizer.
    heard: called with a rank and each line; it must not wait.
    """

    def __init__(self, heard: Callable[[int, str], None] = lambda rank, line: None) -> None:
        self._heard = heard
        self.lines: defaultdict[int, list[tuple[Span, str]]] = defaultdict(list)
        self.steps: defaultdict[int, list[Span]] = defaultdict(list)

    def wants(self, rank: int, number: int, operation: Wanted) -> None:
        """Do nothing: no rank waits."""

    def ended(self, rank: int, number: int) -> None:
        """Do nothing: no operation was permitted here."""

    def printed(self, rank: int, line: str, at: Span) -> None:
        """Keep a line."""
        self.lines[rank].append((at, line))
        self._heard(rank, line)

    def stepped(self, rank: int, at: Span) -> None:
        """Keep the end of a step."""
        self.steps[rank].append(at)


@dataclass(frozen=True, slots=True)
class Script:
    """The script that every rank runs: its source, name and arguments."""

    source: str
    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalBegin:
    """An operation that a rank began by itself: when it came, and when it began."""

    number: int
    operation: Wanted
    asked: Span
    began: Span


@dataclass(frozen=True, slots=True)
class LocalEnd:
    """The end of an operation on a rank that decides by itself."""

    number: int
    at: Span


@dataclass(frozen=True, slots=True)
class LocalPhases:
    """Phases by which a gated rank decides itself about operations that need not ask.

    Attributes:
        first: group of each operation up to the end of the first step, whether it asks, and how
            many sends and receives are joined in it.
        then: the same of each later step; nothing where `first` has all operations.
        ran: called with a rank and what it has begun and ended by itself, in that order, before
            it asks again and once all that was granted has ended; on a reader thread, so it must
            not wait. `RankListener.ended` is not called then.
    """

    first: Sequence[tuple[str, bool, int]]
    then: Sequence[tuple[str, bool, int]]
    ran: Callable[[int, Sequence[LocalBegin | LocalEnd]], None]


@dataclass(frozen=True, slots=True)
class ScriptModule:
    """A module beside a script that carries its all-to-alls, and talks to the harness meanwhile.

    Attributes:
        source: code that defines `connect`, see training_program.py.
        settings: JSON for `connect`.
        on_message: called with a rank, what its module emitted, and when on the bench's clock;
            on a reader thread, so it must not wait.
    """

    source: str
    settings: Mapping[str, Any]
    on_message: Callable[[int, Any, Span], None]


class TrainingFailedError(InstrumentError):
    """A rank's script has failed."""


class RankLostError(DisconnectedError):
    """A rank's program has ended before its script."""


class TrainingRank:
    """The program of one rank on its server.

    `loaded` raises `NoPyTorchError` if the server has none.

    Attributes:
        process_group: of the program and what it starts, on its server; known once loaded.
    """

    def __init__(self, rank: int, server: LinuxServer, clock: Clock) -> None:
        self.rank, self.name = rank, server.name
        self._server, self.process_group = server, 0
        self._listener: RankListener | None = None
        self._store: RendezvousStore | None = None
        self._phases: LocalPhases | None = None
        self._module: ScriptModule | None = None
        self._alone: Callable[[TrainingFailedError], None] = lambda error: None
        self._run = start_on(server, TRAINING, clock, self._on_event)
        self._clocks = self._run.clocks
        self._hello = self._run.submit("hello", {}, LOADING)

    def loaded(self) -> str:
        """Wait until PyTorch is loaded; return its version."""
        answer = self._hello.result()
        self._run.greeted(answer)
        pytorch = pytorch_of(self.name, answer)
        self.process_group = int(answer["group"])
        return pytorch

    def train(
        self,
        script: Script,
        listener: RankListener,
        control: Control,
        groups: Mapping[str, Sequence[int]],
        environment: Mapping[str, str],
        store: RendezvousStore | None = None,
        servers: Sequence[Sequence[int]] = (),
        phases: LocalPhases | None = None,
        module: ScriptModule | None = None,
        alone: Callable[["TrainingFailedError"], None] = lambda error: None,
    ) -> "RunningScript":
        """Start `script`.

        groups: name and ranks of the groups that the rail carries. servers: the ranks of each,
        whose operations among themselves stay there. environment: variables to add
        to the server's. store: through which the ranks find each other where `control` is not
        "none"; one a run. phases: by which the rank decides itself; without them it asks for each
        operation. module: carries all-to-alls, unless `control` is "none". alone: called with the
        error for a collective that cannot end, see `script_ended`; it must not wait.
        """
        self._listener, self._store, self._phases = listener, store, phases
        self._module, self._alone = module, alone
        body = {
            "script": script.source,
            "name": script.name,
            "argv": list(script.arguments),
            "environment": dict(environment),
            "control": control,
            "rank": self.rank,
            "ranks": int(environment["WORLD_SIZE"]),
            "groups": {name: list(ranks) for name, ranks in groups.items()},
            "servers": [list(ranks) for ranks in servers],
            "phases": phases and {"first": list(phases.first), "then": list(phases.then)},
            "module": module and {"source": module.source, "settings": dict(module.settings)},
        }
        return RunningScript(self, self._run.submit("train", body, LONGEST), self._clocks)

    def go(self, number: int, refused: str | None = None) -> None:
        """Permit an announced operation, or refuse it."""
        body = {"number": number} | ({"refused": refused} if refused is not None else {})
        self._run.submit("go", body)

    def script_ended(self, rank: int, counts: Mapping[str, int]) -> None:
        """Hand over that a rank's script has ended, after that many collectives of each group."""
        self._run.submit("script_ended", {"rank": rank, "counts": dict(counts)})

    def tell(self, message: Any) -> None:
        """Hand a message, as JSON, to the module that carries all-to-alls."""
        self._run.submit("tell", {"message": message})

    def kill(self) -> None:
        """Kill the program and what it runs on its server: a fault that a test makes."""
        self._server.commands.run(["sh", "-c", f"kill -s KILL -- -{self.process_group}"])

    def close(self) -> None:
        """End the program, and what it runs."""
        self._run.close()

    def _stored(self, number: int, result: Any) -> None:
        self._run.submit("stored", {"number": number, "result": result})

    def _local(self, entry: Sequence[Any]) -> LocalBegin | LocalEnd:
        here = self._clocks.here
        match entry:
            case ["began", number, operation, asked, began]:
                return LocalBegin(int(number), Wanted(*operation), here(asked), here(began))
            case [_, number, at]:
                return LocalEnd(int(number), here(at))
        raise ValueError(f"a rank that decides itself reported {entry}")

    def _alone_error(
        self, kind: str, group: str, index: int, line: int | None, rank: int, count: int
    ) -> "TrainingFailedError":
        problem = f"waits as rank {self.rank} of a training job for rank {rank}, which has ended"
        where = "" if line is None else f", in line {line} of the script"
        details = [
            ("waits for", f"{kind} {index + 1} of {group}{where}"),
            ("because", f"the script of rank {rank} has ended after {count} of them"),
        ]
        return TrainingFailedError(self.name, problem, details=details)

    def _on_event(self, event: dict[str, Any], at: int) -> None:
        if "store" in event and self._store is not None:
            do, *given = event["do"]
            self._store.handle(do, given, partial(self._stored, int(event["store"])))
            return
        if "alone" in event:
            self._alone(self._alone_error(*event["alone"]))
        if "ran" in event and self._phases is not None:
            self._phases.ran(self.rank, [self._local(each) for each in event["ran"]])
        listener = self._listener
        if listener is None:
            return
        if "wants" in event:
            listener.wants(self.rank, int(event["wants"]), Wanted(*event["operation"]))
        elif "ended" in event:
            listener.ended(self.rank, int(event["ended"]))
        elif "printed" in event:
            listener.printed(self.rank, str(event["printed"]), self._clocks.here(at))
        elif "stepped" in event:
            listener.stepped(self.rank, self._clocks.here(at))
        elif "message" in event and self._module is not None:
            self._module.on_message(self.rank, event["message"], self._clocks.here(at))


class RunningScript:
    """A script that runs on one rank."""

    def __init__(self, rank: TrainingRank, request: ProgramRequest, clocks: ClockMap) -> None:
        self._rank, self._request, self._clocks = rank, request, clocks

    def result(self) -> list[Done]:
        """Wait for its end; return its operations on the rails; raises as `whole` does."""
        return list(self.whole().operations)

    def whole(self) -> RankResult:
        """Wait for its end; return what it did.

        Raises `TrainingFailedError`, and `RankLostError` where the program ended.
        """
        try:
            answer = self._request.result()
        except DisconnectedError as error:
            reason = self._request.run.reason or "the connection was lost"
            problem = f"lost rank {self._rank.rank} of a training job: its program has ended"
            details = [("because", reason)]
            raise RankLostError(self._rank.name, problem, details=details) from error
        if answer.get("failure"):
            lines = str(answer["failure"]).rstrip().splitlines()
            raise TrainingFailedError(
                self._rank.name,
                f"failed as rank {self._rank.rank} of a training job",
                details=[("because" if not n else "", line) for n, line in enumerate(lines)],
            )
        here = self._clocks.here

        def done(entry: Sequence[Any]) -> Done:
            group, index, kind, size, asked, began, ended, *more = entry
            operation = Wanted(group, index, kind, size)
            return Done(operation, here(asked), here(began), here(ended), *more)

        return RankResult(
            [done(entry) for entry in answer["operations"]],
            [done(entry) for entry in answer["front_end"]],
            list(map(int, answer["steps"])),
            int(answer["optimizers"]),
        )
