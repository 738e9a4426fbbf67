"""References: launched powers and monitor offsets of a bench, with their dates.

They stand in a file beside the testbed's own, `mine.references.yaml` beside `mine.yaml`, and
hold for hardware alone. All uncertainties are standard ones (k = 1), in dB.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema

from lightrig.testbeds.base import Part, schema_of
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.plans import Port
from lightrig.testbeds.quantities import Decibels, PowerLevel, QuantityError, Wavelength, parse_db

Kind: TypeAlias = Literal["launch", "offset"]

SAME_NM = 5.0
"""Largest difference in wavelength at which a reference is valid, in nm."""

METER_DB = 0.06
"""Default standard uncertainty of a meter's calibration (k = 1), assumed: 2.5 % for k = 2."""

_CIRCUIT = r"^[A-Za-z][A-Za-z0-9_-]* \d{1,6}>\d{1,6}$"
"""Switch and circuit."""

_WHERE = {"launch": "what is launched at", "offset": "what is shown too much at"}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibration of an instrument, as its certificate states it; "" and None for not stated.

    as_found_db, as_left_db: what the instrument showed too much before it was adjusted, and after.
    calibrated: when.
    """

    certificate: str = ""
    laboratory: str = ""
    as_found_db: float | None = None
    as_left_db: float | None = None
    calibrated: datetime.date | None = None

    def __str__(self) -> str:
        if not self.certificate:
            return "no certificate stated: not traceable"
        found = [f"certificate {self.certificate}"]
        found += [f"of {self.laboratory}"] if self.laboratory else []
        found += [f"of {self.calibrated}"] if self.calibrated else []
        ends = (("as found", self.as_found_db), ("as left", self.as_left_db))
        found += [f"{name} {db:+.3g} dB" for name, db in ends if db is not None]
        return ", ".join(found)


@dataclass(frozen=True, slots=True)
class ReferenceSet:
    """Values measured together with the same instruments.

    launches: power in dBm that comes out of the fiber of a source's channel, or of the fiber
        that belongs into a switch's ingress.
    offsets: what the monitor of a switch's port, or a meter's channel, shows too much, in dB.
    common_db: uncertainty that all values share, such as the meter's calibration: the loss
        between two of them is free of it, and that between one of them and one of another
        meter's set has both. each_db: that of each value by itself, connector and
        noise. drift_db: what each is off by after a day, growing with the days.
        linearity_db: of the meter between the powers that were compared.
        polarization_db: by how much a loss differs with the light's polarization.
    zeroed: when the meter's dark offset was taken; None for never.
    patch_cord: which cord was between, in words.
    base: source and channel that the offsets were taken with and against. A loss from that source
        or to that channel has the error of one connection, any other that of three.
    calibrations: of `instruments`, in their order; empty where none is stated.
    checks: loss in dB of the check standard's circuits by these references when they were taken, by
        switch and circuit ("ocs 1>33").
    wavelength_db: by how much a loss differs with the wavelength, within `SAME_NM`.
    """

    name: str
    taken: datetime.date
    expires: datetime.date
    wavelength_nm: float
    instruments: tuple[str, ...]
    each_db: float
    common_db: float = METER_DB
    drift_db: float = 0.0
    linearity_db: float = 0.0
    polarization_db: float = 0.0
    zeroed: datetime.date | None = None
    patch_cord: str = ""
    launches: Mapping[Port, float] | None = None
    offsets: Mapping[Port, float] | None = None
    base: tuple[Port, Port] | None = None
    calibrations: tuple[Calibration, ...] = ()
    checks: Mapping[str, float] = field(default_factory=dict)
    wavelength_db: float = 0.0

    def values(self, kind: Kind) -> Mapping[Port, float]:
        """Return its launches in dBm, or its offsets in dB."""
        return (self.launches if kind == "launch" else self.offsets) or {}

    def shares_meter(self, second: ReferenceSet) -> bool:
        """Whether the calibration error of both is the same, and so is in no difference."""
        return self is second or self.instruments == second.instruments


@dataclass(frozen=True, slots=True)
class Reference:
    """One value, in dBm or dB, with the set that it was taken in and its age in days."""

    value: float
    of: ReferenceSet
    days: int


@dataclass(frozen=True, slots=True)
class References:
    """All references of one testbed, the newest last; `simulated` ones never apply to hardware."""

    sets: tuple[ReferenceSet, ...] = ()
    simulated: bool = False

    def find(
        self,
        kind: Kind,
        port: Port,
        wavelength_nm: float,
        today: datetime.date,
        *,
        beside: ReferenceSet | None = None,
    ) -> Reference | str:
        """Return the newest valid reference at this wavelength, or why there is none.

        beside: a set whose values the reference is to be subtracted from. One of the same set
        is preferred, then one by the same meter: its calibration error cancels.
        """
        why = f"nobody has taken a reference of {_WHERE[kind]} {port}"
        newest_first = list(reversed(self.sets))
        if beside is not None:
            newest_first.sort(key=lambda each: (each is not beside, not each.shares_meter(beside)))
        for each in newest_first:
            if port not in (values := each.values(kind)):
                continue
            if abs(each.wavelength_nm - wavelength_nm) > SAME_NM:
                why = (
                    f"the reference {each.name} of {_WHERE[kind]} {port} was taken at "
                    f"{each.wavelength_nm:g} nm, and the light has {wavelength_nm:g} nm"
                )
            elif today > each.expires:
                why = (
                    f"the reference {each.name} of {_WHERE[kind]} {port} expired on {each.expires}"
                )
            else:
                return Reference(values[port], each, max((today - each.taken).days, 0))
        return why


def _date(text: str) -> str:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        raise ValueError(f"found {text!r}, expected a date, e.g. 2026-11-21")
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"found {text!r}, expected a day that there is") from None
    return text


def _offset(text: str) -> str:
    try:
        parse_db(text)
    except QuantityError as error:
        raise ValueError(str(error)) from None
    return text


Day = Annotated[str, AfterValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
Offset = Annotated[str, AfterValidator(_offset)]


class ReferenceInstrumentPart(Part):
    """An instrument that took part; its calibration's own expiry limits the set's."""

    model: str
    serial: str
    calibrated: Day | None = Field(None, description="Date of its calibration")
    calibrated_until: Day | None = None
    certificate: str | None = Field(None, description="Number of the calibration's certificate")
    laboratory: str | None = Field(None, description="Laboratory that issued it")
    as_found: Offset | None = Field(None, description="Error before adjustment: shown less real")
    as_left: Offset | None = Field(None, description="Error after it")


class UncertaintyPart(Part):
    """Standard uncertainties (k = 1)."""

    each: Decibels = Field(description="Of each value by itself: connector, noise")
    common: Decibels | None = Field(
        None, description=f"Of all together: the meter's calibration; default {METER_DB} dB"
    )
    drift: Decibels | None = Field(None, description="Of each value, for each day since")
    linearity: Decibels | None = Field(None, description="Of the meter, between two powers")
    polarization: Decibels | None = Field(None, description="Of a loss, with the polarization")
    wavelength: Decibels | None = Field(
        None, description=f"Of a loss, with the wavelength, within {SAME_NM:g} nm"
    )


class ReferenceSetPart(Part):
    """Values measured together."""

    taken: Day
    expires: Day
    wavelength: Wavelength
    instruments: list[ReferenceInstrumentPart]
    uncertainty: UncertaintyPart
    zeroed: Day | None = Field(None, description="When the meter's dark offset was taken")
    patch_cord: str | None = Field(None, description="Which cord was used")
    base: list[str] | None = Field(
        None,
        description="Source and meter channel that the offsets were taken with and against",
        min_length=2,
        max_length=2,
        examples=[["laser.1", "meter.1"]],
    )
    launches: dict[str, PowerLevel] = Field(
        default_factory=dict, description="By source channel or ingress", examples=[{"ocs.1": 0}]
    )
    offsets: dict[str, Offset] = Field(
        default_factory=dict, description="By monitored port or meter channel: shown less real"
    )
    checks: dict[Annotated[str, Field(pattern=_CIRCUIT)], Decibels] = Field(
        default_factory=dict,
        description="Loss of the check standard's circuits by these references, when taken",
        examples=[{"ocs 1>33": "1.43 dB"}],
    )


class ReferencesDocument(Part):
    """References of one testbed, by name."""

    simulated: bool = Field(False, description="Whether a simulated person took them")
    references: dict[str, ReferenceSetPart]


def references_path(testbed_path: Path) -> Path:
    """Return the path of the references of the testbed at `testbed_path`."""
    return testbed_path.with_suffix(f".references{testbed_path.suffix}")


def load_references(path: Path) -> References:
    """Return the references that the file at `path` states.

    Raises `TestbedError` with all problems, each with line and column.
    """
    document, _, findings = read_as(ReferencesDocument, path)
    sets = [_set(name, part, findings) for name, part in document.references.items()]
    findings.raise_if_any()
    newest_last = tuple(sorted(sets, key=lambda each: each.taken))
    return References(newest_last, document.simulated)


def _set(name: str, part: ReferenceSetPart, findings: Findings) -> ReferenceSet:
    keys = ("references", name)
    days = {
        key: datetime.date.fromisoformat(text)
        for key in ("taken", "expires", "zeroed")
        if (text := getattr(part, key))
    }
    if days["expires"] < days["taken"]:
        findings.add((*keys, "expires"), f"found {days['expires']}, expected a day after `taken`")
    for number, each in enumerate(part.instruments):
        if each.calibrated_until and each.calibrated_until < part.taken:
            findings.add(
                (*keys, "instruments", number, "calibrated_until"),
                f"the calibration of {each.model} {each.serial} had expired on "
                f"{each.calibrated_until}, before these references were taken",
            )
    if not part.launches and not part.offsets:
        findings.add(keys, "found no value, expected launches or offsets", of_key=True)
    for kind, values in (("launches", part.launches), ("offsets", part.offsets)):
        for port in values:
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*\.\S+", port, re.ASCII):
                findings.add(
                    (*keys, kind, port), f"found {port!r}, expected e.g. ocs.5", of_key=True
                )
    stated = part.uncertainty
    expiries = [days["expires"]] + [
        datetime.date.fromisoformat(each.calibrated_until)
        for each in part.instruments
        if each.calibrated_until
    ]
    return ReferenceSet(
        name,
        days["taken"],
        min(expiries),
        part.wavelength,
        tuple(f"{each.model}, serial {each.serial}" for each in part.instruments),
        stated.each,
        METER_DB if stated.common is None else stated.common,
        stated.drift or 0.0,
        stated.linearity or 0.0,
        stated.polarization or 0.0,
        days.get("zeroed"),
        part.patch_cord or "",
        {_port(port): dbm for port, dbm in part.launches.items()},
        {_port(port): parse_db(text) for port, text in part.offsets.items()},
        (_port(part.base[0]), _port(part.base[1])) if part.base else None,
        tuple(_calibration(each) for each in part.instruments),
        part.checks,
        stated.wavelength or 0.0,
    )


def _calibration(part: ReferenceInstrumentPart) -> Calibration:
    found, left = (
        None if text is None else parse_db(text) for text in (part.as_found, part.as_left)
    )
    day = datetime.date.fromisoformat(part.calibrated) if part.calibrated else None
    return Calibration(part.certificate or "", part.laboratory or "", found, left, day)


def references_yaml(references: References) -> str:
    """Write `references` as a file that `load_references` reads."""
    lines = ["simulated: true    # they hold for no hardware"] if references.simulated else []
    lines.append("references:")
    for each in references.sets:
        lines.append(f"  {each.name}:")
        stated = {"taken": each.taken, "expires": each.expires}
        stated |= {"zeroed": each.zeroed} if each.zeroed else {}
        lines += [f"    {key}: {day}" for key, day in stated.items()]
        lines.append(f"    wavelength: {each.wavelength_nm:g} nm")
        if each.patch_cord:
            lines.append(f"    patch_cord: {each.patch_cord!r}")
        if each.base:
            lines.append(f"    base: [{', '.join(map(str, each.base))}]")
        lines.append("    instruments:")
        of_each = zip_longest(each.instruments, each.calibrations, fillvalue=Calibration())
        for instrument, calibration in of_each:
            model, _, serial = str(instrument).partition(", serial ")
            stated_of = _calibration_yaml(calibration)
            lines.append(f"      - {{model: {model!r}, serial: {serial!r}{stated_of}}}")
        parts = {
            "each": each.each_db,
            "common": each.common_db,
            "drift": each.drift_db,
            "linearity": each.linearity_db,
            "polarization": each.polarization_db,
            "wavelength": each.wavelength_db,
        }
        parts_text = ", ".join(
            f"{key}: {db:.4g} dB" for key, db in parts.items() if db or key in ("each", "common")
        )
        lines.append(f"    uncertainty: {{{parts_text}}}    # k = 1")
        for title, values, unit in (
            ("launches", each.launches, "dBm"),
            ("offsets", each.offsets, "dB"),
            ("checks", each.checks, "dB"),
        ):
            if values:
                lines.append(f"    {title}:")
                lines += [f"      {port}: {found:.4f} {unit}" for port, found in values.items()]
    return "\n".join(lines) + "\n"


def _calibration_yaml(calibration: object) -> str:
    assert isinstance(calibration, Calibration)
    texts = {"certificate": calibration.certificate, "laboratory": calibration.laboratory}
    ends = {"as_found": calibration.as_found_db, "as_left": calibration.as_left_db}
    found = [f", {key}: {text!r}" for key, text in texts.items() if text]
    found += [f", {key}: {db:.4g} dB" for key, db in ends.items() if db is not None]
    found += [f", calibrated: {calibration.calibrated}"] if calibration.calibrated else []
    return "".join(found)


def references_schema() -> dict[str, Any]:
    """Return the JSON Schema of a references file."""
    return schema_of(ReferencesDocument, "Lightrig references")


def _port(text: str) -> Port:
    owner, _, name = text.partition(".")
    return Port(owner, name)
