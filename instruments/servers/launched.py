"""Collectives by benchmarks that a launcher starts, on the first rank's server."""

import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from instruments.collectives import CollectiveCall, CollectiveFailedError
from instruments.errors import NoReplyError
from instruments.servers.commands import Commands, Reading
from instruments.servers.launchers import Launcher, Mpirun

T = TypeVar("T")

_LAST_LINES = 6
_ADVICE = "are the links between these servers up?"


@dataclass(frozen=True)
class LaunchedRunner:
    """What runners of benchmarks share: how one is started, and what is said where it fails.

    Attributes:
        commands: programs on each server, by its name in the testbed.
        hosts: what launchers call each server.
        launcher: how ranks are started.
        environment: variables for all ranks, such as NCCL_IB_HCA; they are recorded.
        folder: where the benchmarks are; empty where they are on the path.
        simulated: whether the servers are, and so whether the times are a model's.
    """

    commands: Mapping[str, Commands]
    hosts: Mapping[str, str]
    launcher: Launcher = field(default_factory=Mpirun)
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    simulated: bool = False

    says_more: ClassVar[str] = ""
    """What else to try where a benchmark fails."""

    @property
    def _conditions(self) -> dict[str, str]:
        """What is recorded of how ranks are started."""
        return {"launcher": self.launcher.name, **self.environment}

    def _launch(
        self,
        call: CollectiveCall,
        program: str,
        options: Sequence[str],
        parse: Callable[[str], T],
        timeout: int,
    ) -> Reading[T]:
        """Run `program` with the ranks of `call` and read what it prints.

        Raises what `CollectiveRunner.run` does; an error of `parse` names server and command.
        """
        commands = self.commands[call.ranks[0]]
        hosts = [self.hosts[name] for name in call.ranks]
        words = [posixpath.join(self.folder, program), *options]
        command = self.launcher.command(words, hosts, self.environment)
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
            said = (result.stderr or result.stdout).strip().splitlines() or ["nothing"]
            advice = " ".join(filter(None, (_ADVICE, self.says_more)))
            raise CollectiveFailedError(
                commands.server,
                f"could not run {what}: status {result.status}",
                command=line,
                details=[*(("said", text) for text in said[-_LAST_LINES:]), ("try", advice)],
            )
        return commands.parsed(command, result, parse)
