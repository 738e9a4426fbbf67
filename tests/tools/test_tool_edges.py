"""Where outputs of tools begin to contradict themselves: the last right number and the first wrong.

All numbers are made up by hand from the formulas of each tool's source.
"""

import json
import math
from typing import Any

import pytest

from lightrig.instruments.jobs.tools import nccl_results, nccl_tests, perftest
from lightrig.instruments.servers.tools import ethtool_module
from lightrig.instruments.servers.tools.module import (
    DARK_DBM,
    Alarm,
    dbm_of_milliwatt,
    lanes_of,
    plausible,
)
from lightrig.instruments.servers.tools.output import Printed, ToolOutputError, number

# ------------------------------------------------------------------------ printed numbers


def test_printed_numbers_agree_within_their_last_digits() -> None:
    assert number("1.25") == Printed(1.25, 0.005)
    assert number("-3e2") == Printed(-300.0, 50.0)
    assert number("7") == Printed(7.0, 0.5)
    assert Printed(10.0, 0.5).agrees(Printed(11.0, 0.5))
    assert not Printed(10.0, 0.5).agrees(Printed(11.1, 0.5))
    assert not Printed(-10.0, 0.5).agrees(Printed(10.0, 0.5))
    assert Printed(3.0, 0.5).times(-2) == Printed(-6.0, 1.0)
    # 6 ± 1 over 2 ± 0.5: at most 7 / 1.5, which is 3 and 5 / 3.
    assert Printed(6.0, 1.0).over(Printed(2.0, 0.5)) == Printed(3.0, (1.0 + 3.0 * 0.5) / 1.5)
    number("1e100")
    with pytest.raises(ValueError, match="is no number that is measured"):
        number("1e101")
    number("1" * 30)
    with pytest.raises(ValueError, match="is no number"):
        number("1" * 31)


# ------------------------------------------------------------------------------- modules


def test_ranges_of_registers_include_their_ends() -> None:
    for quantity, least, most in (
        ("temperature", -128.0, 128.0),
        ("voltage", 0.0, 6.5535),
        ("tx_bias", 0.0, 1000.0),
        ("tx_power", 0.0, 100.0),
        ("rx_power", 0.0, 100.0),
    ):
        given: Any = quantity
        assert plausible(given, least) == least
        assert plausible(given, most) == most
        for value in (least - 0.001, most + 0.001):
            with pytest.raises(ValueError, match=f"a {quantity} from"):
                plausible(given, value)
    assert dbm_of_milliwatt(0.0001) == DARK_DBM
    assert dbm_of_milliwatt(0.0002) == pytest.approx(-36.9897)
    assert dbm_of_milliwatt(100) == 20


def test_lanes_have_all_columns() -> None:
    lanes = lanes_of({"tx_bias_ma": [5.0, 6.0], "rx_los": [False, True]})
    assert [(one.number, one.tx_bias_ma, one.rx_los) for one in lanes] == [
        (1, 5.0, False), (2, 6.0, True),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="not 2 of tx_bias_ma, 1 of rx_los"):
        lanes_of({"tx_bias_ma": [5.0, 6.0], "rx_los": [False]})
    assert lanes_of({}) == ()


def module(*lines: str) -> Any:
    text = "\n".join(("Identifier : 0x18 (QSFP-DD)", *lines))
    return ethtool_module.parse(text)


def test_celsius_and_fahrenheit_agree_to_their_digits() -> None:
    # 31.24 degrees C are 88.232 degrees F, within 0.009 and 0.005.
    for fahrenheit in ("88.22", "88.23", "88.24"):
        reading = module(f"Module temperature : 31.24 degrees C / {fahrenheit} degrees F")
        assert reading.temperature_c == 31.24
    for fahrenheit in ("88.21", "88.25", "56.23"):
        with pytest.raises(ToolOutputError, match="that agree"):
            module(f"Module temperature : 31.24 degrees C / {fahrenheit} degrees F")


