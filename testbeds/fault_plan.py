"""Fault plans: faults that begin while tests run, and what they are injected into.

They are for simulated worlds, where nothing can break. Defects that a simulated lab has from the
beginning are in `simulation: faults:` of its testbed file instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError

from lightrig.testbeds.base import Part
from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.model import Testbed
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.quantities import (
    Decibels,
    Duration,
    Offset,
    format_db,
    format_duration,
)

FaultKind = Literal[
    "instrument slow",
    "instrument silent",
    "instrument restarts",
    "fiber cut",
    "fiber attenuated",
    "fibers swapped",
    "NIC flap",
    "server lost",
    "clock step",
    "disk full",
]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

FLAP_NS = 100_000_000
"""Time for which a NIC flaps, and an instrument restarts, where nothing is stated."""

_PLACES = {"fibers swapped": 2, "clock step": 0, "disk full": 0}
"""Number of places of a fault, where it is not one."""


class FaultPlanError(LightrigError):
    """A fault plan cannot be injected into a testbed."""


class RunningFaultPart(Part):
    """A fault that begins while a test runs."""

    fault: FaultKind
    at: list[str] = Field(
        default_factory=list,
        description="Where: a switch or instrument, a port that a fiber leaves (two of them "
        "where fibers are swapped), a NIC port, a server; nothing for the clock and the disk",
        examples=[["ocs"], ["server0.nic0"], ["server0.nic0", "server1.nic0"]],
    )
    tests: str = Field("*", description="Names of tests, with * and ?", examples=["*between*"])
    after: Duration = Field("0 s", validate_default=True, description="From the test's begin")
    lasting: Duration | None = Field(
        None, description="Left out, to the end of the test; of a flap and a restart, 0.1 s"
    )
    loss: Decibels | None = Field(None, description="What an attenuated fiber loses; 20 dB")
    step: Offset | None = Field(None, description="By how much the calendar steps; one hour")


class FaultPlanDocument(Part):
    """A fault plan: faults that begin while tests run."""

    faults: list[RunningFaultPart]


@dataclass(frozen=True, slots=True)
class RunningFault:
    """A fault that begins `after_ns` after a test, for `lasting_ns`, None to the test's end."""

    kind: FaultKind
    at: tuple[str, ...] = ()
    tests: str = "*"
    after_ns: int = 0
    lasting_ns: int | None = None
    loss_db: float = 20.0
    step_ns: int = 3_600_000_000_000

    def __str__(self) -> str:
        size = f" by {format_db(self.loss_db)}" if self.kind == "fiber attenuated" else ""
        place = f" at {', '.join(self.at)}" if self.at else ""
        end = "" if self.lasting_ns is None else f" for {format_duration(self.lasting_ns)}"
        return f"{self.kind}{size}{place} after {format_duration(self.after_ns)}{end}"

    def is_for(self, test: str) -> bool:
        """Whether it is for a test of that name; its file may be left out."""
        names = (test, test.rpartition("::")[2])
        return any(fnmatchcase(name, self.tests) for name in names)

    def check(self, testbed: Testbed) -> None:
        """Raise `FaultPlanError` if `testbed` has no such place."""
        expected = _PLACES.get(self.kind, 1)
        if len(self.at) != expected:
            raise FaultPlanError(f"{self}: expected {expected} places, found {len(self.at)}")
        for name in self.at:
            if self.kind.startswith("instrument"):
                known = {*testbed.optical_switches, *testbed.instruments}
            elif self.kind.startswith("fiber"):
                known = {str(fiber.source) for fiber in testbed.fibers}
            elif self.kind == "NIC flap":
                known = {str(spec.port) for spec in testbed.nic_ports}
            else:
                known = set(testbed.servers)
            if name not in known:
                raise FaultPlanError(
                    f"{self}: testbed {testbed.name} has no {name} there, it has "
                    + ", ".join(sorted(known)[:20])
                )


def load_fault_plan(path: Path) -> tuple[RunningFault, ...]:
    """Return the faults of a file; raises `TestbedError` with every problem and its place."""
    document, _, _ = read_as(FaultPlanDocument, path)
    return tuple(map(_fault, document.faults))


def fault_of(kind: object, options: Mapping[str, Any]) -> RunningFault:
    """Return the fault that a test states by its marker; raises `FaultPlanError`."""
    at = options.get("at", [])
    stated = {"fault": kind, **options, "at": [at] if isinstance(at, str) else list(at)}
    try:
        return _fault(RunningFaultPart.model_validate(stated))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        )
        raise FaultPlanError(f"the marker fault({kind!r}, ...) is wrong: {problems}") from error


def _fault(part: RunningFaultPart) -> RunningFault:
    lasting = part.lasting
    if lasting is None and part.fault in {"NIC flap", "instrument restarts"}:
        lasting = FLAP_NS
    sizes = {"loss_db": part.loss, "step_ns": part.step}
    stated: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    return RunningFault(part.fault, tuple(part.at), part.tests, part.after, lasting, **stated)
