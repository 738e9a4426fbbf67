"""Simulated Thorlabs OSW12 or OSW22 switch on its USB serial line.

Guessed: the replies to `ID?` and `T?`, and that an unknown command has no reply.
"""

from lightrig.instruments.simulated.devices.position_switch import SimulatedTextSwitch
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.framed_device import FrameReply


class SimulatedThorlabsOsw(SimulatedTextSwitch):
    """`S 1` is bar, `S 2` cross; settings have no reply."""

    can_be_dark = False
    upper_case = True

    @property
    def _model(self) -> str:
        return "OSW22" if self.spec.ingress_count == 2 else "OSW12"

    @command(r"S\?")
    def _query_position(self) -> FrameReply:
        return FrameReply(f"{self.position}\r\n".encode())

    @command(r"ID?\?")
    def _query_identity(self) -> FrameReply:
        return FrameReply(f"Thorlabs {self._model} {self.serial} 1.20\r\n".encode())

    @command(r"T\?")
    def _query_type(self) -> FrameReply:
        return FrameReply(f"{self._model}-1310E\r\n".encode())

    @command(r"S ?([12])")
    def _select(self, position: str) -> FrameReply:
        return FrameReply(after=self.go(int(position)) or 0)
