"""Hands the light of a simulated switch on to links in the kernel."""

import threading

from instruments.clock import Span
from instruments.simulated.kernel_links import KernelLinks
from instruments.simulated.truth import Truth
from testbeds import LightrigError, Port, Testbed


class KernelPlant:
    """Keeps the kernel's links as the light is: a port that hears light has carrier.

    A port that hears itself has carrier and nobody to talk to. One that a port of a packet
    switch hears, and that hears it, is at that switch.

    The kernel is moved by a thread of its own, always to the newest state: it takes
    milliseconds, in which more mirrors may come to rest.
    """

    def __init__(self, kernel: KernelLinks, testbed: Testbed, truth: Truth) -> None:
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
        """From now on `port`, a server's or a packet switch's, receives `source`, or no light."""
        with self._changed:
            if source is None:
                self._heard.pop(port, None)
            else:
                self._heard[port] = source
            self._dirty = True
            self._changed.notify()

    def close(self) -> None:
        """Stop following the light; the kernel's links are their owner's to end."""
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
