"""Collectives by benchmarks that a launcher starts on the first rank's server."""

import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from lightrig.instruments.core.errors import NoReplyError
from lightrig.instruments.jobs.core.collectives import CollectiveCall, CollectiveFailedError
from lightrig.instruments.jobs.traffic.launchers import Launcher, Mpirun
from lightrig.instruments.jobs.traffic.rank_launcher import last_lines
from lightrig.instruments.servers.host.commands import Commands, Reading

T = TypeVar("T")

_ADVICE = "are the links between these servers up?"


@dataclass(frozen=True)
class LaunchedRunner:
    """Common part of the runners of benchmarks: their start and their errors.

    Attributes:
        commands: programs on each server, by its name in the testbed.
        hosts: host name of each server, for the launcher.
        launcher: starts the ranks.
        environment: variables for all ranks, such as NCCL_IB_HCA; they are recorded.
        folder: folder of the benchmarks; empty if they are on the path.
        simulated: whether the servers are simulated, and the times those of a model.
    """

    commands: Mapping[str, Commands]
    hosts: Mapping[str, str]
    launcher: Launcher = field(default_factory=Mpirun)
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    simulated: bool = False

    hint: ClassVar[str] = ""
    """Additional remedy for the error of a failed benchmark."""

    @property
    def _conditions(self) -> dict[str, str]:
        """Recorded conditions of the start of ranks."""
        return {"launcher": self.launcher.name, **self.environment}

    def _launch(
        self,
        call: CollectiveCall,
        program: str,
        options: Sequence[str],
        parse: Callable[[str], T],
        timeout: int,
    ) -> Reading[T]:
        """Run `program` with the ranks of `call` and parse its output.

        Raises what `CollectiveRunner.run` raises; an error of `parse` names server and command.
        """
        commands = self.commands[call.ranks[0]]
        hosts = [self.hosts[name] for name in call.ranks]
        program_line = [posixpath.join(self.folder, program), *options]
        command = self.launcher.command(program_line, hosts, self.environment)
        line = shlex.join(command)
        what = f"{call.collective} among {', '.join(call.ranks)}"
        try:
            result = commands.run(command, timeout)
        except NoReplyError as error:
            raise CollectiveFailedError(
                commands.server,
                f"did not end {what} within {timeout / 1e9:g} s",
                command=line,
                details=[("try", _ADVICE)],
                trace=commands.trace.tail(),
            ) from error
        if result.status != 0:
            printed = (result.stderr or result.stdout).strip().splitlines() or ["nothing"]
            advice = " ".join(filter(None, (_ADVICE, self.hint)))
            raise CollectiveFailedError(
                commands.server,
                f"could not run {what}: status {result.status}",
                command=line,
                details=[*last_lines(printed), ("try", advice)],
            )
        return commands.parsed(command, result, parse)