def test_milliwatts_and_dbm_agree_to_their_digits() -> None:
    # 0.0010 mW are -30 dBm; 0.00095 to 0.00105 mW are -30.2228 to -29.7881 dBm.
    for dbm in ("-30.22", "-30.00", "-29.79"):
        reading = module(f"Receiver signal average optical power : 0.0010 mW / {dbm} dBm")
        assert reading.lanes[0].rx_power_dbm == pytest.approx(-30)
    for dbm in ("-30.24", "-29.77", "30.00"):
        with pytest.raises(ToolOutputError, match="that agree"):
            module(f"Receiver signal average optical power : 0.0010 mW / {dbm} dBm")
    # The smallest printed power may be rounded up from next to nothing.
    assert (
        module("Receiver signal average optical power : 0.0000 mW / -inf dBm").lanes[0].rx_power_dbm
        == -math.inf
    )
    with pytest.raises(ToolOutputError, match="-inf dBm for no light"):
        module("Receiver signal average optical power : 0.0000 mW / -40.00 dBm")
    # 0.5 mW is 0.45 to 0.55 mW, which are -3.468 to -2.596 dBm, each with a digit after the point.
    for dbm, right in (("-3.6", False), ("-3.5", True), ("-2.6", True), ("-2.5", False)):
        line = f"Laser output power : 0.5 mW / {dbm} dBm"
        if right:
            assert module(line).lanes[0].tx_power_dbm == pytest.approx(-3.0103)
        else:
            with pytest.raises(ToolOutputError, match="that agree"):
                module(line)


@pytest.mark.parametrize("first", [0, 1])
def test_channels_count_from_0_or_1_in_all_lines(first: int) -> None:
    numbers = (first, first + 1)
    reading = module(
        *(f"Laser tx bias current (Channel {n}) : {20 + n - first}.5 mA" for n in numbers),
        f"Laser tx bias current high alarm (Channel {first + 1}) : On",
        f"Laser tx bias current low alarm (Channel {first}) : Off",
        "Rx loss of signal : [ No, Yes ]",
        "Tx fault : None",
    )
    assert [(one.number, one.tx_bias_ma, one.rx_los, one.tx_fault) for one in reading.lanes] == [
        (1, 20.5, False, False), (2, 21.5, True, False),
    ]  # fmt: skip
    assert reading.alarms == {Alarm("tx_bias", "high_alarm", 2)}
    assert reading.alarms_reported
    assert module().alarms_reported is False
    with pytest.raises(ToolOutputError, match="flags of the channels"):
        module(
            *(f"Laser tx bias current (Channel {n}) : 20.5 mA" for n in numbers),
            f"Laser tx bias current high alarm (Channel {first + 2}) : On",
        )


def test_channels_have_no_gap() -> None:
    for numbers in ((0, 2), (2, 3), (1, 3)):
        with pytest.raises(ToolOutputError, match="all alike"):
            module(*(f"Laser tx bias current (Channel {n}) : 20.5 mA" for n in numbers))


def test_values_of_a_module_come_once() -> None:
    for line in (
        "Laser tx bias current (Channel 1) : 20.5 mA",
        "Laser tx bias current high alarm (Channel 1) : On",
        "Module voltage high alarm threshold : 3.6 V",
        "Module voltage : 3.3 V",
    ):
        module(line)
        with pytest.raises(ToolOutputError, match=r"once|one tx_bias"):
            module(line, line)


