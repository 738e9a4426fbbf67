"""What can go wrong with a record."""

from pathlib import Path

from testbeds.errors import LightrigError


class RecordError(LightrigError):
    """A journal or data set that cannot be written or read."""


class QuestionError(RecordError):
    """A question that no results could answer: no such place, no such run, no such SQL."""


class RowError(RecordError):
    """A row, context or header with a value that no record may hold."""


class JournalDamagedError(RecordError):
    """A journal line that is not what was written: `path`, `line` (from 1), what was found."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem


class JournalEmptyError(JournalDamagedError):
    """A journal of a process that was killed before it could record anything."""


class JournalInUseError(RecordError):
    """A journal that a process still writes."""
