"""The sheet of a certified switch: JSON with a schema, and a page that needs no network."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lightrig.harness.bench import Bench
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import Requirement, requirements
from lightrig.harness.certify.subject import Outcome, Verdict
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.record.places import appearing
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_page
from lightrig.harness.report.units import plain
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import LightrigError
from lightrig.testbeds.intervals import interval
from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.references import Calibration, ReferenceSet

_PRINTED = """
.lr-sheet h2 .lr-verdict{font-size:13px;vertical-align:middle}
.lr-sheet td:nth-child(n+2){white-space:nowrap}.lr-sheet .lr-table b{font-weight:600}
.lr-sheet td .lr-why{display:block;max-width:80ch}.lr-sheet .lr-rule{font-size:13px}
@media (max-width:600px){.lr-sheet .lr-facts{display:block}.lr-sheet .lr-facts dd{margin:0 0 4px}
.lr-sheet .lr-table thead{display:none}
.lr-sheet .lr-table :is(tr,td){display:block;border:0;padding:0}
.lr-sheet .lr-table tr{border-top:1px solid var(--lr-line);padding:6px 0}
.lr-sheet td[data-head]:not(:empty)::before{content:attr(data-head) ": ";color:var(--lr-muted)}}
@media print{@page{margin:12mm}.lr-page{padding:0;background:none}.lr-page h1{font-size:17px}
.lr-page *{print-color-adjust:exact;-webkit-print-color-adjust:exact}
.lr-sheet :is(p,dl,td,th,span,.lr-rule){font-size:10px}.lr-sheet h2{font-size:12px;margin:2px 0}
.lr-sheet h2 .lr-verdict{font-size:10px}.lr-sheet .lr-scroll{overflow:visible}
.lr-sheet .lr-card{border:0;border-top:1px solid var(--lr-line);border-radius:0;padding:3px 0;
 margin:3px 0;break-inside:avoid}.lr-sheet p{margin:2px 0}.lr-sheet .lr-head{padding:4px 8px}
.lr-sheet .lr-whole{break-inside:auto}.lr-sheet tr{break-inside:avoid}}
"""


class SheetError(LightrigError):
    """A file that is no sheet, or not as it was signed."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Instrument(_Part):
    """An instrument of the testbed, with the identity that it stated."""

    name: str
    identity: str
    simulated: bool


class Calibrated(_Part):
    """An instrument that references were taken with, as its certificate states it.

    calibrated: date of the calibration. Empty: not stated.
    """

    instrument: str
    certificate: str
    laboratory: str
    calibrated: str


class ReferencesUsed(_Part):
    """References of losses that were valid for the run; those of a simulated lab are marked."""

    name: str
    taken: str
    expires: str
    wavelength_nm: float
    instruments: tuple[Calibrated, ...]
    simulated: bool

    @classmethod
    def of(cls, stated: ReferenceSet, *, simulated: bool) -> "ReferencesUsed":
        """Return what a sheet states of a set of references."""
        known = stated.calibrations or (Calibration(),) * len(stated.instruments)
        return cls(
            name=stated.name,
            taken=str(stated.taken),
            expires=str(stated.expires),
            wavelength_nm=stated.wavelength_nm,
            instruments=tuple(
                Calibrated(
                    instrument=instrument,
                    certificate=each.certificate,
                    laboratory=each.laboratory,
                    calibrated=str(each.calibrated or ""),
                )
                for instrument, each in zip(stated.instruments, known, strict=True)
            ),
            simulated=simulated,
        )