def test_json_and_text_of_a_module_have_the_same_flags() -> None:
    document = [{
        "identifier": 24,
        "laser_tx_bias_current": [20.5, 21.5, 22.5],
        "laser_tx_bias_current_high_alarm": [False, False, True],
        "module_voltage_low_warning": True,
        "rx_loss_of_signal": [True, False, False],
        "rx_power": {"type": "Receiver signal OMA", "values": [0.5, 1, 0]},
        "module_temperature": 31.5,
        "module_voltage": {"low_warning_threshold": 3.1, "units": "V"},
    }]  # fmt: skip
    reading = ethtool_module.parse(json.dumps(document))
    assert reading.alarms == {
        Alarm("tx_bias", "high_alarm", 3), Alarm("voltage", "low_warning", None),
    }  # fmt: skip
    assert [one.rx_los for one in reading.lanes] == [True, False, False]
    assert [one.rx_power_dbm for one in reading.lanes] == [pytest.approx(-3.0103), 0, DARK_DBM]
    assert (reading.rx_power_is, reading.temperature_c, reading.voltage_v) == ("oma", 31.5, None)
    assert reading.thresholds == {"voltage": {"low_warning": 3.1}}
    assert reading.alarms_reported
    for key, value in (
        ("laser_tx_bias_current_high_alarm", [False, True]),
        ("laser_tx_bias_current_high_alarm", [False, 1, True]),
        ("rx_loss_of_signal", ["Yes", "no", "No"]),
        ("rx_loss_of_signal", [True, "No", "No"]),
        ("laser_tx_bias_current", [20.5, True, 22.5]),
        ("module_temperature", 128.5),
        ("module_voltage", {"low_warning_threshold": 3.1, "units": "mV"}),
        ("rx_power", {"type": "OMA", "values": [0.5, 1, 0]}),
    ):
        with pytest.raises(ToolOutputError):
            ethtool_module.parse(json.dumps([{**document[0], key: value}]))
    one = ethtool_module.parse(
        '[{"laser_bias_current": 6.5, "laser_output_power_low_alarm": true, "tx_fault": "None",'
        ' "rx_loss_of_signal": ["Yes"], "rcvr_signal_avg_optical_power": 1.0}]'
    )
    assert one.alarms == {Alarm("tx_power", "low_alarm", 1)}
    assert [(lane.tx_bias_ma, lane.rx_los, lane.tx_fault) for lane in one.lanes] == [
        (6.5, True, False)
    ]
    assert (one.rx_power_is, one.identifier) == ("average", None)


# ---------------------------------------------------------------------------- collectives

HEAD = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"


def table(*rows: str, ranks: int = 4, more: str = "") -> str:
    devices = [f"# Rank  {n} Group 0 Pid 1 on host{n // 3} device 0" for n in range(ranks)]
    return "\n".join((*devices, HEAD, *rows, *more.splitlines()))


# 4000 B in 8.00 us: 0.50 GB/s, and 0.75 on the bus of four ranks; 0.40 and 0.60 in 10 us.
ROW = "4000 1000 float sum -1 8.00 0.50 0.75 0 10.0 0.40 0.60 2"


def test_a_table_of_collectives_by_value() -> None:
    found = nccl_tests.parse(
        table(ROW, more="# Out of bounds values : 2 FAILED\n# Avg bus bandwidth : 0.675"),
        collective="all_reduce",
    )
    (row,) = found.rows
    assert (found.ranks, found.hosts, found.wrong) == (4, ("host0", "host1"), 2)
    assert (row.size, row.count, row.redop, row.root) == (4000, 1000, "sum", None)
    assert [(one.time_us.value, one.wrong) for one in row.measured] == [(8.0, 0), (10.0, 2)]
    assert (row.measured[0].algorithm_bps, row.measured[1].bus_bps) == (4 * 10**9, 4_800_000_000)
    assert found.factor == 1.5


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("0.50", "0.51", "algbw to be size / time"),
        ("8.00", "-8.00", "times and rates from 0"),
        ("0.75", "-0.75", "times and rates from 0"),
        ("0.75", "0.77", "one ratio|as all_reduce has it"),
        ("float", "float9", "one of the types"),
        ("1000 ", "999 ", "size to be count x type"),
        (" 2\n", " -1\n", "a number of wrong values"),
        (" 2\n", " 1.5\n", "a number of wrong values"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(old: str, new: str, says: str) -> None:
    text = table(ROW) + "\n"
    assert old in text
    with pytest.raises(ToolOutputError, match=says):
        nccl_tests.parse(text.replace(old, new, 1), collective="all_reduce")


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 4, 1.5),
        ("all_reduce", 3, 4 / 3),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 5, 0.8),
        ("alltoall", 8, 0.875),
        ("broadcast", 7, 1.0),
        ("reduce", 7, 1.0),
        ("hum", 4, None),
    ],
)
def test_factors_of_the_bus(collective: str, ranks: int, factor: float | None) -> None:
    """Of doc/PERFORMANCE.md of nccl-tests: 2 (n - 1) / n, (n - 1) / n, and 1."""
    assert nccl_results.bus_factor(collective, ranks) == factor


