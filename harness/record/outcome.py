"""What became of a test, as the journal tells it when nobody else is left to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.record.errors import RowError
from harness.record.row import check_number, check_text


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """How one test ended.

    nodeid: the test's name, as in the `test` of its rows.
    outcome: "passed", "failed", "skipped", "error" or another of pytest's words.
    duration_s: how long it took, in seconds of the wall.
    details: what a report tells of it: the command that repeats it, the failure in short, the
        wire's last lines. Whatever JSON can hold.

    Raises `RowError` for a name, word or duration that no record may hold.
    """

    __test__ = False

    nodeid: str
    outcome: str
    duration_s: float
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_text("nodeid", self.nodeid)
        check_text("outcome", self.outcome)
        check_number("duration_s", self.duration_s)
        if self.duration_s < 0:
            raise RowError(f"duration_s: found {self.duration_s}, expected seconds from 0")
        if not isinstance(self.details, Mapping):
            raise RowError(f"details: found {self.details!r}, expected a mapping")
        object.__setattr__(self, "details", dict(self.details))
