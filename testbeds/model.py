"""A testbed after its file was read, checked and its ranges expanded: plain frozen values.

Fields carry their unit in their name, or in their docstring. Mappings keep the file's order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lightrig.testbeds.cabling import Cabling, Fiber
from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.limits import Limit
from lightrig.testbeds.parts import (
    Controlled,
    CoordinatorSpec,
    FatTreeSpec,
    InstrumentPart,
    LaboratorySpec,
    NicFacts,
    OpticalLimits,
    PacketPorts,
    PowerRange,
    ServerFacts,
    SoakTurn,
    TransceiverPart,
)
from lightrig.testbeds.plans import Link, Plan, Port
from lightrig.testbeds.pmds import Pmd
from lightrig.testbeds.simulation import Simulation

if TYPE_CHECKING:
    from lightrig.testbeds.exception_entry import Entry

MOST_WAVELENGTHS = 8
"""The most that IEEE 802.3 has in one fiber (400GBASE-FR8 and LR8, clause 122)."""


class UnknownNameError(LightrigError, LookupError):
    """The testbed has no object of that name."""


@dataclass(frozen=True, kw_only=True)
class SwitchSpec(Controlled, OpticalLimits, PacketPorts):
    """A switch. On an optical one, ingress ports are 1..N and egress ports N+1..N+M.

    On a packet switch each port 1..N is both; `address` is None where nothing talks to it.
    """

    name: str
    kind: Literal["optical", "packet"]
    address: str | None
    ingress_count: int
    egress_count: int
    line: int
    column: int

    @property
    def ingress_ports(self) -> range:
        """The numbers of all ingress ports, cabled or not."""
        return range(1, self.ingress_count + 1)

    @property
    def egress_ports(self) -> range:
        """The numbers of all egress ports, cabled or not."""
        first = 1 if self.kind == "packet" else self.ingress_count + 1
        return range(first, first + self.egress_count)


@dataclass(frozen=True, slots=True)
class NicPortSpec:
    """One port of a NIC: its network device, RDMA device and IP interface ("192.0.2.1/24").

    `interface` is the one at the other end, on a machine that serves the testbed.
    """

    port: Port
    netdev: str
    rdma: str | None
    ip: str | None
    interface: str | None = None


@dataclass(frozen=True, kw_only=True)
class NicSpec(NicFacts):
    """A NIC with its ports."""

    name: str
    numa: int | None
    ports: tuple[NicPortSpec, ...]


@dataclass(frozen=True, kw_only=True)
class ServerSpec(ServerFacts):
    """A server, or a network namespace that plays one.

    Attributes:
        is_namespace: whether its NIC ports are kernel devices without transceivers, and its
            routes are ours; of one that this process makes the address is "netns://NAME".
    """

    name: str
    nics: Mapping[str, NicSpec]
    line: int
    column: int
    is_namespace: bool = False

    @property
    def is_local_namespace(self) -> bool:
        """Whether the namespace is made by the process that opens the testbed."""
        return self.address.startswith("netns://")

    @property
    def has_interfaces(self) -> bool:
        """Whether a served lab joins this server by interfaces that exist; it is not simulated."""
        return any(port.interface for nic in self.nics.values() for port in nic.ports)


@dataclass(frozen=True, kw_only=True)
class InstrumentSpec(InstrumentPart):
    """A bench instrument; its channels are ports "NAME.1", "NAME.2", ... of the cabling."""

    name: str
    line: int
    column: int

    @property
    def least_celsius(self) -> float | None:
        """The least temperature that the devices in a climate chamber withstand."""
        return self.temperature.min if self.temperature else None

    @property
    def greatest_celsius(self) -> float | None:
        """The greatest temperature that they withstand."""
        return self.temperature.max if self.temperature else None


@dataclass(frozen=True, kw_only=True)
class TransceiverSpec(TransceiverPart):
    """A type of transceiver with its name; what the file leaves out is that of its PMD.

    `known_pmd` is that PMD, None where the file names none.
    """

    name: str
    wavelength_nm: float
    launch: PowerRange
    receive: PowerRange
    known_pmd: Pmd | None = None

    @property
    def fiber_launch_max_dbm(self) -> float:
        """Greatest power that it launches into one fiber: the sum of its wavelengths.

        The total of its PMD, where the file states no launch of its own. Where the file does not
        state how many wavelengths they are, of `MOST_WAVELENGTHS`.
        """
        pmd = self.known_pmd
        if pmd and pmd.fiber_launch_max is not None and self.launch.max == pmd.launch_max:
            return pmd.fiber_launch_max
        return self.launch.max + 10 * math.log10(self.wavelengths or MOST_WAVELENGTHS)

    @property
    def assumed_wavelengths(self) -> str:
        """Addition to a message on `fiber_launch_max_dbm`; empty where the file states it."""
        if self.wavelengths is not None:
            return ""
        return (
            f" ({MOST_WAVELENGTHS} wavelengths in a fiber, since transceiver {self.name} states "
            "no `wavelengths:`)"
        )


@dataclass(frozen=True, slots=True)
class OutOfService:
    """What a person has put out of service.

    Attributes:
        entries: by what the list names.
        ports: all of them: of NICs, of switches, of instruments.
        stated: the testbed with its whole plans, as its file states them; None where nothing is
            out.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    ports: frozenset[Port] = frozenset()
    stated: Testbed | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.ports)

    def __str__(self) -> str:
        return ", ".join(self.entries)


