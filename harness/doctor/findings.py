"""Checks of an examination: facts, and findings with their fixes."""

from dataclasses import dataclass, field
from typing import Any, Literal

from lightrig.harness.components import Components, LabComponent
from lightrig.harness.findings import Finding

Grade = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check and its outcome.

    Attributes:
        subject: the instrument, server or port.
        check: its name: `identity`, `light`, ...
        grade: "ok", "note" for a check that was impossible, "wrong".
        text: the outcome in one sentence.
        fix: what to try, empty where nothing is wrong.
        finding: what is wrong.
    """

    subject: str
    check: str
    grade: Grade
    text: str
    fix: str = ""
    finding: Finding | None = None

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain = {"subject": self.subject, "check": self.check, "grade": self.grade}
        finding = self.finding and self.finding.document()
        return {**plain, "text": self.text, "fix": self.fix, "finding": finding}


@dataclass
class Findings:
    """All checks in their order; `components`: of the testbed."""

    components: Components
    found: list[Check] = field(default_factory=list)

    def ok(self, subject: str, check: str, text: str) -> None:
        """Add a check that passed."""
        self.found.append(Check(subject, check, "ok", text))

    def note(self, subject: str, check: str, text: str, fix: str = "") -> None:
        """Add a check that was impossible."""
        self.found.append(Check(subject, check, "note", text, fix))

    def wrong(
        self,
        subject: str,
        check: str,
        text: str,
        fix: str,
        kind: str = "",
        *,
        also: str = "",
        components: tuple[LabComponent, ...] = (),
    ) -> None:
        """Add a finding.

        kind: what is wrong, the check's name unless stated. also: a second subject. components:
        that would explain it; without, those that would of its kind.
        """
        subjects = (subject, also) if also else (subject,)
        found = Finding(kind or check, f"{subject}: {text}", subjects, components, next_step=fix)
        located = found.located(self.components)
        self.found.append(Check(subject, check, "wrong", text, fix, located))

    def add(self, check: str, finding: Finding) -> None:
        """Add a finding whose subjects and components are known."""
        located = finding.located(self.components)
        subject = finding.subjects[0]
        self.found.append(
            Check(subject, check, "wrong", finding.evidence, located.next_step, located)
        )

    @property
    def problems(self) -> list[Check]:
        """The checks that found something wrong."""
        return [check for check in self.found if check.grade == "wrong"]