@pytest.mark.parametrize(
    ("ranks", "average", "right"),
    [(4, "0.675", True), (4, "0.678", True), (4, "0.67", True), (4, "0.69", False)],
)
def test_the_average_is_that_of_all_rows(ranks: int, average: str, right: bool) -> None:
    text = table(ROW, ranks=ranks, more=f"# Avg bus bandwidth : {average}")
    if right:
        assert nccl_tests.parse(text).average_bus_gbytes == number(average)
    else:
        with pytest.raises(ToolOutputError, match=r"0\.675 GB/s: rows are missing"):
            nccl_tests.parse(text)


def test_sizes_are_of_one_rank_or_of_all() -> None:
    shared = "4000 250 float none -1 8.00 0.50 0.38 0 10.0 0.40 0.30 0"
    assert nccl_tests.parse(table(shared), collective="all_gather").factor == 0.75
    assert nccl_tests.parse(table(shared)).factor == pytest.approx(0.75, abs=0.011)
    for row, collective in (
        (shared.replace("250", "1000"), "all_gather"),
        (shared, "all_reduce"),
        (shared.replace("250", "251"), None),
    ):
        with pytest.raises(ToolOutputError, match="size to be count x type"):
            nccl_tests.parse(table(row), collective=collective)
    with pytest.raises(ToolOutputError, match="8 ranks"):
        nccl_tests.parse(table(shared), ranks=8)
    with pytest.raises(ToolOutputError, match="OK for no value"):
        nccl_tests.parse(table(ROW, more="# Out of bounds values : 2 OK"))
    with pytest.raises(ToolOutputError, match="OK for no value"):
        nccl_tests.parse(table(ROW, more="# Out of bounds values : 0 FAILED"))


def test_a_table_without_times_out_of_place_and_one_without_redop() -> None:
    (row,) = nccl_tests.parse(table("4000 1000 float sum 2 10.0 0.40 0.60 3")).rows
    assert row.out_of_place is None
    assert row.in_place is not None
    assert (row.in_place.wrong, row.redop, row.root) == (3, "sum", 2)
    (row,) = nccl_tests.parse(table("4000 1000 float 2 8.00 0.50 0.75 0 10.0 0.40 0.60 N/A")).rows
    assert (row.redop, row.root) == (None, 2)
    assert [each.wrong for each in row.measured] == [0, None]
    for tokens in ("4000 1000 float sum -1 8.00 0.50", f"{ROW} 7"):
        with pytest.raises(ToolOutputError, match="13 tokens, as the header has names"):
            nccl_tests.parse(table(tokens))


# ------------------------------------------------------------------------------- perftest

BANDWIDTH = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"
LATENCY = (
    " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec]"
    " 99% percentile[usec] 99.9% percentile[usec]"
)


def test_rates_of_messages_by_value() -> None:
    # 1000 B at 1.25 million a second: 10 Gb/s.
    (found,) = perftest.parse(f" Device : mlx5\n{BANDWIDTH}\n 1000 500 10.50 10.00 1.250000")
    (row,) = found.bandwidths
    assert (row.size, row.iterations) == (1000, 500)
    assert (row.peak_bps, row.average_bps, row.messages_per_s) == (10.5e9, 10e9, 1.25e6)
    mib = BANDWIDTH.replace("Gb/", "MiB/")
    # 2 ** 20 B at 5 a second: 5 MiB/s, each 8 * 1048576 bits.
    (found,) = perftest.parse(f"{mib}\n 1048576 5 0.00 5.00 0.000005")
    assert (found.bandwidths[0].peak_bps, found.bandwidths[0].average_bps) == (None, 41_943_040)
    assert perftest.parse(f"{BANDWIDTH}\n 1000 500 9.99 10.00 1.250000")
    for row, says in (
        ("1000 500 9.98 10.00 1.250000", "a peak that is not below"),
        ("1000 500 10.50 10.02 1.250000", "size x message rate"),
        ("1000 500 -1.00 10.00 1.250000", "rates from 0"),
        ("1000 500 10.50 10.00", "5 values, one below each name"),
        ("1024 500 8.60 8.19 1.000000\n 3000 500 25.00 24.00 1.000000", "powers of two"),
    ):
        with pytest.raises(ToolOutputError, match=says):
            perftest.parse(f"{BANDWIDTH}\n {row}")
    two = "1024 500 8.60 8.19 1.000000\n 2048 500 17.00 16.38 1.000000"
    assert len(perftest.parse(f"{BANDWIDTH}\n {two}")[0].bandwidths) == 2
    same = "1000 500 8.60 8.00 1.000000\n 1000 600 8.60 8.00 1.000000"
    assert len(perftest.parse(f"{BANDWIDTH}\n {same}")[0].bandwidths) == 2


