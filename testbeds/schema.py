"""Format of a testbed file: pydantic models, and the JSON Schema for editors."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)

from lightrig.testbeds.addresses import Control, Login, Options, Reach
from lightrig.testbeds.base import Part, schema_of
from lightrig.testbeds.model import CoordinatorSpec, GpuSpec, Identity
from lightrig.testbeds.quantities import Celsius, Decibels, Duration, PowerLevel, Rate, Wavelength
from lightrig.testbeds.simulation import Simulation


def _size(text: str) -> str:
    match = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", text, re.ASCII)
    if match is None:
        raise ValueError(f"found {text!r}, expected ingress x egress ports, e.g. '32x32'")
    return text


Size = Annotated[
    str,
    AfterValidator(_size),
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


def _kind(found: object) -> object:
    if found != "optical":
        raise ValueError(f"found {str(found)[:40]!r}, expected 'optical' or 'packet'")
    return found


class OpticalSwitchPart(Part):
    """An optical circuit switch: ingress ports 1..N, egress ports N+1..N+M."""

    kind: Annotated[Literal["optical"], BeforeValidator(_kind)] = "optical"
    model: str = Field(description="The model family, which chooses the driver")
    address: Control
    login: Login | None = Field(None, description="Where the credential is found")
    size: Size = Field(description="Ingress x egress ports, e.g. 32x32")
    loss: LossPart | None = None
    switching_power: SwitchingPowerPart | None = Field(
        None, description="For a switch that is not made for hot switching: see its data sheet"
    )
    monitor_latency: Duration | None = Field(
        None, description="Greatest delay of a monitor's reading behind the light, averaging aside"
    )
    options: Options = Field(default_factory=dict, description="What only this driver knows")
    identity: Identity | None = None


class PacketSwitchPart(Part):
    """A packet switch: each port 1..N sends and receives."""

    kind: Literal["packet"]
    model: str
    ports: Annotated[int, Field(ge=1, le=4096)]
    rate: Rate | None = Field(None, description="The rate of a port")
    transceiver: str | None = Field(None, description="A key of `transceivers`, in each port")
    address: Control | None = None
    login: Login | None = None
    options: Options = Field(default_factory=dict)
    identity: Identity | None = None


# A tag becomes part of an error's place, so it must not look like a key of the file.
def _switch_tag(found: Any) -> str:
    kind = found.get("kind") if isinstance(found, dict) else getattr(found, "kind", None)
    return "<packet>" if kind == "packet" else "<optical>"


SwitchPart = Annotated[
    Annotated[OpticalSwitchPart, Tag("<optical>")] | Annotated[PacketSwitchPart, Tag("<packet>")],
    Discriminator(_switch_tag),
]


class NicPart(Part):
    """A NIC, or a range of them.

    In texts, {name} is the NIC's name, {n} the number in it, {p} the port (from 0), {server}
    the number in the server's name, {k} the port's number over the whole testbed (from 1).
    """

    model: str = ""
    ports: Annotated[int, Field(ge=1, le=64)] = 1
    netdev: str = Field(description="Network device of a port", examples=["ens{n}f{p}np{p}"])
    rdma: str | None = Field(None, description="RDMA device of a port", examples=["mlx5_{n}{p}"])
    ip: str | None = Field(None, description="IP interface", examples=["192.0.2.{k}/24"])
    rate: Rate = Field(description="The rate of a port")
    numa: int | str | None = Field(None, description="NUMA node", examples=[0, "{n}"])
    transceiver: str | None = Field(None, description="A key of `transceivers`")


class ServerPart(Part):
    """A server, or a range of them; in `address`, {name} is its name and {n} its number."""

    address: Reach = Field(examples=["ssh://bench@{name}.lab", "netns://{name}"])
    kind: Literal["namespace"] | None = Field(
        None, description="A network namespace behind SSH: its NIC ports have no transceivers"
    )
    login: Login | None = None
    gpus: GpuSpec | None = None
    nics: dict[str, NicPart]


class PowerRangePart(Part):
    """The least and the greatest power, in dBm."""

    min: PowerLevel
    max: PowerLevel


class TransceiverPart(Part):
    """A type of transceiver; powers of a parallel one are per lane."""

    wavelength: Wavelength
    launch: PowerRangePart = Field(description="What it sends")
    receive: PowerRangePart = Field(description="What it needs to be sent")
    damage: PowerLevel | None = Field(None, description="What destroys its receiver")


class LaunchPart(Part):
    """The greatest power that leaves the instrument."""

    max: PowerLevel


class TemperatureRangePart(Part):
    """The least and the greatest temperature, in °C."""

    min: Celsius
    max: Celsius


class InstrumentPart(Part):
    """A bench instrument; its channels are fiber ends NAME.1, NAME.2, ..."""

    kind: Literal[
        "light_source",
        "power_meter",
        "attenuator",
        "bit_error_tester",
        "climate_chamber",
        "oscilloscope",
        "polarization_controller",
    ]
    model: str
    address: Control
    login: Login | None = None
    channels: Annotated[int, Field(ge=1, le=1024)] = 1
    launch: LaunchPart | None = None
    damage: PowerLevel | None = None
    temperature: TemperatureRangePart | None = Field(
        None, description="What the devices in a climate chamber withstand"
    )
    options: Options = Field(default_factory=dict)
    identity: Identity | None = None


class FiberPart(Part):
    """A line of fibers that states its loss."""

    fiber: str = Field(examples=["server[0-3].nic0 -> ocs.[1-4]"])
    loss: Decibels = Field(description="The loss of each of these fibers")
    uncertainty: Decibels | None = Field(
        None,
        description="Standard uncertainty (k = 1) of that loss, with its connectors: it is in "
        "losses that are measured through the fiber; 0 without it",
        examples=["0.1 dB"],
    )


FiberLine = Annotated[
    Annotated[str, Tag("<line>"), Field(examples=["server[0-3].nic0 <-> ocs"])]
    | Annotated[FiberPart, Tag("<lossy>")],
    Discriminator(lambda found: "<line>" if isinstance(found, str) else "<lossy>"),
]


class FilePlanPart(Part):
    """A plan in a file of cross-connect maps."""

    file: str = Field(description="Relative to this file")
    map: str = Field(description="The key under cross-connects", examples=["0", "1-0"])
    switch: str


class CircuitPlanPart(Part):
    """A plan that lists circuits, ingress>egress, by switch."""

    circuits: dict[str, list[str]] = Field(examples=[{"ocs": ["1>33", "2>34"]}])


def _plan_tag(found: Any) -> str:
    if isinstance(found, list):
        return "<links>"
    return "<circuits>" if isinstance(found, dict) and "circuits" in found else "<file>"


PlanPart = Annotated[
    Annotated[list[str], Tag("<links>")]
    | Annotated[FilePlanPart, Tag("<file>")]
    | Annotated[CircuitPlanPart, Tag("<circuits>")],
    Discriminator(_plan_tag),
]

LimitPart = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "description": "A bound (p50, p99, p99.9, median, min or max), a confidence, "
            "stricter than the bound, from where to warn, and a decision rule",
            "properties": {
                "confidence": {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"},
                "median": {"type": ["string", "number"]},
                "min": {"type": ["string", "number"]},
                "max": {"type": ["string", "number"]},
                "warn": {"type": ["string", "number"]},
                "decision": {"enum": ["guarded", "simple", "lenient"]},
            },
            "patternProperties": {r"^p\d{1,2}(\.\d{1,6})?$": {"type": ["string", "number"]}},
            "additionalProperties": False,
            "examples": [
                {"p99": "70 ms", "warn": "60 ms", "confidence": "95 %"},
                {"max": "3 dB"},
            ],
        }
    ),
]


Reason = Annotated[str, Field(min_length=10, max_length=500)]


class OverridesPart(Part):
    """Interlocks that are off in this lab, each with its reason, which every run records."""

    receiver_damage: Reason | None = Field(
        None, description="Circuits by which a transmitter can destroy a receiver"
    )
    switching_power: Reason | None = Field(
        None, description="Circuits that are changed under more light than the switch allows"
    )
    temperature: Reason | None = Field(
        None, description="Temperatures outside the `temperature:` of a climate chamber"
    )


class Document(Part):
    """A testbed: switches, servers, instruments and their cabling."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", examples=["rack-7"])]
    about: str = Field("", description="One sentence for reports")
    system: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")] | None = Field(
        None,
        description="The published system that is built here; tests of its claims run on it",
        examples=["my-system"],
    )
    known_hosts: str | None = Field(
        None, description="SSH host keys, relative to this file; left out: the user's own"
    )
    lab_folder: str | None = Field(
        None,
        description="Folder of leases and saved states that all hosts share which can reach this "
        "lab, relative to this file; left out: one of this machine",
        examples=["/srv/lab/lightrig"],
    )
    labgrid: CoordinatorSpec | None = None
    switches: dict[str, SwitchPart]
    servers: dict[str, ServerPart] = Field(
        default_factory=dict, description="By name or range, e.g. server[0-3]"
    )
    instruments: dict[str, InstrumentPart] = Field(default_factory=dict)
    transceivers: dict[str, TransceiverPart] = Field(default_factory=dict)
    fibers: list[FiberLine] = Field(
        default_factory=list,
        description="'A -> B' is one direction of light; 'A <-> ocs' takes the next free ports",
    )
    plans: dict[str, PlanPart] = Field(default_factory=dict)
    limits: dict[str, LimitPart] = Field(default_factory=dict)
    overrides: OverridesPart | None = None
    simulation: Simulation | None = None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a testbed file, which `schema.json` beside this file holds."""
    return schema_of(Document, "Lightrig testbed")
