"""Launchers of simulated servers: `mpirun`, `srun`, or a program without either.

Only what places ranks is understood; what else launchers can be told is passed over where its
form is clear, and refused where it is not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


class LaunchError(Exception):
    """Error message of a launcher; `status` is its exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Launch:
    """A program and the hosts of its ranks.

    Attributes:
        argv: the program with its arguments.
        hosts: the host of each rank, in order; empty for a program that runs where it is asked.
        environment: variables that were set for it.
        prefix: what stands before each line that rank 0 prints.
        launcher: `mpirun`, `srun`, or empty.
    """

    argv: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    launcher: str = ""

    def printed(self, text: str) -> str:
        """Return `text` as the launcher prints it."""
        return "".join(f"{self.prefix}{line}\n" for line in text.splitlines())


_MPIRUN_VALUES = {
    **dict.fromkeys(("--map-by", "--bind-to", "--rank-by", "--prefix", "--wdir"), 1),
    **dict.fromkeys(("--mca", "-mca", "--prtemca", "--omca"), 2),
}
_MPIRUN_FLAGS = {"--allow-run-as-root", "--oversubscribe", "--display-map", "--report-bindings"}


def mpirun(arguments: Sequence[str]) -> Launch:
    """Open MPI: `--host a:2,b:2 -np 4 -x NAME=VALUE --tag-output PROGRAM ...`; hosts in order."""
    hosts: list[str] = []
    environment: dict[str, str] = {}
    tagged, count = False, 0
    tokens = list(arguments)
    while tokens and tokens[0].startswith("-"):
        option = tokens.pop(0)
        if option in ("--host", "-H", "-host"):
            hosts += [name for entry in tokens.pop(0).split(",") for name in _repeated(entry, ":")]
        elif option in ("-np", "-n", "--np"):
            count = int(tokens.pop(0))
        elif option == "-x":
            environment |= _assignment(tokens.pop(0))
        elif option in ("--tag-output", "-tag-output"):
            tagged = True
        elif option in _MPIRUN_VALUES:
            del tokens[: _MPIRUN_VALUES[option]]
        elif option not in _MPIRUN_FLAGS:
            raise LaunchError(f"mpirun: Error: unknown option {option!r}\n")
    _check(tokens, "mpirun")
    ranks = hosts or ["localhost"]
    if count > len(ranks):
        raise LaunchError(
            "There are not enough slots available in the system to satisfy the "
            f"{count}\nslots that were requested by the application:\n\n  {tokens[0]}\n"
        )
    prefix = "[1,0]<stdout>:" if tagged else ""
    return Launch(tuple(tokens), tuple(ranks[: count or None]), environment, prefix, "mpirun")


def srun(arguments: Sequence[str]) -> Launch:
    """Slurm: `--nodelist=a,b --ntasks-per-node=2 --label --export=ALL,NAME=VALUE PROGRAM ...`.

    Nodes are sorted unless `--distribution=arbitrary` keeps the order of the list.
    """
    nodes: list[str] = []
    environment: dict[str, str] = {}
    each, labelled, in_order = 1, False, False
    tokens = list(arguments)
    while tokens and tokens[0].startswith("-"):
        option, equals, value = tokens.pop(0).partition("=")
        if option in ("-w", "-N", "-n", "-m") and not equals:
            value = tokens.pop(0)
        match option:
            case "--nodelist" | "-w":
                nodes = [name for entry in value.split(",") for name in _repeated(entry, "*")]
            case "--ntasks-per-node":
                each = int(value)
            case "--label" | "-l":
                labelled = True
            case "--export":
                for part in value.split(","):
                    environment |= _assignment(part) if "=" in part else {}
            case "--distribution" | "-m":
                in_order = value == "arbitrary"
            case "--ntasks" | "-n" | "--nodes" | "-N" | "--mpi" | "--cpu-bind" | "--partition":
                pass
            case _:
                raise LaunchError(f"srun: unrecognized option '{option}'\n")
    _check(tokens, "srun")
    if not nodes:
        raise LaunchError("srun: error: Unable to allocate resources: no nodes were named\n")
    ranks = nodes if in_order else sorted(name for name in set(nodes) for _ in range(each))
    return Launch(tuple(tokens), tuple(ranks), environment, "0: " if labelled else "", "srun")


def env(arguments: Sequence[str]) -> Launch:
    """`env NAME=VALUE ... PROGRAM ...`, or the same before a launcher."""
    tokens = list(arguments)
    environment: dict[str, str] = {}
    while tokens and "=" in tokens[0]:
        environment |= _assignment(tokens.pop(0))
    _check(tokens, "env")
    inner = launched(tokens)
    return Launch(
        inner.argv, inner.hosts, environment | inner.environment, inner.prefix, inner.launcher
    )


def launched(argv: Sequence[str]) -> Launch:
    """Parse a command line; raise `LaunchError`, or ValueError and IndexError for bad syntax."""
    name = argv[0].rpartition("/")[2]
    return LAUNCHERS[name](argv[1:]) if name in LAUNCHERS else Launch(tuple(argv))


LAUNCHERS: dict[str, Callable[[Sequence[str]], Launch]] = {
    "mpirun": mpirun,
    "mpiexec": mpirun,
    "srun": srun,
    "env": env,
}
"""Launchers by name."""


def _repeated(entry: str, mark: str) -> list[str]:
    name, _, count = entry.partition(mark)
    return [name] * int(count or 1)


def _assignment(text: str) -> dict[str, str]:
    name, _, value = text.partition("=")
    return {name: value}


def _check(tokens: Sequence[str], launcher: str) -> None:
    if not tokens:
        raise LaunchError(f"{launcher}: no program was named\n")
