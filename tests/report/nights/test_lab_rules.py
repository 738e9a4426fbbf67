"""Rules of a lab's baselines file, asked of the judge of the page and of the command."""

from pathlib import Path

import numpy as np
import pytest

from lightrig.harness.report.nights.last_night_departures import (
    LastNightJudge,
    find_series_departures,
)
from lightrig.harness.report.nights.series import Lab, NightSeries
from lightrig.harness.statistics.bit_errors import error_ratio
from lightrig.testbeds.baselines import Baselines, Guard, Rule, baselines_path, load_baselines

HOME = Path(__file__).parents[3] / "testbeds"
LEVELS = (44.5, 43.9, 45.1, 44.2, 44.9, 44.0, 51.5)
"""In ms; the last one has p = 1.05e-4 by scipy's t distribution of 5 degrees of the logarithms."""
STILL = (3.0, 3.1, 2.9, 3.05, 3.02, 2.98, 3.01)


def series(levels, quantity="acknowledged", subject="ocs", half=0.0, n=30, unit="ms"):
    level = np.array(levels, float)
    none = np.full(level.shape, np.nan)
    counts = np.where(np.isfinite(level), n, 0)
    ends = {"lower": level - half, "upper": level + half, "p99": none, "p99_upper": none}
    ends["sampling"] = ends["upper"] - ends["lower"]
    return NightSeries(
        *(quantity, subject, "t", subject, unit, counts),
        **{"median": level, "level": level, "greatest": level, **ends},
    )


def lab(*several, name="bench"):
    return Lab(name, True, tuple(several), (("run",),) * several[0].level.size)


def stated(rule=None, error=None, correction="bonferroni"):
    return Baselines(Path(), {} if rule is None else {rule.quantity: rule}, error, correction)


def words(rules, *several):
    (found,) = find_series_departures([lab(*several)], {} if rules is None else {"bench": rules})
    return [(one.series.subject, one.word) for one in found]


DEPARTED = [("ocs", "departed, unconfirmed")]


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (None, DEPARTED),
        (Rule("acknowledged", error=1e-4), []),
        (Rule("acknowledged", error=1.1e-4), DEPARTED),
        (Rule("acknowledged", direction="up"), DEPARTED),
        (Rule("acknowledged", direction="down"), []),
        # The 95 % interval of the change is 1.12 ... 1.20, or 5.4 to 9.0 ms.
        (Rule("acknowledged", detect=1.19), DEPARTED),
        (Rule("acknowledged", detect=1.22), []),
        (Rule("acknowledged", detect=8.0, effect="difference"), DEPARTED),
        (Rule("acknowledged", detect=9.5, effect="difference"), []),
        (Rule("acknowledged", minimum=30), DEPARTED),
        (Rule("acknowledged", minimum=31), []),
        (Rule("*", error=1e-4), []),
        (Rule("outage", error=1e-4), DEPARTED),
        (Rule("reconfiguration.acknowledged", detect=1.22), []),
        (Rule("reconfiguration.*", detect=1.22), []),
        (Rule("reconfiguration.*", guard=Guard(50.0, None, "ns")), DEPARTED),
    ],
    ids=str,
)
def test_a_rule_makes_a_departure_one_or_none(rule, found):
    assert words(stated(rule), series(LEVELS)) == found


def test_the_stated_error_is_shared_among_the_series_of_its_testbed():
    """p = 1.05e-4: below 1 % / 80, above 1 % / 110, and below 5 % / 110."""
    few = [series(STILL, quantity=f"old{n}") for n in range(79)]
    many = [series(STILL, quantity=f"old{n}") for n in range(109)]
    assert words(None, series(LEVELS), *few) == DEPARTED
    assert words(None, series(LEVELS), *many) == []
    assert words(stated(error=0.05), series(LEVELS), *many) == DEPARTED
    assert words(stated(error=0.01), series(LEVELS), *many) == []
    assert words(stated(correction="none"), series(LEVELS), *many) == DEPARTED


