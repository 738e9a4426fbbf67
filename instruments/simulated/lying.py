"""Peers that lie: what a simulated instrument answers is tampered with on its way out.

The instrument itself stays honest and does what it is told; only its words are delayed, lost,
cut, garbled, repeated or swapped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from instruments.clock import Clock
from instruments.simulated.peer_server import PeerConnection, Session, SessionFactory
from instruments.simulated.ssh_peer import CommandRunner, Outcome

Lie: TypeAlias = Literal[
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
LIES: tuple[Lie, ...] = get_args(Lie)

SLOW = 100_000_000
LATE = 200_000_000_000
"""How long a slow and a late answer are held back, in ns; late is after any timeout."""
_NEVER = 10**15

_JUNK = b"~junk~\r\n"
_KEPT = 50


@dataclass
class Liar:
    """Tampers with everything that the peers of one world say, as `lie` says now."""

    clock: Clock
    lie: Lie = "none"
    told: int = 0
    answers: int = 0
    _silences: dict[int, int | None] = field(default_factory=dict)
    _before: list[bytes] = field(default_factory=list)
    _outcome: Outcome | None = None

    def fall_silent(self, lasting: int | None = None) -> None:
        """Say nothing from now on, or for `lasting` ns."""
        self.lie = "silent"
        if lasting is not None:
            self.clock.schedule(self.clock.now() + lasting, "liar", self.speak_again)

    def fall_silent_after(self, answers: int, lasting: int | None = None) -> None:
        """The same, once so many answers were given."""
        self._silences[answers] = lasting

    def speak_again(self) -> None:
        """Be honest from now on."""
        self.lie = "none"

    def wrap(self, factory: SessionFactory) -> SessionFactory:
        """Sessions of `factory` whose answers go through this liar."""

        def make(connection: PeerConnection, index: int) -> Session:
            return factory(_Tampered(connection, self), index)

        return make

    def wrap_commands(self, run: CommandRunner) -> CommandRunner:
        """A way to run programs whose output goes through this liar."""

        def told(argv: Sequence[str]) -> Outcome:
            honest = run(argv)
            previous, self._outcome = self._outcome or honest, honest
            self._count()
            self.told += self.lie != "none"
            return self._printed(honest, previous)

        return told

    def _printed(self, honest: Outcome, previous: Outcome) -> Outcome:
        """What a program prints, or what becomes of it."""
        text = honest.stdout
        match self.lie:
            case "slow" | "late":
                held = SLOW if self.lie == "slow" else LATE
                return honest._replace(took=honest.took + held)
            case "silent":
                return honest._replace(took=_NEVER)
            case "closes" | "resets":
                return honest._replace(stdout="", hangs_up=True)
            case "cuts":
                return honest._replace(stdout=text[: len(text) // 2], hangs_up=True)
            case "truncates":
                return honest._replace(stdout=text[: len(text) // 2])
            case "garbles":
                return honest._replace(stdout="".join(chr(ord(each) ^ 0x25) for each in text))
            case "repeats":
                return honest._replace(stdout=text + text)
            case "previous":
                return previous._replace(took=honest.took)
            case "junk":
                return honest._replace(stdout=_JUNK.decode() + text)
            case _:
                return honest

    def tell(self, connection: PeerConnection, data: bytes) -> None:
        """Send `data`, or what becomes of it."""
        previous = self._before[-1] if self._before else data
        self._before = [*self._before[-_KEPT:], data]
        self._count()
        if self.lie == "none":
            connection.send(data)
            return
        self.told += 1
        match self.lie:
            case "slow" | "late":
                at = self.clock.now() + (SLOW if self.lie == "slow" else LATE)
                self.clock.schedule(at, "liar", lambda: connection.send(data))
            case "silent":
                pass
            case "closes" | "resets":
                connection.close(abruptly=self.lie == "resets")
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
        if self.answers in self._silences:
            self.fall_silent(self._silences.pop(self.answers))
        self.answers += 1


class _Tampered:
    def __init__(self, connection: PeerConnection, liar: Liar) -> None:
        self._connection = connection
        self._liar = liar

    def send(self, data: bytes) -> None:
        """Say it, or something else."""
        self._liar.tell(self._connection, data)

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up."""
        self._connection.close(abruptly=abruptly)
