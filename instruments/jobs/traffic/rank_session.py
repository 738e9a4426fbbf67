"""The ranks of a training job: started once on their servers, they run one script after another."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.clock.workers import Task
from lightrig.instruments.jobs.traffic.rendezvous import RendezvousStore
from lightrig.instruments.jobs.traffic.training import (
    Control,
    Done,
    LocalPhases,
    PrintedLines,
    RankLostError,
    RankResult,
    Script,
    ScriptModule,
    TrainingFailedError,
    TrainingRank,
)
from lightrig.instruments.servers.host.linux import LinuxServer

_FIRST_PORT = 27_300  # below those that Linux gives to connections

_CAUSE = 300_000_000
"""Time, in ns, in which a rank's end explains the error of another rank that came before it."""


@dataclass
class ScriptRun:
    """A script that has run on all ranks.

    Attributes:
        operations: of each rank, in the order in which they were begun.
        printed: the lines that each rank has printed, and when.
        front_end: operations of each rank that no rail carries.
        steps: how many operations each rank had begun before the end of each optimizer's step.
        optimizers: how many of PyTorch's each rank has made.
    """

    operations: Mapping[int, Sequence[Done]]
    printed: Mapping[int, Sequence[tuple[Span, str]]]
    front_end: Mapping[int, Sequence[Done]] = field(default_factory=dict)
    steps: Mapping[int, Sequence[int]] = field(default_factory=dict)
    optimizers: Mapping[int, int] = field(default_factory=dict)


