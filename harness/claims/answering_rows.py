"""Rows of measurements that answer a published value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lightrig.harness.claims.published import Lookup
from lightrig.harness.claims.verdicts import Kind
from lightrig.harness.record import Results
from lightrig.harness.record.attempts import last_attempts

if TYPE_CHECKING:
    import pandas as pd

_NIGHTS = """
SELECT DISTINCT testbed, quantity, simulated, strftime(night, '%Y-%m-%d') AS night FROM rows
WHERE NOT by_hand
ORDER BY simulated, night DESC
"""
_EVENT = ["run", "test", "event"]


def kind_of(rows: pd.DataFrame) -> Kind:
    """Return the origin of measured rows, which are all simulated or all not.

    Simulated instruments run in real time beside network namespaces only.
    """
    if not rows["simulated"].iloc[0]:
        return "hardware"
    real_time = "clock" in rows and bool((rows["clock"] == "system").all())
    return "namespaces" if real_time else "closure"


class AnsweringRows:
    """The rows of one testbed, a quantity and a night at a time.

    Attributes:
        testbed: whose rows they are, where a lookup names no other one.
    """

    def __init__(self, results: Results, testbed: str) -> None:
        self._results, self.testbed = results, testbed
        self._nights = results.query(_NIGHTS)
        self._frames: dict[tuple[str, str, str], pd.DataFrame] = {}

    def found(self, lookup: Lookup) -> pd.DataFrame | None:
        """Return the rows of the last night that has any; hardware first."""
        testbed = lookup.testbed or self.testbed
        nights = self._nights[
            (self._nights["testbed"] == testbed) & (self._nights["quantity"] == lookup.quantity)
        ]
        for night, simulated in zip(nights["night"], nights["simulated"], strict=True):
            rows = self._of(testbed, lookup.quantity, night, simulated, lookup.conditions)
            if lookup.since is not None and not rows.empty:
                since = self._of(testbed, lookup.since, night, simulated, lookup.conditions)
                rows = _after(rows, since, testbed)
            if not rows.empty:
                return rows
        return None

    def _of(
        self,
        testbed: str,
        quantity: str,
        night: str,
        simulated: bool,
        conditions: Mapping[str, str | int | bool],
    ) -> pd.DataFrame:
        key = testbed, quantity, night
        if key not in self._frames:
            frame = self._results.frame(testbed=testbed, quantity=quantity, night=night)
            if len(runs := frame["run"].unique()) > 1:
                runs = self._results.last_of(testbed, night)
            frame = frame[frame["run"].isin(runs)]
            self._frames[key] = _bounded(last_attempts(frame))
        frame = self._frames[key]
        chosen = frame["simulated"] == simulated
        for name, value in conditions.items():
            if name not in frame:
                return frame.iloc[:0]
            chosen &= (frame[name] == value).fillna(False)
        return frame[chosen]


def _bounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with both bounds in every row; a time without bounds is 0 to never."""
    time = frame["unit"] == "ns"
    lower = frame["lower"].fillna(frame["value"].where(~time, 0.0))
    upper = frame["upper"].fillna(frame["value"].where(~time, np.inf))
    event = frame["event"] if "event" in frame else range(len(frame))
    return frame.assign(lower=lower, upper=upper, event=event)


def _after(rows: pd.DataFrame, since: pd.DataFrame, testbed: str) -> pd.DataFrame:
    """Return the time of each row after `since` of the same subject and event.

    A row of the whole testbed, such as a stage of the event, applies to every subject.
    """
    whole = bool((since["subject"] == testbed).all())
    key = _EVENT if whole else [*_EVENT, "subject"]
    both = rows.merge(since[[*key, "lower", "upper"]], on=key, suffixes=("", "_since"))
    lower = (both["lower"] - both["upper_since"]).clip(lower=0)
    return both.assign(lower=lower, upper=(both["upper"] - both["lower_since"]).clip(lower=0))


def one_an_event(rows: pd.DataFrame, lookup: Lookup) -> tuple[pd.Series, pd.Series]:
    """Return one sample an event, since the subjects of an event move together."""
    if lookup.pick == "worst":
        worst = rows.groupby(_EVENT, sort=True)[["lower", "upper"]].max()
        return worst["lower"], worst["upper"]
    ordered = rows.sort_values([*_EVENT, "subject"])
    place = ordered.groupby(_EVENT).cumcount()
    many = ordered.groupby(_EVENT)["subject"].transform("size")
    turn = ordered[place == ordered.groupby(_EVENT).ngroup() % many]
    return turn["lower"], turn["upper"]
