"""From the data set to series: what belongs together, and the numbers of each night."""

import datetime
import random

import numpy as np
import pytest
from planted_nights import CASE, FIRST, Grown, write_nights_of

from lightrig.harness.record import Context, Journal, RecordError, Row, settle
from lightrig.harness.report.nights import write_nights
from lightrig.harness.statistics.quantiles import NotEnough, quantile


def measured(
    root,
    *rows,
    night="2026-03-14",
    run="r1",
    simulated=True,
    testbed="bench",
    test="test_it",
    **held,
):
    """One run of `rows` through the journal itself, as (subject, value, lower, upper, more)."""
    context = Context(testbed, test, ("ocs: x",), simulated, held)
    path = root / "runs" / run / "journal.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Journal(path, {"run": run, "night": night}) as journal:
        journal.append_many(
            context,
            [
                Row(subject, "q", value, lower, upper, unit, number, more)
                for number, (subject, value, lower, upper, unit, more) in enumerate(rows)
            ],
        )
    settle(path.parent)


def in_db(subject, value, **more):
    return subject, value, value - 0.1, value + 0.1, "dB", more


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 20, 298, 299, 300])
def test_a_night_s_numbers_are_those_of_the_statistics(tmp_path, history_of, n):
    draw = random.Random(n)
    rows = []
    for event in range(n):
        low = draw.uniform(1, 2)
        high = low + draw.random() / 3
        rows.append(("a", (low + high) / 2, low, high, "dB", {"event": event}))
    measured(tmp_path, *rows)
    (series,) = history_of(tmp_path).labs[0].series
    low, high = zip(*((row[2], row[3]) for row in rows), strict=True)
    median, p99 = quantile(low, high, 0.5), quantile(low, high, 0.99, sides="upper")
    assert series.n[0] == n
    if isinstance(median, NotEnough):
        assert series.lower[0] == min(low)
        assert series.upper[0] == max(high)
    else:
        assert (series.median[0], series.lower[0], series.upper[0]) == pytest.approx(
            (median.value, median.lower, median.upper), rel=1e-12
        )
    if isinstance(p99, NotEnough):
        assert np.isnan(series.p99[0])
        assert np.isnan(series.p99_upper[0])
    else:
        assert series.p99[0] == pytest.approx(p99.value, rel=1e-12)
        assert series.p99_upper[0] == p99.upper


def test_an_unbounded_sample_has_a_level_without_a_bound(tmp_path, history_of):
    measured(tmp_path, *(("a", 5, None, None, "ns", {"event": event}) for event in range(8)))
    (series,) = history_of(tmp_path).labs[0].series
    assert (series.lower[0], series.upper[0], series.level[0]) == (0, np.inf, 5)


def test_the_bounds_of_a_value_without_bounds_are_the_value(tmp_path, history_of):
    measured(tmp_path, *(("a", 5.0, None, None, "dB", {"event": event}) for event in range(8)))
    (series,) = history_of(tmp_path).labs[0].series
    assert (series.lower[0], series.median[0], series.upper[0]) == (5, 5, 5)


def test_hardware_and_simulated_are_never_one_series(tmp_path, history_of):
    measured(tmp_path, in_db("a", 1.0), run="r1")
    measured(tmp_path, in_db("a", 2.0), run="r2", simulated=False)
    labs = history_of(tmp_path).labs
    assert {(lab.simulated, lab.series[0].median[0]) for lab in labs} == {(True, 1.0), (False, 2.0)}
    assert [lab.runs for lab in labs] == [(("r2",),), (("r1",),)]


def test_a_suite_that_has_moved_goes_on_as_one_series(tmp_path, history_of):
    former, present = "suites/test_rdma.py::test_it", "suites/jobs/test_rdma.py::test_it"
    measured(tmp_path, in_db("a", 1.0), night="2026-03-12", run="r1", test=former)
    measured(tmp_path, in_db("a", 2.0), night="2026-03-14", run="r2", test=present)
    measured(tmp_path, in_db("a", 9.0), night="2026-03-14", run="r3", test=f"mine/{former}")
    (lab,) = history_of(tmp_path).labs
    found = sorted([value for value in one.median if not np.isnan(value)] for one in lab.series)
    assert found == [[1.0, 2.0], [9.0]]


