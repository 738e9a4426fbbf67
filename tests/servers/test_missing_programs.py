"""A program that a server lacks is looked for once, however many ports ask for it."""

from collections.abc import Sequence

import pytest
from servers.program_host import Here

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.servers.host.commands import Commands, ToolMissingError
from lightrig.instruments.wire.namespace import ProcessChannel
from lightrig.instruments.wire.shell import LineListener


class Counting(Here):
    """This machine, with the programs that were started on it."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []

    def start(self, command: Sequence[str], listener: LineListener) -> ProcessChannel:
        self.started.append(command[0])
        return super().start(command, listener)

    def local_command(self, command: Sequence[str]) -> list[str]:
        return ["env", *command]  # ends with 127 where there is no such program, as a shell does


class LaterClock(SystemClock):
    """The machine's clock, `later` ns ahead."""

    later = 0

    def now(self) -> int:
        return super().now() + self.later


def test_a_missing_program_is_looked_for_again_only_after_a_while() -> None:
    shell, clock = Counting(), LaterClock()
    commands = Commands("server0", shell, clock)
    for _ in range(3):
        with pytest.raises(ToolMissingError, match="has no program lightrig-has-none"):
            commands.run(["lightrig-has-none", "show"])
    assert shell.started == ["lightrig-has-none", "/usr/sbin/lightrig-has-none"]
    clock.later = 11_000_000_000
    with pytest.raises(ToolMissingError):
        commands.run(["lightrig-has-none", "show"])
    assert len(shell.started) == 4
    assert commands.run(["true"]).status == 0
