"""Switches links in the kernel as the light of a simulated switch moves."""

import threading

from lightrig.instruments.clock import Span
from lightrig.instruments.simulated.namespaces.kernel_links import Applied, KernelLinks
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.testbeds import LightrigError, Port, Testbed


class FiberPlant:
    """Keeps the kernel's links in the state of the light: a port that receives light has carrier.

    A port that receives its own light has carrier and no partner. A port that exchanges light
    with a port of a packet switch is connected to that switch.

    The kernel is moved by a thread of its own, always to the newest state: it takes
    milliseconds, in which more mirrors may come to rest.
    """

    def __init__(self, kernel: KernelLinks, testbed: Testbed, truth: GroundTruth) -> None:
        self._kernel = kernel
        self._truth = truth
        self._keys = {spec.port: f"{spec.port.owner}.{spec.netdev}" for spec in testbed.nic_ports}
        self._ports = {key: port for port, key in self._keys.items()}
        self._heard: dict[Port, Port] = {}
        self._passing: set[frozenset[str]] = set()
        self._changed = threading.Condition()
        self._dirty = False
        self._switching = False
        self._closed = False
        self.failure: LightrigError | None = None
        self._thread = threading.Thread(target=self._run, name="plant", daemon=True)
        self._thread.start()

    def hears(self, port: Port, source: Port | None) -> None:
        """Let `port`, of a server or packet switch, receive `source`, or no light, from now on."""
        with self._changed:
            if source is None:
                self._heard.pop(port, None)
            else:
                self._heard[port] = source
            self._dirty = True
            self._changed.notify_all()

    def await_truth(self, timeout: float) -> None:
        """Wait until the truth of all light so far is known, at most `timeout` s."""
        with self._changed:
            self._changed.wait_for(
                lambda: (not self._dirty and not self._switching) or self.failure, timeout
            )

    def close(self) -> None:
        """Stop following the light; the kernel's links stay until their owner closes them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._dirty or self._closed)
                if self._closed:
                    return
                self._dirty, self._switching = False, True
                heard = dict(self._heard)
            lit = frozenset(self._keys[port] for port in heard if port in self._keys)
            joined: set[frozenset[str]] = set()
            switched: dict[str, frozenset[str]] = {}
            for port, source in heard.items():
                if port not in self._keys or source == port or heard.get(source) != port:
                    continue
                if source in self._keys:
                    joined.add(frozenset((self._keys[port], self._keys[source])))
                else:
                    there = switched.get(source.owner, frozenset())
                    switched[source.owner] = there | {self._keys[port]}
            try:
                applied = self._kernel.apply(lit, frozenset(joined), switched)
            except LightrigError as error:
                self.failure = error
                with self._changed:
                    self._switching = False
                    self._changed.notify_all()
                return
            for change in applied.changes:
                at = Span(change.sent_ns, change.done_ns)
                self._note(change.key, "carrier", up=change.up, at=at)
            self._note_datagrams(applied, {pair for pair in joined if pair <= lit})
            with self._changed:
                self._switching = False
                self._changed.notify_all()

    def _note(self, key: str, stage: str, *, up: bool, at: Span) -> None:
        self._truth.note(str(self._ports[key]), stage, up=up, at=at)

    def _note_datagrams(self, applied: Applied, passing: set[frozenset[str]]) -> None:
        """Note when packets ceased and began to reach the ports of each pair.

        They cease with the carrier of either end, or as the pair is taken apart, and begin when
        both bridge ports forward and the far end sends. Ports of a packet switch have many other
        ends, and no such moment.
        """
        dark = {c.key: Span(c.sent_ns, c.done_ns) for c in applied.changes if not c.up}
        ready = {(r.key, r.side): Span(r.not_yet_ns, r.since_ns) for r in applied.ready}
        for pair in self._passing - passing:
            at = min([dark[key] for key in pair if key in dark], default=Span(*applied.at))
            for key in pair:
                self._note(key, "datagram", up=False, at=at)
        for pair in passing - self._passing:
            for receiver in pair:
                (sender,) = pair - {receiver}
                needed = (receiver, "bridge"), (sender, "bridge"), (sender, "server")
                if begins := [ready[side] for side in needed if side in ready]:
                    at = Span(max(b.earliest for b in begins), max(b.latest for b in begins))
                    self._note(receiver, "datagram", up=True, at=at)
        self._passing = passing