class Ports(_Part):
    """The cabled ports that were used, and how many the testbed has: fewer where sampled.

    left_out: cabled ports of either side that were not drawn; a sheet of all ports does not have
    the key, nor has one of before it was stated.
    """

    ingress: tuple[int, ...]
    egress: tuple[int, ...]
    cabled: tuple[int, int]
    left_out: tuple[int, ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether some of the cabled ports were not used, as with `--quick`."""
        return (len(self.ingress), len(self.egress)) != self.cabled

    def __str__(self) -> str:
        used = f"{len(self.ingress)} ingress and {len(self.egress)} egress ports"
        if not self.sampled:
            return f"all {used}"
        return f"{used} of {self.cabled[0]} and {self.cabled[1]}, drawn"


class ClauseResult(_Part):
    """A requirement and the outcome of its clause; `simulated`: the switch was a simulation."""

    requirement: Requirement
    required: bool
    verdict: Verdict
    reason: str
    value: float | None
    interval: tuple[float, float] | None
    unit: str
    n: int
    simulated: bool

    @property
    def shown_value(self) -> str:
        """The value for people; empty for none."""
        if self.value is None or self.interval is None:
            return "" if self.value is None else shown(self.value, self.unit)
        return interval(*self.interval, self.unit, self.value).value

    @property
    def shown_interval(self) -> str:
        """The interval for people; empty for none."""
        if self.interval is None:
            return ""
        written = interval(*self.interval, self.unit)
        return f"{written.lower} to {written.upper} {written.unit}".rstrip()

    @property
    def outcome(self) -> Outcome:
        """The outcome alone."""
        return Outcome(self.verdict, self.reason, self.value, self.interval, self.unit, self.n)


def shown(value: float, unit: str) -> str:
    """Return a value with three digits, or all before the point, and its unit; `1` for none."""
    text = f"{value:.0f}" if abs(value) >= 1000 else plain(value)
    return text if unit == "1" else f"{text} {unit}"


class Signature(_Part):
    """Signature of all else in a sheet; public key and value in hexadecimal digits."""

    algorithm: Literal["Ed25519"] = "Ed25519"
    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    value: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


class Sheet(_Part):
    """The sheet.

    Attributes:
        allowed: classes of clauses that were run.
        interrupted: clauses that were begun, ended with their process, and were begun again.
        not_restored: why the switch is not as found; empty where it is.
    """

    format: Literal["lightrig certification sheet 1"] = "lightrig certification sheet 1"
    made: str
    testbed: str
    switch: str
    profile: str
    seed: int
    allowed: tuple[str, ...]
    ports: Ports
    instruments: tuple[Instrument, ...]
    references: tuple[ReferencesUsed, ...]
    clauses: tuple[ClauseResult, ...]
    interrupted: tuple[str, ...]
    not_restored: str
    signature: Signature | None = None

    @property
    def meets_profile(self) -> bool:
        """Whether each required clause has passed or is not applicable."""
        return not self.unmet

    @property
    def unmet(self) -> list[ClauseResult]:
        """Required clauses that have neither passed nor are not applicable."""
        met = {"pass", "not applicable"}
        return [each for each in self.clauses if each.required and each.verdict not in met]

    @property
    def identity(self) -> str:
        """The identity that the switch stated."""
        found = (each.identity for each in self.instruments if each.name == self.switch)
        return next(found, "none: the sheet names no instrument of the switch's name")

    @property
    def counts(self) -> str:
        """Number of clauses by verdict, for people."""
        counted = Counter(each.verdict for each in self.clauses)
        return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common())

    def document(self) -> dict[str, Any]:
        """Return the sheet as values of JSON."""
        document = self.model_dump(mode="json", by_alias=True)
        if not self.ports.left_out:
            del document["ports"]["left_out"]
        return document

    def text(self) -> str:
        """Return the sheet as JSON for people: the only form that is read back."""
        return json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n"

    def signed_bytes(self) -> bytes:
        """Return what is signed: all but the signature, keys sorted, without blanks, in UTF-8.

        Numbers are as Python writes them, the shortest that are read back the same.
        """
        document = self.document()
        del document["signature"]
        options: dict[str, Any] = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False}
        return json.dumps(document, ensure_ascii=False, **options).encode()

    def page(self) -> str:
        """Return the sheet as a page."""
        return render_page(
            "sheet",
            title=f"Certification of {self.switch}",
            about=f"{self.made}, testbed {self.testbed}, profile {self.profile}",
            style=style(0) + page_style(_PRINTED),
            sheet=self,
        )

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write JSON and page to `folder`, each whole or not at all; raises `OSError`."""
        paths = folder / f"{self.switch}.json", folder / f"{self.switch}.html"
        for path, text in zip(paths, (self.text(), self.page()), strict=True):
            with appearing(path) as draft:
                draft.write_text(text, encoding="utf-8")
        return paths


def sheet_schema() -> dict[str, Any]:
    """Return the JSON Schema of a sheet, which `sheet.schema.json` holds."""
    return Sheet.model_json_schema(by_alias=True, mode="serialization")


def read_sheet(path: Path) -> Sheet:
    """Return the sheet in a file; raises `SheetError` where the file is not exactly one."""
    try:
        data = path.read_bytes()
        sheet = Sheet.model_validate(from_json(data), strict=False)
        written = sheet.text().encode()
    except OSError as error:
        raise SheetError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise SheetError(f"{path} is no sheet: {str(error).splitlines()[0]}") from error
    if written != data:
        raise SheetError(f"{path} is not as it was written: form or numbers have been changed")
    return sheet


def certify(
    certification: Certification,
    bench: Bench,
    profile: str,
    *,
    interrupted: tuple[str, ...] = (),
    progress: Callable[[ClauseResult], None] = lambda result: None,
) -> Sheet:
    """Try all clauses of a profile; `progress` is called after each."""
    subject = certification.subject
    trial, name = subject.trial, subject.name
    references = references_of(bench)
    wanted = requirements().profiles[profile]
    results = []
    for each in requirements().of(wanted):
        outcome = certification.outcome(each.number)
        result = ClauseResult(
            requirement=each,
            required=each.number in wanted.required,
            verdict=outcome.verdict,
            reason=outcome.reason,
            value=outcome.value,
            interval=outcome.interval,
            unit=outcome.unit,
            n=outcome.n,
            simulated=name in bench.simulated,
        )
        results.append(result)
        progress(result)
    ingress, egress = bench.testbed.cabling.cabled_ports(name)
    return Sheet(
        made=f"{wall_time():%F %T} UTC",
        testbed=bench.testbed.name,
        switch=name,
        profile=profile,
        seed=trial.seed,
        allowed=tuple(sorted(trial.permitted)),
        ports=Ports(
            ingress=tuple(subject.ingress),
            egress=tuple(subject.egress),
            cabled=(len(ingress), len(egress)),
            left_out=tuple(sorted({*ingress, *egress} - {*subject.ingress, *subject.egress})),
        ),
        instruments=tuple(
            Instrument(name=each, identity=str(stated), simulated=each in bench.simulated)
            for each, stated in bench.identities.items()
        ),
        references=tuple(
            ReferencesUsed.of(each, simulated=references.simulated) for each in references.sets
        ),
        clauses=tuple(results),
        interrupted=interrupted,
        not_restored=certification.not_restored,
    )
