"""Parser of the section `fibers` of a testbed file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from lightrig.testbeds.cabling import Fiber
from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.expansion import Parts
from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.model import InstrumentSpec, ServerSpec, SwitchSpec, Testbed
from lightrig.testbeds.plans import Port
from lightrig.testbeds.ranges import RangeError, expand
from lightrig.testbeds.schema import Document, FiberPart
from lightrig.testbeds.yaml_positions import Keys

EXAMPLE = "'server[0-3].nic0 -> ocs.[1-4]' or 'server[0-3].nic0 <-> ocs'"


class EndError(LightrigError, ValueError):
    """A text names no port; `kind` is the kind of problem."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an arrow: its text and where that starts."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Wiring:
    """All fibers, in the file's order, and the line of each.

    automatic: by switch, the ports that bare lines were given: "server0.nic0 1>17".
    """

    fibers: tuple[Fiber, ...]
    stated: dict[Fiber, Keys]
    automatic: dict[str, tuple[str, ...]] = field(default_factory=dict)


def split(text: str, arrows: str = "->|<->") -> tuple[Side, str, Side] | None:
    """Return the left side, the arrow and the right side, or None if there is more or less."""
    parts = re.split(r"(<->|->|<-)", text)
    if len(parts) != 3 or parts[1] not in arrows.split("|"):
        return None
    left, arrow, right = parts
    if not left.strip() or not right.strip():
        return None
    start = len(left) + len(arrow) + len(right) - len(right.lstrip())
    return Side(left.strip(), len(left) - len(left.lstrip())), arrow, Side(right.strip(), start)


def resolve(text: str, parts: Parts) -> Port:
    """Return the port that `text` names; raises `EndError`."""
    owner, _, name = text.partition(".")
    if owner in parts.switches:
        return _switch_port(parts.switches[owner], name)
    if owner in parts.servers:
        return _nic_port(parts.servers[owner], name)
    if owner in parts.instruments:
        return _channel(parts.instruments[owner], name)
    raise EndError(
        f"found the unknown server or switch {owner!r}{did_you_mean(owner, parts.owners)}", "owner"
    )


def named_port(testbed: Testbed, text: str) -> Port:
    """Return the port of `testbed` that a person names; raises `EndError`."""
    parts = Parts(dict(testbed.switches), dict(testbed.servers), dict(testbed.instruments))
    return resolve(text, parts)


def _switch_port(switch: SwitchSpec, name: str) -> Port:
    known = range(1, max(switch.ingress_ports.stop, switch.egress_ports.stop))
    if not re.fullmatch(r"[1-9]\d{0,5}", name, re.ASCII):
        raise EndError(
            f"found {f'{switch.name}.{name}'.rstrip('.')!r}, expected a port number, "
            f"e.g. '{switch.name}.1'",
            "switch port",
        )
    if int(name) not in known:
        raise EndError(f"{switch.name} has no port {name}, expected {_ports(switch)}", "range")
    return Port(switch.name, name)


def _nic_port(server: ServerSpec, name: str) -> Port:
    nic_name = name.partition(".")[0]
    nic = server.nics.get(nic_name)
    if nic is None:
        hint = did_you_mean(nic_name, server.nics)
        raise EndError(f"{server.name} has no NIC {nic_name!r}{hint}", "nic")
    known = [spec.port for spec in nic.ports]
    # A file goes on to be right when a NIC gets a second port, or loses it.
    is_first = name in {nic_name, f"{nic_name}.p0"}
    port = known[0] if is_first else Port(server.name, name)
    if port not in known:
        listed = f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1].name}"
        raise EndError(f"found no port {str(port)!r}, expected {listed}", "nic port")
    return port


def _channel(instrument: InstrumentSpec, name: str) -> Port:
    if name == "" and instrument.channels == 1:
        name = "1"
    if name not in map(str, range(1, instrument.channels + 1)):
        raise EndError(
            f"found channel {name!r} of {instrument.name}, expected 1 to {instrument.channels}",
            "channel",
        )
    return Port(instrument.name, name)


def _ports(switch: SwitchSpec) -> str:
    if switch.kind == "packet":
        return f"1 to {switch.ingress_count}"
    first, last = switch.egress_ports[0], switch.egress_ports[-1]
    return f"ingress 1 to {switch.ingress_count} or egress {first} to {last}"


def wire(document: Document, parts: Parts, findings: Findings) -> Wiring:
    """Return the fibers of `document`; problems go to `findings`.

    A bare switch takes its ports from the lowest on, in the file's order. A line that names one
    of them would move all that follow, so it is a problem.
    """
    return _Wirer(parts, findings).run(document)


@dataclass(frozen=True, slots=True)
class _Cable:
    """Label of a fiber, or of a pair, and the ports of patch panels on its way."""

    label: str = ""
    via: tuple[str, ...] = ()

    @property
    def backwards(self) -> _Cable:
        """The other fiber of a pair."""
        return _Cable(self.label, self.via[::-1])


