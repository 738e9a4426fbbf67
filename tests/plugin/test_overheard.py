"""Which testbeds' links cannot be observed by datagrams."""

import pytest

from harness.plugin.collection import _overheard
from testbeds import load


@pytest.mark.parametrize(("name", "eps"), [("mixnet8", True), ("mixnet", False), ("rings4", False)])
def test_ports_at_a_bridge_of_the_kernel_hear_all_others(name: str, eps: bool) -> None:
    why = _overheard(load(f"testbeds/{name}.yaml"))
    assert (why is not None) == eps
    assert why is None or why.startswith("testbed mixnet8: every port at eps")
