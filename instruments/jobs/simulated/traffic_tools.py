"""Programs of a simulated server that send traffic over the fabric."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from lightrig.instruments.jobs.simulated import nccl_tests_tool, perftest_tool
from lightrig.instruments.jobs.simulated.fabric_traffic import FabricTraffic, traffic_of
from lightrig.instruments.jobs.simulated.host_launchers import (
    LAUNCHERS,
    Launch,
    LaunchError,
    launched,
)
from lightrig.instruments.simulated.protocols.ssh_server import (
    PendingOutcome,
    ProgramOutcome,
    no_such_program,
)
from lightrig.instruments.simulated.world.world import World

Program = Callable[[Sequence[str]], ProgramOutcome]
"""Runs with its arguments, to its end."""


class TrafficTools:
    """One server's programs that send traffic.

    Args:
        server: where they are started.
        traffic: what the fabric carries.
        missing: programs that are not installed.

    Attributes:
        files: what they have written, by path.
    """

    def __init__(
        self, server: str, traffic: FabricTraffic, missing: Collection[str] = frozenset()
    ) -> None:
        self.files: dict[str, str] = {}
        self._server = server
        self._traffic = traffic
        self._missing = missing
        self._programs: dict[str, Callable[[Launch], ProgramOutcome]] = {
            **dict.fromkeys(nccl_tests_tool.PROGRAMS, self._nccl_tests),
            **dict.fromkeys(perftest_tool.PROGRAMS, partial(perftest_tool.run, traffic, server)),
        }

    def programs(self) -> dict[str, Program]:
        """Return the installed programs by name; each takes its arguments."""
        started: dict[str, Program] = {
            name: partial(self._run, name) for name in [*self._programs, *LAUNCHERS]
        }
        installed = {name: run for name, run in started.items() if name not in self._missing}
        return {**installed, "rm": self._rm}

    def starts(self, argv: Sequence[str]) -> bool:
        """Whether a command line that begins with `env` starts one of them."""
        try:
            return launched(argv).argv[0].rpartition("/")[2] in self.programs()
        except (LaunchError, ValueError, IndexError):
            return False

    def _run(self, program: str, arguments: Sequence[str]) -> ProgramOutcome:
        argv = [program, *arguments]
        try:
            launch = launched(argv)
        except LaunchError as error:
            return ProgramOutcome("", str(error), error.status)
        except (ValueError, IndexError) as error:
            return ProgramOutcome("", f"{argv[0]}: bad arguments: {error}\n", 1)
        name = launch.argv[0].rpartition("/")[2]
        if name not in self._programs or name in self._missing:
            return no_such_program(launch.argv)
        return self._programs[name](launch)

    def _nccl_tests(self, launch: Launch) -> ProgramOutcome:
        """Run a test on the links that are up when the ranks connect, not when they are started."""
        clock, waiting = self._traffic.clock, PendingOutcome()

        def connect() -> None:
            done = nccl_tests_tool.run(self._traffic, self._server, launch, self.files)
            waiting.end(done)

        clock.schedule(clock.now() + nccl_tests_tool.START_UP, self._server, connect)
        return ProgramOutcome("", pending=waiting)

    def _rm(self, arguments: Sequence[str]) -> ProgramOutcome:
        for path in arguments:
            self.files.pop(path, None)
        return ProgramOutcome("")


def traffic_tools(server: str, world: World, missing: Collection[str]) -> TrafficTools:
    """Return the programs of a server that send traffic over the fabric of its world."""
    return TrafficTools(server, traffic_of(world), missing)
