"""Which testbeds' links cannot be observed by datagrams."""

import pytest

from lightrig.harness.plugin.collection import _overheard
from lightrig.testbeds import load


@pytest.mark.parametrize(("name", "eps"), [("mixnet8", True), ("mixnet", False), ("rings4", False)])
def test_ports_at_a_bridge_of_the_kernel_hear_all_others(name: str, eps: bool) -> None:
    why = _overheard(load(f"testbeds/{name}.yaml"))
    assert bool(why) == eps
    assert not why or why.startswith("every port at eps")
