"""Rows of a quantity's former name are read under the present one: journal, data set, SQL."""

from record.recorded import begin, context

from lightrig.harness.record import Results, Row, read_journal, settle


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
