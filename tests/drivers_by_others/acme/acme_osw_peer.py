"""Simulated Acme OSW; written from its manual, never from the driver."""

from lightrig.devices import FrameReply, SimulatedTextSwitch, command


class AcmeOswPeer(SimulatedTextSwitch):
    """Lines end with CR LF; every one has a reply."""

    @command(r"ID\?")
    def query_identity(self) -> FrameReply:
        return FrameReply(f"ACME OSW-1X{self.outputs} {self.serial} 2.1\r\n".encode())

    @command(r"CH\?")
    def query_channel(self) -> FrameReply:
        return FrameReply(f"CH {self.position}\r\n".encode())

    @command(r"CH (\d{1,3})")
    def select(self, channel: str) -> FrameReply:
        after = self.go(int(channel))
        if after is None:
            return FrameReply(b"ERR 2 no such channel\r\n")
        return FrameReply(b"OK\r\n", after)

    def unknown_command(self) -> FrameReply:
        """Return the reply to a line that is no command."""
        return FrameReply(b"ERR 1 unknown command\r\n")
