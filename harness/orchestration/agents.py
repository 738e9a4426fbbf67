"""Agents: a process for each host, which alone drives the switches at the ports of its server.

The controller drives the other switches itself, and those of a host through its agent, whose
answers also have the carriers of its server's NIC ports. An agent refuses orders for switches of
other hosts, and orders of a controller that was followed by another one. Ranks of a job ask it to
select a topology (`HostAgent.select`), and the controller takes no part in that.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from lightrig.harness.orchestration.answers import Problem
from lightrig.harness.orchestration.carriers import Carrier, Heard, Look
from lightrig.harness.orchestration.control import Control
from lightrig.harness.orchestration.layout import Layout
from lightrig.harness.orchestration.selection import Choice, Choices
from lightrig.harness.orchestration.switch_sessions import (
    ANSWER_TIMEOUT_S,
    Outcomes,
    Reading,
    Switches,
)
from lightrig.instruments.clock import Clock, Span, boot_time
from lightrig.instruments.core.capabilities import HasPartners, PortWatch, Server
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import Circuit, LightrigError, Port

POLL_PERIOD_NS = 1_000_000
"""Period at which the carriers of a server are read."""

DATAGRAM_PERIOD_NS = 200_000_000
"""Period of the datagrams by which the ports of servers hear whom their light comes from."""

LINK_TIMEOUT_S = 10.0
"""How long a rank waits for the light of its neighbours."""
_UNNOTICED_S = 0.15
"""Time after which a link is up that has not changed: light lost for 100 ms takes its carrier."""
_LOOK_AGAIN_S, _LONGEST_LOOK_S = 2e-3, 0.05
"""Times between looks of one that waits: eight GPUs of a host that all look often delay others."""

_PROBE_TIMEOUT_S = ANSWER_TIMEOUT_S + 1.0
_ORDER_TIMEOUT_S = 10.0
_MOST_BYTES = 1 << 24
"""Of an agent's answer."""


class AgentError(LightrigError):
    """An agent does not answer, is that of another host, or was given what is not its own."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ProbeRequest(_Message):
    """What a controller tells with each probe.

    lead: its number among those that led. choices: that the host has from now on.
    """

    lead: int = 0
    choices: Choices = {}


class Orders(ProbeRequest):
    """Circuits by switch that a controller wants."""

    lead: int
    circuits: dict[str, list[tuple[int, int]]]


class Wish(_Message):
    """A topology that a rank needs for a collective, by its number; nic: its GPU's."""

    nic: str
    topology: str
    number: int = 0


class Selected(_Message):
    """What a selection took: ns until the switches were set, and until all links had light."""

    switched_ns: int
    linked_ns: int


_NOTHING = ProbeRequest()


class SwitchAnswer(_Message):
    """Reading of a switch, or why there is none."""

    circuits: list[tuple[int, int]] = []
    lit: list[int] = []
    dark: list[int] = []
    error: str | None = None


class CarrierAnswer(_Message):
    """Carrier of a port; ages: the most and the least ns since it changed, None for never."""

    up: bool
    ages: tuple[int, int] | None


class HeardAnswer(_Message):
    """Last datagram at a port: its sender's stream, and the most and the least ns since it came."""

    stream: int
    ages: tuple[int, int]


class PartnersAnswer(_Message):
    """streams: of datagrams that the server's ports send; heard: last at each port with some."""

    streams: dict[int, str] = {}
    heard: dict[str, HeardAnswer] = {}


class Answer(_Message):
    """Answer of an agent.

    Attributes:
        host: whose agent it is. holds: all switches that it drives.
        switches: those that were asked for. carriers: by NIC port; None where unreadable.
        partners: whose datagrams come to the ports; None where that cannot be read.
        took: ns from the request to the reading of the carriers.
    """

    host: str
    holds: list[str]
    switches: dict[str, SwitchAnswer]
    carriers: dict[str, CarrierAnswer] | None = None
    partners: PartnersAnswer | None = None
    took: int = 0


