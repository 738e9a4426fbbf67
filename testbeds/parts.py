"""Devices as a testbed file states them, ranges and templates included.

The specs of `model` are these with their names and places, and what was read from templates.
"""

import re
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    GetPydanticSchema,
    WithJsonSchema,
)
from pydantic_core import core_schema

from lightrig.testbeds.addresses import Control, Login, Options, Reach
from lightrig.testbeds.base import Part, Stated
from lightrig.testbeds.quantities import (
    Celsius,
    Decibels,
    Duration,
    PowerLevel,
    Rate,
    TimeLimit,
    Wavelength,
)

InstrumentKind = Literal[
    "light_source",
    "power_meter",
    "attenuator",
    "bit_error_tester",
    "climate_chamber",
    "oscilloscope",
    "polarization_controller",
]


def _size(found: object) -> object:
    text = str(found)[:40]
    if not re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", text, re.ASCII):
        square = f"{text}x{text}" if re.fullmatch(r"[1-9]\d{0,3}", text) else "32x32"
        raise ValueError(f"found {text!r}, expected ingress x egress ports, e.g. size: {square}")
    return found


Size = Annotated[
    str,
    BeforeValidator(_size),
    WithJsonSchema(
        {"type": "string", "pattern": r"^[1-9]\d*x[1-9]\d*$", "examples": ["16x16", "32x32"]}
    ),
]


class LossPart(Part):
    """The greatest insertion loss of any circuit, connectors included."""

    max: Decibels


class SwitchingPowerPart(Part):
    """The greatest power at an ingress while its circuit is made or removed."""

    max: PowerLevel


class LaunchPart(Part):
    """The greatest power that leaves the instrument."""

    max: PowerLevel


def _max_of(part: type[Part]) -> GetPydanticSchema:
    """Read a `part` of the file, and keep its `max`."""
    return GetPydanticSchema(
        lambda _, read: core_schema.no_info_after_validator_function(attrgetter("max"), read(part))
    )


@dataclass(frozen=True, slots=True)
class Identity(Stated):
    """The expected identity of the instrument; what is left out is not checked."""

    model: str | None = None
    serial: str | None = None
    firmware: str | None = None


@dataclass(frozen=True, slots=True)
class WireTimeouts(Stated):
    """Time limits of the wire to a switch or an instrument; what takes longer names its limit."""

    connect_ns: Annotated[
        TimeLimit | None,
        Field(description="For the connection; left out: 3 s, 5 s where it is encrypted"),
    ] = None
    reply_ns: Annotated[
        TimeLimit | None,
        Field(
            description="For a reply; left out: 5 s or 10 s, by the wire. A command that is known "
            "to take longer has its own limit, and at least this one"
        ),
    ] = None

    def connect_seconds(self, usual: float) -> float:
        """Return the time for the connection in s, `usual` where none is stated."""
        return usual if self.connect_ns is None else self.connect_ns / 1e9


@dataclass(frozen=True, kw_only=True)
class Controlled(Stated):
    """A switch or an instrument, which a driver may control.

    `login` names a credential ("env:OCS_LOGIN").
    """

    model: Annotated[str, Field(description="The model family, which chooses the driver")]
    login: Annotated[Login | None, Field(description="Where the credential is found")] = None
    options: Annotated[Options, Field(description="What only this driver knows")] = field(
        default_factory=dict
    )
    identity: Identity = Identity()
    timeouts: WireTimeouts = WireTimeouts()
    place: Annotated[
        str | None,
        Field(description="Where it stands, for people", examples=["rack 7, U12"]),
    ] = None


@dataclass(frozen=True, slots=True)
class CheckStandard(Stated):
    """Circuit that is measured before, during and after the losses of its switch.

    `circuit` is a fixed fiber between two ports of the switch, None for all circuits of the first
    setting. Losses are void where its own has shifted by more than `limit_db` for certain.
    """

    circuit: Annotated[
        str | None,
        Field(
            pattern=r"^\d{1,6}>\d{1,6}$",
            examples=["1>33"],
            description="Left out, all circuits of the first setting of the loss matrix",
        ),
    ] = None
    limit_db: Annotated[
        Decibels, Field(description="Shift beyond which the losses are void; chosen")
    ] = 0.1


