"""Two runs side by side, and what the nights before say of the later one.

Two medians say nothing of drift: nights differ though nothing has changed. So the medians are
shown, and the verdict comes from the nights before. What is compared is one quantity of one
test under the same conditions, and what was simulated with nothing but the same.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from harness.record.errors import QuestionError
from harness.record.facts import RunFacts
from harness.record.results import Results
from harness.record.tidy import COLUMNS
from harness.statistics import NotEnough, Quantile, quantile
from harness.statistics.corrections import correct
from harness.statistics.drift import DriftVerdict, judge_drift
from harness.statistics.samples import SampleError, Samples
from testbeds.baselines import Baselines, Rule, baselines_path, load_baselines

DEFAULT_RULES = Baselines(Path(), {"*": Rule()}, family_error=0.05, correction="holm")
"""What holds for a testbed that states no baselines."""

_COUNTERS = frozenset(("event", "n", "repetition", "sample"))
"""Conditions that number what was measured; they set nothing."""
_OF_THE_HARNESS = frozenset(("closure", "harness", "loss"))


class Case(NamedTuple):
    """What is compared with itself: a quantity of one test, under the same conditions.

    held: conditions that are set, not counted or measured, as JSON. simulated: whether anything
    that took part was.
    """

    testbed: str
    test: str
    quantity: str
    unit: str
    held: str
    simulated: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """A case in two runs: the median of each, and whether the later one has drifted.

    before, after: medians with their 95 % intervals, one sample an event: the greatest of its
    subjects; or one a row, where rows name no event. drift: what the nights before the later
    run say of it.
    """

    case: Case
    before: Quantile | NotEnough
    after: Quantile | NotEnough
    drift: DriftVerdict


def compare(results: Results, before: str, after: str, quantity: str = "*") -> list[Comparison]:
    """Compare all that two runs have in common, by the rules that the later one kept.

    `quantity` is a name or a pattern. What the harness says of itself is not compared. Raises
    `QuestionError` if there is no such run, or nothing in common, and `TestbedError` for
    rules that cannot be read.
    """
    first, second = results.find(before), results.find(after)
    was, has = (_samples(results.frame(run=one.run, quantity=quantity)) for one in (first, second))
    common = [case for case in has if case in was]
    if not common:
        raise QuestionError(
            f"{first.run} and {second.run} have nothing in common: no test measured the same on "
            "the same testbed, both simulated or both not"
        )
    rules = {
        testbed: _rules(results, second, testbed) for testbed in sorted({c.testbed for c in common})
    }
    verdicts: dict[Case, DriftVerdict] = {}
    for testbed, stated in rules.items():
        nights = _nights_before(results, second, testbed, quantity, stated)
        mine: dict[Case, DriftVerdict] = {}
        for case in common:
            rule = stated.rule_for(case.quantity) if case.testbed == testbed else None
            if rule is not None:
                known = [night[case] for night in nights if case in night]
                mine[case] = _judged(known, has[case], rule)
        verdicts |= correct(mine, stated.correction, stated.family_error)
    return [
        Comparison(case, _median(was[case]), _median(has[case]), verdicts[case])
        for case in common
        if case in verdicts
    ]


def _median(samples: Samples) -> Quantile | NotEnough:
    earliest, latest = samples
    return quantile(earliest, latest, 0.5)


def _judged(nights: Sequence[Samples], tonight: Samples, rule: Rule) -> DriftVerdict:
    try:
        return judge_drift(nights, tonight, rule)
    except SampleError as error:
        # One quantity that the rule does not suit is no reason to say nothing of the others.
        counts = tonight.shape[1], len(nights), sum(night.shape[1] for night in nights)
        return DriftVerdict("not enough data", f"Cannot be judged: {error}.", *counts)


def _samples(frame: pd.DataFrame) -> dict[Case, Samples]:
    """Earliest and latest of each sample, or lower and upper bound, in the order of events.

    The subjects of one event move together: the greatest of them speaks for the event.
    """
    family = frame["quantity"].str.partition(".")[0]
    frame = frame[~family.isin(_OF_THE_HARNESS)].copy()
    times = frame["unit"] == "ns"
    # Nothing happens before the command; without an upper bound it was not seen to happen.
    frame["lower"] = frame["lower"].fillna(frame["value"].where(~times, 0.0))
    frame["upper"] = frame["upper"].fillna(frame["value"].where(~times, np.inf))
    frame["held"] = _held(frame)
    # What one subject of an event shows is part of the whole event's, which is compared.
    whole = set(frame["quantity"])
    frame = frame[[f"reconfiguration.{name}" not in whole for name in frame["quantity"]]]
    found = {}
    for key, rows in frame.groupby(list(Case._fields), sort=False):
        bounds = rows[["lower", "upper"]]
        if "event" in rows and rows["event"].notna().all():
            bounds = bounds.groupby(rows["event"]).max()
        found[Case(*key)] = bounds.to_numpy(float).T
    return found


def _held(frame: pd.DataFrame) -> "pd.Series[str]":
    named = [name for name in frame if name not in COLUMNS and name not in _COUNTERS]
    given = [name for name in named if frame[name].dtype.kind != "f"]
    if not given:
        return pd.Series("{}", frame.index)
    alike = frame.groupby(given, dropna=False, sort=False).ngroup()
    texts = {
        number: json.dumps({n: v for n, v in row.items() if not pd.isna(v)}, sort_keys=True)
        for number, row in zip(
            alike.unique(), frame[given].drop_duplicates().to_dict("records"), strict=True
        )
    }
    return alike.map(texts)


def _rules(results: Results, run: RunFacts, testbed: str) -> Baselines:
    """The baselines that `run` kept beside the testbed's description, or the default."""
    described = run.header.get("descriptions", {}).get(testbed)
    if described is None:
        return DEFAULT_RULES
    text = results.kept(run, str(baselines_path(Path(described))))
    if text is None:
        return DEFAULT_RULES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, baselines_path(Path(described)).name)
        path.write_bytes(text)
        return load_baselines(path)


def _nights_before(
    results: Results, run: RunFacts, testbed: str, quantity: str, rules: Baselines
) -> list[Mapping[Case, Samples]]:
    """The samples of the nights before `run`, the oldest first; more than any rule looks at.

    Some nights measured less than others, so half as many again are read.
    """
    most = max((rule.nights for rule in rules.rules.values()), default=0) * 3 // 2
    runs = [one for one in results.runs() if one.night < run.night and one.testbeds.get(testbed)]
    nights = sorted({one.night for one in runs})[-most:]
    return [
        _joined(
            _samples(results.frame(run=one.run, testbed=testbed, quantity=quantity))
            for one in runs
            if one.night == night
        )
        for night in nights
    ]


def _joined(runs: Iterable[Mapping[Case, Samples]]) -> Mapping[Case, Samples]:
    night: dict[Case, Samples] = {}
    for run in runs:
        for case, samples in run.items():
            night[case] = np.hstack([night[case], samples]) if case in night else samples
    return night
