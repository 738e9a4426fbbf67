"""A grid that a testbed file describes by its sizes, checked by its structure.

All rows of a grid are alike but for names, and so are all columns; a row and a column share one
node, and no NIC. So one row and one column are expanded and checked as any testbed, and for the
others it is checked that each switch is cabled once, to all nodes of its own line in order, and has
an address of its own. What an orchestrator asks of other lines is that line with other names.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lightrig.harness.orchestration.wiring import lights, loops
from lightrig.harness.systems.railx.generator import (
    dimensions,
    fibers,
    node_names,
    numbered,
    plans,
)
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric, RailxError
from lightrig.testbeds import (
    Cabling,
    Circuit,
    Link,
    NicPortSpec,
    Plan,
    Port,
    Problem,
    ServerSpec,
    Testbed,
    TestbedError,
    Vocabulary,
    load,
)
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.schema import Document
from lightrig.testbeds.yaml_positions import Keys, Located

MOST_LINE_PORTS = 32_768
"""NIC ports of a line, which is expanded."""

MOST_SWITCHES = 65_536

_NEEDED = ("columns", "rows", "mesh", "ports")
_PHASES = ("context", "expert")
_MADE = ("instruments", "fibers", "plans")
_FIBER = re.compile(r"(.*)\.([xy])(\d+)\.p\[0-1\] <-> ([xy])ocs(\d+)-(\d+)")


class GridStructure:
    """A grid of `columns` x `rows` nodes; a `Structure`.

    Raises `TestbedError` with what is wrong in the file, or with its fabric.
    """

    def __init__(self, path: str | Path, vocabulary: Vocabulary | None = None) -> None:
        self.path = Path(path)
        document, located, findings = read_as(Document, self.path)
        sizes = document.fabric or {}
        _check_parts(document, located, sizes, findings)
        findings.raise_if_any()
        columns, rows, mesh, ports = (sizes[name] for name in _NEEDED)
        phases = (sizes["context"], sizes["expert"]) if "context" in sizes else None
        drawn = RailFabric(mesh, ports, columns, rows, 2 * max(columns, rows))
        _check_sizes(drawn, phases, findings)
        findings.raise_if_any()
        _check_fibers(drawn, findings)
        # A line is checked although others are wrong: their problems are of another kind.
        self._lines: dict[Dimension, Testbed] = {}
        for d in dimensions(drawn):
            sides = (columns, 1) if d == "x" else (1, rows)
            line = replace(drawn, columns=sides[0], rows=sides[1])
            try:
                text = _Line(located, d, line, phases if d == "x" else None)
                self._lines[d] = text.load(vocabulary)
            except RailxError as error:
                findings.add(("fabric",), str(error), of_key=True)
            except TestbedError as error:
                findings.extend(error.problems)
        findings.raise_if_any()
        self.name, self.about = document.name, document.about
        self.lab_folder = self.path.parent / document.lab_folder if document.lab_folder else None
        notes = (note for line in self._lines.values() for note in line.notes)
        self.notes = tuple(dict.fromkeys(notes))
        spec = next(iter(next(iter(self._lines.values())).switches.values()))
        self.fabric = replace(drawn, radix=spec.ingress_count)
        self.rates = rates(self._lines.values())
        self._address = str(document.switches["rail"].address)
        self.switches: Mapping[str, str | None] = {
            name: urlsplit(self._address.replace("{name}", name)).hostname
            for d in self._lines
            for line in range(self.fabric.lines(d))
            for name in (f"{d}ocs{line}-{rail}" for rail in range(self.fabric.rails))
        }
        self._lights = {d: lights(line)[f"{d}ocs0-0"] for d, line in self._lines.items()}
        self._loops = {d: loops(line)[f"{d}ocs0-0"] for d, line in self._lines.items()}
        self._ingress = {d: frozenset(ports) for d, ports in self._lights.items()}
        self._copies: dict[tuple[Dimension, int], tuple[Any, Any]] = {}

    def parts(self) -> Iterator[tuple[str, int, list[str]]]:
        """See `Structure`."""
        fabric, lines = self.fabric, self._lines
        counts = {d: fabric.lines(d) for d in lines}
        of_lines = [f"{counts[d]} x {fabric.rails} of {d}-rails" for d in lines]
        yield "switches", len(self.switches), of_lines
        yield "servers", fabric.nodes, [f"{fabric.columns} columns x {fabric.rows} rows"]
        for what, each in (
            ("NIC ports", {d: len(line.nic_ports) for d, line in lines.items()}),
            ("fibers", {d: len(line.fibers) for d, line in lines.items()}),
        ):
            yield what, sum(counts[d] * each[d] for d in lines), []
        names = list(dict.fromkeys(name for line in lines.values() for name in line.plans))
        listed = []
        for name in names:
            # Plans by phase change the X-rails alone.
            of = {d: line.plans.get(name) or line.plans["hyperx"] for d, line in lines.items()}
            circuits = sum(counts[d] * len(plan) for d, plan in of.items())
            links = sum(counts[d] * len(lines[d].links(plan)) for d, plan in of.items())
            listed.append(f"{name} ({circuits} circuits, {links} links)")
        yield "plans", len(names), listed
        limits = next(iter(lines.values())).limits
        yield "limits", len(limits), [str(limit) for limit in limits.values()]

    def lights(self, switch: str) -> Mapping[int, str]:
        """See `Wiring`."""
        found: Mapping[int, str] = self._copy(switch)[0]
        return found

    def ingress(self, switch: str) -> frozenset[int]:
        """See `Wiring`."""
        return self._ingress[_parsed(switch)[0]]

    def loops(self, switch: str) -> Mapping[str, Circuit]:
        """See `Wiring`."""
        found: Mapping[str, Circuit] = self._copy(switch)[1]
        return found

    def links(self, plan: Plan) -> Iterator[Link]:
        """See `Wiring`; lines whose circuits are alike are followed once."""
        by_line: dict[tuple[Dimension, int], dict[str, frozenset[Circuit]]] = {}
        for switch, circuits in plan.circuits.items():
            d, line, rail = _parsed(switch)
            by_line.setdefault((d, line), {})[f"{d}ocs0-{rail}"] = circuits
        known: dict[tuple[Dimension, frozenset[tuple[str, frozenset[Circuit]]]], Any] = {}
        for (d, line), circuits_of in by_line.items():
            key = d, frozenset(circuits_of.items())
            if key not in known:
                known[key] = self._lines[d].links(Plan(plan.name, circuits_of))
            for link in known[key]:
                a, b = (Port(_moved(d, p.owner, line), p.name) for p in (link.a, link.b))
                yield Link(a, b)

    def testbed_of(self, switch: str) -> Testbed:
        """See `Wiring`."""
        d, line, rail = _parsed(switch)
        drawn, nic = self._lines[d], f"{d}{rail}"
        spec = replace(
            drawn.switches[f"{d}ocs0-{rail}"],
            name=switch,
            address=self._address.replace("{name}", switch),
        )

        def moved(port: Port) -> Port:
            return Port(
                switch if port.owner == f"{d}ocs0-{rail}" else _moved(d, port.owner, line),
                port.name,
            )

        cabled = tuple(
            replace(fiber, source=moved(fiber.source), sink=moved(fiber.sink))
            for fiber in drawn.fibers
            if f"{d}ocs0-{rail}" in (fiber.source.owner, fiber.sink.owner)
        )
        servers = (_with_nic(s, _moved(d, s.name, line), nic) for s in drawn.servers.values())
        return replace(
            drawn,
            name=self.name,
            path=self.path,
            lab_folder=self.lab_folder,
            switches={switch: spec},
            servers={server.name: server for server in servers},
            cabling=Cabling(cabled, frozenset({switch})),
            plans={},
        )

    def _copy(self, switch: str) -> tuple[Any, Any]:
        """Return lights and loops of a line, which its switches share."""
        d, line, _ = _parsed(switch)
        if (d, line) not in self._copies:
            self._copies[d, line] = (
                {port: _moved(d, node, line) for port, node in self._lights[d].items()},
                {_moved(d, node, line): loop for node, loop in self._loops[d].items()},
            )
        return self._copies[d, line]


class _Line:
    """The document of one row or column, each of its lines with the keys that it comes from."""

    def __init__(
        self, located: Located, d: Dimension, fabric: RailFabric, phases: tuple[int, int] | None
    ) -> None:
        self._located, self._d = located, d
        data: dict[str, Any] = located.data
        node, rails = data["servers"]["node"], numbered(fabric.rails)
        nic = dict(data["servers"]["node"]["nics"]["rail"])
        nic["netdev"] = str(nic.get("netdev", "")).replace("{axis}", d)
        names = node_names(d, numbered(fabric.length(d)), "0")
        self._text: list[tuple[Keys, str]] = []
        for key in ("name", "about", "system", "overrides", "labgrid"):
            if key in data:
                self._add((key,), f"{key}: {json.dumps(data[key])}")
        self._part(("switches", "rail"), f"{d}ocs0-{rails}", data["switches"]["rail"])
        self._part(("servers", "node"), names, {**node, "nics": {f"{d}{rails}": nic}})
        for key in ("transceivers", "limits"):
            for name, part in data.get(key, {}).items():
                self._part((key, name), name, part)
        self._add(("fabric",), "fibers:")
        for text in fibers(fabric):
            self._add(("fabric",), f"  - {json.dumps(text)}")
        self._add(("fabric",), "plans:")
        for text in plans(fabric, phases):
            self._add(("fabric",), text)
        simulation = dict(data.get("simulation", {}))
        if "rail" in (stated := simulation.get("switches", {})):
            simulation["switches"] = {f"{d}ocs0-{rails}": stated["rail"]}
        if simulation:
            self._add(("simulation",), f"simulation: {json.dumps(simulation)}")

    def load(self, vocabulary: Vocabulary | None) -> Testbed:
        """Check it as any testbed; raises `TestbedError` with the places in the file of sizes."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "line.yaml"
            file.write_text("\n".join(text for _, text in self._text), encoding="utf-8")
            try:
                testbed = load(file, vocabulary)
            except TestbedError as error:
                raise TestbedError(sorted(set(map(self._placed, error.problems)))) from error
        # A note begins with its place in the line's own file.
        notes = (note.partition(": ")[2] for note in testbed.notes)
        return replace(testbed, notes=tuple(f"{self._located.file}: {note}" for note in notes))

    def _add(self, keys: Keys, text: str) -> None:
        self._text.append((keys, text))

    def _part(self, keys: Keys, name: str, content: Any) -> None:
        if not any(before[:1] == keys[:1] for before, _ in self._text):
            self._add(keys, f"{keys[0]}:")
        self._add(keys, f"  {json.dumps(name)}: {json.dumps(content)}")

    def _placed(self, problem: Problem) -> Problem:
        keys = self._text[min(problem.line, len(self._text)) - 1][0]
        place = self._located.place(keys, of_key=True)
        line = "row" if self._d == "x" else "column"
        message = f"{problem.message} (in each {line})"
        return Problem(self._located.file, place.line, place.column, message)