@dataclass(frozen=True, kw_only=True)
class OpticalLimits(Stated):
    """Limits of an optical circuit switch.

    `switching_max_dbm` is the greatest power at an ingress while its circuit changes, None for any.
    `monitor_latency_ns` is by how much a reading of its monitors may be late, averaging aside.
    `monitor_max_dbm` is the greatest power that its monitors show, None for unknown.
    """

    loss_max_db: Annotated[float | None, _max_of(LossPart), Field(alias="loss")] = None
    switching_max_dbm: Annotated[
        float | None,
        _max_of(SwitchingPowerPart),
        Field(
            alias="switching_power",
            description="For a switch that is not made for hot switching: see its data sheet",
        ),
    ] = None
    monitor_latency_ns: Annotated[
        Duration,
        Field(
            description="Greatest delay of a monitor's reading behind the light, averaging aside"
        ),
    ] = 0
    monitor_max_dbm: Annotated[
        PowerLevel | None,
        Field(description="Greatest power that a monitor shows, the end of its range"),
    ] = None
    check_standard: CheckStandard = CheckStandard()


@dataclass(frozen=True, kw_only=True)
class PacketPorts(Stated):
    """Ports of a packet switch: the rate of each, and the type of transceiver in it."""

    rate_bps: Annotated[Rate | None, Field(description="The rate of a port")] = None
    transceiver: Annotated[
        str | None, Field(description="A key of `transceivers`, in each port")
    ] = None


def _kind(found: object) -> object:
    if found != "optical":
        raise ValueError(f"found {str(found)[:40]!r}, expected 'optical' or 'packet'")
    return found


@dataclass(frozen=True, kw_only=True)
class OpticalSwitchPart(Controlled, OpticalLimits):
    """An optical circuit switch: ingress ports 1..N, egress ports N+1..N+M."""

    kind: Annotated[Literal["optical"], BeforeValidator(_kind)] = "optical"
    address: Control
    size: Annotated[Size, Field(description="Ingress x egress ports, e.g. 32x32")]


@dataclass(frozen=True, kw_only=True)
class PacketSwitchPart(Controlled, PacketPorts):
    """A packet switch: each port 1..N sends and receives."""

    kind: Literal["packet"]
    address: Control | None = None
    ports: Annotated[int, Field(ge=1, le=4096)]


@dataclass(frozen=True, slots=True)
class GpuSpec(Stated):
    """The GPUs of a server."""

    count: Annotated[int, Field(ge=0, le=1024)]
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class NicFacts(Stated):
    """A NIC, all of whose ports have the same rate and the same transceiver type."""

    model: str = ""
    rate_bps: Annotated[Rate, Field(description="The rate of a port")]
    transceiver: Annotated[str | None, Field(description="A key of `transceivers`")] = None


@dataclass(frozen=True, kw_only=True)
class NicPart(NicFacts):
    """A NIC, or a range of them.

    In texts, {name} is the NIC's name, {n} the number in it, {p} the port (from 0), {server}
    the number in the server's name, {k} the port's number over the whole testbed (from 1).
    """

    ports: Annotated[int, Field(ge=1, le=64)] = 1
    netdev: Annotated[
        str, Field(description="Network device of a port", examples=["ens{n}f{p}np{p}"])
    ]
    rdma: Annotated[
        str | None, Field(description="RDMA device of a port", examples=["mlx5_{n}{p}"])
    ] = None
    ip: Annotated[str | None, Field(description="IP interface", examples=["192.0.2.{k}/24"])] = None
    interface: Annotated[
        str | None,
        Field(
            description="Interface of the machine that serves this testbed (`lightrig serve`), at "
            "the other end of a port: the tap of a virtual machine, or a test port",
            examples=["tap{server}{p}"],
        ),
    ] = None
    numa: Annotated[int | str | None, Field(description="NUMA node", examples=[0, "{n}"])] = None


