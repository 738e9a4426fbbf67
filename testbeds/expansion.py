"""Expansion of ranges and templates into one spec per switch, server and instrument."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.model import (
    InstrumentSpec,
    NicPortSpec,
    NicSpec,
    ServerSpec,
    SwitchSpec,
    TransceiverSpec,
)
from lightrig.testbeds.parsing import EXAMPLES
from lightrig.testbeds.parts import (
    InstrumentPart,
    NicPart,
    OpticalSwitchPart,
    PacketSwitchPart,
    PowerRange,
    ServerPart,
    TemperatureRange,
    TransceiverPart,
    WavelengthRange,
)
from lightrig.testbeds.plans import Port
from lightrig.testbeds.pmds import Pmd, find_pmd, is_both_ways, pmds
from lightrig.testbeds.quantities import Dbm, format_wavelength
from lightrig.testbeds.ranges import RangeError, expand
from lightrig.testbeds.schema import Document
from lightrig.testbeds.yaml_positions import Keys, Located


@dataclass(slots=True)
class Parts:
    """Switches, servers and instruments, before they are cabled."""

    switches: dict[str, SwitchSpec] = field(default_factory=dict)
    servers: dict[str, ServerSpec] = field(default_factory=dict)
    instruments: dict[str, InstrumentSpec] = field(default_factory=dict)
    transceivers: dict[str, TransceiverSpec] = field(default_factory=dict)

    @property
    def owners(self) -> list[str]:
        """Return the names allowed before the dot of a fiber's end."""
        return [*self.switches, *self.servers, *self.instruments]


def _of_pmd(pmd: Pmd) -> dict[str, object]:
    """Return the fields of a transceiver that its PMD states; None for what it does not."""

    def span(low: float | None, high: float | None) -> PowerRange | None:
        return None if low is None or high is None else PowerRange(Dbm(low), Dbm(high))

    return {
        "wavelength_nm": pmd.wavelength_nm,
        "lanes": pmd.lanes,
        "wavelengths": pmd.wavelengths,
        "launch": span(pmd.launch_min, pmd.launch_max),
        "receive": span(pmd.receive_min, pmd.receive_max),
        "damage_dbm": pmd.damage,
    }


def expand_document(document: Document, located: Located, findings: Findings) -> Parts:
    """Return the parts that `document` describes; problems go to `findings`."""
    return _Expansion(located, findings).run(document)