def _check_parts(
    document: Document, located: Located, sizes: Mapping[str, int], findings: Findings
) -> None:
    for name in _NEEDED:
        if name not in sizes:
            findings.add(("fabric",), f"the key {name!r} is missing here", of_key=True)
    for name in sizes.keys() - {*_NEEDED, *_PHASES}:
        expected = ", ".join((*_NEEDED, *_PHASES))
        findings.add(
            ("fabric", name), f"found the unknown size {name!r}; expected one of {expected}",
            of_key=True,
        )  # fmt: skip
    if len(sizes.keys() & set(_PHASES)) == 1:
        findings.add(("fabric",), "expected context and expert together", of_key=True)
    for key in _MADE:
        if key in located.data:
            findings.add((key,), f"expected no {key}: they are made of the sizes", of_key=True)
    wanted: tuple[tuple[Keys, Mapping[str, Any]], ...] = (
        (("switches",), document.switches),
        (("servers",), document.servers),
    )
    for (keys, found), only in zip(wanted, ("rail", "node"), strict=True):
        if list(found) != [only]:
            names = ", ".join(map(repr, found)) or "none"
            message = f"found {names}; expected one part {only!r}, of which the fabric has many"
            findings.add(keys, message, of_key=True)
    if "rail" in document.switches:
        _check_address("switches", "rail", str(document.switches["rail"].address), findings)
    if "node" in document.servers:
        _check_address("servers", "node", document.servers["node"].address, findings)
        nics = document.servers["node"].nics
        keys = ("servers", "node", "nics")
        if list(nics) != ["rail"] or nics["rail"].ports != 2 or nics["rail"].ip is not None:
            message = "expected one NIC 'rail' with `ports: 2`, and without `ip`"
            findings.add(keys, message, of_key=True)


