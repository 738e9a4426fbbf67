"""Rows of a quantity's former name are read under the present one: journal, data set, SQL."""

from dataclasses import replace

from record.recorded import begin, context

from lightrig.harness.record import Results, Row, read_journal, settle
from lightrig.harness.record.earlier_nights import values_before
from lightrig.harness.report.comparison import compare


def recorded(tmp_path):
    journal = begin(tmp_path, "r1", "2026-03-14")
    names = ("reconfiguration.light_back", "reconfiguration.carrier_up", "jitter")
    journal.append_many(context(), [Row("opus", name, 1, 1, 1, "ns", 0) for name in names])
    journal.close()
    settle(journal.path.parent)
    return journal.path


PRESENT = ["jitter", "reconfiguration.carrier_up", "reconfiguration.signal_recovered"]


def test_a_journal_is_read_under_present_names(tmp_path):
    rows = read_journal(recorded(tmp_path)).rows()
    assert sorted(row.quantity for _, row in rows) == PRESENT


def test_a_frame_is_asked_for_and_filled_by_present_or_former_names(tmp_path):
    recorded(tmp_path)
    results = Results(tmp_path)
    assert sorted(results.frame()["quantity"]) == PRESENT
    for name in ("reconfiguration.signal_recovered", "reconfiguration.light_back", "*recovered"):
        assert list(results.frame(quantity=name)["quantity"]) == [PRESENT[2]], name
    assert len(results.frame(quantity="reconfiguration.*")) == 2


def test_sql_sees_present_names(tmp_path):
    recorded(tmp_path)
    found = Results(tmp_path).query("SELECT quantity FROM rows ORDER BY ALL")
    assert list(found["quantity"]) == PRESENT


# A lab's history of a suite that has moved to a pack's folder goes on under its present path.
FORMER = "suites/test_rdma.py::test_latency[lab/a::b]"
MOVED = "suites/jobs/test_rdma.py::test_latency[lab/a::b]"
OTHERS = ["mine/suites/test_rdma.py::test_latency", "suites/test_rdma_more.py::test_latency"]


def store_rdma(results, run, night, test, value):
    journal = begin(results, run, night)
    of = replace(context(), test=test)
    journal.append_many(of, [Row("a>b", "rdma.latency", value, value, value, "ns", 0)])
    journal.close()
    settle(journal.path.parent)
    return journal.path.parent


def test_earlier_nights_of_a_suite_that_has_moved_are_its_own(tmp_path):
    store_rdma(tmp_path, "r1", "2026-03-11", FORMER, 900.0)
    store_rdma(tmp_path, "r2", "2026-03-12", OTHERS[0], 800.0)
    store_rdma(tmp_path, "r3", "2026-03-13", OTHERS[1], 700.0)
    last = store_rdma(tmp_path, "r4", "2026-03-14", MOVED, 950.0)
    results = Results(tmp_path)
    assert list(results.frame()["test"]) == [MOVED, *OTHERS, MOVED]
    found = results.query("SELECT test, value FROM rows ORDER BY value DESC")
    assert list(found["test"]) == [MOVED, MOVED, *OTHERS]
    now = replace(context(), test=MOVED)
    assert values_before(last, "2026-03-14", now, "rdma.latency") == [{"a>b": 900.0}]
    (compared,) = compare(results, "r1", "r4")
    assert compared.case.test == MOVED