@dataclass(frozen=True, slots=True)
class _Line:
    index: int
    keys: Keys
    left: Side
    right: Side
    stated: FiberPart | None = None

    def texts(self, text: str, key: Keys, count: int, findings: Findings) -> list[str]:
        """Return a label or a panel's port for each of `count` fibers, or pairs of them.

        key: where the line states the text.
        """
        try:
            found = expand(text)
        except RangeError as error:
            findings.add((*self.keys[:-1], *key), str(error))
            return [""] * count
        if len(found) != count:
            findings.add(
                (*self.keys[:-1], *key),
                f"found {len(found)} of {text!r} for {count} fibers or pairs, expected as many",
            )
            return [""] * count
        return found


class _Wirer:
    def __init__(self, parts: Parts, findings: Findings) -> None:
        self._parts = parts
        self._findings = findings
        self._fibers: list[tuple[int, Fiber]] = []
        self._stated: dict[Fiber, Keys] = {}
        self._used: dict[str, dict[Port, Keys]] = {"transmit": {}, "receive": {}}
        self._lowest: dict[tuple[str, str], int] = {}
        self._by_hand: dict[str, frozenset[Port]] = {}
        self._automatic: dict[str, list[str]] = {}

    def run(self, document: Document) -> Wiring:
        for pass_over in self._explicit, self._bare:
            self._by_hand = {side: frozenset(used) for side, used in self._used.items()}
            for index, stated in enumerate(document.fibers):
                keys: Keys = ("fibers", index)
                part = stated if isinstance(stated, FiberPart) else None
                if isinstance(stated, FiberPart):
                    keys, text = (*keys, "fiber"), stated.fiber
                else:
                    text = stated
                sides = split(text)
                if sides is None:
                    self._findings.add(keys, f"found {text[:60]!r}, expected e.g. {EXAMPLE}")
                    continue
                left, arrow, right = sides
                bare = arrow == "<->" and {left.text, right.text} & {*self._parts.switches}
                if bool(bare) == (pass_over == self._bare):
                    pass_over(_Line(index, keys, left, right, part), arrow)
        self._fibers.sort(key=lambda item: item[0])
        return Wiring(
            tuple(fiber for _, fiber in self._fibers),
            self._stated,
            {switch: tuple(given) for switch, given in self._automatic.items()},
        )

    def _explicit(self, line: _Line, arrow: str) -> None:
        left, right = self._ports(line, line.left), self._ports(line, line.right)
        if left is None or right is None:
            return
        if len(left) != len(right):
            self._findings.add(
                line.keys,
                f"found {len(left)} ports left of the arrow and {len(right)} right of it, "
                "expected as many on both sides",
            )
            return
        cables = self._cables(line, len(left))
        for (a, b), cable in zip(zip(left, right, strict=True), cables, strict=True):
            if arrow == "<->" and self._optical(a, b):
                self._findings.add(
                    line.keys,
                    "found '<->' with numbered ports of an optical switch, whose ingress and "
                    "egress differ, expected two lines, one '->' each way",
                    once="duplex",
                )
                continue
            self._lay(line, a, b, line.left, line.right, cable)
            if arrow == "<->":
                self._lay(line, b, a, line.right, line.left, cable.backwards)

    def _bare(self, line: _Line, _arrow: str) -> None:
        switch_side, port_side = line.right, line.left
        if switch_side.text not in self._parts.switches:
            switch_side, port_side = port_side, switch_side
        switch = self._parts.switches[switch_side.text]
        ports = self._ports(line, port_side)
        if ports is None:
            return
        given = self._automatic.setdefault(switch.name, [])
        before, moved_by = len(given), None
        for port, cable in zip(ports, self._cables(line, len(ports)), strict=True):
            there = cable if port_side is line.left else cable.backwards
            ingress = self._free(switch, switch.ingress_ports, "receive")
            egress = (
                ingress
                if switch.kind == "packet"
                else self._free(switch, switch.egress_ports, "transmit")
            )
            if ingress is None or egress is None:
                side = "ingress" if ingress is None else "egress"
                self._findings.add(
                    line.keys,
                    f"no free {side} port is left on {switch.name} for {port}, expected at most "
                    f"{switch.ingress_count} ingress and {switch.egress_count} egress",
                    offset=port_side.offset,
                    once="free",
                )
                continue
            self._lay(line, port, ingress, port_side, switch_side, there)
            self._lay(line, egress, port, switch_side, port_side, there.backwards)
            given.append(f"{port} {ingress.name}>{egress.name}")
            moved_by = moved_by or self._named_below(ingress, "receive", switch.ingress_ports)
            moved_by = moved_by or self._named_below(egress, "transmit", switch.egress_ports)
        if moved_by is not None:
            named, keys = moved_by
            table = ", ".join(given[before:][:8]) + (", ..." if len(given) > before + 8 else "")
            self._findings.add(
                line.keys,
                f"{named}, which line {self._findings.line(keys)} names, moves the ports of this "
                f"line: {table}; name the ports of both lines, or higher ones in line "
                f"{self._findings.line(keys)}",
                offset=switch_side.offset,
            )

    def _named_below(self, given: Port, side: str, numbers: range) -> tuple[Port, Keys] | None:
        """Return a port below `given` that an explicit line names, and that line."""
        if not self._by_hand[side]:
            return None
        for number in range(numbers.start, int(given.name)):
            port = Port(given.owner, str(number))
            if port in self._by_hand[side]:
                return port, self._used[side][port]
        return None

    def _free(self, switch: SwitchSpec, numbers: range, direction: str) -> Port | None:
        used, here = self._used[direction], (direction, switch.name)
        for number in range(self._lowest.get(here, numbers.start), numbers.stop):
            port = Port(switch.name, str(number))
            if port not in used:
                # Ports are never given back: the next search begins here.
                self._lowest[here] = number
                return port
        return None

    def _ports(self, line: _Line, side: Side) -> list[Port] | None:
        try:
            texts = expand(side.text)
        except RangeError as error:
            self._findings.add(line.keys, str(error), offset=side.offset + error.offset)
            return None
        ports = []
        for text in texts:
            try:
                ports.append(resolve(text, self._parts))
            except EndError as error:
                self._findings.add(line.keys, str(error), offset=side.offset, once=error.kind)
        return ports if len(ports) == len(texts) else None

    def _optical(self, *ports: Port) -> bool:
        switches = (self._parts.switches.get(port.owner) for port in ports)
        return any(switch is not None and switch.kind == "optical" for switch in switches)

    def _cables(self, line: _Line, count: int) -> list[_Cable]:
        """Return label and panels of each fiber of a line, or pair of them, from left to right."""
        stated = line.stated
        if stated is None:
            return [_Cable()] * count
        labels = [""] * count
        if stated.label is not None:
            labels = line.texts(stated.label, ("label",), count, self._findings)
        panels = [
            line.texts(text, ("via", at), count, self._findings)
            for at, text in enumerate(stated.via)
        ]
        return [
            _Cable(label, tuple(each[at] for each in panels)) for at, label in enumerate(labels)
        ]

    def _lay(
        self, line: _Line, source: Port, sink: Port, left: Side, right: Side, cable: _Cable
    ) -> None:
        sound = True
        ends: tuple[tuple[Port, Port, Side, str, Callable[[SwitchSpec], range]], ...] = (
            (source, sink, left, "transmit", lambda switch: switch.egress_ports),
            (sink, source, right, "receive", lambda switch: switch.ingress_ports),
        )
        for port, peer, side, direction, allowed in ends:
            problem = self._misused(port, peer, direction, allowed)
            if problem:
                message, kind = problem
                self._findings.add(line.keys, message, offset=side.offset, once=kind)
                sound = False
            else:
                self._used[direction][port] = line.keys
        if sound:
            stated = line.stated
            loss, uncertainty = (stated.loss, stated.uncertainty) if stated else (None, None)
            of_light = float(loss or 0.0), float(uncertainty or 0.0)
            fiber = Fiber(source, sink, *of_light, cable.label, cable.via)
            self._fibers.append((line.index, fiber))
            self._stated[fiber] = line.keys

    def _misused(
        self, port: Port, peer: Port, direction: str, allowed: Callable[[SwitchSpec], range]
    ) -> tuple[str, str] | None:
        switch = self._parts.switches.get(port.owner)
        instrument = self._parts.instruments.get(port.owner)
        if switch and int(port.name) not in allowed(switch):
            is_, as_ = (
                ("an ingress", "egress") if direction == "transmit" else ("an egress", "ingress")
            )
            numbers = allowed(switch)
            return (
                f"{port} is {is_} port used as {as_}, expected {switch.name}.{numbers[0]} to "
                f"{switch.name}.{numbers[-1]} on this side of the arrow",
                "side",
            )
        unidirectional = {"transmit": "power_meter", "receive": "light_source"}[direction]
        if instrument and instrument.kind == unidirectional:
            return (
                f"{port} is a {instrument.kind.replace('_', ' ')}, which cannot {direction}",
                "direction",
            )
        if port in self._used[direction]:
            first = self._findings.line(self._used[direction][port])
            return f"{port} is cabled twice ({direction} side), first in line {first}", "twice"
        server = self._parts.servers.get(port.owner)
        nic = server.nics[port.name.partition(".")[0]] if server else None
        holder = nic or (switch if switch and switch.kind == "packet" else None)
        if holder and holder.transceiver is None and self._optical(peer):
            return (
                f"{port} has no transceiver, expected one on a {'NIC' if nic else 'packet switch'} "
                f"with a fiber to the optical switch {peer.owner}, e.g. transceiver: qsfp-100g-lr4",
                "transceiver",
            )
        return None
