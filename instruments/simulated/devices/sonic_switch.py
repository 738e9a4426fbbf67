"""A SONiC optical circuit switch: its configuration, its circuits, and its databases.

Configuration and hardware have a table each: an entry that only the hardware has cannot be deleted
before it is added again. Written from the SONiC OCS High Level Design, revision 0.5 (tables,
states); in the form `kvm` rows are those of the image for KVM (sonic-ocs/sonic-buildimage 335777f6,
ocs_config.json, ocs_cross_connect_attrs.lua, ocs_port_attrs.lua; sonic-molex/sonic-buildimage
38d6ff05, sonic-ocs.yang). Guessed: the elements of a physical path. The serial number is where
SONiC keeps that of its system EEPROM (STATE_DB, EEPROM_INFO|0x23).
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from lightrig.instruments.simulated.devices.dialects import forms
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import Circuit, SwitchSpec

FACTORY_ACCURACY_DB = 0.1
"""Accuracy of a factory insertion loss, ± dB (the example of the High Level Design)."""

_RENAMED = ("OCS_PORT", "OCS_CROSS_CONNECT", "OCS_FACTORY_INSERTION_LOSS")
TABLES: Mapping[str, Sequence[str]] = {
    "CONFIG_DB": ("DEVICE_METADATA", "OCS_PORT", "OCS_CROSS_CONNECT"),
    "STATE_DB": (
        "EEPROM_INFO",
        "OCS_PORT",
        "OCS_CROSS_CONNECT",
        "OCS_CROSS_CONNECT_PHYSICAL_PATH",
        "OCS_FACTORY_INSERTION_LOSS",
    ),
}
"""Tables that are simulated, by database, as the High Level Design names them."""

OVERRIDES = ("normal", "force_blocked")
PORT_HEAD = ("id", "connector_type", "connector_pin", "target_simplex_port_id", "status")
STATUS_HEAD = ("id", "a_side", "b_side", "a_side_status", "b_side_status")

_METADATA = {"type": "SonicOCS", "switch_type": "ocs"}
_ID = re.compile(r"(\d+)A-(\d+)B")
# States of a port by vocabulary: without a cross-connect, while it is made, and made.
_STATES = {
    "hld": ("blocked", "tuning", "tuned"),
    "guide": ("blocked", "tuning", "connected"),
}


class ConfigError(Exception):
    """Raised for a configuration that the switch refuses."""


class SonicSwitch:
    """One switch, whatever it is controlled by.

    Attributes:
        observers: called after every change of a table.
        deletions: form in which gNMI notifies a row that is gone.
        keeps_empty_tables: whether a table of CONFIG_DB may be without rows.
    """

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, SwitchSpec)
        assert context.matrix is not None
        self._around = context
        self._spec = context.spec
        self._matrix = context.matrix
        self._configured: set[Circuit] = set()
        self._tuned_at: dict[Circuit, int] = {}
        stated_forms = forms("sonic-ocs", self._spec.options)
        self._states = _STATES[stated_forms["port_states"]]
        self._labels: dict[str, str] = {}
        self._blocked: set[str] = set()
        self.observers: list[Callable[[], None]] = []
        self._is_kvm = stated_forms["state_tables"] == "kvm"
        self._override_leaf = "config_status" if self._is_kvm else "state"
        self.deletions = stated_forms["deletions"]
        self.keeps_empty_tables = stated_forms["empty_tables"] == "kept"
        self._always_saves = stated_forms["persists"] == "always"
        self._saved: tuple[set[Circuit], dict[str, str], set[str]] = (set(), {}, set())

    def tables(self, database: str) -> Sequence[str]:
        """Return the names of the tables of a database; none for one that is not simulated."""
        names = TABLES.get(database, ())
        renamed = _RENAMED if database == "STATE_DB" and self._is_kvm else ()
        return [f"{name}_TABLE" if name in renamed else name for name in names]

    def table(self, database: str, name: str) -> dict[str, dict[str, str]]:
        """Return the entries of a table, by key; none for one that is not simulated."""
        if name not in self.tables(database):
            return {}
        if database == "STATE_DB":
            name = name.removesuffix("_TABLE")
        match database, name:
            case "CONFIG_DB", "DEVICE_METADATA":
                return {"localhost": {"hostname": self._spec.name, **_METADATA, **self.platform()}}
            case "CONFIG_DB", "OCS_PORT":
                return {
                    port: {
                        "label": self._labels.get(port, ""),
                        self._override_leaf: OVERRIDES[port in self._blocked],
                    }
                    for port, _ in self._ports()
                }
            case "CONFIG_DB", "OCS_CROSS_CONNECT":
                sides = map(self._sides, self._configured)
                return {id_: {"a_side": a, "b_side": b} for id_, a, b in sides}
            case "STATE_DB", "EEPROM_INFO":
                serial = self._around.serial
                leaves = {"Name": "Serial Number", "Len": str(len(serial)), "Value": serial}
                return {"0x23": leaves}
            case "STATE_DB", "OCS_PORT":
                rows = (self._port_status(*each) for each in self._ports())
                head = (*PORT_HEAD[1:-1], "oper_status" if self._is_kvm else PORT_HEAD[-1])
                return {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows}
            case "STATE_DB", "OCS_CROSS_CONNECT" if self._is_kvm:
                return {
                    id_: {
                        "physical_path": f"{a},{b}",
                        "status": "enabled" if self._is_made(each) else "disabled",
                        "insertion_loss_dB": f"{self._matrix.loss(each):.2f}",
                    }
                    for each in self._tuned_at
                    for id_, a, b in [self._sides(each)]
                }
            case "STATE_DB", "OCS_CROSS_CONNECT":
                return {
                    id_: dict(zip(STATUS_HEAD[1:], (a, b, *(self._state(each),) * 2), strict=True))
                    for each in self._tuned_at
                    for id_, a, b in [self._sides(each)]
                }
            case "STATE_DB", "OCS_CROSS_CONNECT_PHYSICAL_PATH":
                sides = map(self._sides, self._tuned_at)
                return {id_: {"physical_path@": f"A-{a[:-1]},B-{b[:-1]}"} for id_, a, b in sides}
            case "STATE_DB", "OCS_FACTORY_INSERTION_LOSS":
                return {
                    f"{id_}|{float(terahertz):.3f}|{float(celsius):.2f}": {
                        "loss_dB": loss,
                        "accuracy_dB": f"{float(accuracy):.2f}",
                    }
                    for id_, terahertz, celsius, loss, accuracy in self.factory_losses()
                }
        return {}

    def platform(self) -> dict[str, str]:
        """Return the leaf `platform` of the device's metadata."""
        return {"platform": self._around.stated.model or "simulated-ocs"}

    def version(self) -> str:
        """Return the version of the software."""
        return self._around.stated.firmware or "SONiC.OCS-202505.1"

    def configure(self, config: Mapping[str, Any]) -> None:
        """Change CONFIG_DB to `config`, rows by table and key, in one transaction.

        A port without a label or an override has the empty one and `normal`. Raises `ConfigError`,
        and then changes nothing.
        """
        for name, rows in config.items():
            if name not in self.tables("CONFIG_DB") or not isinstance(rows, Mapping):
                raise ConfigError(f"{name} cannot have {rows!r}")
        if config.get("DEVICE_METADATA") != self.table("CONFIG_DB", "DEVICE_METADATA"):
            raise ConfigError("entries of DEVICE_METADATA cannot be changed")
        configured, labels, blocked = set[Circuit](), dict[str, str](), set[str]()
        for key, row in config.get("OCS_CROSS_CONNECT", {}).items():
            circuit = self._entry(key)
            _, a, b = self._sides(circuit)
            if row != {"a_side": a, "b_side": b}:
                raise ConfigError(f"OCS_CROSS_CONNECT|{key} cannot have {row!r}")
            configured.add(circuit)
        numbers, ports = dict(self._ports()), config.get("OCS_PORT", {})
        if missing := numbers.keys() - ports.keys():
            raise ConfigError(
                f"entries of OCS_PORT cannot be deleted: {', '.join(sorted(missing))}"
            )
        for key, row in ports.items():
            if key not in numbers:
                raise ConfigError(f"invalid port {key}")
            if not isinstance(row, Mapping) or not (
                row.keys() <= {"label", self._override_leaf}
                and isinstance(row.get("label", ""), str)
                and row.get(self._override_leaf, OVERRIDES[0]) in OVERRIDES
            ):
                raise ConfigError(f"OCS_PORT|{key} cannot have {row!r}")
            labels[key] = row.get("label", "")
            if row.get(self._override_leaf) == OVERRIDES[1]:
                blocked.add(key)
        for side, name in ((0, "ingress"), (1, "egress")):
            seen: dict[int, Circuit] = {}
            for circuit in sorted(configured):
                first = seen.setdefault(circuit[side], circuit)
                if first != circuit:
                    ids = " and ".join(self._sides(each)[0] for each in (first, circuit))
                    raise ConfigError(f"{name} port in use by {ids}")
        made = configured - self._configured
        busy = {c for c in self._tuned_at if any(c[s] == m[s] for m in made for s in (0, 1))}
        self._remove((self._configured - configured) | (busy - configured))
        self._configured = configured
        self._make(sorted(made - set(self._tuned_at)))
        if not made:
            self._around.acknowledge()
        self._labels = labels
        for port in sorted(blocked ^ self._blocked):
            self._block(port, numbers[port], blocked=port in blocked)
        self._save()  # as gNMI does after a change (sonic-gnmi, test_gnmi_configdb)
        self._changed()

    def _changed(self) -> None:
        for observe in [*self.observers]:
            observe()

    def _save(self) -> None:
        self._saved = (set(self._configured), dict(self._labels), set(self._blocked))

    def _restart(self) -> None:
        """Begin anew with what was saved."""
        self._remove(set(self._tuned_at) | self._configured)
        configured, labels, blocked = self._saved
        self._configured, self._labels = set(configured), dict(labels)
        for port, number in self._ports():
            self._block(port, number, blocked=port in blocked)
        self._make(sorted(configured))

    def _sides(self, circuit: Circuit) -> tuple[str, str, str]:
        a = f"{circuit.ingress}A"
        b = f"{circuit.egress - self._spec.ingress_count}B"
        return f"{a}-{b}", a, b

    def _state(self, circuit: Circuit) -> str:
        if not self._blocked.isdisjoint(self._sides(circuit)[1:]):
            return self._states[0]
        return self._states[2 if self._is_made(circuit) else 1]

    def _is_made(self, circuit: Circuit) -> bool:
        return self._tuned_at[circuit] <= self._around.clock.now()

    def _ports(self) -> Iterator[tuple[str, int]]:
        for n in self._spec.ingress_ports:
            yield f"{n}A", n
        for n in self._spec.egress_ports:
            yield f"{n - self._spec.ingress_count}B", n

    def _port_status(self, name: str, port: int) -> tuple[str, ...]:
        """Return a row as the High Level Design shows it, `target` empty without a circuit."""
        pin = "2" if name.endswith("A") else "1"
        for circuit in self._tuned_at:
            if port in circuit:
                _, a, b = self._sides(circuit)
                return name, "LC-UPC", pin, b if name == a else a, self._state(circuit)
        return name, "LC-UPC", pin, "", self._states[0]

    def _entry(self, key: str) -> Circuit:
        match = _ID.fullmatch(key)
        if match is None:
            raise ConfigError(f"invalid cross-connect {key}")
        return self._circuit(int(match[1]), int(match[2]))

    def _port(self, name: str) -> tuple[str, int]:
        """Return name and number of a port; raises `ConfigError`."""
        found = dict(self._ports()).get(name.upper())
        if found is None:
            raise ConfigError(f"invalid port {name}")
        return name.upper(), found

    def _circuit(self, a: int, b: int) -> Circuit:
        circuit = Circuit(a, self._spec.ingress_count + b)
        if (
            circuit.ingress not in self._spec.ingress_ports
            or circuit.egress not in self._spec.egress_ports
        ):
            raise ConfigError(f"invalid cross-connect {a}A-{b}B")
        return circuit

    def factory_losses(self) -> Iterator[tuple[str, ...]]:
        """Yield the true losses with the error of a factory that states ± 0.1 dB."""
        for ingress in self._spec.ingress_ports:
            for egress in self._spec.egress_ports:
                circuit = Circuit(ingress, egress)
                draw = self._around.chance.stream(f"{self._spec.name}/factory/{circuit}").normal()
                loss = self._matrix.loss(circuit) + FACTORY_ACCURACY_DB / 2 * draw
                name = self._sides(circuit)[0]
                yield name, "228.85", "28", f"{loss:.2f}", f"{FACTORY_ACCURACY_DB}"

    def _make(self, circuits: Collection[Circuit]) -> None:
        if circuits:
            after = self._matrix.connect(circuits)
            self._around.acknowledge(after)
            tuned_at = self._around.clock.now() + after
            self._tuned_at |= dict.fromkeys(circuits, tuned_at)
            if self.observers:
                self._around.clock.schedule(tuned_at, f"{self._spec.name}!tuned", self._changed)

    def _remove(self, circuits: Collection[Circuit]) -> None:
        self._configured -= set(circuits)
        for circuit in circuits:
            self._tuned_at.pop(circuit, None)
        self._matrix.disconnect([circuit.ingress for circuit in circuits])

    def _block(self, port: str, number: int, *, blocked: bool) -> None:
        (self._blocked.add if blocked else self._blocked.discard)(port)
        if blocked != (number in self._matrix.shut):
            self._matrix.shutter(number, shut=blocked)
