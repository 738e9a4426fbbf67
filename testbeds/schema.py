"""Format of a testbed file: pydantic models, and the JSON Schema for editors."""

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)

from lightrig.testbeds.base import Part, schema_of
from lightrig.testbeds.parts import (
    CoordinatorSpec,
    FatTreeSpec,
    InstrumentPart,
    LaboratorySpec,
    OpticalSwitchPart,
    PacketSwitchPart,
    ServerPart,
    SoakTurn,
    TransceiverPart,
)
from lightrig.testbeds.quantities import Decibels
from lightrig.testbeds.simulation import Simulation
from lightrig.testbeds.timezones import zone_name


# A tag becomes part of an error's place, so it must not look like a key of the file.
def _switch_tag(found: Any) -> str:
    kind = found.get("kind") if isinstance(found, dict) else getattr(found, "kind", None)
    return "<packet>" if kind == "packet" else "<optical>"


SwitchPart = Annotated[
    Annotated[OpticalSwitchPart, Tag("<optical>")] | Annotated[PacketSwitchPart, Tag("<packet>")],
    Discriminator(_switch_tag),
]


class FiberPart(Part):
    """A line of fibers that states their loss, their labels, or the panels that they cross."""

    fiber: str = Field(examples=["server[0-3].nic0 -> ocs.[1-4]"])
    loss: Decibels | None = Field(
        None, description="The loss of each of these fibers; 0 dB without it"
    )
    uncertainty: Decibels | None = Field(
        None,
        description="Standard uncertainty (k = 1) of that loss, with its connectors: it is in "
        "losses that are measured through the fiber; 0 without it",
        examples=["0.1 dB"],
    )
    label: str | None = Field(
        None,
        description="The label on the cable: a range has one for each fiber, or pair of them",
        examples=["F-[0117-0120]"],
    )
    via: list[str] = Field(
        [],
        description="Ports of patch panels on the way, from left to right; ranges as for labels",
        examples=[["panel A3 port [12-15]"]],
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
            "stricter than the bound, from where to warn, a decision rule, and the correlation of "
            "each event with the one before",
            "properties": {
                "confidence": {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"},
                "median": {"type": ["string", "number"]},
                "min": {"type": ["string", "number"]},
                "max": {"type": ["string", "number"]},
                "warn": {"type": ["string", "number"]},
                "decision": {"enum": ["guarded", "simple", "lenient"]},
                "correlation": {"type": "number", "minimum": 0, "maximum": 0.9},
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
    ssh_config: str | None = Field(
        None,
        description="Configuration of OpenSSH's client for the servers, relative to this file; "
        "left out: ~/.ssh/config and /etc/ssh/ssh_config",
        examples=["ssh_config"],
    )
    timezone: Annotated[str, AfterValidator(zone_name)] | None = Field(
        None,
        description="IANA name of the time zone whose dates the nights have; left out: the zone of "
        "the machine that measures",
        examples=["Europe/Berlin"],
    )
    lab_folder: str | None = Field(
        None,
        description="Folder of leases and saved states that all hosts share which can reach this "
        "lab, relative to this file; left out: one of this machine",
        examples=["/srv/lab/lightrig"],
    )
    laboratory: LaboratorySpec | None = Field(
        None,
        description="What a report that is signed states beside its results (ISO/IEC 17025, 7.8)",
        examples=[{"name": "Optics laboratory", "person": "A. Example, head of laboratory"}],
    )
    labgrid: CoordinatorSpec | None = None
    fat_tree: FatTreeSpec | None = Field(
        None,
        description="The packet network behind the servers, by which `lightrig orchestrate` "
        "orders groups",
        examples=[{"per_tor": 2, "per_domain": 512}],
    )
    fabric: dict[str, Annotated[int, Field(ge=1, le=1_000_000)]] | None = Field(
        None,
        description="Sizes of a fabric that `system` builds; then `switches` and `servers` have "
        "one part each, of which the fabric has many",
        examples=[{"columns": 64, "rows": 64, "mesh": 7, "ports": 9}],
    )
    switches: dict[str, SwitchPart]
    servers: dict[str, ServerPart] = Field({}, description="By name or range, e.g. server[0-3]")
    instruments: dict[str, InstrumentPart] = Field({})
    transceivers: dict[str, TransceiverPart] = Field({})
    fibers: list[FiberLine] = Field(
        [],
        description="'A -> B' is one direction of light; 'A <-> ocs' takes the next free ports",
    )
    plans: dict[str, PlanPart] = Field(
        {},
        description="Lists of links 'A <-> B', which are both directions; or circuits by switch; "
        "or a map of a file",
    )
    soak: list[SoakTurn] = Field(
        [],
        description="Plans that `pytest suites/test_soak.py --soak TIME` holds in turn; left out: "
        "the first plan, held throughout",
        examples=[[{"plan": "ring", "hold": "12 h"}, {"plan": "mesh", "hold": "30 min"}]],
    )
    limits: dict[str, LimitPart] = Field({})
    overrides: OverridesPart | None = None
    simulation: Simulation | None = None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a testbed file, which `schema.json` beside this file holds."""
    return schema_of(Document, "Lightrig testbed")
