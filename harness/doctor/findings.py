"""What a doctor finds: facts, and what is wrong with the fix for it."""

from dataclasses import dataclass, field
from typing import Literal

Grade = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: the instrument, server or port.
        check: what was asked: `identity`, `light`, ...
        grade: "ok", "note" for what could not be looked at, "wrong".
        text: what was found, in one sentence.
        fix: what to do, empty where nothing is wrong.
    """

    subject: str
    check: str
    grade: Grade
    text: str
    fix: str = ""


@dataclass
class Findings:
    """All of them, in the order they were made."""

    found: list[Finding] = field(default_factory=list)

    def ok(self, subject: str, check: str, text: str) -> None:
        """Note what is as it should be."""
        self.found.append(Finding(subject, check, "ok", text))

    def note(self, subject: str, check: str, text: str, fix: str = "") -> None:
        """Note what could not be looked at."""
        self.found.append(Finding(subject, check, "note", text, fix))

    def wrong(self, subject: str, check: str, text: str, fix: str) -> None:
        """Note what is wrong."""
        self.found.append(Finding(subject, check, "wrong", text, fix))

    @property
    def wrongs(self) -> list[Finding]:
        """Only what is wrong."""
        return [finding for finding in self.found if finding.grade == "wrong"]
