"""Simulated probe program of a server (docs/appendix/probe.md), on simulated links.

Its stamps are those of a polling program on a server whose clock is not the harness's:
a transition is bracketed by the polls before and after it, both by the server's clock.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from lightrig.instruments.clock import Clock, Scheduled
from lightrig.instruments.named_tuples import new_tuple
from lightrig.instruments.simulated.hosts.ethtool_format import pci_address
from lightrig.instruments.simulated.hosts.simulated_clock import SimulatedServerClock
from lightrig.instruments.simulated.hosts.simulated_modules import (
    TOOK,
    ModuleReader,
    SimulatedModuleReads,
)
from lightrig.instruments.simulated.world.links import LinkTimeline, NicLinks, Transition
from lightrig.instruments.simulated.world.randomness import Stream
from lightrig.testbeds import Delay, NicPortSpec, Port

SILENT_PERIODS = 5
"""After how many datagram periods without a datagram a port is declared silent."""

_SHORTEST_SILENCE = 5_000_000
_KERNEL_PERIOD = 10_000_000
_KERNEL_LATENCY = 100_000
"""Time after which a line of the kernel is read, in ns."""

_LOCAL_CLOCK = 246_513_042
"""The kernel's local clock less CLOCK_MONOTONIC_RAW, in ns."""

_INFO = 6
"""Priority of the kernel's lines: its facility, level "info" (syslog(2))."""
_LONGEST_PERIOD = 1_000_000_000
_STAGES = ("carrier", "firmware", "datagram")

_encode = json.JSONEncoder(separators=(",", ":")).encode


class _Grid(NamedTuple):
    """Times of a periodic action, in ns of the harness's clock."""

    phase: int
    period: int

    def last_before(self, at: int) -> int:
        return self.phase + (at - 1 - self.phase) // self.period * self.period

    def number(self, at: int) -> int:
        """Counted from 1."""
        return (at - self.phase) // self.period + 1

    def moment(self, number: int) -> int:
        return self.phase + (number - 1) * self.period


class _Observed(NamedTuple):
    """A transition as the probe sees it: when it learns of it, and what it reports.

    For a first datagram, `first` says from whom it is, and `last` who was heard until when before.
    """

    known: int
    event: list[Any]
    first: Port | None = None
    last: tuple[Port, int] | None = None


@dataclass(slots=True)
class _Watched:
    """One port: `heard` is its partner at the beginning of the watch."""

    timeline: LinkTimeline
    stages: tuple[str, ...]
    polls: _Grid
    heard: Port | None
    plans_changed: Callable[[], None]


@dataclass(slots=True)
class _Settling:
    """A pending settle request, and the time of its reply by the present plans."""

    number: int
    received: int
    wanted: dict[str, list[str]]
    numbers: dict[str, list[int]]
    deadline: Scheduled
    answer: Scheduled | None = None


