"""Switches links in the kernel as the light of a simulated switch moves."""

import threading

from lightrig.instruments.clock import Span
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks
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
        self._changed = threading.Condition()
        self._dirty = False
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
            self._changed.notify()

    def close(self) -> None:
        """Stop following the light; the kernel's links stay until their owner closes them."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._dirty or self._closed)
                if self._closed:
                    return
                self._dirty = False
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
                changes = self._kernel.apply(lit, frozenset(joined), switched)
            except LightrigError as error:
                self.failure = error
                return
            for change in changes:
                self._truth.note(
                    str(self._ports[change.key]),
                    "carrier",
                    up=change.up,
                    at=Span(change.sent_ns, change.done_ns),
                )
