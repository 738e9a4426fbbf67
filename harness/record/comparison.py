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

from lightrig.harness.quantities.registry import names_in_files, quantity_of
from lightrig.harness.record.attempts import last_attempts
from lightrig.harness.record.results import Results
from lightrig.harness.record.row import BESIDE_VALUES, QuestionError
from lightrig.harness.record.run_folder import RunFacts
from lightrig.harness.record.tidy_frames import COLUMNS
from lightrig.harness.statistics.confirmation import judge_nights
from lightrig.harness.statistics.corrections import correct, least_error
from lightrig.harness.statistics.drift import DriftVerdict, comparable
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile
from lightrig.harness.statistics.samples import SampleError, Samples
from lightrig.testbeds.baselines import Baselines, Rule, baselines_path, load_baselines

DEFAULT_RULES = Baselines(Path(), {}, family_error=0.05, correction="holm")
"""Of a testbed without a baselines file: each quantity is compared by its declared rule."""


class Case(NamedTuple):
    """A quantity of one test under the same conditions, which is compared between runs.

    conditions: those that are set, not counted or measured, as JSON. simulated: whether anything
    simulated took part.
    """

    testbed: str
    test: str
    quantity: str
    unit: str
    conditions: str
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

    `quantity` is a name or a pattern. Quantities without a rule are not compared. Raises
    `QuestionError` if there is no such run, or nothing in common, and `TestbedError` for
    rules that cannot be read.
    """
    first, second = results.find(before), results.find(after)
    results.declare_quantities({first.run, second.run})
    was, has = (
        _joined(
            _measured(results, one, testbed, quantity)
            for testbed, rows in one.testbeds.items()
            if rows
        )
        for one in (first, second)
    )
    common = [case for case in has if case in was]
    rules = {
        testbed: _rules(results, second, testbed) for testbed in sorted({c.testbed for c in common})
    }
    verdicts: dict[Case, DriftVerdict] = {}
    for testbed, stated in rules.items():
        rules_here = {case: rule_of(case, stated) for case in common if case.testbed == testbed}
        most = max((rule.nights for rule in rules_here.values() if rule), default=0)
        nights = _nights_before(results, second, testbed, quantity, most) if most else []
        judged = {
            case: ([night[case] for night in nights if case in night], has[case], rule)
            for case, rule in rules_here.items()
            if rule is not None
        }
        among = sum(comparable(*each) for each in judged.values())
        error = least_error(among, stated.correction, stated.family_error)
        mine = {case: _judged(*each, error) for case, each in judged.items()}
        verdicts |= correct(mine, stated.correction, stated.family_error)
    found = [
        Comparison(case, _median(was[case]), _median(has[case]), verdicts[case])
        for case in common
        if case in verdicts
    ]
    if not found:
        raise QuestionError(
            f"{first.run} and {second.run} have nothing in common: no test measured the same on "
            "the same testbed, both simulated or both not"
        )
    return found


def rule_of(case: Case, stated: Baselines) -> Rule | None:
    """Return the rule of a case: the stated one, else that of the quantity's declaration.

    A quantity that is declared without a rule is compared only where a file names it.
    """
    declared = quantity_of(case.quantity, case.unit).baseline
    rule = stated.rules.get(case.quantity)
    if rule is None and declared is not None:
        rule = stated.rule_for(case.quantity) or declared
    return None if rule is None else rule.in_unit(case.unit)


def _median(samples: Samples) -> Quantile | NotEnough:
    earliest, latest = samples
    return quantile(earliest, latest, 0.5)


def _judged(
    nights: Sequence[Samples], tonight: Samples, rule: Rule, corrected_error: float
) -> DriftVerdict:
    try:
        return judge_nights(nights, tonight, rule, corrected_error=corrected_error)
    except SampleError as error:
        # One quantity that the rule does not suit is no reason to say nothing of the others.
        counts = tonight.shape[1], len(nights), sum(night.shape[1] for night in nights)
        return DriftVerdict("not enough data", f"Cannot be judged: {error}.", *counts)


def _samples(frame: pd.DataFrame) -> dict[Case, Samples]:
    """Earliest and latest of each sample, or lower and upper bound, in the order of events.

    The subjects of one event move together, so they make one sample, as the quantity's
    declaration combines them.
    """
    frame = last_attempts(frame).copy()
    times = frame["unit"] == "ns"
    # Nothing happens before the command; without an upper bound it was not seen to happen.
    frame["lower"] = frame["lower"].fillna(frame["value"].where(~times, 0.0))
    frame["upper"] = frame["upper"].fillna(frame["value"].where(~times, np.inf))
    frame["conditions"] = _case_conditions(frame)
    # What one subject of an event shows is part of the whole event's, which is compared.
    whole = "reconfiguration."
    shown = [n.removeprefix(whole) for n in frame["quantity"].unique() if n.startswith(whole)]
    frame = frame[~frame["quantity"].isin(shown)]
    found = {}
    for key, rows in frame.groupby(list(Case._fields), sort=False):
        bounds = rows[["lower", "upper"]]
        case = Case(*key)
        reduction = quantity_of(case.quantity, case.unit).reduction()
        if reduction and "event" in rows and rows["event"].notna().all():
            bounds = bounds.groupby(rows["event"]).agg(reduction)
        found[case] = bounds.to_numpy(float).T
    return found


def _case_conditions(frame: pd.DataFrame) -> "pd.Series[str]":
    named = [name for name in frame if name not in COLUMNS and name not in BESIDE_VALUES]
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
    text = results.stored_file(run, str(baselines_path(Path(described))))
    if text is None:
        return DEFAULT_RULES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, baselines_path(Path(described)).name)
        path.write_bytes(text)
        return load_baselines(path, names_in_files())


def _measured(
    results: Results, run: RunFacts, testbed: str, quantity: str
) -> Mapping[Case, Samples]:
    """Return the samples of one run on one testbed."""
    found = results.frame(run=run.run, night=run.night, testbed=testbed, quantity=quantity)
    return _samples(found)


def _nights_before(
    results: Results, run: RunFacts, testbed: str, quantity: str, most: int
) -> list[Mapping[Case, Samples]]:
    """Return the samples of the nights before `run`, the oldest first.

    Some nights measured less than others, so half as many again as the `most` that a rule looks
    at are read.
    """
    found = results.frames_before(run.night, most * 3 // 2, testbed, quantity)
    return [_joined(map(_samples, frames)) for frames in found.values()]


def _joined(runs: Iterable[Mapping[Case, Samples]]) -> Mapping[Case, Samples]:
    night: dict[Case, Samples] = {}
    for run in runs:
        for case, samples in run.items():
            night[case] = np.hstack([night[case], samples]) if case in night else samples
    return night
