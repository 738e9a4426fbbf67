"""Simulated DiCon 1xN MEMS module on its serial line.

Every reply begins with a line feed. Guessed: the reply to `ID?`, that a parked module reports
0, and the reply to an unknown command.
"""

from lightrig.instruments.simulated.devices.position_switch import SimulatedTextSwitch
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.framed_device import FrameReply, split_line


class SimulatedDiconMems(SimulatedTextSwitch):
    """Commands end with a carriage return."""

    upper_case = True

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first line."""
        return split_line(buffer, b"\r")

    def unknown_command(self) -> FrameReply:
        """Return the reply to a command that is not known, or an output that does not exist."""
        return FrameReply(b"\n?\r\n")

    @command(r"ID\?")
    def _query_identity(self) -> FrameReply:
        return FrameReply(f"\nDiCon MEMS 1x{self.outputs},{self.serial},2.1\r\n".encode())

    @command(r"CF\?")
    def _query_configuration(self) -> FrameReply:
        return FrameReply(f"\n1,1,{self.outputs}\r\n".encode())

    @command(r"I1\?")
    def _query_position(self) -> FrameReply:
        return FrameReply(f"\n{self.position}\r\n".encode())

    @command("PK")
    def _park(self) -> FrameReply:
        return FrameReply(b"\n", self.go(0) or 0)

    @command(r"I1 (\d+)")
    def _select(self, output: str) -> FrameReply:
        after = self.go(int(output)) if int(output) else None
        return self.unknown_command() if after is None else FrameReply(b"\n", after)
