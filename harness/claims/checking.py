"""Looking claims up in the results."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from harness.claims.computed import computable
from harness.claims.published import Beside, Claim, Lookup, Published
from harness.claims.verdicts import ClaimOutcome, Estimate, compare, estimate
from harness.record import Results
from harness.statistics import NotEnough
from testbeds import LightrigError

Kind: TypeAlias = Literal["measurement", "closure", "computed"]
"""A simulation is built from what was published: that it agrees closes a circle, no more.

What is computed was never measured, by anybody.
"""

_NIGHTS = """
SELECT DISTINCT testbed, quantity, simulated, strftime(night, '%Y-%m-%d') AS night FROM rows
ORDER BY simulated, night DESC
"""
_EVENT = ["run", "test", "event"]


class ClaimError(LightrigError):
    """A claim and the rows that should answer it do not fit together."""


@dataclass(frozen=True, slots=True)
class Told:
    """A value of ours that is told beside a figure; in `unit`, None where nothing was measured.

    simulated: whether anything that took part was.
    """

    beside: Beside
    ours: Estimate | NotEnough | None
    unit: str
    simulated: bool
    night: str | None


@dataclass(frozen=True, slots=True)
class Checked:
    """A claim, what of ours answers it, and the verdict.

    ours: None where nothing was measured. kind: of what answers. night: of the rows that do.
    rests_on: what a computed value assumes. told: what else there is, without a verdict.
    """

    claim: Claim
    ours: Estimate | NotEnough | None
    kind: Kind | None
    night: str | None
    outcome: ClaimOutcome
    reason: str
    rests_on: str | None = None
    told: tuple[Told, ...] = ()

    @property
    def exact(self) -> bool:
        """Was it computed, with nothing drawn and nothing bounded?"""
        if self.kind != "computed" or not isinstance(self.ours, Estimate):
            return False
        return self.ours.n == 1 and self.ours.lower == self.ours.upper


def check_claims(published: Published, results: Results) -> list[Checked]:
    """Hold each claim against the last night that measured what answers it.

    Hardware speaks first; where none ever measured it, a simulated night does, and what it says
    is closure. A claim that arithmetic answers is computed, here and now. Raises `RecordError`
    for results that cannot be read, and `ClaimError`.
    """
    rows = _Rows(results, published.testbed)
    others = {
        name: _Rows(results, name)
        for name in {beside.testbed for claim in published.claims for beside in claim.beside}
    }
    checked = [
        _check(claim, rows) if claim.computed is None else _compute(published.system, claim)
        for claim in published.claims
    ]
    return [
        replace(one, told=tuple(_tell(each, others[each.testbed]) for each in one.claim.beside))
        for one in checked
    ]


def _tell(beside: Beside, rows: "_Rows") -> Told:
    found = rows.found(beside.lookup)
    if found is None:
        return Told(beside, None, "1", False, None)
    last = found.iloc[-1]
    if beside.stated and "n" not in found:
        raise ClaimError(f"{beside.lookup.quantity}: its rows do not say of how many samples")
    if beside.stated:
        low, high = float(last["lower"]), float(last["upper"])
        ours: Estimate | NotEnough = Estimate(float(last["value"]), low, high, int(last["n"]))
    else:
        ours = estimate(beside.lookup.statistic, *_one_an_event(found, beside.lookup))
    night = f"{last['night']:%Y-%m-%d}"
    return Told(beside, ours, str(last["unit"]), bool(last["simulated"]), night)


def _compute(system: str, claim: Claim) -> Checked:
    assert claim.computed is not None
    found = computable(system)[claim.computed]()
    ours = Estimate(found.value, found.lower, found.upper, found.n)
    outcome, reason = compare(claim.figure, ours)
    return Checked(claim, ours, "computed", None, outcome, reason, found.note or None)


def _check(claim: Claim, rows: "_Rows") -> Checked:
    found = None if claim.ours is None else rows.found(claim.ours)
    if claim.ours is None or found is None:
        outcome, reason = compare(claim.figure, None)
        return Checked(claim, None, None, None, outcome, claim.unmeasured or reason)
    unit = str(found["unit"].iloc[0])
    if unit != claim.figure.unit:
        raise ClaimError(
            f"{claim.name}: the published figure is in {claim.figure.unit}, "
            f"{claim.ours.quantity} was measured in {unit}"
        )
    low, high = _one_an_event(found, claim.ours)
    ours = estimate(claim.ours.statistic, low, high)
    kind: Kind = "closure" if bool(found["simulated"].iloc[0]) else "measurement"
    night = f"{found['night'].iloc[0]:%Y-%m-%d}"
    return Checked(claim, ours, kind, night, *compare(claim.figure, ours))


class _Rows:
    """The rows of one testbed, a quantity and a night at a time."""

    def __init__(self, results: Results, testbed: str) -> None:
        self._results, self._testbed = results, testbed
        self._nights = results.query(_NIGHTS)
        self._frames: dict[tuple[str, str, str], pd.DataFrame] = {}

    def found(self, lookup: Lookup) -> pd.DataFrame | None:
        """The rows of the last night that has any; hardware first."""
        testbed = lookup.testbed or self._testbed
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
            self._frames[key] = _bounded(frame)
        frame = self._frames[key]
        chosen = frame["simulated"] == simulated
        for name, value in conditions.items():
            if name not in frame:
                return frame.iloc[:0]
            chosen &= (frame[name] == value).fillna(False)
        return frame[chosen]


def _bounded(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with both bounds in every row; without one a time is from 0 to never."""
    time = frame["unit"] == "ns"
    lower = frame["lower"].fillna(frame["value"].where(~time, 0.0))
    upper = frame["upper"].fillna(frame["value"].where(~time, np.inf))
    event = frame["event"] if "event" in frame else pd.Series(range(len(frame)), frame.index)
    return frame.assign(lower=lower, upper=upper, event=event)


def _after(rows: pd.DataFrame, since: pd.DataFrame, testbed: str) -> pd.DataFrame:
    """How long after `since` each row of the same subject and event was.

    What is of the testbed as a whole, a stage of the event, is so of every subject.
    """
    whole = bool((since["subject"] == testbed).all())
    key = _EVENT if whole else [*_EVENT, "subject"]
    both = rows.merge(since[[*key, "lower", "upper"]], on=key, suffixes=("", "_since"))
    lower = (both["lower"] - both["upper_since"]).clip(lower=0)
    return both.assign(lower=lower, upper=(both["upper"] - both["lower_since"]).clip(lower=0))


def _one_an_event(rows: pd.DataFrame, lookup: Lookup) -> tuple[pd.Series, pd.Series]:
    """One sample an event: the subjects of an event move together."""
    if lookup.pick == "worst":
        worst = rows.groupby(_EVENT, sort=True)[["lower", "upper"]].max()
        return worst["lower"], worst["upper"]
    ordered = rows.sort_values([*_EVENT, "subject"])
    place = ordered.groupby(_EVENT).cumcount()
    many = ordered.groupby(_EVENT)["subject"].transform("size")
    turn = ordered[place == ordered.groupby(_EVENT).ngroup() % many]
    return turn["lower"], turn["upper"]
