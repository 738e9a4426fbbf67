"""SONiC on an optical circuit switch: its ports, options and facts, whatever the wire."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from lightrig.instruments.core.errors import GarbledError, InstrumentError, NotDoneError
from lightrig.instruments.core.instrument import Instrument, Option, from_seconds
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.switches.sonic_ocs.tables import INVALID
from lightrig.testbeds import Circuit

_HLD = "SONiC OCS High Level Design, revision 0.5"
_SERVER = "sonic-net/sonic-gnmi 5ec1c20b, mixed_db_client.go"
_UPDATER = "sonic-net/sonic-utilities 691b1bbc, generic_updater.py"
_MOLEX = "sonic-molex/sonic-buildimage 38d6ff05, sonic-ocs.yang"
_SSH, _GNMI = ("ssh",), ("gnmi",)
_PORT = r"(?:(\d+)-)?(\d+)"
_ID = re.compile(rf"{_PORT}A-{_PORT}B")
_PORT_ID = re.compile(rf"{_PORT}([AB])")
OVERRIDES = {"normal": True, "force_blocked": False, "powered_off": False}
DONE = frozenset({"tuned", "connected", "enabled"})
# Not `blocked`: a port that has just been given a cross-connect may report it still.
BROKEN = frozenset({"failed", "powered-off", "powered_off", INVALID})
_STATES = DONE | BROKEN | {"blocked", "tuning", "disabled"}
POLL = 20_000_000
TUNING = 10_000_000_000


def is_id(text: str) -> bool:
    """Whether `text` is the id of a cross-connect, such as `1A-2B` or `1-1A-2-3B`."""
    return _ID.fullmatch(text.upper()) is not None


class SonicSwitch(Instrument, ABC):
    """A switch whose ports have a side A, where light enters, and a side B, where it leaves.

    Ingress i is iA, egress N + j is jB; in a chassis with `slot_ports` ports in each slot, port
    i is the port `(i - 1) % slot_ports + 1` of its slot, as in `2-1A-1-3B`. A circuit exists where
    the hardware status shows it, configured or not. An entry that only the hardware has cannot be
    deleted: it is added to the configuration first.

    The change is done when every new cross-connect is tuned on both sides; over gNMI also, when
    none that was removed is left.
    """

    _version = "not asked"

    schemes = ("ssh", "gnmi")
    shared_options = (
        "stale",
        "port_states",
        "persists",
        "state_tables",
        "deletions",
        "empty_tables",
        "clients",
    )
    wire_facts = (
        WireFact("lists, ranges and modes of `cross-connect add`", _HLD, _SSH),
        WireFact(
            "every success prints `succeeded`", "sonic-mgmt, tests of ocs cross-connect", _SSH
        ),
        WireFact("stale entries: added, then deleted", "sonic-mgmt, module ocs_cross_connect"),
        WireFact("state `tuned`; table of factory insertion loss", _HLD),
        WireFact("`config ocs port label`, table of port configuration", _HLD, _SSH),
        WireFact(
            "`config save -y`, `reboot`, `warm-reboot`", "sonic-utilities, Command Reference", _SSH
        ),
        WireFact("how a label is removed; an empty one is set"),
        WireFact("states `connected`, `failed`", "SONiC OCS developer guide, 2026-08"),
        WireFact("`config ocs port state`, port mapping, tables of both databases", _HLD),
        WireFact("whether `config save` is needed to keep a circuit over a restart", wires=_SSH),
        WireFact("text and exit status of a failed command", wires=_SSH),
        WireFact("ranges of ids with slots; they are sent as lists", wires=_SSH),
        WireFact("lists of several ranges", "sonic-mgmt, test of batches", _SSH),
        WireFact("length of a command line for lists of hundreds of circuits", wires=_SSH),
        WireFact(
            "paths `/sonic-db:CONFIG_DB/localhost/TABLE/KEY/LEAF`, values JSON_IETF",
            "sonic-gnmi, test_gnmi_configdb",
            _GNMI,
            "sonic-mgmt, tests/gnmi",
        ),
        WireFact(
            "an update is an `add` of JSON Patch (RFC 6902): a row is replaced, not merged",
            _SERVER,
            _GNMI,
            _UPDATER,
        ),
        WireFact(
            "no first row is accepted by its own path, and no table without rows",
            _UPDATER,
            _GNMI,
            "sonic-net/sonic-mgmt, pull request 28099",
        ),
        WireFact(
            "a table without rows is NOT_FOUND, or a response without notification",
            _SERVER,
            _GNMI,
        ),
        WireFact(
            "a row that is gone is notified by its table's path, one that comes as it was is not",
            f"{_SERVER}; db_client.go",
            _GNMI,
        ),
        WireFact(
            "a Set whose service does not answer for 180 s fails, and may be carried out later",
            "sonic-net/sonic-gnmi 5ec1c20b, dbus_client.go",
            _GNMI,
            "sonic-net/sonic-gnmi, pull request 265",
        ),
        WireFact(
            "a Set may fail when it was carried out, as the configuration is saved",
            _SERVER,
            _GNMI,
            "sonic-net/sonic-gnmi, issue 238",
        ),
        WireFact("a Set of cross-connects is one transaction of CONFIG_DB", _HLD, _GNMI),
        WireFact(
            "a Set is kept over a restart (DBUS config save)",
            "sonic-gnmi, test_gnmi_configdb",
            _GNMI,
        ),
        WireFact(
            "Subscribe of a table of STATE_DB on change",
            "sonic-mgmt, tests/telemetry",
            _GNMI,
            "sonic-gnmi, test_gnmi_configdb",
        ),
        WireFact(
            "leaves `state` of ports, `a_side_status` and `b_side_status` of cross-connects",
            _HLD,
            _GNMI,
            "sonic-ocs/sonic-buildimage 5d2f132f, sonic-ocs-states.yang",
        ),
        WireFact(
            "or `config_status` of ports, and `status` in OCS_CROSS_CONNECT_TABLE",
            "sonic-ocs/sonic-buildimage 335777f6, ocs_config.json and ocs_cross_connect_attrs.lua",
            _GNMI,
            _MOLEX,
        ),
        WireFact(
            "`status` is `disabled`, `enabled` or, with ports in conflict, `invalid`",
            _MOLEX,
            _GNMI,
            "sonic-molex/SAI 8f2192ba, experimental/saiexperimentalocscrossconnect.h",
        ),
        WireFact(
            "override `powered_off`", "SONiC OCS developer guide, revision 0.2", _GNMI, _MOLEX
        ),
        WireFact(
            "login as metadata `username`, `password`; TCP port 8080",
            "sonic-telemetry, gNMI_usage_examples.md",
            _GNMI,
        ),
        WireFact("version at `osversion/build` of the target OTHERS", "sonic-gnmi", _GNMI),
        WireFact("serial number at STATE_DB EEPROM_INFO|0x23, as of any switch", wires=_GNMI),
        WireFact("status and text of a refused Set", wires=_GNMI),
    )
    ports = Option(int, 0, "number of ports", attribute="ingress_count")
    slot_ports = Option(int, 0, "ports in each slot of a chassis; 0 for ids without slots")
    become = Option(str, "sudo -n", "prefix of every command that changes something, over SSH")
    certificates: Option[str | None] = Option(
        str, None, "over gNMI, file of trusted certificates; without it those of the system"
    )
    commit_time = Option(
        from_seconds,
        190_000_000_000,
        "over gNMI, time limit of a change, in s; the server itself waits for 180 s",
        key="commit_time_s",
    )
    table_time = Option(
        from_seconds,
        60_000_000_000,
        "over gNMI, time limit of reading the losses, in s; 320 x 320 ports have 102,400",
        key="table_time_s",
    )
    client: Option[str | None] = Option(
        str, None, "over gNMI, file of the client's certificate and key, where the switch wants one"
    )

    @abstractmethod
    def _status(self) -> dict[Circuit, tuple[str, ...]]:
        """Return the states of both sides of each cross-connect that the hardware has."""

    def circuits(self) -> frozenset[Circuit]:
        """Return every cross-connect that the hardware status shows, configured or not."""
        return frozenset(self._status())

    def garbled(
        self, command: str, reply: object, expected: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """Return the error of a reply that is not what the sources of this driver show."""
        revision = "revision", f"of SONiC: {self._version}"
        return super().garbled(command, reply, expected, *details, revision)

    def states_of_sides(self, command: str, found: Sequence[str]) -> tuple[str, ...]:
        """Return the states of the sides of a cross-connect; raises `GarbledError`."""
        states = tuple(map(str.lower, found))
        if not _STATES.issuperset(states):
            raise self.garbled(command, ", ".join(found), "state of a port")
        return states

    def not_done(
        self, what: str, commands: Sequence[str], states: Mapping[Circuit, Sequence[str]]
    ) -> InstrumentError:
        """Return the error of circuits that did not come up; `states` are those of their sides."""
        shown = ", ".join(f"{self._id(c)} ({', '.join(s)})" for c, s in sorted(states.items()))
        return self.failed(
            NotDoneError,
            f"{what} {shown}",
            " && ".join(commands),
            ("try", "is there light, is a fiber plugged in on both sides?"),
        )

    def _id(self, circuit: Circuit) -> str:
        return f"{self._port(circuit.ingress)}A-{self._port(circuit.egress - self.ports)}B"

    def _port(self, number: int) -> str:
        if not self.slot_ports:
            return str(number)
        slot, port = divmod(number - 1, self.slot_ports)
        return f"{slot + 1}-{port + 1}"

    def _port_id(self, port: int) -> str:
        if port > self.ports:
            return f"{self._port(port - self.ports)}B"
        return f"{self._port(port)}A"

    def _port_number(self, id_: str) -> int | None:
        """Return the number of a port such as `3A`; None for what is no port."""
        match = _PORT_ID.fullmatch(id_.upper())
        if match is None:
            return None
        return self._number_of(match[1], match[2], id_) + (self.ports if match[3] == "B" else 0)

    def _circuit(self, one: str) -> Circuit:
        match = _ID.fullmatch(one.upper())
        assert match is not None
        return Circuit(
            self._number_of(match[1], match[2], one),
            self.ports + self._number_of(match[3], match[4], one),
        )

    def _number_of(self, slot: str | None, port: str, one: str) -> int:
        if (slot is not None) != bool(self.slot_ports) or int(port) > (self.slot_ports or 1 << 30):
            raise self.failed(
                GarbledError,
                f"names a cross-connect {one}",
                "show ocs cross-connect",
                ("try", f"`options: {{slot_ports: N}}` in the testbed file is {self.slot_ports}"),
            )
        return (int(slot) - 1) * self.slot_ports + int(port) if slot is not None else int(port)
