"""Format of an exceptions file: pydantic models, and the JSON Schema for editors."""

from typing import Annotated, Any

from pydantic import Field

from lightrig.testbeds.base import Part, schema_of
from lightrig.testbeds.references import Day

MOST_ENTRIES = 10_000
"""Of one section."""

Because = Annotated[
    str,
    Field(min_length=1, max_length=500, description="The reason", examples=["LAB-123"]),
]


class EntryPart(Part):
    """Why something is excepted, and until when."""

    because: Because
    until: Day = Field(description="Last day; afterwards it is reported, and still holds")
    who: str = Field("", max_length=200, description="Account and host that made it")
    at: str = Field("", max_length=40, description="When, in UTC")


class ExceptionsDocument(Part):
    """Exceptions of one testbed."""

    out: dict[str, EntryPart] = Field(
        {},
        max_length=MOST_ENTRIES,
        description="Out of service, by port of a NIC or switch, label of a fiber, NIC or server",
        examples=[{"server3.nic0.p1": {"because": "LAB-123", "until": "2026-12-12"}}],
    )
    known: dict[str, EntryPart] = Field(
        {},
        max_length=MOST_ENTRIES,
        description="Cards of nights that are known, by the name that is printed on them",
    )


def exceptions_schema() -> dict[str, Any]:
    """Return the JSON Schema of an exceptions file, which `exceptions.schema.json` holds."""
    return schema_of(ExceptionsDocument, "Lightrig exceptions")
