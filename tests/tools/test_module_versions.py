"""What versions of tools print of one module differently, and what is read of each."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_hosts import MS, Pair, served, tools
from tool_samples import sample

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.jobs.tools import nccl_tests
from lightrig.instruments.servers.ports.nic import NicTools
from lightrig.instruments.servers.tools import ethtool_module, mlxlink
from lightrig.instruments.servers.tools.module import ALARMS_NOTE
from lightrig.instruments.servers.tools.output import ToolOutputError

IF = "ens1f0"


def servers(folder: Path, form: str, gigabits: int) -> Iterator[tuple[Pair, NicTools]]:
    """Two servers with light between them, and the tools of the first."""
    clock = VirtualClock(stall_timeout=20)
    pair = Pair(clock, rate_bps=gigabits * 10**9, module_json=form)
    with served(pair, folder) as made:
        pair.light(on=True)
        clock.sleep(40 * MS)
        yield pair, tools(made)[0]


def printed(pair: Pair, *arguments: str) -> str:
    return pair.hosts[0].programs["ethtool"]([*arguments, IF]).stdout


@pytest.mark.parametrize(("form", "key"), [("none", "Module State"), ("repeating", "Module state")])
def test_the_state_of_a_module_has_another_key_from_6_14_on(
    tmp_path: Path, form: str, key: str
) -> None:
    for pair, nic in servers(tmp_path, form, 400):
        text = printed(pair, "-m")
        assert key in text
        assert ethtool_module.parse(text).state == "ModuleReady"
        assert nic.module(IF).value.state == "ModuleReady"


def test_ethtool_6_14_prints_what_an_sfp_measures_as_text_behind_its_json(tmp_path: Path) -> None:
    """Source: netdev, J. Eigner, "sfpid: Fix JSON output of SFP diagnostics", 24 October 2025."""
    for pair, nic in servers(tmp_path, "repeating", 25):
        text = printed(pair, "--json", "-m")
        json, _, behind = text.partition("]\n")
        assert json.startswith("[ {")
        assert "Optical diagnostics support" in behind.splitlines()[0]
        assert "Receiver signal average optical power" in behind
        with pytest.raises(ToolOutputError):
            ethtool_module.parse(text)
        module = nic.module(IF).value
        assert module.lanes[0].rx_power_dbm == pytest.approx(10 * math.log10(0.5), abs=0.6)
        assert module.connector == "LC"


@pytest.mark.parametrize("form", ["none", "repeating", "renamed"])
@pytest.mark.parametrize(("gigabits", "doubtful"), [(100, False), (400, True)])
def test_alarms_of_the_lanes_of_a_cmis_module_are_marked(
    tmp_path: Path, form: str, gigabits: int, doubtful: bool
) -> None:
    for _, nic in servers(tmp_path, form, gigabits):
        assert nic.module(IF).value.alarms_note == (ALARMS_NOTE if doubtful else "")


def test_mlxlink_leaves_one_lane_out() -> None:
    text = sample("synthetic/mlxlink_report.txt")
    assert "1.25,1.5,-40,1.375" in text
    report = mlxlink.parse(text.replace("1.25,1.5,-40,1.375", "1.25,N/A,-40,1.375"))
    assert report.module is not None
    levels = [lane.rx_power_dbm for lane in report.module.lanes]
    assert levels == [1.25, None, -math.inf, 1.375]
    assert [lane.tx_power_dbm for lane in report.module.lanes] == [1.125, 1.25, 1.0, 1.5]


RCCL = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
rccl-tests: Version {version}
# Using devices
#  Rank  0 Group  0 Pid 657053 on node0 device  0 [0000:75:00] AMD Instinct MI350X
#  Rank  1 Group  0 Pid 657053 on node0 device  1 [0000:05:00] AMD Instinct MI350X
#
#                                                     out-of-place                       in-place
#  size  count   type  redop  root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#   (B)  (elements)                    (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
      8      2  float    sum    -1    58.63    0.00    0.00       0    49.68    0.00    0.00       0
# Errors with asterisks indicate errors that have exceeded the maximum threshold.
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.001
"""


@pytest.mark.parametrize(
    ("stated", "version"), [("develop:4f2c1a9", "develop:4f2c1a9"), ("Unknown", None)]
)
def test_rccl_tests_state_their_version_without_a_hash(stated: str, version: str | None) -> None:
    """In the form of ROCm's guide to rccl-tests."""
    run = nccl_tests.parse(RCCL.format(version=stated))
    assert run.version == version
    assert (run.ranks, run.rows[0].out_of_place.time_us.value) == (2, 58.63)
