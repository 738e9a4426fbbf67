"""What nights have measured of one part of a lab, beside what persons noted of it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lightrig.harness.record.notes import Note, read_notes
from lightrig.harness.record.results import Results
from lightrig.harness.statistics.quantiles import NotEnough, quantile
from lightrig.testbeds.plans import is_about


@dataclass(frozen=True, slots=True)
class NightOfSubject:
    """The values of one quantity of one subject in one night.

    Attributes:
        night: its date.
        began: when its first value was taken, "YYYY-MM-DD HH:MM:SS" in UTC; the night's date where
            that is not known.
        subject, quantity, unit: what the values are of.
        n: number of values.
        median, lower, upper: the median with its 95 % interval; of too few values for one, the
            bounds of all of them.
        ends: what `lower` and `upper` are.
        simulated: whether anything that took part was.
    """

    night: str
    began: str
    subject: str
    quantity: str
    unit: str
    n: int
    median: float
    lower: float
    upper: float
    ends: str
    simulated: bool


def nights_of_subject(
    results: Results, testbed: str, subject: str, nights: int, quantity: str = "*"
) -> list[NightOfSubject]:
    """Return what the last `nights` that measured a subject have of it, the oldest first.

    subject: see `is_about`. quantity: a name, or a pattern with `*` and `?`. Runs by hand belong to
    no night. Raises `RecordError`.
    """
    of_testbed = (
        f"testbed = {_quoted(testbed)} AND NOT by_hand AND quantity GLOB {_quoted(quantity)}"
    )
    subjects = results.query(f"SELECT DISTINCT subject FROM rows WHERE {of_testbed}")  # noqa: S608
    named = [each for each in subjects["subject"] if is_about(each, subject)]
    if not named:
        return []
    of_subjects = f"{of_testbed} AND subject IN ({', '.join(map(_quoted, named))})"
    found = results.query(
        "SELECT night, min(at_utc) AS began, subject, quantity, unit, simulated, "  # noqa: S608
        "list(value) AS values, list(coalesce(lower, value)) AS lows, "
        "list(coalesce(upper, value)) AS highs FROM rows "
        f"WHERE {of_subjects} AND night IN (SELECT DISTINCT night FROM rows "
        f"WHERE {of_subjects} ORDER BY night DESC LIMIT {int(nights)}) "
        "GROUP BY night, subject, quantity, unit, simulated ORDER BY night, quantity, subject"
    )
    return [_of_night(*line) for line in found.itertuples(index=False)]


def notes_about(results: Results, testbed: str, subject: str) -> list[Note]:
    """Return the notes of a part of a lab, and of what it is in or contains, the oldest first."""
    return [
        note
        for note in read_notes(results.place)
        if note.testbed == testbed
        and (is_about(note.subject, subject) or is_about(subject, note.subject))
    ]


def _of_night(
    night: object,
    began: object,
    subject: str,
    quantity: str,
    unit: str,
    simulated: bool,
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
) -> NightOfSubject:
    if unit != "ns":  # bounds of other values say how well each is known, not which they can be
        lows = highs = values
    found = quantile(lows, highs, 0.5, points=values)
    date = str(night)[:10]
    start = date if str(began) == "NaT" else str(began)[:19]
    if isinstance(found, NotEnough) or found.lower is None:
        middle = statistics.median(values)
        ends = (min(lows), max(highs), "all of them")
    else:
        middle, ends = found.value, (found.lower, found.upper, "95 % interval")
    lower, upper, what = ends
    return NightOfSubject(
        date, start, subject, quantity, unit, len(values), float(middle), float(lower),
        float(upper), what, bool(simulated),
    )  # fmt: skip


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
