"""The testbed file of a list of cables: its devices, and a fiber each way for each cable."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lightrig.testbeds.cable_lists import Cable, CableEnd, DeviceName
from lightrig.testbeds.errors import Problem, TestbedError
from lightrig.testbeds.ranges import RangeError, expand

_TRANSCEIVER = (
    "transceivers:",
    "  # Power budgets follow from it: state yours, or its `pmd:`. These are of 100GBASE-LR4.",
    "  optics:",
    "    wavelength: 1310 nm",
    "    wavelengths: 4",
    "    launch: {min: -4.3 dBm, max: 4.5 dBm}",
    "    receive: {min: -10.6 dBm, max: 4.5 dBm}",
    "    damage: 5.5 dBm",
    "",
)
_PAIR = re.compile(r"(\d{1,6})(?:>(\d{1,6}))?")
_NIC = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(?:\.p(\d{1,2}))?")
_SIZE = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class LeftCable:
    """A cable that gives no fiber, by its line in the list, and why."""

    line: int
    cable: str
    reason: str


@dataclass(frozen=True, slots=True)
class Defaults:
    """What devices have whose names' file leaves it out.

    address: of an optical switch of a model. server_address: may have {name}. size: "" for none.
    """

    model: str
    address: Callable[[str], str]
    server_address: str
    login: str
    size: str
    rate: str


@dataclass(frozen=True, slots=True)
class CabledTestbed:
    """The text of a testbed file, the number of its fibers, and the cables that gave none."""

    text: str
    fibers: int
    left: tuple[LeftCable, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """Cables from one device to another, through panels: their lines, labels and panels' ports.

    a, b: the cables whose first or second ends are those of the run.
    """

    ends: tuple[CableEnd, CableEnd]
    numbers: tuple[tuple[str, ...], tuple[str, ...]]
    line: int
    labels: tuple[str, ...]
    via: tuple[str, ...]


@dataclass(slots=True)
class _Device:
    """A device as its ports are found: numbers by name, or the NICs of a server."""

    stated: DeviceName
    ingress: int = 0
    egress: int = 0
    taken: dict[str, str] = field(default_factory=dict)
    optical_peers: set[str] = field(default_factory=set)

    @property
    def reserved(self) -> set[str]:
        return {part for name, _ in self.stated.ports.values() for part in _expanded(name)}


class _NoFiberError(Exception):
    """A cable gives no fiber, and the file of names is not wrong."""


def cabled_testbed(
    name: str,
    cables: Sequence[Cable],
    names: Mapping[str, DeviceName],
    files: tuple[Path, Path],
    defaults: Defaults,
) -> CabledTestbed:
    """Return the testbed of the devices that `names` maps, and of the cables between them.

    An optical switch's port n is the pair of ingress n and egress N + n, unless a line of the
    names' file has another, such as "25>90". Ports of packet switches and NICs of servers that
    it does not name are numbered in the order of the list.

    files: the list of cables and the file of names, for errors.

    Raises:
        TestbedError: a name does not fit its device, with all problems.
    """
    return _Composer(name, names, files, defaults).compose(cables)


class _Composer:
    def __init__(
        self,
        name: str,
        names: Mapping[str, DeviceName],
        files: tuple[Path, Path],
        defaults: Defaults,
    ) -> None:
        self._name = name
        self._names = names
        self._cables_file, self._names_file = files
        self._defaults = defaults
        self._problems: list[Problem] = []
        self._left: list[LeftCable] = []
        self._devices = {device: _Device(stated) for device, stated in names.items()}
        for one in self._devices.values():
            if one.stated.kind == "optical":
                self._set_size(one)

    def compose(self, cables: Sequence[Cable]) -> CabledTestbed:
        fibers = [line for run in self._runs(cables) for line in self._fibers(run)]
        switches = list(self._switches())
        servers = [line for one in self._of_kind("server") for line in self._server(one)]
        if self._problems:
            raise TestbedError(sorted(set(self._problems)))
        sections = [
            "# yaml-language-server: $schema=schema.json",
            f"# The fibers of {self._cables_file.name}, by the names of {self._names_file.name}.",
            f"name: {self._name}",
            "",
            *(["switches:", *switches, ""] if switches else []),
            *(["servers:", *servers, ""] if servers else []),
            *_TRANSCEIVER,
            *(["fibers:", *fibers] if fibers else ["fibers: []"]),
            "",
        ]
        return CabledTestbed("\n".join(sections), len(fibers), tuple(sorted(
            self._left, key=lambda one: one.line
        )))  # fmt: skip

    def _set_size(self, one: _Device) -> None:
        size = one.stated.size or self._defaults.size
        match = _SIZE.fullmatch(size)
        if match is None:
            found = f"found size {size!r}" if size else "found no size"
            self._wrong(one.stated.line, f"{found} of {one.stated.name}, expected e.g. 64x64")
        else:
            one.ingress, one.egress = int(match[1]), int(match[2])

    def _wrong(self, line: int, message: str, *, of_names: bool = True) -> None:
        path = self._names_file if of_names else self._cables_file
        self._problems.append(Problem(str(path), line, 1, message))

    def _of_kind(self, kind: str) -> Iterator[_Device]:
        return (one for one in self._devices.values() if one.stated.kind == kind)

    def _runs(self, cables: Sequence[Cable]) -> Iterator[_Run]:
        """Follow each cable through panels, whose ports have one cable in front and one behind."""
        at_panels: dict[tuple[str, str], list[Cable]] = {}
        present = []
        for cable in cables:
            if cable.absent:
                self._leave(cable.line, cable.a, cable.b, cable.absent)
                continue
            present.append(cable)
            for end in (cable.a, cable.b):
                if (panel := self._panel(end)) is not None:
                    at_panels.setdefault((end.device, panel), []).append(cable)
        followed: set[int] = set()
        for cable in present:
            inner = [self._panel(end) is not None for end in (cable.a, cable.b)]
            if cable.line in followed or all(inner):
                continue
            yield from self._followed(cable, at_panels, followed, backwards=inner[0])
        for cable in present:
            if cable.line not in followed:
                self._leave(cable.line, cable.a, cable.b, "no cable leads on from either panel")

    def _followed(
        self,
        cable: Cable,
        at_panels: Mapping[tuple[str, str], list[Cable]],
        followed: set[int],
        *,
        backwards: bool,
    ) -> Iterator[_Run]:
        start, end = (cable.b, cable.a) if backwards else (cable.a, cable.b)
        numbers, last = (cable.numbers if backwards else ()), () if backwards else cable.numbers
        line, labels, via = cable.line, [cable.label], []
        followed.add(cable.line)
        while (panel := self._panel(end)) is not None:
            via.append(f"{self._names[end.device].name} port {panel}")
            onward = [
                one for one in at_panels[end.device, panel] if one.line not in followed
            ]  # fmt: skip
            if len(onward) != 1:
                known = len(at_panels[end.device, panel])
                why = f"{known} cables are at {via[-1]}, expected one in front and one behind"
                self._leave(line, start, end, why)
                return
            (cable,) = onward
            followed.add(cable.line)
            near_is_a = cable.a.device == end.device and self._panel(cable.a) == panel
            end = cable.b if near_is_a else cable.a
            last = cable.numbers if near_is_a else ()
            labels.append(cable.label)
        present = tuple(label for label in labels if label)
        yield _Run((start, end), (numbers, last), line, present, tuple(via))

    def _panel(self, end: CableEnd) -> str | None:
        """Return the name of a port of a panel, the same in front and behind; None elsewhere."""
        stated = self._names.get(end.device)
        if stated is None or stated.kind != "panel":
            return None
        return stated.ports.get(end.port, (end.port, 0))[0]

    def _leave(self, line: int, a: CableEnd, b: CableEnd, reason: str) -> None:
        self._left.append(LeftCable(line, f"{a} - {b}", reason))

    def _fibers(self, run: _Run) -> list[str]:
        for end in run.ends:
            if end.device not in self._names:
                self._leave(run.line, *run.ends, f"{end.device} is not in {self._names_file.name}")
                return []
        a, b = (self._devices[end.device] for end in run.ends)
        lanes = max(1, *map(len, run.numbers))
        try:
            near = self._ports(a, run.ends[0], run.numbers[0], lanes, run.line)
            far = self._ports(b, run.ends[1], run.numbers[1], lanes, run.line)
        except _NoFiberError as error:
            self._leave(run.line, *run.ends, str(error))
            return []
        for one, peer, ports in ((a, b, near), (b, a, far)):
            if peer.stated.kind == "optical":
                one.optical_peers.update(ports)
        names = [a.stated.name, b.stated.name]
        lines = []
        for at, (here, there) in enumerate(zip(near, far, strict=True), 1):
            lane = f", fiber {at}" if lanes > 1 else ""
            remark = f"{run.ends[0]}{lane}"
            for source, sink, via, devices in (
                (self._out(a, here), self._into(b, there), run.via, names),
                (self._out(b, there), self._into(a, here), run.via[::-1], names[::-1]),
            ):
                if source and sink:
                    text = f"{devices[0]}.{source} -> {devices[1]}.{sink}"
                    lines.append(_fiber_line(text, run.labels, via, remark))
        return lines

    def _ports(
        self, one: _Device, end: CableEnd, numbers: tuple[str, ...], lanes: int, line: int
    ) -> list[str]:
        """Return the ports of the fibers of a cable at one end, by their names in the testbed."""
        stated = one.stated.ports
        if one.stated.kind == "optical":
            wanted = list(numbers) or [end.port]
            return [pair for text in wanted for pair in self._pairs(one, text, lanes, line)]
        if one.stated.kind == "server" and lanes > 1:
            raise _NoFiberError(f"it has {lanes} fibers each way, and a NIC port has one")
        if (named := stated.get(end.port)) is not None:
            found, at = _expanded(named[0]), named[1]
            form = _NIC if one.stated.kind == "server" else re.compile(r"[1-9]\d{0,3}")
            if len(found) != lanes or not all(map(form.fullmatch, found)):
                example = "nic0" if one.stated.kind == "server" else f"[1-{lanes}]"
                text = f"found {named[0]!r} for {lanes} fibers of {end}, expected e.g. {example}"
                self._wrong(at, text)
        else:
            prefix = "nic" if one.stated.kind == "server" else ""
            first = 0 if prefix else 1
            taken = one.taken.keys() | one.reserved
            unused = (f"{prefix}{n}" for n in itertools.count(first) if f"{prefix}{n}" not in taken)
            found = list(itertools.islice(unused, lanes))
        for name in found:
            if one.taken.setdefault(name, end.port) != end.port:
                self._wrong(
                    stated[end.port][1] if end.port in stated else one.stated.line,
                    f"{one.stated.name}.{name} is the name of {one.taken[name]} and {end.port}",
                )
        return found

    def _pairs(self, one: _Device, text: str, lanes: int, line: int) -> list[str]:
        """Return "ingress>egress" for each fiber pair that `text` names at an optical switch."""
        stated = one.stated.ports.get(text)
        found = _expanded(stated[0]) if stated else re.findall(r"\d+", text)
        if stated is None and len(found) != 1:
            self._wrong(
                line,
                f"found port {text!r} of {one.stated.name}, expected one number in it, or a line "
                f"for it in {self._names_file.name}",
                of_names=False,
            )
            return ["1>1"] * lanes
        pairs = []
        for name in found:
            match = _PAIR.fullmatch(name)
            ingress = int(match[1]) if match else 0
            egress = int(match[2] or ingress + one.ingress) if match else 0
            fits = 1 <= ingress <= one.ingress < egress <= one.ingress + one.egress
            if one.ingress and not fits:
                self._wrong(
                    stated[1] if stated else line,
                    f"found port {name!r} of {one.stated.name}, expected 1 to {one.ingress}, or "
                    f"ingress>egress as in 1>{one.ingress + 1}",
                    of_names=stated is not None,
                )
            pair = f"{ingress}>{egress}"
            for side in (f"{ingress}>", f">{egress}") if fits else ():
                if one.taken.setdefault(side, text) != text:
                    number, names = side.strip(">"), f"{one.taken[side]!r} and {text!r}"
                    wrong = f"port {number} of {one.stated.name} has two names, {names}"
                    self._wrong(line, wrong, of_names=False)
            pairs.append(pair)
        return pairs

    @staticmethod
    def _out(one: _Device, port: str) -> str:
        return port.partition(">")[2] if one.stated.kind == "optical" else port

    @staticmethod
    def _into(one: _Device, port: str) -> str:
        return port.partition(">")[0] if one.stated.kind == "optical" else port

    def _switches(self) -> Iterator[str]:
        for one in self._of_kind("optical"):
            stated = one.stated
            model = stated.model or self._defaults.model
            address = stated.address or self._defaults.address(model)
            facts = {"model": model, "address": address}
            if login := stated.login or self._defaults.login:
                facts["login"] = login
            facts["size"] = stated.size or self._defaults.size
            yield _entry(stated, facts)
        for one in self._of_kind("packet"):
            numbers = [int(name) for name in one.taken if name.isdecimal()]
            if not numbers:
                continue
            facts = {"kind": "packet", "model": one.stated.model or "packet-switch"}
            if one.stated.address:
                facts["address"] = one.stated.address
            yield _entry(
                one.stated,
                facts,
                ports=str(max(numbers)),
                rate=json.dumps(one.stated.rate or self._defaults.rate),
                **({"transceiver": "optics"} if one.optical_peers else {}),
            )

    def _server(self, one: _Device) -> Iterator[str]:
        """Write a server with a NIC for each port; ports p0, p1, ... of a NIC share a template."""
        if not one.taken:
            return
        stated = one.stated
        address = (stated.address or self._defaults.server_address).replace("{name}", stated.name)
        yield f"  {stated.name}:"
        yield f"    address: {json.dumps(address)}"
        if stated.login:
            yield f"    login: {json.dumps(stated.login)}"
        if stated.place:
            yield f"    place: {json.dumps(stated.place)}"
        yield "    nics:"
        nics: dict[str, dict[int, str]] = {}
        for name, device in one.taken.items():
            match = _NIC.fullmatch(name)
            if match is not None:
                nics.setdefault(match[1], {})[int(match[2] or 0)] = device
        for nic, ports in sorted(nics.items(), key=lambda item: _natural(item[0])):
            named = [name for name in one.taken if name.partition(".")[0] == nic]
            expected = [f"{nic}.p{at}" for at in range(len(named))] if len(named) > 1 else [nic]
            if {*named} != {*expected}:
                text = f"{stated.name} has {', '.join(named)}, expected {', '.join(expected)} for"
                self._wrong(stated.line, f"{text} {', '.join(one.taken[name] for name in named)}")
                continue
            netdev = _template([ports[at] for at in range(len(ports))])
            if netdev is None:
                found = ", ".join(ports.values())
                text = f"{stated.name}.{nic} has {found}, expected netdevs that differ by the port"
                self._wrong(stated.line, f"{text}'s number; name each as a NIC of its own")
                continue
            facts = [f"netdev: {json.dumps(netdev)}"]
            facts += [f"ports: {len(ports)}"] if len(ports) > 1 else []
            facts += [f"rate: {json.dumps(stated.rate or self._defaults.rate)}"]
            if any(port.partition(".")[0] == nic for port in one.optical_peers):
                facts += ["transceiver: optics"]
            yield f"      {nic}: {{{', '.join(facts)}}}"


def _expanded(text: str) -> list[str]:
    try:
        return expand(text)
    except RangeError:
        return [text]


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part or 0), "") if part.isdecimal() else (0, part)
            for part in re.split(r"(\d+)", text)]  # fmt: skip


def _template(netdevs: Sequence[str]) -> str | None:
    """Return the text that gives the netdevs of ports 0, 1, ... with {p}; None where none does."""
    first = netdevs[0]
    if len(netdevs) == 1:
        return first if first and "{" not in first else None
    zeros = [at for at, character in enumerate(first) if character == "0"][-4:]
    for count in range(1, len(zeros) + 1):
        for chosen in itertools.combinations(reversed(zeros), count):
            text = "".join("{p}" if at in chosen else c for at, c in enumerate(first))
            if [text.replace("{p}", str(p)) for p in range(len(netdevs))] == list(netdevs):
                return text
    return None


def _entry(stated: DeviceName, facts: Mapping[str, str], **plain: str) -> str:
    written = [f"{key}: {json.dumps(value)}" for key, value in facts.items()]
    written += [f"{key}: {value}" for key, value in plain.items()]
    written += [f"place: {json.dumps(stated.place)}"] if stated.place else []
    return f"  {stated.name}: {{{', '.join(written)}}}"


def _fiber_line(text: str, labels: Iterable[str], via: Sequence[str], remark: str) -> str:
    """Return the line of a fiber; brackets would be a range in a label or a panel's port."""
    remark = remark if remark.isascii() and remark.isprintable() else json.dumps(remark)
    label = _plain(" / ".join(labels))
    if not label and not via:
        return f"  - {text}  # {remark}"
    stated = [f'fiber: "{text}"']
    stated += [f"label: {json.dumps(label)}"] if label else []
    stated += [f"via: [{', '.join(json.dumps(_plain(each)) for each in via)}]"] if via else []
    return f"  - {{{', '.join(stated)}}}  # {remark}"


def _plain(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")
