"""The sheet of a certified switch: JSON with a schema, and a page that needs no network."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from lightrig.harness.bench import Fabric
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.clauses import Outcome, Verdict
from lightrig.harness.certify.requirements import Requirement, requirements
from lightrig.harness.record.places import appearing
from lightrig.harness.report.style import page_style, style
from lightrig.harness.report.templates import render_page
from lightrig.instruments.clock import wall_time


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Instrument(_Part):
    """An instrument of the testbed, with the identity that it stated."""

    name: str
    identity: str
    simulated: bool


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


class Sheet(_Part):
    """The sheet. `not_restored`: why the switch is not as found; empty where it is."""

    format: Literal["lightrig certification sheet 1"] = "lightrig certification sheet 1"
    made: str
    testbed: str
    switch: str
    profile: str
    seed: int
    instruments: tuple[Instrument, ...]
    clauses: tuple[ClauseResult, ...]
    not_restored: str

    @property
    def meets_profile(self) -> bool:
        """Whether each required clause has passed or is not applicable."""
        met = {"pass", "not applicable"}
        return all(each.verdict in met for each in self.clauses if each.required)

    def text(self) -> str:
        """Return the sheet as JSON."""
        document = self.model_dump(mode="json", by_alias=True)
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    def page(self) -> str:
        """Return the sheet as a page."""
        return render_page(
            "sheet",
            title=f"Certification of {self.switch}",
            about=f"{self.made}, testbed {self.testbed}, profile {self.profile}",
            style=style(0) + page_style(),
            sheet=self,
        )

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write JSON and page to `folder`, each whole or not at all; raises `OSError`."""
        paths = folder / f"{self.switch}.json", folder / f"{self.switch}.html"
        for path, text in zip(paths, (self.text(), self.page()), strict=True):
            with appearing(path) as draft:
                draft.write_text(text, encoding="utf-8")
        return paths


def certify(
    fabric: Fabric,
    name: str,
    profile: str,
    seed: int,
    progress: Callable[[Requirement, Outcome], None] = lambda requirement, outcome: None,
) -> Sheet:
    """Try all clauses of a profile on the switch `name`; `progress` is called after each."""
    bench = fabric.bench
    wanted = requirements().profiles[profile]
    certification = Certification(fabric, name, wanted)
    results = []
    for each in requirements().of(wanted):
        outcome = certification.outcome(each.number)
        progress(each, outcome)
        results.append(
            ClauseResult(
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
        )
    return Sheet(
        made=f"{wall_time():%F %T} UTC",
        testbed=bench.testbed.name,
        switch=name,
        profile=profile,
        seed=seed,
        instruments=tuple(
            Instrument(name=each, identity=str(stated), simulated=each in bench.simulated)
            for each, stated in bench.identities.items()
        ),
        clauses=tuple(results),
        not_restored=certification.not_restored,
    )
