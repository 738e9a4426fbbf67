"""The doctor judges nothing of a port that is out of service, and says that it is out."""

import datetime

import pytest
from measure.test_links_left_out import DEAD, DEAD_PORT

from lightrig.harness.doctor import examine
from lightrig.testbeds import load
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import change_exceptions
from lightrig.testbeds.out_of_service import with_exceptions


@pytest.fixture
def examined(tmp_path):
    def examined(until=None):
        path = tmp_path / "three.yaml"
        path.write_text(DEAD, encoding="utf-8")
        what = str(DEAD_PORT)
        if until:
            entry = Entry(what, "LAB-123", datetime.date.fromisoformat(until))
            change_exceptions(load(path), "out", add={what: entry})
        return examine(with_exceptions(load(path)), simulated=True)

    return examined


def test_a_port_that_is_out_is_not_judged(examined):
    assert [str(DEAD_PORT) in one.subject for one in examined().problems].count(True) > 0
    found = examined("2999-12-31")
    assert found.problems == []
    assert "plan first: 4 of 6 ports; out: server1.nic0.p0" in [one.text for one in found.found]
    assert not any(one.subject == str(DEAD_PORT) for one in found.found)


def test_a_date_that_has_passed_is_a_problem(examined):
    (problem,) = examined("2020-02-29").problems
    assert problem.subject == str(DEAD_PORT)
    assert "until 2020-02-29" in problem.text
