"""Launchers: command lines that start a program on many servers, with ranks in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Protocol

from lightrig.testbeds import LightrigError


class LaunchError(LightrigError, ValueError):
    """A launcher cannot place the ranks as requested."""


class Launcher(Protocol):
    """Starts a program with one rank for each host named."""

    @property
    def name(self) -> str:
        """Name in records."""

    def command(
        self, program: Sequence[str], hosts: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """Return the command, for the first host, that starts rank i of `program` on host i.

        Raises `LaunchError` for ranks that it cannot place so.
        """


@dataclass(frozen=True, slots=True)
class Mpirun:
    """Open MPI's `mpirun`, which fills hosts in the order given.

    Attributes:
        program: its path.
        options: more arguments, such as `--mca`, `btl_tcp_if_include`, `eno1`.

    Source: Open MPI, mpirun(1): --host with slots, --map-by slot, -x.
    """

    program: str = "mpirun"
    options: tuple[str, ...] = ()
    name: ClassVar[str] = "mpirun"

    def command(
        self, program: Sequence[str], hosts: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """Return the command; see `Launcher`."""
        if len(set(hosts)) != len(_runs(hosts)):
            raise LaunchError(f"mpirun places a host's ranks side by side, not {', '.join(hosts)}")
        slots = ",".join(f"{host}:{count}" for host, count in _runs(hosts))
        exported = [
            word for name, value in environment.items() for word in ("-x", f"{name}={value}")
        ]
        return [
            *(self.program, "--host", slots, "-np", str(len(hosts)), "--map-by", "slot"),
            *self.options,
            *exported,
            *program,
        ]


@dataclass(frozen=True, slots=True)
class Srun:
    """Slurm's `srun`, within an allocation that has the hosts.

    That `--distribution=arbitrary` keeps the order of `--nodelist` is a guess: Slurm documents
    it for the file that SLURM_HOSTFILE names, and sorts the list otherwise.

    Attributes:
        program: its path.
        options: more arguments, such as `--mpi=pmix`.

    Source: Slurm, srun(1).
    """

    program: str = "srun"
    options: tuple[str, ...] = ()
    name: ClassVar[str] = "srun"

    def command(
        self, program: Sequence[str], hosts: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """Return the command; see `Launcher`."""
        if odd := [f"{k}={v}" for k, v in environment.items() if "," in v]:
            raise LaunchError(f"srun --export takes no value with a comma: {', '.join(odd)}")
        export = ",".join(["ALL", *(f"{name}={value}" for name, value in environment.items())])
        return [
            *(self.program, f"--nodelist={','.join(hosts)}", f"--ntasks={len(hosts)}"),
            *("--distribution=arbitrary", f"--export={export}"),
            *self.options,
            *program,
        ]


def _runs(hosts: Sequence[str]) -> list[tuple[str, int]]:
    return [(host, len(list(same))) for host, same in groupby(hosts)]
