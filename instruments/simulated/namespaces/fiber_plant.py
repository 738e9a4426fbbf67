"""Switches links in the kernel as the light of a simulated switch moves."""

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from lightrig.instruments.clock import Span
from lightrig.instruments.simulated.namespaces.kernel_links import Applied, KernelLinks
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.testbeds import LightrigError, Port, Testbed

_MOST_DELAYS = 4096
"""Number of delays that are stored; those of an event are asked for when it is over."""


CarrierListener = Callable[[Port, bool, int], None]
"""Is called with a port, whether it has carrier now, and since when, in ns of CLOCK_MONOTONIC."""


class Delay(NamedTuple):
    """Delay of the kernel behind the light.

    at: when the light changed, on the bench's clock, in ns. by: the time from then until the
    kernel had followed, in ns; of a change that it missed, until the next one.
    """

    port: Port
    at: int
    by: int


class FiberPlant:
    """Keeps the kernel's links in the state of the light: a port that receives light has carrier.

    A port that receives its own light has carrier and no partner. A port that exchanges light
    with a port of a packet switch is connected to that switch.

    The kernel is moved by a thread of its own, always to the newest state: it takes
    milliseconds, in which more mirrors may come to rest. `carrier_changed` is called for each
    port at first, which is dark, and by that thread after each change.
    """

    def __init__(
        self,
        kernel: KernelLinks,
        testbed: Testbed,
        truth: GroundTruth,
        carrier_changed: CarrierListener | None = None,
    ) -> None:
        self._carrier_changed = carrier_changed
        self._kernel = kernel
        self._truth = truth
        keys = {spec.port: f"{spec.port.owner}.{spec.netdev}" for spec in testbed.nic_ports}
        self._keys = {port: key for port, key in keys.items() if key in kernel.keys}
        self._ports = {key: port for port, key in self._keys.items()}
        self._heard: dict[Port, Port] = {}
        self._changed_at: dict[Port, int] = {}
        self._pending: dict[Port, int] = {}
        self._following: dict[Port, int] = {}
        self._delays: deque[Delay] = deque(maxlen=_MOST_DELAYS)
        self._passing: set[frozenset[str]] = set()
        self._changed = threading.Condition()
        self._dirty = False
        self._switching = False
        self._closed = False
        self.failure: LightrigError | None = None
        if carrier_changed is not None:  # all are dark
            dark_at = kernel.apply(frozenset(), frozenset()).at[1]
            for port in self._keys:
                carrier_changed(port, False, dark_at)
        self._thread = threading.Thread(target=self._run, name="plant", daemon=True)
        self._thread.start()

    def hears(self, port: Port, source: Port | None, at: int) -> None:
        """Let `port`, of a server or packet switch, receive `source`, or no light, since `at`.

        That is the moment of the light, on the bench's clock, in ns; the kernel follows later.
        """
        with self._changed:
            if self._heard.get(port) != source:
                if port in self._pending:  # the kernel has missed the change before this one
                    missed = self._pending[port]
                    self._delays.append(Delay(port, missed, at - missed))
                self._pending[port] = self._changed_at[port] = at
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

    def longest_delay(self, since: int, now: int) -> Delay | None:
        """Return the longest delay of the kernel behind the light of `since` and later.

        What the kernel has not followed yet is late by the time until `now`. None where no light
        has changed. Both are on the bench's clock, in ns.
        """
        with self._changed:
            delays = [delay for delay in self._delays if delay.at >= since]
            for waiting in (self._following, self._pending):
                delays += [Delay(p, at, now - at) for p, at in waiting.items() if at >= since]
        return max(delays, key=lambda delay: delay.by, default=None)

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
                self._following, self._pending = self._pending, {}
                changed_at = dict(self._changed_at)
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
                if self._carrier_changed is not None:
                    self._carrier_changed(self._ports[change.key], change.up, change.done_ns)
            begun = self._note_datagrams(applied, {pair for pair in joined if pair <= lit})
            followed = {self._ports[c.key]: c.done_ns for c in applied.changes}
            with self._changed:
                for port, since in self._following.items():
                    # A change of partner moves no carrier: then the links were switched by the end.
                    if port in self._keys:
                        done = followed.get(port, applied.at[1])
                        self._delays.append(Delay(port, since, done - since))
                for pair, done in begun.items():
                    since, port = max(
                        (changed_at[self._ports[key]], self._ports[key]) for key in pair
                    )
                    self._delays.append(Delay(port, since, done - since))
                self._following, self._switching = {}, False
                self._changed.notify_all()

    def _note(self, key: str, stage: str, *, up: bool, at: Span) -> None:
        self._truth.note(str(self._ports[key]), stage, up=up, at=at)

    def _note_datagrams(
        self, applied: Applied, passing: set[frozenset[str]]
    ) -> dict[frozenset[str], int]:
        """Note when packets ceased and began to reach the ports of each pair.

        They cease with the carrier of either end, or as the pair is taken apart, and begin when
        both bridge ports forward and the far end sends. Ports of a packet switch have many other
        ends, and no such moment. Returns by when they had begun to reach both ports of each pair
        that is new.
        """
        begun: dict[frozenset[str], int] = {}
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
                    begun[pair] = max(at.latest, begun.get(pair, 0))
        self._passing = passing
        return begun
