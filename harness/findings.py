"""Findings: what a test, a measurement, closure, the statistics or the doctor found wrong.

The journal keeps those of a test with its outcome, as `findings` of its details; cards, terminal,
JUnit, events and doctor show them. A kind says which components would explain a finding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from lightrig.harness.components import HARNESS, Components, LabComponent
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import LightrigError

CHANGED: Final = "changed since earlier nights"
CLOCK: Final = "clock unusable"
CLOSURE: Final = "closure failed"
EXPIRED: Final = "out of service too long"
FAILED: Final = "failed"
GPU_SLOWED: Final = "GPU slowed down"
INSTRUMENT: Final = "instrument failed"
LATE: Final = "later than in earlier nights"
LATE_AT_TIMES: Final = "at times later than in earlier nights"
LIMIT: Final = "limit exceeded"
LINK_DOWN: Final = "link down"
LINK_FLAPPED: Final = "link flapped"
NOT_SEEN: Final = "not seen"
NO_LIGHT: Final = "no light"
PCI_LINK: Final = "PCI Express below its ends"
PCI_RATE: Final = "PCI Express below its ports"
ROCE_MOVED: Final = "RoCE address moved"
SETTINGS: Final = "settings differ"
SLOW_PORT: Final = "slower than the other ports"
STUCK_MONITOR: Final = "stuck monitor"
SWAPPED_FIBERS: Final = "swapped fibers"
VERSIONS: Final = "versions differ"
VOID_COUNT: Final = "nothing counted"

OF_SERIES: Final = frozenset((CHANGED, LATE, LATE_AT_TIMES))
"""Kinds of findings of series of nights, whose sizes are changes."""

_TRY = "try "

FACTOR: Final = "\N{MULTIPLICATION SIGN}"
"""Unit of the size of a change that is a quotient."""

MOST_NAMED = 8
"""Most components that are listed; more are a place in the lab that is not located."""

_OF_TIME = frozenset((LATE, LATE_AT_TIMES, LIMIT, SLOW_PORT))
"""Kinds that tell when something comes, and nothing of how much light there is."""

_AT_EITHER_END = frozenset(
    (LINK_DOWN, LINK_FLAPPED, NOT_SEEN, NO_LIGHT, VOID_COUNT, INSTRUMENT, LIMIT)
)
"""Kinds for which the components at the other end of a link are an explanation too."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    kind: what it is: one of those above, or of a measurement's own.
    evidence: the observation as one sentence.
    subjects: where it was observed, as in rows.
    components: of which any one would explain it; none where it is not located.
    value, lower, upper: its size with its 95 % interval, in `unit`; None where it has none.
    next_step: how the components can be told apart, or the finding be settled.
    where: to find the components, as far as the testbed file says.
    meanwhile: lines of the servers' kernels from the time of the test; they explain nothing alone.
    devices: words of the command that failed, such as the name of a network device.
    """

    kind: str
    evidence: str
    subjects: tuple[str, ...] = ()
    components: tuple[LabComponent, ...] = ()
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    unit: str = ""
    next_step: str = ""
    where: tuple[str, ...] = ()
    meanwhile: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.evidence

    @property
    def subject(self) -> str:
        """The subjects as text."""
        return ", ".join(self.subjects)

    @property
    def advice(self) -> str:
        """The next step where it is of this finding, and not what its components always need."""
        of_components = next_step(self.components, (self.kind,))
        return "" if self.next_step == of_components else self.next_step

    def located(self, components: Components) -> Self:
        """Return it with the components of a testbed that would explain it, and the next step."""
        found = self.components or tuple(sorted(explaining(self, components), key=str))
        step = self.next_step or next_step(found, (self.kind,))
        where = places(found, components)
        return replace(self, components=found, next_step=step, where=where)

    def lines(self) -> list[str]:
        """Return it for a terminal: what it is and where, what would explain it, what to do."""
        found = [f"{self.kind} at {self.subject}" if self.subjects else self.kind]
        if len(self.components) > MOST_NAMED:
            found.append(f"  one of    {len(self.components)} components")
        elif self.components:
            found.append(f"  because   {' or '.join(map(str, self.components))}")
        found += [f"  at        {place}" for place in self.where]
        found += [f"  next      {self.next_step}"] if self.next_step else []
        return [*found, *(f"  kernel    {line}" for line in self.meanwhile)]

    def document(self) -> dict[str, Any]:
        """Return it as plain values, for a journal or an event."""
        return asdict(self)

    @classmethod
    def of_document(cls, given: Mapping[str, Any]) -> Self:
        """Return the finding of a document; fields of later versions are left out."""
        fields = {name: given[name] for name in cls.__dataclass_fields__ if name in given}
        fields["subjects"] = tuple(fields.get("subjects", ()))
        fields["where"] = tuple(fields.get("where", ()))
        fields["meanwhile"] = tuple(fields.get("meanwhile", ()))
        fields["devices"] = tuple(fields.get("devices", ()))
        components = (LabComponent(one["kind"], one["name"]) for one in given.get("components", ()))
        return cls(**{**fields, "components": tuple(components)})


def places(found: Sequence[LabComponent], components: Components) -> tuple[str, ...]:
    """Return where each of a few components is, with its name; none for more than are listed."""
    if len(found) > MOST_NAMED:
        return ()
    known = ((one, components.where(one)) for one in found)
    return tuple(f"{one}: {where}" for one, where in known if where)


def explaining(finding: Finding, components: Components) -> frozenset[LabComponent]:
    """Return the components of which any one would explain a finding; none if nothing says."""
    if finding.kind == CLOSURE:
        return frozenset([HARNESS])
    if finding.kind == SWAPPED_FIBERS:
        return components.fibers(finding.subjects)
    if finding.kind == INSTRUMENT:
        named = components.of_devices(finding.subjects, finding.devices)
        if named:
            return named
    find = components.explaining if finding.kind in _AT_EITHER_END else components.of
    each = [find(subject, kind=finding.kind) for subject in finding.subjects]
    return frozenset().union(*each)


def next_step(components: Sequence[LabComponent], kinds: Collection[str]) -> str:
    """Return how components can be told apart, or a suspicion be settled; "" without components."""
    if not components:
        return ""
    at_fibers = any(one.kind in {"connector", "fiber"} for one in components)
    if HARNESS in components:
        return "run the test again with another seed; report it with the journal"
    if SWAPPED_FIBERS in kinds:
        return (
            "two of these fibers may have changed places: `lightrig doctor` with the testbed's "
            "file switches off one laser after the other and names them"
        )
    if SLOW_PORT in kinds or (LATE in kinds and _OF_TIME.issuperset(kinds) and at_fibers):
        return (
            "move its fiber to a spare port of the switch and measure again: if it is still slow, "
            "the end at the server is, else the switch's port"
        )
    if all(one.kind == "link" for one in components):
        return "exchange its fibers one by one, from the end that recovers last; measure again"
    if all(one.kind == "circuit" for one in components):
        return (
            "make the circuit again and measure it; if it loses as much, its mirrors need to be "
            "aligned anew: ask the switch's maker"
        )
    if at_fibers:
        return (
            "clean the connector and look along the fiber, then measure again; if nothing "
            "changes, exchange the fiber for a spare one"
        )
    if all(one.kind == "port" for one in components):
        return "exchange its transceiver for a spare one, and measure again"
    return "compare its log, firmware and load with those of the night before; measure again"


def advice_of(error: BaseException) -> str:
    """Return what the text of an error advises: its line that begins with "try"."""
    lines = (line.strip() for line in str(error).splitlines()[1:])
    return next((line[len(_TRY) :].strip() for line in lines if line.startswith(_TRY)), "")


class FoundError(LightrigError):
    """Something in the lab is wrong: `findings`, whose evidence is its sentence unless stated."""

    def __init__(self, text: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(text)
        sentence = text.partition("\n")[0]
        self.findings = tuple(replace(one, evidence=one.evidence or sentence) for one in findings)


def each_at(kind: str, subjects: Iterable[str]) -> list[Finding]:
    """Return a finding for each subject, once, whose evidence is the sentence of an error."""
    return [Finding(kind, "", (subject,)) for subject in dict.fromkeys(subjects)]


def findings_of(error: BaseException) -> tuple[Finding, ...]:
    """Return what an error, or the one that caused it, found wrong; none where it does not say."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FoundError) and cause.findings:
            return cause.findings
        if isinstance(cause, LightrigError) and cause.subjects:
            kind = INSTRUMENT if isinstance(cause, InstrumentError) else FAILED
            found = FoundError(str(cause), each_at(kind, cause.subjects)).findings
            parts = tuple(cause.command.split()) if isinstance(cause, InstrumentError) else ()
            advice = advice_of(cause)
            return tuple(replace(one, next_step=advice, devices=parts) for one in found)
        cause = cause.__cause__
    return ()
