"""Checked collectives by NCCL or RCCL on servers with GPUs: one program of PyTorch on each."""

from collections.abc import Mapping
from typing import Any

from lightrig.instruments.servers.host.program import Program, ProgramRequest
from lightrig.instruments.servers.traffic.gloo import GlooRunner
from lightrig.instruments.servers.traffic.rank_programs import RankPrograms


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
    )
    _library = "NCCL"

    def _body(self, rank: str) -> dict[str, Any]:
        return {"address": self._addresses[rank]}

    def give_up(self, running: Mapping[str, ProgramRequest]) -> None:
        """End all programs: an operation of NCCL that waits on the GPU cannot be abandoned."""
        RankPrograms.give_up(self, running)
