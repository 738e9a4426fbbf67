"""Checked collectives by NCCL or RCCL on servers with GPUs: one program of PyTorch on each."""

from collections.abc import Mapping
from typing import Any

from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.traffic.gloo import GlooRunner
from lightrig.instruments.jobs.traffic.rank_programs import RankPrograms
from lightrig.instruments.servers.host.program import Program, ProgramRequest


class NcclRunner(GlooRunner):
    """Checked collectives of NCCL over TCP; see `GlooRunner`.

    A machine with one GPU is enough for ranks on servers that are its namespaces.
    """

    _program = Program(
        "lightrig-nccl",
        "the collective's program",
        1,
        ("server_clock", "replies", "checked_rounds", "gloo_program", "nccl_program"),
        "PyTorch with NCCL",
        programs.__name__,
    )
    _library = "NCCL"

    def _body(self, rank: str) -> dict[str, Any]:
        return {"address": self._addresses[rank]}

    def give_up(self, running: Mapping[str, ProgramRequest]) -> None:
        """End all programs: an operation of NCCL that waits on the GPU cannot be abandoned."""
        RankPrograms.give_up(self, running)