def _check_address(section: str, part: str, address: str, findings: Findings) -> None:
    wrong = set(re.findall(r"\{[^{}]*\}", address)) - {"{name}"}
    if "{name}" not in address or wrong:
        findings.add(
            (section, part, "address"),
            f"found {address!r} for all {section}, expected {{name}} in it, and no other template",
        )


def _check_sizes(fabric: RailFabric, phases: tuple[int, int] | None, findings: Findings) -> None:
    used = dimensions(fabric)
    if not used:
        findings.add(("fabric",), "found one node, expected at least two to join", of_key=True)
    if phases and "x" not in used:
        findings.add(("fabric",), "plans by phase need more than one column", of_key=True)
    for what, count, most in (
        ("switches", sum(fabric.lines(d) * fabric.rails for d in used), MOST_SWITCHES),
        *(
            (f"ports of {d}-rails in a line", 2 * fabric.length(d) * fabric.rails, MOST_LINE_PORTS)
            for d in used
        ),
    ):
        if count > most:
            findings.add(("fabric",), f"found {count} {what}, expected at most {most}", of_key=True)


def _check_fibers(fabric: RailFabric, findings: Findings) -> None:
    """Check that each switch is cabled once, to all nodes of its line in order, rail by rail."""
    missing = {
        (d, line, rail)
        for d in dimensions(fabric)
        for line in range(fabric.lines(d))
        for rail in range(fabric.rails)
    }
    for text in fibers(fabric):
        found = _FIBER.fullmatch(text)
        if found is None:
            findings.add(("fabric",), f"found the fibers {text!r}", of_key=True, once="fibers")
            continue
        nodes, d, rail, of_switch, line, of_rail = found.groups()
        at: tuple[Dimension, int, int] = ("x" if d == "x" else "y", int(line), int(rail))
        whole = at in missing and nodes == node_names(at[0], numbered(fabric.length(at[0])), line)
        if not whole or (of_switch, of_rail) != (d, rail):
            message = f"found the fibers {text!r}, expected those of each switch once"
            findings.add(("fabric",), message, of_key=True, once="fibers")
        missing.discard(at)
    for d, line, rail in sorted(missing):
        message = f"{d}ocs{line}-{rail} has no fibers"
        findings.add(("fabric",), message, of_key=True, once="no fibers")


def rates(testbeds: Iterable[Testbed]) -> frozenset[int]:
    """Return the rates of all NIC ports, in bit/s."""
    servers = (server for testbed in testbeds for server in testbed.servers.values())
    return frozenset(nic.rate_bps for server in servers for nic in server.nics.values())


def _parsed(switch: str) -> tuple[Dimension, int, int]:
    line, _, rail = switch[4:].partition("-")
    return "x" if switch[0] == "x" else "y", int(line), int(rail)


def _moved(dimension: Dimension, node: str, line: int) -> str:
    """Return the name in another line of a node of line 0."""
    i, _, j = node.removeprefix("node").partition("-")
    return f"node{i}-{line}" if dimension == "x" else f"node{line}-{j}"


def _with_nic(server: ServerSpec, name: str, nic: str) -> ServerSpec:
    """Return a server under another name, with one NIC."""
    found = server.nics[nic]
    ports = tuple(
        NicPortSpec(Port(name, each.port.name), each.netdev, each.rdma, each.ip)
        for each in found.ports
    )
    return replace(
        server,
        name=name,
        address=server.address.replace(server.name, name),
        nics={nic: replace(found, ports=ports)},
    )
