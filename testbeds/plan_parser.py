"""Parser of the section `plans` of a testbed file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightrig.testbeds.cabling import Cabling, CablingError
from lightrig.testbeds.errors import Problem, TestbedError
from lightrig.testbeds.expansion import Parts
from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.model import SwitchSpec
from lightrig.testbeds.plans import Circuit, Plan, PlanError, Port, UsedPorts, port_used_twice
from lightrig.testbeds.ranges import RangeError, expand
from lightrig.testbeds.schema import CircuitPlanPart, Document, FilePlanPart
from lightrig.testbeds.wiring import EndError, Side, resolve, split
from lightrig.testbeds.yaml_positions import Keys, Located, read


def read_plans(
    document: Document, parts: Parts, cabling: Cabling, folder: Path, findings: Findings
) -> dict[str, Plan]:
    """Return the plans of `document`, their files relative to `folder`."""
    reader = _Reader(parts, cabling, folder, findings)
    plans = {}
    for name, stated in document.plans.items():
        keys: Keys = ("plans", name)
        if isinstance(stated, FilePlanPart):
            circuits: Mapping[str, Iterable[Circuit]] = reader.from_file(stated, keys)
        elif isinstance(stated, CircuitPlanPart):
            circuits = reader.from_circuits(stated, keys)
        else:
            circuits = reader.from_links(stated, keys)
        try:
            plans[name] = Plan(name, {switch: frozenset(all_) for switch, all_ in circuits.items()})
        except PlanError:
            # Its problem was reported above, with its place.
            assert findings
    return plans


class _Reader:
    def __init__(self, parts: Parts, cabling: Cabling, folder: Path, findings: Findings) -> None:
        self._parts = parts
        self._cabling = cabling
        self._folder = folder
        self._findings = findings
        self._files: dict[str, Located | None] = {}

    def from_links(self, stated: list[str], keys: Keys) -> dict[str, UsedPorts]:
        circuits: dict[str, UsedPorts] = {}
        for index, text in enumerate(stated):
            here: Keys = (*keys, index)
            sides = split(text, "<->")
            if sides is None:
                hint = "; one direction is a circuit: {circuits: {ocs: ['1>17']}}" * ("->" in text)
                self._findings.add(
                    here,
                    f"found {text[:60]!r}, expected e.g. 'server0.nic0 <-> server1.nic0'{hint}",
                )
                continue
            left, right = (self._ports(side, here) for side in (sides[0], sides[2]))
            if left is None or right is None:
                continue
            if len(left) != len(right):
                self._findings.add(
                    here,
                    f"found {len(left)} ports left of the arrow and {len(right)} right of it, "
                    "expected as many on both sides",
                )
                continue
            for a, b in zip(left, right, strict=True):
                try:
                    link = self._cabling.circuits_for_link(a, b)
                except (CablingError, PlanError) as error:
                    self._findings.add(here, str(error), once="link")
                    continue
                for switch, both in link.circuits.items():
                    for circuit in sorted(both):
                        self._append(circuits, switch, circuit, here)
        return circuits

    def from_circuits(self, stated: CircuitPlanPart, keys: Keys) -> dict[str, UsedPorts]:
        circuits: dict[str, UsedPorts] = {}
        for stated_name, texts in stated.circuits.items():
            at: Keys = (*keys, "circuits", stated_name)
            for name in self._names(stated_name, at):
                switch = self._switch(name, at, of_key=True)
                if switch is None:
                    break  # the others of a range are as unknown
                circuits.setdefault(name, UsedPorts())
                for index, text in enumerate(texts):
                    try:
                        circuit = Circuit.parse(text)
                    except PlanError as error:
                        self._findings.add((*at, index), str(error), once="circuit")
                        continue
                    self._check(switch, circuit, (*at, index), "")
                    self._append(circuits, name, circuit, (*at, index))
        return circuits

    def from_file(self, stated: FilePlanPart, keys: Keys) -> dict[str, list[Circuit]]:
        switch = self._switch(stated.switch, (*keys, "switch"))
        located = self._file(stated.file, (*keys, "file"))
        if located is None or switch is None:
            return {}
        maps = located.data.get("cross-connects") if isinstance(located.data, dict) else None
        if not isinstance(maps, dict):
            self._elsewhere(located, (), "the key 'cross-connects' is missing or holds no maps")
            return {}
        if stated.map not in maps:
            self._findings.add(
                (*keys, "map"),
                f"{stated.file} has no map {stated.map!r}{did_you_mean(stated.map, maps)}",
            )
            return {}
        at: Keys = ("cross-connects", stated.map)
        sides = maps[stated.map]
        ports: list[Any] = [
            sides.get(side) if isinstance(sides, dict) else None for side in ("ingress", "egress")
        ]
        if not all(map(_are_numbers, ports)) or len(ports[0]) != len(ports[1]):
            self._elsewhere(
                located,
                at,
                f"map {stated.map!r} is no cross-connect map, expected the lists 'ingress' and "
                "'egress' of as many port numbers",
            )
            return {}
        circuits = [Circuit(*pair) for pair in zip(*ports, strict=True)]
        twice = port_used_twice(circuits)
        if twice:
            self._findings.add(
                (*keys, "map"), f"map {stated.map!r} of {stated.file} contradicts itself: {twice}"
            )
        for circuit in circuits:
            self._check(switch, circuit, (*keys, "map"), f"map {stated.map!r}: ")
        return {stated.switch: circuits}

    def _file(self, name: str, keys: Keys) -> Located | None:
        if name not in self._files:
            self._files[name] = None
            path = self._folder / name
            try:
                is_file = path.is_file()
            except (OSError, ValueError):
                is_file = False
            if not is_file:
                self._findings.add(
                    keys, f"found no file {name!r}, expected it relative to {self._folder}"
                )
                return None
            try:
                located = read(path)
            except TestbedError as error:
                self._findings.extend(error.problems)
                return None
            self._findings.extend(located.problems)
            self._files[name] = located
        return self._files[name]

    def _elsewhere(self, located: Located, keys: Keys, message: str) -> None:
        place = located.place(keys, of_key=True)
        self._findings.extend([Problem(located.file, place.line, place.column, message)])

    def _names(self, text: str, keys: Keys) -> list[str]:
        try:
            return expand(text)
        except RangeError as error:
            self._findings.add(keys, str(error), of_key=True)
            return []

    def _switch(self, name: str, keys: Keys, *, of_key: bool = False) -> SwitchSpec | None:
        found = self._parts.switches.get(name)
        if found is not None and found.kind == "optical":
            return found
        hint = did_you_mean(
            name, [n for n, spec in self._parts.switches.items() if spec.kind == "optical"]
        )
        self._findings.add(keys, f"found the unknown optical switch {name!r}{hint}", of_key=of_key)
        return None

    def _ports(self, side: Side, keys: Keys) -> list[Port] | None:
        try:
            texts = expand(side.text)
            return [resolve(text, self._parts) for text in texts]
        except RangeError as error:
            self._findings.add(keys, str(error), offset=side.offset + error.offset)
        except EndError as error:
            self._findings.add(keys, str(error), offset=side.offset)
        return None

    def _check(self, switch: SwitchSpec, circuit: Circuit, keys: Keys, prefix: str) -> None:
        for side, port, known in (
            ("ingress", circuit.ingress, switch.ingress_ports),
            ("egress", circuit.egress, switch.egress_ports),
        ):
            if port not in known:
                self._findings.add(
                    keys,
                    f"{prefix}circuit {circuit} names {side} {port}, expected {known[0]} to "
                    f"{known[-1]} on {switch.name}",
                    once=f"{prefix}range",
                )
                return
        try:
            self._cabling.light_path(switch.name, circuit)
        except CablingError as error:
            self._findings.add(keys, f"{prefix}{error}", once=f"{prefix}light path")

    def _append(
        self, circuits: dict[str, UsedPorts], switch: str, circuit: Circuit, keys: Keys
    ) -> None:
        twice = circuits.setdefault(switch, UsedPorts()).add(circuit)
        if twice:
            self._findings.add(keys, f"{twice} on {switch}, expected once in a plan", once="twice")


def _are_numbers(ports: Any) -> bool:
    return isinstance(ports, list) and all(type(port) is int and port > 0 for port in ports)
