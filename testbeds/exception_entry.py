"""One exception of a testbed, as its list of exceptions has it."""

import datetime
from dataclasses import dataclass

from lightrig.testbeds.escaping import escape_line


@dataclass(frozen=True, slots=True)
class Entry:
    """One exception.

    Attributes:
        what: in `out` a port, a fiber's label, a NIC or a server; in `known` the name of a card.
        because: the reason, such as a ticket's number.
        until: the last day on which it holds without being reported.
        who: account and host that made it.
        at: when, in UTC: "2026-03-14 02:00:00".
        line, column: where it stands; 0 for one that was not read from a file.
    """

    what: str
    because: str
    until: datetime.date
    who: str = ""
    at: str = ""
    line: int = 0
    column: int = 0

    def has_passed(self, today: datetime.date) -> bool:
        """Whether `until` lies before `today`."""
        return self.until < today

    def __str__(self) -> str:
        return f"{self.what} ({escape_line(self.because)}, until {self.until})"