def test_testbeds_share_the_error_of_a_page_unless_their_files_state_it():
    """Of two testbeds each has half: 60 series at 0.5 % are as 120 at 1 %."""
    others = [series(STILL, quantity=f"old{n}") for n in range(59)]
    two = [lab(series(LEVELS), *others), lab(series(STILL), name="far")]
    mine, far = find_series_departures(two)
    assert (mine, far) == ([], [])
    (one,), _ = find_series_departures(two, {"bench": stated(error=0.01)})
    assert one.word == "departed, unconfirmed"
    alone = find_series_departures(two[:1])
    assert len(alone[0]) == 1


def test_only_as_many_nights_are_looked_at_as_the_rule_states():
    """Twelve nights long ago lay far apart: without them a night by a tenth departs."""
    apart = (30.0, 60.0, 35.0, 55.0, 30.0, 62.0, 33.0, 58.0, 31.0, 57.0, 30.0, 44.0)
    assert words(None, series((*apart, *LEVELS))) == []
    assert words(stated(Rule("acknowledged", nights=5)), series((*apart, *LEVELS))) != []


@pytest.mark.parametrize(
    ("guard", "broken"),
    [
        (Guard(50.0, None, "ns"), True),
        (Guard(51.2, None, "ns"), False),  # the median may be 51.1
        (Guard(None, 52.0, "ns"), True),
        (Guard(None, 51.8, "ns"), False),
    ],
)
def test_a_guard_needs_no_other_night_and_counts_what_observers_cannot_tell(guard, broken):
    rules = stated(Rule("acknowledged", guard=guard))
    found = words(rules, series(LEVELS[-1:], half=0.4))
    assert found == ([("ocs", "guard broken")] if broken else [])


def gates(errors, bits=3 * 10**12):
    """Return level and half width of a night's gates with so many errors."""
    ratio = error_ratio(errors, bits)
    return (ratio.lower + ratio.upper) / 2, (ratio.upper - ratio.lower) / 2


@pytest.mark.parametrize(
    ("before", "tonight", "nights", "reason"),
    [
        (0, 0, 10, ""),
        (300, 30_000, 10, "more than 10 times"),
        (0, 200, 10, "more than 10 times"),
        (0, 1, 10, ""),
        (300, 340, 10, ""),
        (60_000, 60_000, 0, "above the guard of 1e-08"),
        (60_000, 60_000, 10, "above the guard of 1e-08"),
    ],
)
def test_bit_errors_have_a_ceiling_and_never_ten_times_what_was_usual(
    before, tonight, nights, reason
):
    rules = load_baselines(baselines_path(HOME / "infinitehbd.yaml"))
    levels, halves = zip(*[gates(before)] * nights, gates(tonight), strict=True)
    one = series(levels, "bit_error_ratio", half=np.array(halves), n=6, unit="1")
    ((*found,),) = find_series_departures([lab(one)], {"bench": rules})
    assert [each.word for each in found if each.guard] == (["guard broken"] if reason else [])
    assert reason in "".join(each.guard for each in found)


def test_what_is_declared_without_a_rule_is_compared_where_a_file_names_it():
    closure = series(STILL, "closure.carrier_up", unit="1")
    for rules, compared in (
        (None, 0),
        (stated(Rule("*")), 0),
        (stated(Rule("closure.carrier_up")), 1),
    ):
        judge = LastNightJudge([lab(closure)], rules, 1)
        assert len(list(judge.judged(lab(closure)))) == compared


def test_a_declared_direction_counts_and_its_samples_do_not():
    judge = LastNightJudge([lab(series(STILL))], None, 1)
    rule, _ = judge.rule("insertion_loss", "dB")
    assert (rule.direction, rule.minimum, rule.nights) == ("up", 1, 20)
    assert judge.rule("acknowledged", "ms") == (Rule(), True)