class RankSession:
    """The programs of all ranks of a job, ready to run scripts until closed.

    Args:
        clock: of the bench.
        servers: each rank's.
        devices: each rank's network device, for the connections between ranks.
        address: of rank 0, where the ranks of a script without control meet.

    Raises:
        InstrumentError: a server refused.
        NoPyTorchError: a server has none.

    Attributes:
        ranks: by number.
        pytorch: its version.
    """

    def __init__(
        self, clock: Clock, servers: Sequence[LinuxServer], devices: Sequence[str], address: str
    ) -> None:
        self._clock = clock
        self._ports = itertools.count(_FIRST_PORT)
        self.ranks: list[TrainingRank] = []
        self.place(servers, devices, address)
        self.renew()

    def place(self, servers: Sequence[LinuxServer], devices: Sequence[str], address: str) -> None:
        """Place the ranks, from the next `renew` on; arguments as for the constructor."""
        self._devices, self._address = devices, address
        on_server: defaultdict[str, list[int]] = defaultdict(list)
        for rank, server in enumerate(servers):
            on_server[server.name].append(rank)
        self._servers, self._on_server = servers, list(on_server.values())

    def renew(self) -> None:
        """Start the programs, anew where they run: a script may leave its process changed.

        Such as by hooks, its working folder, or what its modules keep. Raises as the constructor
        does.
        """
        self.close()
        self.ranks.clear()
        try:
            for rank, server in enumerate(self._servers):
                self.ranks.append(TrainingRank(rank, server, self._clock))
            (self.pytorch,) = {rank.loaded() for rank in self.ranks}
        except BaseException:
            self.close()
            raise

    def run(
        self,
        script: Script,
        listener: PrintedLines,
        control: Control = "none",
        groups: Mapping[str, Sequence[int]] | None = None,
        *,
        phases: Sequence[LocalPhases] = (),
        module: ScriptModule | None = None,
        beside: Sequence[Task] = (),
        ended: Callable[[int], None] = lambda rank: None,
        lost: Task = lambda: None,
        parallel: Callable[[Sequence[Task]], object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ScriptRun:
        """Run `script` on all ranks to its end.

        Where a rank or a task beside them fails, all ranks end, since they would wait for it, and
        the session with them. The first error is raised; but if the program of a rank has ended,
        its error is, as the scripts of its peers fail too and may do so first. A rank fails as well
        that waits for a collective which the script of another one has ended without.

        Args:
            script: runs on every rank.
            listener: told what ranks announce and print.
            control: of the script's operations.
            groups: ranks of the groups whose operations are controlled, by name.
            phases: of each rank, if it decides by itself about some of its operations.
            module: carries all-to-alls of the script, unless `control` is "none".
            beside: tasks that run beside the ranks.
            ended: called with each rank whose script has ended or failed.
            lost: called after a failure, to end the waits of tasks and of ranks' listeners.
            parallel: runs the tasks of ranks and those beside them; by default the clock.
            environment: further variables of the script.
        """
        store, over = RendezvousStore(), self._clock.event()
        alone: list[TrainingFailedError] = []

        def note_alone(error: TrainingFailedError) -> None:
            alone.append(error)
            over.set()

        port = str(next(self._ports))
        local = {rank: place for ranks in self._on_server for place, rank in enumerate(ranks)}
        running = [
            rank.train(
                script,
                listener,
                control,
                groups or {},
                {
                    "WORLD_SIZE": str(len(self.ranks)),
                    "MASTER_ADDR": self._address,
                    "MASTER_PORT": port,
                    "RANK": str(rank.rank),
                    "LOCAL_RANK": str(local[rank.rank]),
                    "GLOO_SOCKET_IFNAME": self._devices[rank.rank],
                    **_nccl(rank.name, self._devices[rank.rank]),
                    **(environment or {}),
                },
                store,
                self._on_server,
                phases[rank.rank] if phases else None,
                module,
                note_alone,
            )
            for rank in self.ranks
        ]
        done: dict[int, RankResult] = {}
        following = set(range(len(self.ranks)))
        failed: list[BaseException] = []
        causes: list[BaseException] = []

        def guard(task: Task) -> None:
            try:
                task()
            except BaseException as error:  # of any type: the ranks would wait for ever
                failed.append(error)
                lost()
                if isinstance(failed[0], TrainingFailedError):
                    self._clock.sleep(_CAUSE)
                if not causes:
                    causes.append(_cause(failed))
                self.close()

        def follow(rank: int) -> None:
            try:
                done[rank] = running[rank].whole()
            finally:
                following.discard(rank)
                if not following:
                    over.set()
                ended(rank)
            counts = _collectives(done[rank])
            for each in following.copy():
                self.ranks[each].script_ended(rank, counts)

        def watch() -> None:
            over.wait()
            if alone:
                raise alone[0]

        tasks: list[Task] = [
            *(partial(follow, rank) for rank in range(len(running))),
            watch,
            *beside,
        ]
        guarded = [partial(guard, task) for task in tasks]
        if parallel is None:
            self._clock.parallel(*guarded)
        else:
            parallel(guarded)
        if failed:
            raise causes[0]
        return ScriptRun(
            {rank: one.operations for rank, one in done.items()},
            {rank: list(of) for rank, of in listener.lines.items()},
            {rank: one.front_end for rank, one in done.items()},
            {rank: one.steps for rank, one in done.items()},
            {rank: one.optimizers for rank, one in done.items()},
        )

    def close(self) -> None:
        """End all programs, and what they run."""
        self._clock.parallel(*(rank.close for rank in self.ranks))


def _nccl(server: str, device: str) -> dict[str, str]:
    """Return by which NCCL takes the addresses of the circuits, as Gloo does.

    Servers that are namespaces of one machine are hosts of their own: NCCL would take its memory
    between them, and refuse a second rank on a GPU.
    """
    return {"NCCL_SOCKET_IFNAME": f"={device}", "NCCL_NET": "Socket", "NCCL_HOSTID": server}


def _collectives(done: RankResult) -> Counter[str]:
    """Return how many collectives of each group a rank has begun."""
    operations = (each.operation for each in (*done.operations, *done.front_end))
    return Counter(each.group for each in operations if each.kind not in ("send", "recv"))


def _cause(failed: Sequence[BaseException]) -> BaseException:
    """Return the error that explains the others, which came in this order."""
    if isinstance(failed[0], TrainingFailedError):
        return next((each for each in failed if isinstance(each, RankLostError)), failed[0])
    return failed[0]
