"""Flaps of links: what both ends of a link saw, paired, and which of them saw it first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent, Stage
from lightrig.testbeds import Link, Port

JOIN = 50_000_000
"""Time after the end of one end's loss in which the other end's still belongs to it, in ns.

A server reads its ports in turn, and a NIC reports a fault of its receiver to the other end within
milliseconds (IEEE 802.3, clause 46.3.4).
"""

CANNOT_TELL = "cannot tell"


@dataclass(slots=True)
class EndLoss:
    """A loss of a stage at one end of a link: down and, once seen, up, on the bench's clock.

    closed: whether it is over, or nobody watched how it went on; `up` is None then.
    """

    port: Port
    down: Span
    up: Span | None = None
    closed: bool = False


@dataclass(slots=True)
class LinkFlap:
    """Losses of a stage at one or both ends of a link that belong together.

    Attributes:
        link: the link.
        stage: "carrier", or "firmware" of ports with an RDMA device.
        losses: of its ends, at most one each, in the order in which they were seen.
        both_watched: whether both ends were watched when it began.
        number: of the event whose rows it has; None until it has rows.
        light: what the monitors showed of it; None until they were asked.
        recorded: its length so far by its last row while it was down, in ns.
    """

    link: Link
    stage: Stage
    losses: list[EndLoss]
    both_watched: bool
    number: int | None = None
    light: str | None = None
    recorded: int = 0

    @property
    def first(self) -> Port | None:
        """The end that saw it first; None where that cannot be told.

        An end that saw nothing, though it was watched, was not the first. Bounds that overlap
        decide nothing.
        """
        if not self.both_watched:
            return None
        if len(self.losses) == 1:
            return self.losses[0].port
        one, two = self.losses
        if one.down.latest < two.down.earliest:
            return one.port
        return two.port if two.down.latest < one.down.earliest else None

    @property
    def first_text(self) -> str:
        """The end that saw it first, or "cannot tell"."""
        return CANNOT_TELL if self.first is None else str(self.first)

    @property
    def leading(self) -> EndLoss:
        """The loss of the first end; of the earlier bound where that cannot be told."""
        first = self.first
        of_first = [loss for loss in self.losses if loss.port == first]
        return of_first[0] if of_first else min(self.losses, key=lambda loss: loss.down)

    @property
    def is_down(self) -> bool:
        """Whether an end is still down, and watched."""
        return any(not loss.closed for loss in self.losses)

    @property
    def down(self) -> Span:
        """When the link was lost: with its first end."""
        return Span(
            min(loss.down.earliest for loss in self.losses),
            min(loss.down.latest for loss in self.losses),
        )

    @property
    def up(self) -> Span | None:
        """When it was back, with its last end; None where that was not seen."""
        back = [loss.up for loss in self.losses if loss.up is not None]
        if len(back) < len(self.losses):
            return None
        return Span(max(at.earliest for at in back), max(at.latest for at in back))

    def length(self, now: int) -> tuple[int, int | None]:
        """Return the bounds of its duration, in ns, at `now`; without end, it has no upper one."""
        up, down = self.up, self.down
        if up is None:
            return max(now - down.latest, 0), None
        return max(up.earliest - down.latest, 0), up.latest - down.earliest


@dataclass(slots=True)
class FlapTracker:
    """Pairs the events of the ends of `links`, as servers answer.

    Events are taken once both ends' servers have been read beyond them, so that the answers' order
    decides nothing.

    Attributes:
        links: those that are watched.
        open: the flap of each link and stage that goes on, or may still be joined.
    """

    links: Iterable[Link]
    open: dict[tuple[Link, Stage], LinkFlap] = field(default_factory=dict)
    _link_of: dict[Port, Link] = field(init=False)
    _waiting: list[tuple[Port, LinkEvent]] = field(default_factory=list)
    _since: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._link_of = {port: link for link in self.links for port in (link.a, link.b)}

    def watched_since(self, server: str, at: int) -> None:
        """Note that the ports of `server` are watched, without a break, since `at`."""
        self._since[server] = at

    def break_off(self, server: str) -> None:
        """Note that what the ports of `server` do from now on is not known."""
        self._since.pop(server, None)

    def note(self, port: Port, event: LinkEvent) -> None:
        """Take a change of carrier or firmware; others, and those of other ports, are left out."""
        if port in self._link_of and event.stage in ("carrier", "firmware"):
            self._waiting.append((port, event))

    def take(self, until: Mapping[str, int]) -> list[LinkFlap]:
        """Return the flaps that are over, given until when each server's ports were read."""
        found: list[LinkFlap] = []
        ready: list[tuple[Port, LinkEvent]] = []
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            is_read = each[1].at.latest <= self._horizon(each, until)
            (ready if is_read else self._waiting).append(each)
        for port, event in sorted(ready, key=lambda each: each[1].at.latest):
            found += self._apply(port, event)
        for key, flap in list(self.open.items()):
            for loss in flap.losses:
                loss.closed |= loss.port.owner not in self._since
            ends = [loss.up.latest for loss in flap.losses if loss.up is not None]
            read = min(until.get(port.owner, 0) for port in (flap.link.a, flap.link.b))
            blind = not {flap.link.a.owner, flap.link.b.owner} <= self._since.keys()
            if not flap.is_down and (blind or read > max(ends, default=0) + JOIN):
                found.append(self.open.pop(key))
        return found

    def end(self) -> list[LinkFlap]:
        """Return all flaps that are left, as far as they are known."""
        found: list[LinkFlap] = []
        for port, event in sorted(self._waiting, key=lambda each: each[1].at.latest):
            found += self._apply(port, event)
        self._waiting.clear()
        found += self.open.values()
        self.open.clear()
        return found

    def _horizon(self, each: tuple[Port, LinkEvent], until: Mapping[str, int]) -> int:
        link = self._link_of[each[0]]
        known = [until[end.owner] for end in (link.a, link.b) if end.owner in self._since]
        return min(known, default=1 << 62)

    def _apply(self, port: Port, event: LinkEvent) -> Iterator[LinkFlap]:
        link = self._link_of[port]
        key = link, event.stage
        flap = self.open.get(key)
        at_port = next((loss for loss in flap.losses if loss.port == port), None) if flap else None
        if event.up:
            if at_port is not None and not at_port.closed:
                at_port.up, at_port.closed = event.at, True
            return
        if at_port is not None and not at_port.closed:  # its return was not seen
            return
        if flap is not None and (at_port is not None or not self._joins(flap, event.at)):
            yield self.open.pop(key)
            flap = None
        if flap is None:
            ends = {link.a.owner, link.b.owner}
            both = all(self._since.get(end, 1 << 62) <= event.at.earliest for end in ends)
            flap = self.open[key] = LinkFlap(link, event.stage, [], both)
        flap.losses.append(EndLoss(port, event.at))

    def _joins(self, flap: LinkFlap, at: Span) -> bool:
        ends = [loss.up.latest for loss in flap.losses if loss.up is not None]
        return flap.is_down or at.earliest <= max(ends, default=0) + JOIN
