"""Programs on this machine itself, as on a server."""

import subprocess
from collections.abc import Sequence

from lightrig.instruments.wire.namespace import NamespaceShell, ProcessChannel
from lightrig.instruments.wire.shell import LineListener


class Here(NamespaceShell):
    """Programs on this machine itself."""

    def __init__(self) -> None:
        super().__init__(0)

    def start(self, command: Sequence[str], listener: LineListener) -> ProcessChannel:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self.local_command(command), stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
        )
        channel = ProcessChannel(process, listener)
        self._channels.append(channel)
        return channel

    def local_command(self, command: Sequence[str]) -> list[str]:
        return list(command)