@dataclass(frozen=True, slots=True)
class Testbed:
    """Servers, switches, instruments, fibers and limits of a lab, as one file describes them.

    `system` names the published system that it builds, None for any other testbed.
    `known_hosts` is the file of its SSH host keys, None for the user's own; `ssh_config` likewise
    the configuration of SSH's client. `notes` are located
    sentences on what the file should state differently, such as a former name of a quantity.
    `lab_folder` holds leases and saved states for all hosts that share it, None for this machine's.
    `overrides` are the reasons of the interlocks that are off, by name. `coordinator` gives the
    lab to one user at a time beside the leases, None where there is none. `automatic_ports` are
    by switch the ports that the file leaves to the program: "server0.nic0 1>17". `timezone` is
    the IANA name of the zone whose dates its nights have, None for this machine's. `fat_tree` are
    the sizes of the packet network behind the servers, None where the file does not state them.
    `laboratory` is what a signed report states, None for pages that nobody signs.
    `soak` are the plans that a soak holds in turn; without any, it holds the first plan.
    `out` are the ports that a person has put out of service; `plans` are then without them.
    """

    __test__ = False

    name: str
    about: str
    system: str | None
    path: Path
    known_hosts: Path | None
    switches: Mapping[str, SwitchSpec]
    servers: Mapping[str, ServerSpec]
    instruments: Mapping[str, InstrumentSpec]
    transceivers: Mapping[str, TransceiverSpec]
    cabling: Cabling
    plans: Mapping[str, Plan]
    limits: Mapping[str, Limit]
    simulation: Simulation
    notes: tuple[str, ...] = ()
    lab_folder: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    coordinator: CoordinatorSpec | None = None
    automatic_ports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ssh_config: Path | None = None
    timezone: str | None = None
    fat_tree: FatTreeSpec | None = None
    laboratory: LaboratorySpec | None = None
    soak: tuple[SoakTurn, ...] = ()
    out: OutOfService = OutOfService()

    @property
    def fibers(self) -> tuple[Fiber, ...]:
        """All fibers, in the file's order."""
        return self.cabling.fibers

    @property
    def optical_switches(self) -> Mapping[str, SwitchSpec]:
        """The optical switches."""
        return {name: spec for name, spec in self.switches.items() if spec.kind == "optical"}

    @property
    def only_namespaces(self) -> bool:
        """Whether there are several servers, all of them namespaces: with real packets."""
        servers = self.servers.values()
        return len(servers) > 1 and all(server.is_namespace for server in servers)

    @property
    def only_local_namespaces(self) -> bool:
        """Whether these are all made by this process, which may cut their light and power."""
        servers = self.servers.values()
        return self.only_namespaces and all(server.is_local_namespace for server in servers)

    @property
    def nics(self) -> tuple[tuple[ServerSpec, NicSpec], ...]:
        """All NICs with their servers, in the file's order."""
        return tuple((s, nic) for s in self.servers.values() for nic in s.nics.values())

    @property
    def nic_ports(self) -> tuple[NicPortSpec, ...]:
        """All NIC ports, in the file's order: server by server, NIC by NIC."""
        return tuple(port for _, nic in self.nics for port in nic.ports)

    @property
    def working_ports(self) -> tuple[NicPortSpec, ...]:
        """Those that are not out of service."""
        return tuple(spec for spec in self.nic_ports if spec.port not in self.out.ports)

    def working_circuit_ports(self, switch: str) -> tuple[frozenset[int], frozenset[int]]:
        """Return the cabled ingress and egress ports of a switch that are not out of service."""
        ingress, egress = (
            frozenset(n for n in numbers if Port(switch, str(n)) not in self.out.ports)
            for numbers in self.cabling.cabled_ports(switch)
        )
        return ingress, egress

    def nic_port(self, port: Port) -> NicPortSpec:
        """Return the description of `port`; raises `UnknownNameError`."""
        _, nic = self.nic_of(port)
        return next(spec for spec in nic.ports if spec.port == port)

    def nic_of(self, port: Port) -> tuple[ServerSpec, NicSpec]:
        """Return the server and the NIC of `port`; raises `UnknownNameError`."""
        server = self.servers.get(port.owner)
        nic = server.nics.get(port.name.partition(".")[0]) if server else None
        if server is None or nic is None or all(spec.port != port for spec in nic.ports):
            raise UnknownNameError(f"testbed {self.name} has no NIC port {port}")
        return server, nic

    def transceiver_of(self, port: Port) -> TransceiverSpec | None:
        """Return the transceiver type in a NIC's or packet switch's `port`, or None.

        Raises `UnknownNameError`.
        """
        switch = self.switches.get(port.owner)
        holder = switch if switch is not None else self.nic_of(port)[1]
        return self.transceivers[holder.transceiver] if holder.transceiver else None

    def links(self, plan: Plan | str) -> tuple[Link, ...]:
        """Return the links between NICs that a plan, or the plan of that name, connects, sorted."""
        if isinstance(plan, str):
            if plan not in self.plans:
                raise UnknownNameError(
                    f"testbed {self.name} has no plan {plan!r}, it has {', '.join(self.plans)}"
                )
            plan = self.plans[plan]
        return tuple(
            link
            for link in sorted(self.cabling.links(plan))
            if link.a.owner in self.servers and link.b.owner in self.servers
        )
