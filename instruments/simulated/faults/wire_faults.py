"""Wire faults: replies of a simulated device are changed on their way to the client.

The device itself carries out every command correctly; only its replies are delayed, lost, cut,
garbled, repeated or swapped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.protocols.device_server import (
    DeviceConnection,
    Session,
    SessionFactory,
)
from lightrig.instruments.simulated.protocols.ssh_server import CommandRunner, ProgramOutcome

WireFault: TypeAlias = Literal[
    "none",
    "slow",
    "late",
    "silent",
    "closes",
    "cuts",
    "resets",
    "truncates",
    "garbles",
    "repeats",
    "previous",
    "junk",
]
WIRE_FAULTS: tuple[WireFault, ...] = get_args(WireFault)

SLOW = 100_000_000
LATE = 200_000_000_000
"""Delay of a slow and of a late reply, in ns; late is after any timeout."""
_NEVER = 10**15

_JUNK = b"~junk~\r\n"


@dataclass
class FaultInjector:
    """Applies a wire fault to the replies of the devices that it wraps.

    Attributes:
        fault: the fault that is applied now.
        injected: number of replies that a fault was applied to.
        replies: number of all replies.
    """

    clock: Clock
    fault: WireFault = "none"
    injected: int = 0
    replies: int = 0
    _silences: dict[int, int | None] = field(default_factory=dict)
    _before: bytes | None = None
    _outcome: ProgramOutcome | None = None

    def fall_silent(self, lasting: int | None = None) -> None:
        """Drop all replies from now on, or for `lasting` ns."""
        self.fault = "silent"
        if lasting is not None:
            self.clock.schedule(self.clock.now() + lasting, "wire-fault", self.stop)

    def fall_silent_after(self, replies: int, lasting: int | None = None) -> None:
        """Drop all replies after the first `replies`, or for `lasting` ns."""
        self._silences[replies] = lasting

    def stop(self) -> None:
        """Apply no fault from now on."""
        self.fault = "none"

    def wrap(self, factory: SessionFactory) -> SessionFactory:
        """Return a factory of the same sessions, whose replies this injector changes."""

        def make(connection: DeviceConnection, index: int) -> Session:
            return factory(_FaultyConnection(connection, self), index)

        return make

    def wrap_commands(self, run: CommandRunner) -> CommandRunner:
        """Return a runner of the same programs, whose output this injector changes."""

        def run_with_fault(argv: Sequence[str]) -> ProgramOutcome:
            outcome = run(argv)
            previous, self._outcome = self._outcome or outcome, outcome
            self._count()
            self.injected += self.fault != "none"
            return self._changed(outcome, previous)

        return run_with_fault

    def _changed(self, outcome: ProgramOutcome, previous: ProgramOutcome) -> ProgramOutcome:
        text = outcome.stdout
        match self.fault:
            case "slow" | "late":
                delay = SLOW if self.fault == "slow" else LATE
                return outcome._replace(took=outcome.took + delay)
            case "silent":
                return outcome._replace(took=_NEVER)
            case "closes" | "resets":
                return outcome._replace(stdout="", hangs_up=True)
            case "cuts":
                return outcome._replace(stdout=text[: len(text) // 2], hangs_up=True)
            case "truncates":
                return outcome._replace(stdout=text[: len(text) // 2])
            case "garbles":
                return outcome._replace(stdout="".join(chr(ord(each) ^ 0x25) for each in text))
            case "repeats":
                return outcome._replace(stdout=text + text)
            case "previous":
                return previous._replace(took=outcome.took)
            case "junk":
                return outcome._replace(stdout=_JUNK.decode() + text)
            case _:
                return outcome

    def send(self, connection: DeviceConnection, data: bytes) -> None:
        """Send a reply, changed by the fault."""
        previous = data if self._before is None else self._before
        self._before = data
        self._count()
        if self.fault == "none":
            connection.send(data)
            return
        self.injected += 1
        match self.fault:
            case "slow" | "late":
                at = self.clock.now() + (SLOW if self.fault == "slow" else LATE)
                self.clock.schedule(at, "wire-fault", lambda: connection.send(data))
            case "silent":
                pass
            case "closes" | "resets":
                connection.close(abruptly=self.fault == "resets")
            case "cuts":
                connection.send(data[: len(data) // 2])
                connection.close()
            case "truncates":
                connection.send(data[: len(data) // 2])
            case "garbles":
                connection.send(bytes(byte ^ 0xA5 for byte in data))
            case "repeats":
                connection.send(data + data)
            case "previous":
                connection.send(previous)
            case "junk":
                connection.send(_JUNK + data)

    def _count(self) -> None:
        if self.replies in self._silences:
            self.fall_silent(self._silences.pop(self.replies))
        self.replies += 1


class _FaultyConnection:
    """A connection whose replies go through an injector."""

    def __init__(self, connection: DeviceConnection, injector: FaultInjector) -> None:
        self._connection = connection
        self._injector = injector

    def send(self, data: bytes) -> None:
        """Write to the client, through the injector."""
        self._injector.send(self._connection, data)

    def close(self, *, abruptly: bool = False) -> None:
        """Close the connection."""
        self._connection.close(abruptly=abruptly)
