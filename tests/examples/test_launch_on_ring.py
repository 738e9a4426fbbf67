"""The launcher that follows an orchestrator: whose light is lost, and a job that goes on."""

from pathlib import Path

import pytest

from examples.launch_on_ring import unseen
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Link, Port
from tests.campaigns import interruptions
from tests.campaigns.wire_sequences import LOGIN

RING = [
    Link(Port("a", "nic0.p1"), Port("b", "nic0.p0")),
    Link(Port("b", "nic0.p1"), Port("c", "nic0.p0")),
    Link(Port("c", "nic0.p1"), Port("d", "nic0.p0")),
    Link(Port("a", "nic0.p0"), Port("d", "nic0.p1")),
]


@pytest.mark.parametrize(
    ("dark", "lost"),
    [
        ("", set()),
        ("a.nic0.p1 c.nic0.p0", {"b"}),
        ("a.nic0.p1", set()),  # c sees b: the fault is on the way to a
        ("a.nic0.p1 c.nic0.p0 b.nic0.p1 d.nic0.p0", {"b", "c"}),
    ],
)
def test_a_server_is_lost_whose_light_reaches_no_neighbour(dark: str, lost: set[str]) -> None:
    assert unseen(RING, {Port(*port.split(".", 1)) for port in dark.split()}) == lost


@pytest.mark.long
@pytest.mark.parametrize(
    ("testbed", "node", "order"),
    [
        ("railx5", "node2-0", ["node0-0", "node1-0", "node3-0", "node4-0"]),
        ("acos_rings", "gpu2", ["gpu0", "gpu1", "gpu3", "gpu4"]),
    ],
)
def test_a_job_goes_on_without_a_server_that_loses_its_light(
    testbed: str, node: str, order: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `python -m tests.campaigns interruptions` 20 times on each testbed."""
    if reason := kernel.available():
        pytest.skip(reason)
    for name in ("LIGHTRIG_STATE", LOGIN):
        monkeypatch.setenv(name, "")  # restored afterwards
    with interruptions.trial(testbed, tmp_path) as made:
        found = made.cut(node)
    assert made.wrong == 0
    assert found["order"] == order
    parts = found["before"] + sum(found["parts"].values())
    assert parts == pytest.approx(found["interruption"])