def test_each_subject_and_case_is_a_series(tmp_path, history_of):
    measured(tmp_path, in_db("a", 1.0), in_db("b", 2.0), moving=4)
    measured(tmp_path, in_db("a", 3.0), run="r2", moving=8)
    (lab,) = history_of(tmp_path).labs
    found = [(one.subject, one.case, one.median[0]) for one in lab.series]
    assert found == [
        ("a", "it: moving 4", 1.0),
        ("a", "it: moving 8", 3.0),
        ("b", "it: moving 4", 2.0),
    ]


def test_counters_and_what_was_measured_beside_are_no_case(tmp_path, history_of):
    rows = [in_db("a", 1.0, event=0, temperature=23.4), in_db("a", 2.0, event=1, temperature=24.0)]
    measured(tmp_path, *rows)
    (series,) = history_of(tmp_path).labs[0].series
    assert series.n[0] == 2


def test_error_counts_of_two_nights_are_one_series(tmp_path, history_of):
    """Bits, gates and errors differ from gate to gate; the moment was chosen."""
    counts = {"bits": 3_000_219_004_400, "gate_ns": 30_004_452_787, "errors": 7, "moment": "after"}
    measured(tmp_path, in_db("a", 1.0, **counts))
    counts |= {"bits": 3_000_219_345_700, "gate_ns": 30_004_455_698, "errors": 9}
    measured(tmp_path, in_db("a", 2.0, **counts), run="r2", night="2026-03-15")
    measured(tmp_path, in_db("a", 3.0, **counts | {"moment": "before"}), run="r3")
    found = [(one.case, one.n.tolist()) for one in history_of(tmp_path).labs[0].series]
    assert found == [("it: moment after", [1, 1]), ("it: moment before", [1, 0])]


def test_nights_without_data_keep_their_place(tmp_path, history_of):
    measured(tmp_path, in_db("a", 1.0), night="2026-03-14", run="r1")
    measured(tmp_path, in_db("a", 2.0), night="2026-03-17", run="r2")
    history = history_of(tmp_path)
    assert [night.date for night in history.axis] == [f"2026-03-{day}" for day in range(14, 18)]
    (series,) = history.labs[0].series
    np.testing.assert_array_equal(series.median, [1, np.nan, np.nan, 2])
    assert history.labs[0].runs == (("r1",), (), (), ("r2",))


def test_only_the_last_nights_are_read(tmp_path, history_of):
    one = Grown("q", "a", 1.0, 0.1, 0.1, "dB", 6, conditions=CASE)
    write_nights_of(tmp_path, "bench", [one], nights=12)
    history = history_of(tmp_path, last=5)
    assert [night.day for night in history.axis] == [
        FIRST + datetime.timedelta(n) for n in range(7, 12)
    ]


def test_names_that_a_path_cannot_hold(tmp_path, history_of):
    measured(tmp_path, in_db("a", 1.0), testbed="42")
    measured(tmp_path, in_db("a", 1.0), run="r2", testbed="rack 7/ä='")
    assert {lab.testbed for lab in history_of(tmp_path).labs} == {"42", "rack 7/ä='"}


def test_without_rows_there_are_no_nights(tmp_path):
    with pytest.raises(RecordError, match="no run has left a row"):
        write_nights(tmp_path, tmp_path / "nights.html")


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    measured(tmp_path, in_db("a", 1.0))
    bad = tmp_path / "rows" / "testbed=bench" / "night=2026-03-14" / "bad.parquet"
    bad.write_bytes(b"PAR1 not at all PAR1")
    with pytest.raises(RecordError, match=r"bad\.parquet"):
        write_nights(tmp_path, tmp_path / "nights.html")


def test_testbeds_that_are_read_in_parts_give_the_same_series(tmp_path, history_of, monkeypatch):
    for number, testbed in enumerate(("a", "it's b", "c")):
        row = in_db("server0", 1.5 + number)
        measured(tmp_path, row, run=f"r{number}", testbed=testbed)

    def levels():
        return [(lab.testbed, lab.series[0].level.tolist()) for lab in history_of(tmp_path).labs]

    together = levels()
    monkeypatch.setattr("lightrig.harness.report.nights.series._ROWS_AT_ONCE", 1)
    assert levels() == together
    assert [testbed for testbed, _ in together] == ["a", "c", "it's b"]
