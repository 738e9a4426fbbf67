"""What a simulated server makes of `mpirun`, `srun`, or a program without either.

Only what places ranks is understood; what else launchers can be told is passed over where its
form is clear, and refused where it is not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


class LaunchError(Exception):
    """A launcher's own complaint; `status` is what it ends with."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Launch:
    """A program and where its ranks are.

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
        """`text` as the launcher hands it on."""
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
    words = list(arguments)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("--host", "-H", "-host"):
            hosts += [name for entry in words.pop(0).split(",") for name in _repeated(entry, ":")]
        elif option in ("-np", "-n", "--np"):
            count = int(words.pop(0))
        elif option == "-x":
            environment |= _assignment(words.pop(0))
        elif option in ("--tag-output", "-tag-output"):
            tagged = True
        elif option in _MPIRUN_VALUES:
            del words[: _MPIRUN_VALUES[option]]
        elif option not in _MPIRUN_FLAGS:
            raise LaunchError(f"mpirun: Error: unknown option {option!r}\n")
    _check(words, "mpirun")
    ranks = hosts or ["localhost"]
    if count > len(ranks):
        raise LaunchError(
            "There are not enough slots available in the system to satisfy the "
            f"{count}\nslots that were requested by the application:\n\n  {words[0]}\n"
        )
    prefix = "[1,0]<stdout>:" if tagged else ""
    return Launch(tuple(words), tuple(ranks[: count or None]), environment, prefix, "mpirun")


def srun(arguments: Sequence[str]) -> Launch:
    """Slurm: `--nodelist=a,b --ntasks-per-node=2 --label --export=ALL,NAME=VALUE PROGRAM ...`.

    Nodes are sorted unless `--distribution=arbitrary` keeps the order of the list.
    """
    nodes: list[str] = []
    environment: dict[str, str] = {}
    each, labelled, in_order = 1, False, False
    words = list(arguments)
    while words and words[0].startswith("-"):
        option, equals, value = words.pop(0).partition("=")
        if option in ("-w", "-N", "-n", "-m") and not equals:
            value = words.pop(0)
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
    _check(words, "srun")
    if not nodes:
        raise LaunchError("srun: error: Unable to allocate resources: no nodes were named\n")
    ranks = nodes if in_order else sorted(name for name in set(nodes) for _ in range(each))
    return Launch(tuple(words), tuple(ranks), environment, "0: " if labelled else "", "srun")


def env(arguments: Sequence[str]) -> Launch:
    """`env NAME=VALUE ... PROGRAM ...`, or the same before a launcher."""
    words = list(arguments)
    environment: dict[str, str] = {}
    while words and "=" in words[0]:
        environment |= _assignment(words.pop(0))
    _check(words, "env")
    inner = launched(words)
    return Launch(
        inner.argv, inner.hosts, environment | inner.environment, inner.prefix, inner.launcher
    )


def launched(argv: Sequence[str]) -> Launch:
    """Where `argv` runs what; raises `LaunchError`, or ValueError and IndexError for nonsense."""
    name = argv[0].rpartition("/")[2]
    return LAUNCHERS[name](argv[1:]) if name in LAUNCHERS else Launch(tuple(argv))


LAUNCHERS: dict[str, Callable[[Sequence[str]], Launch]] = {
    "mpirun": mpirun,
    "mpiexec": mpirun,
    "srun": srun,
    "env": env,
}
"""What starts other programs, by name."""


def _repeated(entry: str, mark: str) -> list[str]:
    name, _, count = entry.partition(mark)
    return [name] * int(count or 1)


def _assignment(text: str) -> dict[str, str]:
    name, _, value = text.partition("=")
    return {name: value}


def _check(words: Sequence[str], launcher: str) -> None:
    if not words:
        raise LaunchError(f"{launcher}: no program was named\n")