@dataclass(frozen=True, slots=True)
class SshTimeouts(Stated):
    """Time limits of a server behind SSH; what runs longer is named with its limit."""

    connect_ns: Annotated[
        TimeLimit | None,
        Field(description="For the TCP connection; left out: ConnectTimeout of ssh_config, or 5 s"),
    ] = None
    banner_ns: Annotated[
        TimeLimit | None, Field(description="For the server's banner; left out: as for `connect`")
    ] = None
    login_ns: Annotated[
        TimeLimit, Field(description="For the exchange of keys, and as long for the login")
    ] = 10_000_000_000
    first_answer_ns: Annotated[
        TimeLimit, Field(description="For the first answer of the probe that is started there")
    ] = 10_000_000_000
    answer_ns: Annotated[
        TimeLimit,
        Field(description="For each further answer of the probe, beside what it was asked to wait"),
    ] = 10_000_000_000
    program_ns: Annotated[
        TimeLimit,
        Field(description="For a tool there, to its end; a measurement of RDMA has 60 s at least"),
    ] = 30_000_000_000
    retransmission_ns: Annotated[
        TimeLimit | None,
        Field(
            description="For the acknowledgement of an RDMA packet, which is sent again then; at "
            "least: 4.096 µs doubled. Left out: perftest's 67 ms"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServerFacts(Stated):
    """Access to a server, and its GPUs."""

    address: Annotated[Reach, Field(examples=["ssh://bench@{name}.lab", "netns://{name}"])]
    login: Login | None = None
    python: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_./][^\s]*$",
            description="The Python there, 3.8 or newer: a name on the path, or a path",
            examples=["/opt/python3.11/bin/python3"],
        ),
    ] = "python3"
    become: Annotated[
        bool,
        Field(description="Whether tools run by `sudo -n`, where the account may not read modules"),
    ] = False
    timeouts: SshTimeouts = SshTimeouts()
    gpus: GpuSpec = GpuSpec(0)
    place: Annotated[
        str | None,
        Field(
            description="Where it stands, for people; {name} and {n} as in `address`",
            examples=["rack 7, U12"],
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServerPart(ServerFacts):
    """A server, or a range of them; in `address`, {name} is its name and {n} its number."""

    kind: Annotated[
        Literal["namespace"] | None,
        Field(description="A network namespace behind SSH: its NIC ports have no transceivers"),
    ] = None
    nics: dict[str, NicPart]


@dataclass(frozen=True, slots=True)
class PowerRange(Stated):
    """The least and the greatest power, in dBm."""

    min: PowerLevel
    max: PowerLevel


@dataclass(frozen=True, kw_only=True)
class TransceiverPart(Stated):
    """A type of transceiver; powers of one with several lanes are per lane.

    What is left out is that of its PMD.
    """

    pmd: Annotated[
        str | None,
        Field(
            pattern=r"^[0-9A-Za-z][0-9A-Za-z .+_-]*$",
            description="Its physical medium dependent sublayer, by the name of IEEE 802.3, an MSA "
            "or OIF: it states lanes, fibers, wavelengths and powers",
            examples=["100GBASE-LR4", "100G-CWDM4", "400GBASE-DR4"],
        ),
    ] = None
    wavelength_nm: Annotated[
        Wavelength | None, Field(description="Nominal wavelength; needed without `pmd:`")
    ] = None
    lanes: Annotated[
        int | None,
        Field(
            ge=1,
            le=16,
            description="How many lanes it uses in each direction, of those that its module prints",
            examples=[4],
        ),
    ] = None
    wavelengths: Annotated[
        int | None,
        Field(
            ge=1,
            le=16,
            description="How many lanes share one fiber, each at a wavelength of its own: 4 of "
            "LR4, FR4 and CWDM4, 1 where each lane has a fiber (DR4, SR4, LR1)",
            examples=[4],
        ),
    ] = None
    launch: Annotated[
        PowerRange | None, Field(description="What it sends; needed without `pmd:`")
    ] = None
    receive: Annotated[
        PowerRange | None, Field(description="What it needs to be sent; needed without `pmd:`")
    ] = None
    damage_dbm: Annotated[PowerLevel | None, Field(description="What destroys its receiver")] = None


@dataclass(frozen=True, slots=True)
class TemperatureRange(Stated):
    """The least and the greatest temperature, in °C."""

    min: Celsius
    max: Celsius


@dataclass(frozen=True, slots=True)
class WavelengthRange(Stated):
    """The least and the greatest wavelength, in nm."""

    min: Wavelength
    max: Wavelength

    def __contains__(self, nm: float) -> bool:
        return self.min <= nm <= self.max


@dataclass(frozen=True, kw_only=True)
class InstrumentPart(Controlled):
    """A bench instrument; its channels are fiber ends NAME.1, NAME.2, ..."""

    kind: InstrumentKind
    address: Control
    channels: Annotated[int, Field(ge=1, le=1024)] = 1
    launch_max_dbm: Annotated[float | None, _max_of(LaunchPart), Field(alias="launch")] = None
    damage_dbm: PowerLevel | None = None
    temperature: Annotated[
        TemperatureRange | None,
        Field(description="What the devices in a climate chamber withstand"),
    ] = None
    wavelengths: Annotated[
        WavelengthRange | None,
        Field(description="To what a light source tunes; left out: what its model is known for"),
    ] = None


@dataclass(frozen=True, slots=True)
class FatTreeSpec(Stated):
    """The packet network behind the servers: all ToRs have as many, and so have all domains."""

    per_tor: Annotated[int, Field(ge=1, le=4096, description="Servers under a ToR")]
    per_domain: Annotated[
        int,
        Field(ge=1, le=4096, description="Servers under one group of aggregation switches"),
    ]


@dataclass(frozen=True, slots=True)
class LaboratorySpec(Stated):
    """What a signed report states beside its results (ISO/IEC 17025, 7.8); "" where not stated."""

    name: Annotated[str, Field(description="The laboratory")] = ""
    address: Annotated[str, Field(description="Its address")] = ""
    place: Annotated[str, Field(description="Where the tests are made, if elsewhere")] = ""
    customer: Annotated[str, Field(description="Name and contact of the customer")] = ""
    method: Annotated[str, Field(description="Method that was agreed")] = ""
    items: Annotated[
        str, Field(description="The items tested, as they are called, with their condition")
    ] = ""
    received: Annotated[str, Field(description="Date on which the items were received")] = ""
    environment: Annotated[
        str, Field(description="Conditions of the room, where no chamber measures them")
    ] = ""
    certificates: Annotated[
        dict[str, str], Field(description="Number of the calibration certificate, by instrument")
    ] = field(default_factory=dict)
    person: Annotated[str, Field(description="Who authorises the report, with function")] = ""


@dataclass(frozen=True, slots=True)
class SoakTurn(Stated):
    """A plan that a soak holds for a time, in ns, before the next; the first follows the last."""

    plan: Annotated[str, Field(description="Name of the plan", examples=["ring"])]
    hold_ns: Annotated[
        Duration, Field(description="How long it is held, 1 s or more", examples=["12 h"])
    ]


@dataclass(frozen=True, slots=True)
class CoordinatorSpec(Stated):
    """A labgrid coordinator that gives this lab to one user at a time; needs lightrig[labgrid]."""

    address: Annotated[
        str,
        Field(
            alias="coordinator",
            pattern=r"^[^\s/:]+:\d{1,5}$",
            description="Host and port of the coordinator",
            examples=["labgrid.lab:20408"],
        ),
    ]
    place: Annotated[
        str,
        Field(min_length=1, description="The place that a run acquires", examples=["rack-7"]),
    ]

    def __str__(self) -> str:
        return f"place {self.place} of the labgrid coordinator {self.address}"
