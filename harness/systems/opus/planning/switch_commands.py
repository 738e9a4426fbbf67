"""What is wanted of a switch, in commands of which no two at a time touch a port."""

from lightrig.harness.systems.opus.planning.messages import Rewire


class SwitchCommands:
    """Changes that wait for one switch, and those under way."""

    def __init__(self) -> None:
        self.waiting: list[Rewire] = []
        self._doing: list[Rewire] = []

    def add(self, rewire: Rewire) -> None:
        """Let `rewire` wait for its turn."""
        self.waiting.append(rewire)

    def take(self) -> list[Rewire]:
        """Take what can be one command: nothing that touches a port of what comes before.

        A change that is tried again has a command of its own.
        """
        touched = {port for rewire in self._doing for port in _ports(rewire)}
        taken: list[Rewire] = []
        for rewire in self.waiting:
            alone = rewire.attempt > 1
            if touched.isdisjoint(_ports(rewire)) and not (taken and alone):
                taken.append(rewire)
                if alone:
                    break
            touched |= _ports(rewire)
        for rewire in taken:
            self.waiting.remove(rewire)
        self._doing += taken
        return taken

    def done(self, rewire: Rewire) -> None:
        """Note that `rewire` is carried out, or has failed."""
        self._doing.remove(rewire)


def _ports(rewire: Rewire) -> frozenset[tuple[str, int]]:
    circuits = rewire.remove | rewire.add
    return frozenset(("ingress", circuit.ingress) for circuit in circuits) | frozenset(
        ("egress", circuit.egress) for circuit in circuits
    )
