"""A ring whose link is broken is told by the link's ports, before anything is measured on it."""

from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation, LinksDownError
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import load

RINGS = Path("testbeds/rings4.yaml")
DARK = "\n  faults:\n    - {fault: dark laser, at: [server2.nic0.p1]}\n"


@pytest.mark.long
def test_a_dark_fiber_in_a_ring_is_named(tmp_path: Path) -> None:
    if reason := kernel.available():
        pytest.skip(reason)
    file = tmp_path / "rings4.yaml"
    file.write_text(RINGS.read_text().rstrip() + DARK)
    testbed = load(file)
    bench = bind(testbed, "simulated", 1)
    try:
        links = LinkObservation(bench)
        with pytest.raises(LinksDownError) as down:
            bring_up(Fabric(bench), links, testbed.plans["ring"], timeout=1_000_000_000)
        links.pause()
    finally:
        bench.close()
    said = str(down.value)
    assert "server3.nic0.p0 (carrier)" in said
    assert "server2.nic0.p1 (datagram)" in said
    assert "server0" not in said
    assert "server1" not in said
