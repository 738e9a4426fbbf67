"""A NIC that gets a second port: its first port goes on as the same, by its new name."""

import pytest
from planted_nights import Grown, write_nights_of

from lightrig.harness.record import Results
from lightrig.harness.report.comparison import compare
from lightrig.harness.report.nights.series import read
from lightrig.harness.report.nights.source import Source
from lightrig.testbeds.plans import is_about, without_first_port


def grown(subject, seed_level=3e9):
    return Grown("carrier_up", subject, seed_level, 2e7, 8e7, "ns")


def write(root, before, after, change=7):
    """Write 12 nights; from night `change` on the series are called otherwise."""
    early = [grown(one) for one in before]
    late = [grown(one, 3.5e9) for one in after]
    runs = write_nights_of(root, "bench", early, nights=12, missing=range(change, 12))
    return runs | write_nights_of(root, "bench", late, nights=12, missing=range(change), seed=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("server0.nic0", "server0.nic0.p0"),
        ("server0.nic0.p0", "server0.nic0"),
        ("server0.nic0 > server1.nic0", "server0.nic0.p0 > server1.nic0"),
        ("server0.nic0.lane2", "server0.nic0.p0.lane2"),
    ],
)
def test_a_series_goes_on_by_the_later_name(tmp_path, before, after):
    write(tmp_path, [before, "server9.nic1"], [after, "server9.nic1", "server0.nic0.p1"])
    (lab,) = read(Source(Results(tmp_path).place)).labs
    nights = {one.subject: list(one.n > 0) for one in lab.series if one.statistic == "median"}
    assert nights == {
        after: [True] * 12,
        "server9.nic1": [True] * 12,
        "server0.nic0.p1": [False] * 7 + [True] * 5,
    }
    (joined,) = [s for s in lab.series if s.subject == after and s.statistic == "median"]
    assert (joined.level[:7] < 3.3e9).all()
    assert (joined.level[7:] > 3.3e9).all()


def test_subjects_that_one_night_has_both_are_two(tmp_path):
    """Such as a NIC and its first port."""
    write(tmp_path, ["server0.nic0", "server0.nic0.p0"], ["server0.nic0.p0"])
    (lab,) = read(Source(Results(tmp_path).place)).labs
    assert {one.subject for one in lab.series} == {"server0.nic0", "server0.nic0.p0"}


def test_runs_are_compared_over_the_change(tmp_path):
    runs = write(tmp_path, ["server0.nic0"], ["server0.nic0.p0", "server0.nic0.p1"])
    found = compare(Results(tmp_path), runs[6], runs[11])
    (one,) = [each for each in found if each.case.statistic == "median"]
    assert one.case.subject == "server0.nic0.p0"
    assert one.before.value == pytest.approx(3e9, rel=0.05)
    assert one.after.value == pytest.approx(3.5e9, rel=0.05)


@pytest.mark.parametrize(
    ("subject", "part", "about"),
    [
        ("server0.nic0", "server0.nic0.p0", True),
        ("server0.nic0.lane1", "server0.nic0.p0", True),
        ("server0.nic0 > server1.nic0", "server1.nic0.p0", True),
        ("server0.nic0.p0", "server0.nic0", True),
        ("server0.nic0.p1", "server0.nic0.p0", False),
        ("server0.nic01", "server0.nic0.p0", False),
        ("server0.nic0.p1.lane0", "server0.nic0.p0", False),
        ("server0.nic0.p01", "server0.nic0.p0", False),
        ("ocs 3>19", "server0.nic0.p0", False),
    ],
)
def test_what_rows_are_about_does_not_depend_on_the_name(subject, part, about):
    assert is_about(subject, part) is about


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("server0.nic0.p0", "server0.nic0"),
        ("a.nic0.p0 > b.nic1.p0, straight", "a.nic0 > b.nic1, straight"),
        ("a.nic0.p0.lane3", "a.nic0.lane3"),
        ("a.nic0.p01", "a.nic0.p01"),
        ("a.p0", "a.p0"),
        ("ocs 3>19", "ocs 3>19"),
    ],
)
def test_the_first_port_has_the_name_of_its_nic(subject, name):
    assert without_first_port(subject) == name