def test_times_of_messages_by_value() -> None:
    (found,) = perftest.parse(f"{LATENCY}\n 8 900 1.10 9.50 1.30 1.45 0.20 2.50 7.25")
    (row,) = found.latencies
    assert (row.size, row.iterations, row.least_ns, row.most_ns) == (8, 900, 1100, 9500)
    assert (row.typical_ns, row.average_ns, row.deviation_ns) == (1300, 1450, 200)
    assert (row.p99_ns, row.p999_ns, row.per_s) == (2500, 7250, None)
    # Equal ones are in order; an average may be the least or the most.
    for right in ("1.10 1.10 1.10 1.10 0.00 1.10 1.10", "1.10 9.50 1.30 9.50 0.20 2.50 7.25"):
        assert perftest.parse(f"{LATENCY}\n 8 900 {right}")
    for wrong in (
        "1.40 9.50 1.30 1.45 0.20 2.50 7.25",
        "1.10 9.50 1.30 1.05 0.20 2.50 7.25",
        "1.10 9.50 1.30 9.55 0.20 2.50 7.25",
        "1.10 9.50 1.30 1.45 0.20 7.50 7.25",
        "-1.10 9.50 1.30 1.45 0.20 2.50 7.25",
    ):
        with pytest.raises(ToolOutputError, match=r"in this order|between least and most"):
            perftest.parse(f"{LATENCY}\n 8 900 {wrong}")


def test_a_file_of_perftest_has_the_unit_in_which_it_agrees() -> None:
    def parsed(**results: float) -> Any:
        return perftest.parse(json.dumps({"test_info": {"test": "a BW Test", "Mtu": 4096},
                                          "results": results}))[0]  # fmt: skip

    common = {"MsgSize": 65536, "n_iterations": 300}
    found = parsed(**common, MsgRate=0.190735, BW_average=100.0, BW_peak=101.5)
    assert (found.bandwidths[0].average_bps, found.bandwidths[0].peak_bps) == (100e9, 101.5e9)
    assert (found.test, found.settings) == ("a BW Test", {"Mtu": "4096"})
    # The same rate is 11,920.94 MiB/s.
    found = parsed(**common, MsgRate=0.190735, BW_average=11920.94, BW_peak=0)
    assert found.bandwidths[0].average_bps == pytest.approx(100e9, rel=1e-6)
    assert found.bandwidths[0].peak_bps is None
    with pytest.raises(ToolOutputError, match="in MiB/s or in Gb/s"):
        parsed(**common, MsgRate=0.190735, BW_average=200.0, BW_peak=201.0)
    times = {"t_min": 1.1, "t_max": 9.5, "t_typical": 1.3, "t_avg": 1.45, "t_stdev": 0.2}
    (row,) = parsed(**common, **times, percentile_99=2.5, tps_average=690.5).latencies
    assert (row.least_ns, row.most_ns, row.typical_ns, row.average_ns) == (1100, 9500, 1300, 1450)
    assert (row.deviation_ns, row.p99_ns, row.p999_ns, row.per_s) == (200, 2500, None, 690.5)
