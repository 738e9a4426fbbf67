"""Collectives by torchft over PyTorch's Gloo, whose replicas go on without those that fail."""

from collections.abc import Mapping
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.traffic.gloo import GlooRunner
from lightrig.instruments.jobs.traffic.server_routes import DEVICE
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.host.program import Program

_SILENCE = 5_000_000_000
"""torchft's own limit of a replica's heartbeats at the lighthouse, in ns."""


class TorchftRunner(GlooRunner):
    """Checked all-reduces and training steps of torchft; see `GlooRunner`.

    detector: how long the lighthouse may not hear of a replica, in ns; None for torchft's own.
    """

    reforms = True
    _program = Program(
        "lightrig-torchft",
        "the replica's program",
        1,
        ("server_clock", "replies", "checked_rounds", "gloo_program", "torchft_program"),
        "PyTorch with torchft",
        programs.__name__,
    )

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        addresses: Mapping[str, str],
        clock: Clock,
        *,
        interface: str = DEVICE,
        timeout: int,
        detector: int | None = None,
    ) -> None:
        super().__init__(servers, addresses, clock, interface=interface, timeout=timeout)
        self._silence = detector or _SILENCE

    def _body(self, rank: str) -> dict[str, Any]:
        return {"address": self._addresses[rank], "silence_ns": self._silence}
