"""A test pattern needs the RDMA device of a NIC port: where none is stated it is inapplicable."""

from pathlib import Path

from lightrig.suites.test_bit_error import test_of_nic_ports_by_pattern as pattern_test
from lightrig.testbeds import load

TESTBEDS = Path(__file__).parents[2] / "testbeds"


def test_ports_without_rdma_deselect_the_test_by_name(tmp_path):
    (mark,) = pattern_test.pytestmark
    lacks = mark.kwargs["lacks"]
    assert lacks(load(TESTBEDS / "rings4.yaml")).startswith("no `rdma:` device of server0.")
    assert lacks(load(TESTBEDS / "mixnet.yaml")) == ""