class _Expansion:
    def __init__(self, located: Located, findings: Findings) -> None:
        self._located = located
        self._findings = findings
        self._names: dict[str, int] = {}
        self._port_number = itertools.count(1)
        self._seen: dict[tuple[str, str, str], str] = {}
        self._parts = Parts()
        self._transceiver_names: frozenset[str] = frozenset()

    def run(self, document: Document) -> Parts:
        self._transceivers(document)
        self._switches(document)
        self._servers(document)
        self._instruments(document)
        return self._parts

    def _transceivers(self, document: Document) -> None:
        self._transceiver_names = frozenset(document.transceivers)
        for name, part in document.transceivers.items():
            keys: Keys = ("transceivers", name)
            stated = self._with_pmd(part, keys)
            if stated is None:
                continue
            for what in ("launch", "receive"):
                power = stated[what]
                if power.min > power.max:
                    self._findings.add(
                        (*keys, what), f"found min {power.min:g} dBm above max {power.max:g} dBm"
                    )
            damage, greatest = stated["damage_dbm"], stated["receive"].max
            if damage is not None and damage < greatest:
                self._findings.add(
                    (*keys, "damage"),
                    f"found damage at {damage:g} dBm, below the {greatest:g} dBm that it receives",
                )
            self._parts.transceivers[name] = TransceiverSpec(**stated, name=name)

    def _with_pmd(self, part: TransceiverPart, keys: Keys) -> dict[str, Any] | None:
        """Return what `part` states, and what its PMD does; None where that is not enough."""
        stated = dict(vars(part))
        pmd = None
        if part.pmd is not None:
            if is_both_ways(part.pmd):
                problem = "sends and receives in one fiber, which is not supported yet"
                self._findings.add((*keys, "pmd"), f"{part.pmd} {problem}")
                return None
            pmd = find_pmd(part.pmd)
            if pmd is None:
                known = did_you_mean(part.pmd, pmds()) or f", expected one of {', '.join(pmds())}"
                self._findings.add((*keys, "pmd"), f"found the unknown PMD {part.pmd!r}{known}")
                return None
            self._check_lanes(part, pmd, keys)
            for key, value in _of_pmd(pmd).items():
                if stated[key] is None:
                    stated[key] = value
        missing = [key for key in ("wavelength_nm", "launch", "receive") if stated[key] is None]
        for key in missing:
            what = key.removesuffix("_nm")
            why = f"; the table of PMDs has none of {pmd.name}" if pmd else ", or name its `pmd:`"
            problem = f"the key {what!r} is missing here, e.g. {EXAMPLES[what]}{why}"
            self._findings.add(keys, problem, of_key=True)
        return None if missing else {**stated, "known_pmd": pmd}

    def _check_lanes(self, part: TransceiverPart, pmd: Pmd, keys: Keys) -> None:
        for key, has in (("lanes", pmd.lanes), ("wavelengths", pmd.wavelengths)):
            found = getattr(part, key)
            if found not in (None, has):
                kind = "lanes" if key == "lanes" else "wavelengths in a fiber"
                problem = f"found {found}, expected {has}: {pmd.name} has {has} {kind}"
                self._findings.add((*keys, key), f"{problem} ({pmd.source})")

    def _switches(self, document: Document) -> None:
        for key, part in document.switches.items():
            keys = ("switches", key)
            place = self._located.place(keys, of_key=True)
            stated = dict(vars(part))
            if isinstance(part, OpticalSwitchPart):
                ingress_count, egress_count = map(int, stated.pop("size").split("x"))
            else:
                ingress_count = egress_count = stated.pop("ports")
                self._transceiver(part.transceiver, keys)
            names = list(self._expand(keys))
            if len(names) > 1 and part.identity.serial is not None:
                self._findings.add(
                    (*keys, "identity", "serial"),
                    f"found one serial number for {len(names)} switches, expected a part of its "
                    "own for each",
                )
            for name in names:
                stated["address"] = part.address and self._address(part.address, name, keys)
                self._once_alike(part, stated["address"], name, keys)
                self._parts.switches[name] = SwitchSpec(
                    **stated,
                    name=name,
                    ingress_count=ingress_count,
                    egress_count=egress_count,
                    line=place.line,
                    column=place.column,
                )

    def _address(self, template: str, name: str, keys: Keys) -> str:
        return self._fill(template, (*keys, "address"), name=name, n=_number(name))

    def _instruments(self, document: Document) -> None:
        for key, part in document.instruments.items():
            keys = ("instruments", key)
            place = self._located.place(keys, of_key=True)
            withstood = part.temperature
            if withstood is not None:
                self._check_temperature(part, withstood, keys)
            if document.overrides and document.overrides.temperature:
                withstood = None
            if part.wavelengths is not None:
                self._check_wavelengths(part, part.wavelengths, keys)
            for name in self._expand(keys):
                stated = {**vars(part), "temperature": withstood}
                stated["address"] = self._address(part.address, name, keys)
                self._once_alike(part, stated["address"], name, keys)
                self._parts.instruments[name] = InstrumentSpec(
                    **stated, name=name, line=place.line, column=place.column
                )

    def _check_temperature(
        self, part: InstrumentPart, withstood: TemperatureRange, keys: Keys
    ) -> None:
        if part.kind != "climate_chamber":
            self._findings.add(
                (*keys, "temperature"),
                f"found it at a {part.kind.replace('_', ' ')}, expected it at a climate chamber",
            )
        elif withstood.min > withstood.max:
            self._findings.add(
                (*keys, "temperature"),
                f"found min {withstood.min:g} °C above max {withstood.max:g} °C",
            )

    def _check_wavelengths(self, part: InstrumentPart, stated: WavelengthRange, keys: Keys) -> None:
        problem = ""
        if part.kind != "light_source":
            kind = part.kind.replace("_", " ")
            problem = f"found them at a {kind}, expected them at a light source"
        elif stated.min > stated.max:
            ends = map(format_wavelength, (stated.min, stated.max))
            problem = f"found min {next(ends)} above max {next(ends)}"
        if problem:
            self._findings.add((*keys, "wavelengths"), problem)

    def _servers(self, document: Document) -> None:
        for key, part in document.servers.items():
            for name in self._expand(("servers", key)):
                self._parts.servers[name] = self._server(name, part, ("servers", key))

    def _server(self, name: str, part: ServerPart, keys: Keys) -> ServerSpec:
        number = _number(name)
        address = self._fill(part.address, (*keys, "address"), name=name, n=number, server=number)
        self._once("address", "the testbed", address, name, (*keys, "address"))
        nics: dict[str, NicSpec] = {}
        for nic_key, nic in part.nics.items():
            nic_keys = (*keys, "nics", nic_key)
            for nic_name in self._expand(nic_keys, nics):
                nics[nic_name] = self._nic(name, nic_name, nic, nic_keys)
        where = part.place
        if where is not None:
            where = self._fill(where, (*keys, "place"), name=name, n=number, server=number)
        place = self._located.place(keys, of_key=True)
        return ServerSpec(
            name=name,
            address=address,
            login=part.login,
            python=part.python,
            become=part.become,
            timeouts=part.timeouts,
            gpus=part.gpus,
            nics=nics,
            place=where,
            line=place.line,
            column=place.column,
            is_namespace=part.kind == "namespace" or address.startswith("netns://"),
        )

    def _nic(self, server: str, name: str, part: NicPart, keys: Keys) -> NicSpec:
        common = {"name": name, "n": _number(name), "server": _number(server)}
        ports = []
        for index in range(part.ports):
            values = {**common, "p": str(index), "k": str(next(self._port_number))}
            port = Port(server, f"{name}.p{index}" if part.ports > 1 else name)
            texts: dict[str, str | None] = {}
            for what in ("netdev", "rdma", "ip", "interface"):
                template = getattr(part, what)
                texts[what] = None
                if template is not None:
                    texts[what] = text = self._fill(template, (*keys, what), **values)
                    scope = "the testbed" if what in ("ip", "interface") else server
                    self._once(what, scope, text, str(port), (*keys, what))
            if texts["ip"] is not None and "{" not in texts["ip"]:
                self._check_ip(texts["ip"], (*keys, "ip"))
            ports.append(NicPortSpec(port, texts.pop("netdev") or "", **texts))
        return NicSpec(
            name=name,
            model=part.model,
            rate_bps=part.rate_bps,
            transceiver=self._transceiver(part.transceiver, keys),
            numa=self._numa(part.numa, (*keys, "numa"), common),
            ports=tuple(ports),
        )

    def _transceiver(self, name: str | None, keys: Keys) -> str | None:
        if name is not None and name not in self._transceiver_names:
            self._findings.add(
                (*keys, "transceiver"),
                f"found the unknown transceiver {name!r}"
                + did_you_mean(name, self._transceiver_names),
            )
        return name

    def _numa(
        self, numa: int | str | None, keys: Keys, values: Mapping[str, str | None]
    ) -> int | None:
        if numa is None:
            return None
        text = self._fill(str(numa), keys, **values)
        if not re.fullmatch(r"\d{1,4}", text, re.ASCII):
            self._findings.add(keys, f"found {text!r}, expected a NUMA node's number, e.g. 0")
            return None
        return int(text)

    def _check_ip(self, text: str, keys: Keys) -> None:
        try:
            interface = ipaddress.ip_interface(text)
            is_usable = "/" in text and interface.network.num_addresses > 1
        except ValueError:
            is_usable = False
        if not is_usable:
            self._findings.add(
                keys,
                f"found {text!r}, expected an IP address and its prefix, e.g. '192.0.2.1/24'",
                once="ip",
            )

    def _once(self, what: str, scope: str, text: str, user: str, keys: Keys) -> None:
        if "{" in text:
            return  # a template that could not be filled was noted there
        first = self._seen.setdefault((what, scope, text), user)
        if first != user:
            self._findings.add(
                keys,
                f"{first} and {user} have the same {what} {text!r}, expected one each, e.g. with "
                + {"address": "{name}", "ip": "{k}", "interface": "{k}"}.get(what, "{n} or {p}"),
                once=f"same {what}",
            )

    def _once_alike(
        self,
        part: OpticalSwitchPart | PacketSwitchPart | InstrumentPart,
        address: str | None,
        name: str,
        keys: Keys,
    ) -> None:
        """Note a second part of one model at an address, unless options tell the two apart."""
        if address is not None and part.kind != "packet":
            scope = f"{part.model} {sorted(part.options.items())}"
            self._once("address", scope, address, name, (*keys, "address"))

    def _expand(self, keys: Keys, used: Mapping[str, object] | None = None) -> Iterator[str]:
        """Yield the valid new names of the key; `used` are those of the same NIC list."""
        text = str(keys[-1])
        try:
            names = expand(text)
        except RangeError as error:
            self._findings.add(keys, str(error), of_key=True, offset=error.offset)
            return
        if not names:
            self._findings.add(keys, "found an empty name", of_key=True)
        for name in names:
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name, re.ASCII):
                self._findings.add(
                    keys,
                    f"found the name {name!r}, expected letters, digits, - and _, e.g. 'server0'",
                    of_key=True,
                    once="name",
                )
                continue
            if used is not None:
                taken: str | None = "in this server" if name in used else None
            else:
                taken = f"in line {self._names[name]}" if name in self._names else None
                self._names.setdefault(name, self._located.place(keys, of_key=True).line)
            if taken:
                self._findings.add(
                    keys,
                    f"the name {name!r} is used twice, first {taken}",
                    of_key=True,
                    once="duplicate name",
                )
                continue
            yield name

    def _fill(self, template: str, keys: Keys, **values: str | None) -> str:
        def value(match: re.Match[str]) -> str:
            known = ", ".join(f"{{{key}}}" for key in values)
            if match[1] not in values:
                message = f"found the unknown template {match[0]}, expected one of {known}"
            elif values[match[1]] is None:
                message = f"found {match[0]}, but the name it comes from has no number"
            else:
                return str(values[match[1]])
            self._findings.add(keys, message, offset=match.start(), once="template")
            return match[0]

        return re.sub(r"\{([^{}]*)\}", value, template)


def _number(name: str) -> str | None:
    """Return the last number in a name as written: that of the innermost range."""
    numbers = re.findall(r"\d+", name, re.ASCII)
    return numbers[-1] if numbers else None