def switches_by_host(layout: Layout, switches: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the switches at the ports of each node that has some."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for switch in switches:
        for node in layout.cut_off([switch]):
            found[node].add(switch)
    return {node: frozenset(names) for node, names in found.items()}


class Carriers(Protocol):
    """The carriers of one server."""

    def read(self) -> Mapping[str, CarrierAnswer]:
        """Return the carriers by NIC port; raises `LightrigError`."""

    def partners(self) -> PartnersAnswer | None:
        """Return whose datagrams come to the ports, where that is known; raises `LightrigError`."""

    def close(self) -> None:
        """End the reading."""


class ServerCarriers:
    """The carriers of a server, watched from now on.

    ports: the server's NIC ports by their netdev. close_server: ends the session with it.
    """

    def __init__(
        self,
        server: Server,
        ports: Mapping[str, str],
        clock: Clock,
        close_server: Callable[[], None],
    ) -> None:
        self._server, self._ports, self._clock = server, ports, clock
        self.close = close_server
        watched = [PortWatch(netdev) for netdev in ports]
        self._hears = isinstance(server, HasPartners)
        period = DATAGRAM_PERIOD_NS if self._hears else None
        try:
            up = server.watch(watched, period=POLL_PERIOD_NS, datagram_period=period)
        except InstrumentError:
            if period is None:
                raise
            # A port that datagrams cannot leave has a carrier all the same.
            self._hears = False
            up = server.watch(watched, period=POLL_PERIOD_NS, datagram_period=None)
        self._up = dict.fromkeys(ports, False) | {n: True for n, stage in up if stage == "carrier"}
        self._since: dict[str, Span] = {}

    def read(self) -> Mapping[str, CarrierAnswer]:
        """See `Carriers`."""
        for event in self._server.settle({}, timeout=0).result().events:
            if event.stage == "carrier":
                self._up[event.port], self._since[event.port] = event.up, event.at
        now = self._clock.now()
        found = {}
        for netdev, port in self._ports.items():
            since = self._since.get(netdev)
            ages = None if since is None else (now - since.earliest, max(now - since.latest, 0))
            found[port] = CarrierAnswer(up=self._up[netdev], ages=ages)
        return found

    def partners(self) -> PartnersAnswer | None:
        """See `Carriers`."""
        if not (self._hears and isinstance(self._server, HasPartners)):
            return None
        known, now = self._server.partners(), self._clock.now()
        return PartnersAnswer(
            streams={n: self._ports[netdev] for n, netdev in self._server.streams().items()},
            heard={
                self._ports[netdev]: HeardAnswer(
                    stream=stream, ages=(now - at.earliest, max(now - at.latest, 0))
                )
                for netdev, (stream, at) in known.items()
            },
        )


class HostAgent:
    """The switches of one host, for the controller.

    Args:
        host: its name. names: of its switches. switches: sessions with them, which `close` ends.
        open_carriers: opens the session with its server when it is needed.
        link_timeout_s: how long a rank waits for the light of its neighbours.
    """

    def __init__(
        self,
        host: str,
        names: Collection[str],
        switches: Switches,
        open_carriers: Callable[[], Carriers],
        *,
        link_timeout_s: float = LINK_TIMEOUT_S,
    ) -> None:
        self.host, self.names = host, frozenset(names)
        self._link_timeout_s, self._over = link_timeout_s, threading.Event()
        self._switches, self._open_carriers = switches, open_carriers
        self._carriers: Carriers | None = None
        self._lead = 0
        self._lock, self._at_carriers = threading.Lock(), threading.Lock()
        self._choices: Choices = {}
        self._selected: dict[str, str] = {}

    def probe(self, request: ProbeRequest = _NOTHING) -> Answer:
        """Take what the controller tells, read all switches, then the carriers."""
        began = boot_time()
        with self._lock:
            if request.lead >= self._lead:
                self._take(request.choices)
            switches = self._switches.probe(self.names)
            carriers = self._read_carriers()
            took = boot_time() - began
            partners = self._read_partners()
        return self._answer(switches, carriers, partners, took)

    def select(self, wish: Wish) -> Selected:
        """Lead a NIC's light to a topology, and wait until its neighbours have done the same.

        Selecting the same again changes nothing. Raises `AgentError` for what the controller has
        given no choice of, for a switch that did not move, and where light does not come.
        """
        choices = self._choices.get(wish.nic, {})
        choice = choices.get(wish.topology)
        if choice is None:
            listed = ", ".join(choices) or "none"
            raise AgentError(
                f"found {wish.topology} for {wish.nic} of {self.host}, which may select {listed}"
            )
        if self._selected.get(wish.nic) == wish.topology:
            return Selected(switched_ns=0, linked_ns=0)
        self._selected.pop(wish.nic, None)
        began = boot_time()
        wanted = {n: frozenset(Circuit(*p) for p in pairs) for n, pairs in choice.circuits.items()}
        for each in self._switches.order(wanted).values():
            if isinstance(each, LightrigError):
                raise AgentError(f"{self.host} could not select {wish.topology}: {each}")
        switched = boot_time() - began
        self._await_links(wish, choice, began)
        if self._choices.get(wish.nic, {}).get(wish.topology) == choice:
            self._selected[wish.nic] = wish.topology
        return Selected(switched_ns=switched, linked_ns=boot_time() - began)

    def order(self, orders: Orders) -> Answer:
        """Bring switches to circuits; raises `AgentError`, and then has sent nothing."""
        if strange := sorted(orders.circuits.keys() - self.names):
            raise AgentError(
                f"{strange[0]} is not at the ports of {self.host}: its agent does not drive it"
            )
        with self._lock:
            if orders.lead < self._lead:
                raise AgentError(
                    f"lead {orders.lead} was followed by lead {self._lead}: no order of it counts"
                )
            self._lead = orders.lead
            self._take(orders.choices)
            if orders.circuits:
                self._selected.clear()
            wanted = {
                name: frozenset(Circuit(*pair) for pair in pairs)
                for name, pairs in orders.circuits.items()
            }
            return self._answer(self._switches.order(wanted))

    def close(self) -> None:
        """End all sessions; circuits stay as they are."""
        self._over.set()
        self._switches.close()
        self._drop_carriers()

    def _take(self, choices: Choices) -> None:
        """Note what the host may choose; what it had selected of others counts no more."""
        if choices != self._choices:
            self._choices = choices
            self._selected.clear()

    def _await_links(self, wish: Wish, choice: Choice, began: int) -> None:
        look_s, watched_anew = _LOOK_AGAIN_S, False
        while True:
            carriers, now = self._read_carriers() or {}, boot_time()
            dark = [
                port
                for port in choice.ports
                if not _has_come(carriers.get(port), (now - began) / 1e9)
            ]
            if not dark:
                return
            if now - began > self._link_timeout_s * 1e9 or self._over.is_set():
                raise AgentError(
                    f"{wish.nic} of {self.host} selected {wish.topology} for collective "
                    f"{wish.number} and has no link after {(now - began) / 1e9:.1f} s: "
                    f"{', '.join(dark)}. Has the neighbour selected it too, does its rank run?"
                )
            if now - began > self._link_timeout_s / 2 * 1e9 and not watched_anew:
                watched_anew = True  # in case that a change was not told
                with self._at_carriers:
                    self._drop_carriers()
            self._over.wait(look_s)
            look_s = min(2 * look_s, _LONGEST_LOOK_S)

    def _read_carriers(self) -> Mapping[str, CarrierAnswer] | None:
        with self._at_carriers:
            try:
                if self._carriers is None:
                    self._carriers = self._open_carriers()
                return self._carriers.read()
            except LightrigError:
                self._drop_carriers()
                return None

    def _read_partners(self) -> PartnersAnswer | None:
        with self._at_carriers:
            try:
                return self._carriers.partners() if self._carriers is not None else None
            except LightrigError:
                self._drop_carriers()
                return None

    def _drop_carriers(self) -> None:
        carriers, self._carriers = self._carriers, None
        if carriers is not None:
            with contextlib.suppress(LightrigError):
                carriers.close()

    def _answer(
        self,
        found: Outcomes,
        carriers: Mapping[str, CarrierAnswer] | None = None,
        partners: PartnersAnswer | None = None,
        took: int = 0,
    ) -> Answer:
        switches = {
            name: SwitchAnswer(
                circuits=sorted((c.ingress, c.egress) for c in each.circuits),
                lit=sorted(each.lit),
                dark=sorted(each.dark),
            )
            if isinstance(each, Reading)
            else SwitchAnswer(error=str(each))
            for name, each in found.items()
        }
        return Answer(
            host=self.host,
            holds=sorted(self.names),
            switches=switches,
            carriers=None if carriers is None else dict(carriers),
            partners=partners,
            took=took,
        )


def _has_come(carrier: CarrierAnswer | None, since_s: float) -> bool:
    """Whether light came after a selection `since_s` ago, or has not gone for it."""
    if carrier is None or not carrier.up:
        return False
    if since_s > _UNNOTICED_S:
        return True
    return carrier.ages is not None and carrier.ages[0] / 1e9 < since_s


@runtime_checkable
class SeesCarriers(Protocol):
    """Switches whose probes also bring the carriers of NIC ports."""

    @property
    def look(self) -> Look:
        """The carriers of the last probe, and the agents that did not answer it."""


class AgentSwitches:
    """The switches of a fabric: those of hosts through their agents, all others as `central`.

    Args:
        hosts: the switches of each host. clients: of their agents, which `close` closes.
        central: sessions with the switches of no host.
        control: by which this process leads; None where no other one can.

    Attributes:
        look: what the agents have answered to the last probe.
    """

    def __init__(
        self,
        hosts: Mapping[str, frozenset[str]],
        clients: Mapping[str, httpx.Client],
        central: Switches,
        control: Control | None = None,
    ) -> None:
        self._hosts, self._clients, self._central = hosts, clients, central
        self._host_of = {name: host for host, names in hosts.items() for name in names}
        self._control = control
        self.look = Look()
        self._choices: Mapping[str, Choices] = {}
        self._pool = ThreadPoolExecutor(max(len(hosts), 1), thread_name_prefix="agent")

    def let_choose(self, choices: Mapping[str, Choices]) -> None:
        """See `TakesChoices`; an agent that does not answer now is told with the next probe."""
        lead = self._control.epoch if self._control else 0
        before, self._choices = self._choices, choices
        changed = [host for host in self._hosts if before.get(host) != choices.get(host)]
        for task in [self._pool.submit(self._order, host, lead, {}) for host in changed]:
            task.result()

    def probe(self, names: Collection[str]) -> Outcomes:
        """See `Switches`."""
        began = boot_time()
        by_host, central = self._parted(names)
        asked = {host: self._pool.submit(self._probe, host) for host in by_host}
        found = dict(self._central.probe(central))
        carriers: dict[Port, Carrier] = {}
        silent = {}
        hearing: dict[str, tuple[PartnersAnswer, int]] = {}
        for host, task in asked.items():
            answer, seen, sent = task.result()
            carriers |= seen
            if isinstance(answer, AgentError):
                silent[host] = str(answer)
            elif answer.partners is not None:
                hearing[host] = answer.partners, sent
            found |= self._outcomes(answer, by_host[host])
        partners = _partners(hearing)
        self.look = Look(Span(began, boot_time()), carriers, silent, frozenset(hearing), partners)
        return found

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        """See `Switches`."""
        by_host, central = self._parted(wanted)
        if self._control is not None and by_host:
            self._control.check()
        lead = self._control.epoch if self._control else 0
        asked = {
            host: self._pool.submit(self._order, host, lead, {name: wanted[name] for name in names})
            for host, names in by_host.items()
        }
        found = dict(self._central.order({name: wanted[name] for name in central}))
        for host, task in asked.items():
            found |= self._outcomes(task.result(), by_host[host])
        return found

    def close(self) -> None:
        """See `Switches`."""
        self._pool.shutdown(cancel_futures=True)
        for client in self._clients.values():
            client.close()
        self._central.close()

    def _parted(self, names: Collection[str]) -> tuple[dict[str, list[str]], list[str]]:
        by_host: defaultdict[str, list[str]] = defaultdict(list)
        for name in names:
            if name in self._host_of:
                by_host[self._host_of[name]].append(name)
        return dict(by_host), [name for name in names if name not in self._host_of]

    def _probe(self, host: str) -> tuple[Answer | AgentError, dict[Port, Carrier], int]:
        lead = self._control.epoch if self._control else 0
        request = ProbeRequest(lead=lead, choices=self._choices.get(host, {}))
        sent = boot_time()
        answer = self._ask(host, "/v1/probe", request.model_dump_json(), _PROBE_TIMEOUT_S)
        received = boot_time()
        if isinstance(answer, AgentError) or answer.carriers is None:
            return answer, {}, sent
        carriers = {
            _port(name): Carrier(
                each.up,
                # Ages are as of a moment from sent + took to received.
                each.ages and Span(sent + answer.took - each.ages[0], received - each.ages[1]),
            )
            for name, each in answer.carriers.items()
        }
        return answer, carriers, sent + answer.took

    def _order(
        self, host: str, lead: int, wanted: Mapping[str, frozenset[Circuit]]
    ) -> Answer | AgentError:
        circuits = {
            name: sorted((c.ingress, c.egress) for c in c_of) for name, c_of in wanted.items()
        }
        orders = Orders(lead=lead, circuits=circuits, choices=self._choices.get(host, {}))
        return self._ask(host, "/v1/orders", orders.model_dump_json(), _ORDER_TIMEOUT_S)

    def _ask(self, host: str, path: str, content: str, timeout_s: float) -> Answer | AgentError:
        try:
            refused, answered = _posted(self._clients[host], path, content, timeout_s)
            if refused:
                return AgentError(f"the agent of {host} refused: {_detail(answered)[:300]}")
            answer = Answer.model_validate_json(answered)
        except (httpx.HTTPError, OSError) as error:
            return AgentError(f"the agent of {host} does not answer: {error!r}")
        except ValidationError as error:
            return AgentError(f"the agent of {host} answered something else: {error}")
        if answer.host != host:
            return AgentError(f"found the agent of {answer.host} where that of {host} should be")
        for name in sorted(set(answer.holds) - self._hosts[host]):
            owner = self._host_of.get(name, "no host")
            return AgentError(f"the agent of {host} holds {name}, which is at {owner}")
        heard = answer.partners or PartnersAnswer()
        for name in (*(answer.carriers or ()), *heard.heard, *heard.streams.values()):
            if not name.startswith(f"{host}."):
                return AgentError(f"the agent of {host} tells of {name!r}, no port of its server")
        return answer

    @staticmethod
    def _outcomes(
        answer: Answer | AgentError, names: Collection[str]
    ) -> Iterator[tuple[str, Reading | LightrigError]]:
        for name in names:
            if isinstance(answer, AgentError):
                yield name, answer
            elif name in answer.switches:
                each = answer.switches[name]
                if each.error is not None:
                    yield name, AgentError(each.error)
                else:
                    circuits = frozenset(Circuit(*pair) for pair in each.circuits)
                    yield name, Reading(circuits, frozenset(each.lit), frozenset(each.dark))


def _partners(hearing: Mapping[str, tuple[PartnersAnswer, int]]) -> dict[Port, Heard]:
    """Return whom each port hears, and since when at least that is known, by answers of agents.

    hearing: the answers, each with a moment before which it was not read.
    """
    senders = {
        stream: _port(name)
        for answer, _ in hearing.values()
        for stream, name in answer.streams.items()
    }
    return {
        _port(name): Heard(senders[each.stream], read - each.ages[0])
        for answer, read in hearing.values()
        for name, each in answer.heard.items()
        if each.stream in senders
    }


def _port(name: str) -> Port:
    return Port(*name.split(".", 1))


def _posted(client: httpx.Client, path: str, content: str, timeout_s: float) -> tuple[bool, bytes]:
    """Return whether an agent refused, and its answer, which is neither decoded nor endless.

    Raises `httpx.HTTPError`, also where the answer has not ended after `timeout_s` in all.
    """
    ends = boot_time() + round(timeout_s * 1e9)
    plain = {"Accept-Encoding": "identity"}
    found = b""
    with client.stream("POST", path, content=content, timeout=timeout_s, headers=plain) as answered:
        for piece in answered.iter_raw():
            found += piece
            if len(found) > _MOST_BYTES:
                raise httpx.ReadError(f"its answer is longer than {_MOST_BYTES >> 20} MiB")
            if boot_time() > ends:
                raise httpx.ReadTimeout(f"its answer does not end within {timeout_s:g} s")
        return answered.is_error, found


def _detail(answered: bytes) -> str:
    """Return why an agent refused, by its problem; the whole text of another answer."""
    try:
        return Problem.model_validate_json(answered).detail
    except ValidationError:
        return answered.decode("utf-8", "backslashreplace")
