"""The light of a simulated fiber by wavelength: a monitor sums, a receiver sees its own lanes.

Centers: IEEE 802.3 table 88-5 (1295.56, 1300.05, 1304.58, 1309.14 nm) and the CWDM4 MSA (1271,
1291, 1311, 1331 nm, each 13 nm wide).
"""

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import bind
from lightrig.testbeds import Circuit, load

LAB = """
name: colors
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 4x4, options: {{monitors: both}}}}
servers:
  server0:
    address: ssh://bench@server0.invalid
    nics: {{nic0: {{netdev: e0, rate: {rate}, transceiver: one}}}}
  server1:
    address: ssh://bench@server1.invalid
    nics: {{nic0: {{netdev: e0, rate: {rate}, transceiver: other}}}}
transceivers:
  one: {{pmd: {one}}}
  other: {{pmd: {other}}}
fibers:
  - server[0-1].nic0 <-> ocs
overrides: {{receiver_damage: PMDs of two kinds meet here}}
simulation:
  connectors: {{mean: 0 dB, sd: 0 dB}}
  nic: {{bring_up: {{mean: 1 s, sd: 0.1 s}}}}
"""
_SCATTER_DB = 0.6
"""Modules and monitors read to less than this; a quarter of the light is 6 dB."""


def linked(folder: Path, one: str, other: str, rate: str) -> tuple[float, list[float], bool]:
    """Return the power that a monitor reads of `one`, what `other` receives, and its carrier."""
    path = folder / "colors.yaml"
    path.write_text(LAB.format(one=one, other=other, rate=rate))
    with contextlib.closing(bind(load(path), "simulated", 1)) as bench:
        switch: Any = bench.switches["ocs"]
        switch.change(remove=[], add=[Circuit(1, 6), Circuit(2, 5)])
        bench.clock.sleep(5_000_000_000)
        leaves = switch.power([6]).dbm[6]
        server: Any = bench.servers["server1"]
        lanes = server.nic.module("e0").value.lanes
        got = [lane.rx_power_dbm for lane in lanes]
        return leaves, got, server.nic.device("e0").value.carrier


def db(share: float) -> float:
    return 10 * math.log10(share) if share else -math.inf


@pytest.mark.parametrize(
    ("one", "other", "rate", "shares", "up"),
    [
        ("100GBASE-LR4", "100GBASE-LR4", "100G", [0.25] * 4, True),
        ("100G-CWDM4", "100G-CWDM4", "100G", [0.25] * 4, True),
        ("400GBASE-LR8", "400GBASE-LR8", "400G", [0.125] * 8, True),
        ("400GBASE-DR4", "400GBASE-DR4", "400G", [1.0] * 4 + [0.0] * 4, True),
        ("400GBASE-FR4", "400GBASE-FR4", "400G", [0.25] * 4 + [0.0] * 4, True),
        # No center of CWDM4 lies in a band of LR4; of LR4, 1295.56 nm lies in that of 1291,
        # 1304.58 and 1309.14 nm in that of 1311, and 1300.05 nm between two.
        ("100G-CWDM4", "100GBASE-LR4", "100G", [0.0] * 4, False),
        ("100GBASE-LR4", "100G-CWDM4", "100G", [0.0, 0.25, 0.5, 0.0], False),
        # A receiver without filters sees all four wavelengths, and cannot read them.
        ("100GBASE-LR4", "100GBASE-DR", "100G", [1.0, 0.0, 0.0, 0.0], False),
    ],
)
def test_a_receiver_sees_its_own_wavelengths_of_the_sum(
    tmp_path: Path, one: str, other: str, rate: str, shares: list[float], up: bool
) -> None:
    leaves, got, carrier = linked(tmp_path, one, other, rate)
    assert len(got) == len(shares)
    for level, share in zip(got, shares, strict=True):
        if share:
            assert level == pytest.approx(leaves + db(share), abs=_SCATTER_DB)
        else:
            assert level == -math.inf
    assert carrier is up
