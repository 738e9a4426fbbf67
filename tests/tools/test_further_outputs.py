"""Further published outputs, against values that were read by eye and stored before any was parsed.

Selection: public threads found with one search per tool, in the order found, none that the tests or
samples had used; at least eight of the repositories had not been used either. As in
`test_public_outputs.py`, each is typed anew as an excerpt of its facts. First run: 20 right, 3
refused, 0 wrong.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lightrig.instruments.servers.tools.module import Alarm
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.recognition import read

FILE = Path(__file__).with_name("further_outputs.txt")
G = 10**9

EXPECTED: dict[str, dict[str, Any]] = {
    "netutils": {
        "rx_in_range_errors": 1430,
        "rx_tcp_checksum_errs": 1167054962,
        "be_on_die_temperature": 54,
        "rxq0: rx_bytes": 176801830924270,
        "rxq0: rx_pkts": 388868824555,
    },
    "rccl_polling": {
        "0.device": "mlx5_7",
        "0.port": 1,
        "0.state": "DOWN",
        "0.lid": 3403,
        "0.netdev": None,
        "0.up": False,
    },
    "rccl_up": {"0.state": "ACTIVE", "0.lid": 3403, "0.up": True},
    "rccl_labels": {
        "rows.0.size": 65536,
        "rows.0.count": 512,
        "rows.0.out_of_place.time_us.value": 107.5,
        "rows.3.in_place.bus_gbytes.value": 0.75,
    },
    "spark": {
        "collective": "all_reduce",
        "ranks": 2,
        "rows.0.size": 8192,
        "rows.0.out_of_place.time_us.value": 35.15,
        "rows.0.in_place.bus_gbytes.value": 0.27,
        "rows.3.size": 65536,
        "rows.3.out_of_place.algorithm_gbytes.value": 0.96,
        "rows.3.in_place.time_us.value": 64.71,
        "rows.3.in_place.wrong": 0,
    },
    "k8s_tester": {
        "rows.0.size": 8,
        "rows.0.out_of_place.time_us.value": 12.90,
        "rows.2.in_place.time_us.value": 13.34,
    },
    "deepep": {"rows.0.size": 4, "rows.2.in_place.time_us.value": 12.51},
    "ompi_cuda": {
        "title": "OSU MPI-CUDA Reduce Latency Test",
        "version": "7.3",
        "rows.0.size": 1,
        "rows.0.values.Avg Latency(us)": 53.34,
        "rows.3.size": 8,
        "rows.3.values.Max Latency(us)": 128.73,
    },
    "telegraf": {
        "thresholds.tx_bias.high_alarm": 13.0,
        "thresholds.tx_bias.low_warning": 5.0,
        "thresholds.tx_power.high_alarm": 0.0,
        "thresholds.temperature.low_alarm": -13.0,
    },
    "opnsense": {
        "identifier": 3,
        "form": "SFP",
        "connector": "LC",
        "compliance": ("10G Ethernet: 10G Base-SR",),
        "lanes": (),
    },
    "mt76_module": {"form": "SFP", "connector": "LC", "compliance.0": "Ethernet: BASE-BX10"},
    "mt76_counters": {
        "tx_bytes": 32166,
        "rx_fcs_errors": 0,
        "rx_pp_recycle_released_ref": 1868090,
    },
    "lshca": {
        "link.up": True,
        "link.physical_state": "LinkUp",
        "link.width": 4,
        "link.auto_negotiation": "ON",
        "module": None,
    },
    "ethq_mlx5_driver": {
        "driver": "mlx5_core",
        "version": "5.0-0",
        "firmware": "14.23.1020 (MT_2420110034)",
        "bus": "0000:af:00.0",
        "of_mellanox": True,
    },
    "ethq_mlx5_counters": {
        "rx_bytes": 2195783498134,
        "tx_tso_packets": 56041559,
        "tx_csum_partial": 726606998,
    },
    "ethq_dpaa2_driver": {"driver": "fsl_dpaa2_eth", "firmware": "7.17", "bus": "dprc.1"},
    "ethq_dpaa2_counters": {
        "[hw] rx frames": 92343581,
        "[drv] tx converted sg frames": 4803265,
    },
    "ethq_bnx2x": {"[0]: rx_bytes": 209487403324, "[1]: rx_ucast_packets": 170492982},
    "netdata_queues": {"rx_queue_0_bytes": 12909598, "rx_queue_3_packets": 156304},
    "lan25": {
        "netdev": "lan25",
        "speed_bps": G,
        "duplex": "half",
        "port": "Twisted Pair",
        "auto_negotiation": True,
        "detected": True,
    },
    "3fs_pair": {"0.netdev": "p1p1", "1.device": "mlx5_1", "1.netdev": "p1p2", "1.up": True},
    "avago": {
        "identifier": 0x0D,
        "connector": "MPO Parallel Optic",
        "compliance": ("SAS 6.0G", "SAS 3.0G"),
        "wavelength_nm": 850,
        "temperature_c": 40.91,
        "voltage_v": 3.2848,
        "rx_power_is": "average",
        "lanes.0.tx_bias_ma": 6.634,
        "lanes.3.tx_bias_ma": 0,
        "lanes.0.rx_los": False,
        "lanes.1.tx_power_dbm": -math.inf,
        "lanes_in_use.0.number": 1,
        "alarms_reported": False,
    },
    "transition": {
        "wavelength_nm": 1310,
        "part": "TN-SFP-10G-LR",
        "lanes.0.tx_bias_ma": 32.066,
        "lanes.0.rx_power_dbm": -math.inf,
        "alarms": frozenset(
            {Alarm("rx_power", "low_alarm", 1), Alarm("rx_power", "low_warning", 1)}
        ),
        "temperature_c": 41.05,
        "voltage_v": 3.2768,
    },
}
"""Values by path, as a person reads them in the output."""

REFUSED = {
    "deepep": "the table's first head is cut off",
    "telegraf": "thresholds alone, without the module that they are of",
    "lshca": "the document's end, with its status, is cut off",
}
"""Outputs for which an error is right: what they lack must not be guessed."""


def outputs() -> dict[str, str]:
    found = re.split(r"^%% (\w+) \|.*\n", FILE.read_text(), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def at(value: Any, path: str) -> Any:
    """Return the part of `value` at a path of keys, indices and attributes."""
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value[part]
        elif part.isdigit():
            value = value[int(part)]
        else:
            value = getattr(value, part)
    return value


def test_every_output_has_expected_values_and_a_source() -> None:
    assert outputs().keys() == EXPECTED.keys()
    assert len(EXPECTED) >= 20
    heads = re.findall(r"^%% \w+ \| (\S+/\S+), ", FILE.read_text(), re.MULTILINE)
    before = Path(__file__).with_name("public_outputs.txt").read_text()
    assert len({source for source in heads if source not in before}) >= 8


@pytest.mark.parametrize("name", EXPECTED)
def test_published_outputs_are_read_as_by_eye(name: str) -> None:
    if name in REFUSED:
        with pytest.raises(ToolOutputError):
            read(outputs()[name])
        return
    value = read(outputs()[name]).value
    for path, expected in EXPECTED[name].items():
        found = at(value, path)
        assert found == (pytest.approx(expected) if isinstance(expected, float) else expected), path