class _Refusal(Exception):  # noqa: N818 - a reply, not a failure of ours
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _whole(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is no whole number from {least} to {most}")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return value


class SimulatedProbe:
    """One probe on one simulated server, for the length of one connection.

    Args:
        server: the server's name.
        ports: what is cabled to it, by netdev.
        links: what its ports' links do.
        clock: the bench's clock.
        draws: its chance, for the network's delays.
        write: sends one line to the harness.
        server_clock: the clock of its stamps; each stamp is of its own moment.
        delay: one way through the management network.
        roster: the probes of all servers by name, whose datagrams this one receives.
        read_module: reads a part of a port's module; None where there is none.
        answer: how long the module of a port takes to answer.

    Attributes:
        server, clock, draws, server_clock: as given; a fault of the network replaces `draws`.
        watched: the observed ports by netdev.
        began: when they began to be observed.
        datagrams: when it sends datagrams; None while it sends none.
    """

    def __init__(
        self,
        server: str,
        ports: Mapping[str, NicPortSpec],
        links: NicLinks,
        clock: Clock,
        draws: Stream,
        write: Callable[[str], None],
        server_clock: SimulatedServerClock,
        delay: Delay,
        roster: dict[str, "SimulatedProbe"],
        read_module: ModuleReader = lambda _port, _address, _page, _offset, _length: None,
        answer: Callable[[Port], Delay] = lambda _: TOOK,
    ) -> None:
        self.server = server
        self._ports = ports
        self._links = links
        self.clock = clock
        self.draws = draws
        self._write = write
        self.server_clock = server_clock
        self._reads = server_clock.reads
        self._delay = delay
        self._roster = roster
        self.watched: dict[str, _Watched] = {}
        self._senders = {spec.port: (self.token(name), self.boot) for name, spec in ports.items()}
        self.datagrams: _Grid | None = None
        self.began = 0
        self._reported = 0
        self._news: dict[str, list[_Observed]] = {}
        self._settling: _Settling | None = None
        self._logged = 0
        self._messages_until = self._log_began = clock.now()
        self._client_left = False
        self._modules = SimulatedModuleReads(
            clock, server, ports, read_module, server_clock.reads, draws, answer
        )
        roster[server] = self

    @property
    def boot(self) -> str:
        """Boot id of the server: no two servers share a clock."""
        return f"simulated-{self.server}"

    def token(self, netdev: str) -> int:
        """Return the token that identifies the datagrams of one of its ports."""
        return zlib.crc32(f"{self.server}.{netdev}".encode())

    def sender(self, port: Port) -> tuple[int, str]:
        """Return token and boot id of the datagrams that are sent from `port`, one of its ports."""
        return self._senders[port]

    # -------------------------------------------------------------------------- wire

    def line(self, text: str) -> None:
        """Take one line from the harness; it arrives after the network's delay."""
        arrives = self.clock.now() + self.draws.duration(self._delay)
        self.clock.schedule(arrives, self.server, lambda: self.handle(text))

    def close(self) -> None:
        """End, since the harness has left."""
        self._client_left = True
        self._modules.end()

    def handle(self, text: str) -> None:
        """Carry out a request that has arrived."""
        received = self.clock.now()
        number = None
        try:
            request = json.loads(text)
            number = request["id"]
            verb = getattr(self, f"_do_{request['do']}", None)
            if verb is None:
                raise _Refusal("unknown_request", f"nothing is called {request['do']!r}")
            answer = verb(request, received)
        except _Refusal as refusal:
            self._refuse(number, received, refusal.kind, str(refusal))
        except json.JSONDecodeError as error:
            self._refuse(number, received, "bad_json", str(error))
        except (ValueError, KeyError, TypeError) as error:
            self._refuse(number, received, "bad_request", repr(error))
        else:
            if answer is not None:
                self.reply(number, received, {"ok": answer})

    def _refuse(self, number: int | None, received: int, kind: str, text: str) -> None:
        self.reply(number, received, {"error": {"kind": kind, "text": text}})

    def reply(self, number: int | None, received: int, body: dict[str, Any]) -> None:
        """Send the reply to request `number`, which was received at that time of the clock."""
        now = self.clock.now()
        at = [self._reads(received), self._reads(now)]
        slewed = self.server_clock.slewed(now)
        text = _encode({"id": number, "at": at, "slewed": slewed, **body})
        arrives = now + self.draws.duration(self._delay)
        self.clock.schedule(arrives, self.server, lambda: self._send(text))

    def _send(self, text: str) -> None:
        if not self._client_left:
            self._write(text)

    # ---------------------------------------------------------------------- requests

    def _do_hello(self, _: dict[str, Any], __: int) -> dict[str, Any]:
        return {
            "probe": 1,
            "host": f"SIM-{self.server}",
            "python": "3.11.7",
            "kernel": "6.8.0",
            "boot": self.boot,
            "netlink": False,
        }

    def _do_ports(self, _: dict[str, Any], now: int) -> dict[str, Any]:
        return {
            netdev: {
                "carrier": self._links.timeline(spec.port).is_up("carrier", now),
                "carrier_changes": None,
                "speed_mbps": None,
                "driver": "simulated",
                "mac": None,
            }
            for netdev, spec in self._ports.items()
        }

    def _do_watch(self, request: dict[str, Any], now: int) -> dict[str, Any]:
        if self.watched:
            raise _Refusal("already_watching", "unwatch first")
        period = _whole(request["period_ns"], 1, _LONGEST_PERIOD)
        ports = _mapping(request["ports"])
        datagrams = request.get("datagrams")
        if datagrams is not None:
            _whole(_mapping(datagrams)["udp_port"], 1, 65_535)
            every = _whole(datagrams["period_ns"], 1, _LONGEST_PERIOD)
        for netdev, what in ports.items():
            if not isinstance(_mapping(what).get("rdma"), str | None):
                raise TypeError("rdma is no name of a device")
            if netdev not in self._ports:
                raise _Refusal("unknown_port", f"there is no {netdev}")
        if datagrams is not None:
            self.datagrams = _Grid(now + every * 37 // 100, every)
        self.began = self._reported = now
        self._news.clear()
        state = {}
        for index, (netdev, what) in enumerate(ports.items()):
            timeline = self._links.timeline(self._ports[netdev].port)
            stages = tuple(
                stage
                for stage in _STAGES
                if (stage != "firmware" or what["rdma"]) and (stage != "datagram" or datagrams)
            )
            heard = timeline.partner if timeline.is_up("datagram", now) else None
            polls = _Grid(now + index * period // len(ports), period)
            changed = partial(self._plans_changed, netdev)
            self.watched[netdev] = _Watched(timeline, stages, polls, heard, changed)
            timeline.listeners.append(changed)
            state[netdev] = {
                "carrier": timeline.is_up("carrier", now),
                "firmware": timeline.is_up("firmware", now) if what["rdma"] else None,
            }
        tokens = {netdev: self.token(netdev) for netdev in ports} if datagrams else {}
        return {"state": state, "tokens": tokens}

    def _do_partners(self, _: dict[str, Any], now: int) -> dict[str, Any]:
        if not self.watched:
            raise _Refusal("not_watching", "watch first")
        return {netdev: self._partner(each.timeline, now) for netdev, each in self.watched.items()}

    def _partner(self, timeline: LinkTimeline, now: int) -> tuple[int, int] | None:
        """Return the sender of the datagrams that a port receives, and when the last one came."""
        partner = timeline.partner
        if self.datagrams is None or partner is None or not timeline.is_up("datagram", now):
            return None
        sender = self._roster.get(partner.owner)
        if sender is None or sender.datagrams is None:
            return None
        last = sender.datagrams.last_before(now)
        up = max(t.at for t in timeline.transitions if t.stage == "datagram" and t.at <= now)
        return (sender.sender(partner)[0], self._reads(last)) if last >= up else None

    def _do_unwatch(self, _: dict[str, Any], __: int) -> dict[str, Any]:
        if not self.watched:
            raise _Refusal("not_watching", "watch first")
        for watched in self.watched.values():
            watched.timeline.listeners.remove(watched.plans_changed)
        self.watched.clear()
        self.datagrams = None
        self._news.clear()
        if settling := self._end_settling():
            self._refuse(settling.number, settling.received, "not_watching", "unwatched meanwhile")
        return {}

    def _do_messages(self, _: dict[str, Any], now: int) -> dict[str, Any]:
        """Answer with the lines of its NICs' driver; the log of its kernel begins with it."""
        since, self._messages_until = self._messages_until, now
        changes = sorted(
            (change.at, netdev, change.up)
            for netdev, spec in self._ports.items()
            for change in self._links.timeline(spec.port).transitions
            if change.stage == "carrier" and since < change.at <= now
        )
        polls, indices = _Grid(self._log_began, _KERNEL_PERIOD), list(self._ports)
        records = []
        for at, netdev, up in changes:
            self._logged += 1
            address = pci_address(indices.index(netdev))
            text = f"mlx5_core {address} {netdev}: Link {'up' if up else 'down'}"
            slewed = self.server_clock.slewed(at)
            stamp_us = (self._reads(at) - slewed + _LOCAL_CLOCK) // 1000
            bounds = self._reads(polls.last_before(at)), self._reads(at + _KERNEL_LATENCY)
            records.append([self._logged, _INFO, stamp_us, *bounds, slewed, text])
        return {
            "records": records,
            "lost": 0,
            "left_out": 0,
            "since": self._reads(since),
            "read": self._reads(now),
        }

    def _do_module(self, request: dict[str, Any], now: int) -> None:
        number = request["id"]

        def reply(reading: list[Any]) -> None:
            self.reply(number, now, {"ok": {"reading": reading}})

        self._check_places({request["port"]: [request["read"]]})
        self._modules.read_once(request["port"], request["read"], reply)

    def _do_read_modules(self, request: dict[str, Any], now: int) -> dict[str, Any]:
        self._check_places(_mapping(request["ports"]))
        period = _whole(request["period_ns"], 1, _LONGEST_PERIOD)
        self._modules.begin(request["ports"], period, now)
        return {}

    def _do_module_readings(self, _: dict[str, Any], __: int) -> dict[str, Any]:
        return {"readings": self._modules.end()}

    def _check_places(self, ports: Mapping[str, Any]) -> None:
        for netdev, places in ports.items():
            if netdev not in self._ports:
                raise _Refusal("unknown_port", f"there is no {netdev}")
            for place in places:
                if type(place) is not list or len(place) != 4:
                    raise TypeError("a read is of address, page, offset and length")
                for number in place:
                    _whole(number, 0, 255)

    def _do_settle(self, request: dict[str, Any], now: int) -> dict[str, Any] | None:
        wanted = {n: list(stages) for n, stages in _mapping(request["ports"]).items()}
        timeout = _whole(request["timeout_ns"], 0, 1 << 62)
        if not self.watched:
            raise _Refusal("not_watching", "watch first")
        for netdev, stages in wanted.items():
            watched = self.watched.get(netdev)
            if watched is None or not set(stages) <= set(watched.stages):
                raise _Refusal("unknown_stage", f"{netdev}: {stages} are not all watched")
        numbers = _mapping(request.get("numbers", {}))
        for port, each in numbers.items():
            if port not in self.watched or self.datagrams is None:
                raise _Refusal("unknown_port", f"no datagrams are sent from {port}")
            if type(each) is not list or any(type(one) is not int for one in each):
                raise TypeError("numbers are whole numbers of each port")
        if not any(wanted.values()):
            return self.settled([], numbers)
        give_up = self.clock.schedule(now + timeout, self.server, self.answer)
        self._settling = _Settling(request["id"], now, wanted, numbers, give_up)
        self._news.clear()
        self._schedule_answer()
        return None

    # ------------------------------------------------------------------ observations

    def _plans_changed(self, netdev: str) -> None:
        """Take that the plans of one port's link have changed."""
        self._news.pop(netdev, None)
        self._schedule_answer()

    def _schedule_answer(self) -> None:
        """Reschedule the reply to the pending request."""
        settling = self._settling
        if settling is None:
            return
        if settling.answer is not None:
            settling.answer.cancel()
            settling.answer = None
        due = 0
        for netdev, stages in settling.wanted.items():
            ups = self._first_ups(netdev)
            for stage in stages:
                if stage not in ups:
                    return
                due = max(due, ups[stage])
        settling.answer = self.clock.schedule(due, self.server, self.answer)

    def _first_ups(self, netdev: str) -> dict[str, int]:
        """Return when each stage of a port is first known to be up, by the present plans."""
        ups: dict[str, int] = {}
        for observed in self.observations(netdev):
            if observed.event[2]:
                ups.setdefault(observed.event[1], observed.known)
        return ups

    def observations(self, netdev: str) -> list[_Observed]:
        """Return the unreported transitions of one port, planned ones included."""
        if netdev in self._news:
            return self._news[netdev]
        watched = self.watched[netdev]
        newest = self._news[netdev] = []
        silent_since, reads, reported = self.began, self._reads, self._reported
        stages, polls = watched.stages, watched.polls
        period, last_before = polls.period, polls.last_before
        last: tuple[Port, int] | None = None
        every = self.datagrams.period if self.datagrams else 0
        notice = max(period, SILENT_PERIODS * every, _SHORTEST_SILENCE)
        reported_long_ago, reported_a_poll_ago = reported - notice, reported - period
        transitions = watched.timeline.transitions
        if watched.heard is not None:
            first = Transition(self.began, "datagram", True, watched.heard)
            transitions = [first, *transitions]
        for at, stage, up, partner in transitions:
            if stage != "datagram":
                if at <= reported_a_poll_ago or stage not in stages:
                    continue  # known and reported already: half of the history is
                before = last_before(at)
                after = before + period
                if after > reported:
                    event = [netdev, stage, up, reads(before), reads(after), "sysfs"]
                    newest.append(new_tuple(_Observed, (after, event, None, None)))
                continue
            if stage not in stages or (up and at < reported_long_ago):
                continue
            sender = self._roster.get(partner.owner)
            if sender is None or sender.datagrams is None:
                continue
            if up:
                observed = self._first_datagram(netdev, partner, at, silent_since, last)
            else:
                before = sender.datagrams.last_before(at)
                silent_since, last = before, (partner, at)
                least = SILENT_PERIODS * sender.datagrams.period
                declared = before + max(least, _SHORTEST_SILENCE)
                if declared <= reported:
                    continue
                observed = self._silence(netdev, partner, before, declared)
            if observed.known > reported:
                newest.append(observed)
        return newest

    def _silence(self, netdev: str, partner: Port, before: int, declared: int) -> _Observed:
        """Return a silence of `partner`, whose last datagram was sent at `before`."""
        sender, reads = self._roster[partner.owner], self._reads
        event = [netdev, "datagram", False, reads(before), reads(declared), "udp"]
        grid = sender.datagrams
        if grid is not None and before >= grid.phase:
            sent = sender.server_clock.reads(before)
            event.append([*sender.sender(partner), grid.number(before), sent])
        return _Observed(declared, event)

    def _first_datagram(
        self, netdev: str, partner: Port, at: int, silent_since: int, last: tuple[Port, int] | None
    ) -> _Observed:
        """Return the first datagram of `partner` after a silence; its link is up at `at`."""
        sender, reads = self._roster[partner.owner], self._reads
        assert sender.datagrams is not None
        before = sender.datagrams.last_before(at)
        arrived = before + sender.datagrams.period
        stamps = reads(silent_since), reads(arrived)
        sent = [sender.boot, sender.server_clock.reads(before)]
        event = [netdev, "datagram", True, *stamps, "udp", sent]
        return _Observed(arrived, event, partner, last)

    def _gap(self, observed: _Observed) -> list[Any] | None:
        """Return the datagrams lost before the first one that arrives again."""
        if observed.first is None or observed.last is None:
            return None
        partner, at = observed.last
        old, new = self._roster[partner.owner], self._roster[observed.first.owner]
        if old.datagrams is None or new.datagrams is None:
            return None
        sent, lost = old.datagrams.last_before(at), new.datagrams.last_before(observed.known)
        if sent < old.datagrams.phase:
            return None
        last = [*old.sender(partner), old.datagrams.number(sent), old.server_clock.reads(sent)]
        number = new.datagrams.number(observed.known)
        first = [*new.sender(observed.first), number, new.server_clock.reads(lost)]
        return [observed.event[0], last, first, observed.event[4], False]

    def _read_until(self, now: int) -> int:
        """Return when the port was read last that was read before all others."""
        polls = (watched.polls.last_before(now + 1) for watched in self.watched.values())
        return max(min(polls, default=now), self.began)

    def answer(self) -> None:
        """Answer the pending wait for links, if there is one."""
        if settling := self._end_settling():
            now = self.clock.now()
            missing = [
                [netdev, stage]
                for netdev, stages in settling.wanted.items()
                for ups in (self._first_ups(netdev),)
                for stage in stages
                if ups.get(stage, now + 1) > now
            ]
            answer = self.settled(missing, settling.numbers)
            self.reply(settling.number, settling.received, {"ok": answer})

    def _end_settling(self) -> _Settling | None:
        settling, self._settling = self._settling, None
        if settling is not None:
            settling.deadline.cancel()
            if settling.answer is not None:
                settling.answer.cancel()
        return settling

    def _departures(self, numbers: dict[str, list[int]]) -> dict[str, list[int | None]]:
        grid, now = self.datagrams, self.clock.now()
        if grid is None:
            return {}
        return {
            port: [
                self._reads(at) if grid.phase <= at <= now else None
                for at in map(grid.moment, each)
            ]
            for port, each in numbers.items()
        }

    def settled(self, missing: list[list[str]], numbers: dict[str, list[int]]) -> dict[str, Any]:
        """Return the body of the answer to a wait; what it reports is not reported again.

        missing: netdev and stage of each link that has not come up. numbers: of the datagrams
        whose departures are asked for, by netdev.
        """
        now = self.clock.now()
        known = [o for netdev in self.watched for o in self.observations(netdev)]
        known = sorted((o for o in known if o.known <= now), key=lambda o: o.known)
        self._reported = now
        self._news.clear()
        return {
            "settled": not missing,
            "missing": missing,
            "read": self._reads(self._read_until(now)),
            "events": [observed.event for observed in known],
            "gaps": [gap for gap in map(self._gap, known) if gap is not None],
            "late": [],  # its links keep the order of datagrams
            "steps": [],  # its datagrams are stamped by the server's one clock
            "datagrams": {},
            "departures": self._departures(numbers),
            "clock": None,  # no kernel disciplines it
        }
