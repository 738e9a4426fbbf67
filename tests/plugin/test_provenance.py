"""Rows are simulated wherever any part of the bench was."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.run import context_of


def bench(simulated: set[str], *, virtual: bool = False) -> Any:
    names = ("ocs", "server0", "server1")
    return SimpleNamespace(
        testbed=SimpleNamespace(name="lab"),
        switches={"ocs": None},
        servers=dict.fromkeys(("server0", "server1")),
        instruments={},
        simulated=frozenset(simulated),
        identities={name: name for name in names},
        participants=lambda: names,
        clock=SimpleNamespace(virtual=virtual),
    )


@pytest.mark.parametrize(
    ("simulated", "expected"),
    [
        (set(), False),
        ({"server1"}, True),
        ({"ocs"}, True),
        ({"server0", "server1"}, True),
        ({"ocs", "server0", "server1"}, True),
    ],
)
def test_a_bench_with_a_simulated_part_is_recorded_as_simulated(
    simulated: set[str], expected: bool
) -> None:
    context = context_of(bench(simulated), "test_x", {"before": "one"})
    assert context.simulated is expected
    assert context.conditions == {"before": "one", "clock": "system"}
    assert context.instruments == ("ocs", "server0", "server1")
