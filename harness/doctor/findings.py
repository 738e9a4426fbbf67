"""Findings of an examination: facts, and problems with their fixes."""

from dataclasses import dataclass, field
from typing import Literal

Grade = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its outcome.

    Attributes:
        subject: the instrument, server or port.
        check: its name: `identity`, `light`, ...
        grade: "ok", "note" for a check that was impossible, "wrong".
        text: the outcome in one sentence.
        fix: what to try, empty where nothing is wrong.
    """

    subject: str
    check: str
    grade: Grade
    text: str
    fix: str = ""


@dataclass
class Findings:
    """All findings in the order of the checks."""

    found: list[Finding] = field(default_factory=list)

    def ok(self, subject: str, check: str, text: str) -> None:
        """Add a check that passed."""
        self.found.append(Finding(subject, check, "ok", text))

    def note(self, subject: str, check: str, text: str, fix: str = "") -> None:
        """Add a check that was impossible."""
        self.found.append(Finding(subject, check, "note", text, fix))

    def wrong(self, subject: str, check: str, text: str, fix: str) -> None:
        """Add a problem."""
        self.found.append(Finding(subject, check, "wrong", text, fix))

    @property
    def problems(self) -> list[Finding]:
        """The problems among them."""
        return [finding for finding in self.found if finding.grade == "wrong"]
