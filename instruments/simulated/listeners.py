"""Programs of simulated servers that wait for a client: perftest's and iperf3's servers."""

from collections.abc import Callable
from dataclasses import dataclass

from instruments.clock import Clock
from instruments.simulated.ssh_peer import Outcome, Waiting

_BEGIN = 30_000_000
"""How long a client takes from its start to its first packet, in ns."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A program that waits.

    Attributes:
        argv: the program with its arguments.
        waiting: how it learns that it ends; None for one that stays for the next client.
    """

    argv: tuple[str, ...]
    waiting: Waiting | None


class Listeners:
    """Who waits where, by server and TCP port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[tuple[str, int], Listener] = {}

    def listen(self, server: str, port: int, argv: tuple[str, ...], busy: str) -> Outcome:
        """Wait for a client; ends at once with the complaint `busy` where somebody does."""
        if (server, port) in self._waiting:
            return Outcome("", busy, 1)
        waiting = Waiting()
        self._waiting[server, port] = Listener(argv, waiting)
        return Outcome("", waits=waiting)

    def stay(self, server: str, port: int, argv: tuple[str, ...], busy: str) -> Outcome:
        """Wait in the background for any number of clients."""
        if (server, port) in self._waiting:
            return Outcome("", busy, 1)
        self._waiting[server, port] = Listener(argv, None)
        return Outcome("")

    def meet(
        self,
        client: str,
        server: str | None,
        port: int,
        program: str,
        meeting: Callable[[Listener | None], tuple[Outcome, Outcome]],
    ) -> Outcome:
        """Let a program of `client` connect to who waits at `server`, a little after it began.

        `meeting` says what both ends of it come to, the client's first; it is given None where
        nobody of that program waits.
        """
        waiting = Waiting()
        place = server or "", port

        def connect() -> None:
            listener = self._waiting.get(place)
            if listener is not None and listener.argv[0].rpartition("/")[2] != program:
                listener = None
            own, other = meeting(listener)
            if listener is not None and listener.waiting is not None:
                del self._waiting[place]
                listener.waiting.ends(other)
            waiting.ends(own)

        self._clock.schedule(self._clock.now() + _BEGIN, client, connect)
        return Outcome("", waits=waiting)
