"""Parsers on real outputs: numbers that a reader can find in the samples."""

import math
import re

import pytest
from tool_samples import ROOT, names, parser_of, read, sample

from lightrig.instruments.jobs.tools import nccl_tests, perftest
from lightrig.instruments.servers.tools import ethtool_link, ethtool_module
from lightrig.instruments.servers.tools.module import Alarm
from lightrig.instruments.servers.tools.output import ToolOutputError, ToolReportedError

REFUSED = {
    "nccl-tests/aws_eks_p5_mpirun_tagoutput.txt": "rows are missing",
    "synthetic/nccl_ranks_contradict_factor.txt": "16 ranks",
    "synthetic/mlxlink_busy.json": "ICMD semaphore",
}
"""Samples that must not be believed, and what the error says."""


def test_every_sample_has_a_source() -> None:
    sources = (ROOT / "SOURCES.md").read_text()
    for name in names():
        folder, _, file = name.partition("/")
        stem = f"`{folder}/{file.partition('_')[0]}_"
        assert stem in sources or f"`{folder}/*`" in sources, name


@pytest.mark.parametrize("name", sorted(set(names()) - set(REFUSED)))
def test_remaining_samples_are_parsed(name: str) -> None:
    assert read(name)


@pytest.mark.parametrize("name", REFUSED)
def test_a_contradiction_is_refused_and_named(name: str) -> None:
    with pytest.raises(ToolOutputError, match=REFUSED[name]):
        read(name)


@pytest.mark.parametrize("name", names())
def test_no_parser_takes_the_output_of_another_tool(name: str) -> None:
    """Unless it is the same format, such as a table of nccl-tests, for which there is one."""
    first = parser_of(name)
    for parser in {parser_of(second) for second in names()} - {first}:
        with pytest.raises(ToolOutputError):
            print(parser(sample(name)))


# ------------------------------------------------------------------------------- ethtool


def test_settings() -> None:
    first = read("ethtool/jc_settings_1.txt")
    assert (first.netdev, first.speed_bps, first.duplex, first.detected) == (
        "enp0s3",
        1_000_000_000,
        "full",
        True,
    )
    fiber = read("ethtool/jc_settings_2.txt")
    assert (fiber.speed_bps, fiber.port, fiber.auto_negotiation) == (40 * 10**9, "FIBRE", False)
    assert len(fiber.modes) == 8
    assert fiber.modes[-1] == "10000baseSR/Full"


def test_settings_of_a_link_that_is_down() -> None:
    link = ethtool_link.parse(
        "Settings for ens1f0:\n\tSpeed: Unknown!\n\tDuplex: Unknown! (255)\n"
        "\tLink detected: no (No cable)\n"
    )
    assert (link.speed_bps, link.duplex, link.detected, link.reason) == (
        None,
        None,
        False,
        "No cable",
    )


def test_an_sfp_in_the_dark() -> None:
    module = read("ethtool/jc_module_sfp.txt")
    assert (module.identifier, module.form, module.vendor) == (3, "SFP", "EDGE")
    assert (module.temperature_c, module.voltage_v, module.wavelength_nm) == (34.99, 3.2995, 1310)
    (lane,) = module.lanes
    assert lane.tx_bias_ma == 51.494
    assert lane.tx_power_dbm == pytest.approx(-0.87, abs=0.005)
    assert lane.rx_power_dbm == -math.inf
    assert module.alarms == {Alarm("rx_power", "low_alarm", 1), Alarm("rx_power", "low_warning", 1)}
    assert module.thresholds["rx_power"]["low_alarm"] == pytest.approx(-16.31, abs=0.005)
    assert module.thresholds["tx_bias"]["high_alarm"] == 110


def test_a_cmis_module_with_unused_lanes() -> None:
    module = read("synthetic/ethtool_module_cmis.txt")
    assert (module.identifier, module.state, len(module.lanes)) == (0x18, "ModuleReady", 8)
    assert module.lanes[0].rx_power_dbm == pytest.approx(10 * math.log10(0.9120))
    assert [lane.rx_power_dbm == -math.inf for lane in module.lanes] == [False] * 4 + [True] * 4
    assert [lane.rx_los for lane in module.lanes] == [False] * 4 + [True] * 4
    assert {alarm.lane for alarm in module.alarms} == {5, 6, 7, 8}


def test_low_power_is_no_light_on_all_sixteen_lanes() -> None:
    module = read("synthetic/ethtool_module_cmis_two_banks_low_power.txt")
    assert [lane.number for lane in module.lanes] == list(range(1, 17))
    assert {lane.rx_power_dbm for lane in module.lanes} == {-math.inf}


def test_channels_counted_from_0_become_lanes_counted_from_1() -> None:
    module = read("synthetic/ethtool_module_sff8636_from_0.txt")
    assert [(lane.number, lane.tx_bias_ma) for lane in module.lanes] == [
        (1, 6.6),
        (2, 6.7),
        (3, 6.65),
        (4, 6.58),
    ]
    assert module.alarms == {Alarm("rx_power", "low_alarm", 3)}


@pytest.mark.parametrize("form", ["repeating", "renamed"])
def test_json_that_repeats_keys_gives_the_measurement_and_the_threshold(form: str) -> None:
    module = read(f"synthetic/ethtool_module_{form}_keys.json")
    assert module.temperature_c == 53.125
    assert module.thresholds["temperature"]["high_alarm"] == 80
    assert module.voltage_v == 3.2741
    assert module.lanes[0].rx_power_dbm == -math.inf
    assert module.lanes[1].rx_power_dbm == pytest.approx(10 * math.log10(0.612))
    assert [lane.rx_lol for lane in module.lanes] == [True, False, False, False]
    assert module.alarms == {Alarm("rx_power", "low_alarm", 1), Alarm("rx_power", "low_warning", 1)}


def test_json_of_a_draft_with_units() -> None:
    module = ethtool_module.parse(
        '[{"identifier":17,"module_temperature":50.5,"module_temperature_units":"degrees C",'
        '"rx_loss_of_signal":"None","rcvr_signal_avg_optical_power":[1.0,0.5],'
        '"rcvr_signal_avg_optical_power_units":"mW",'
        '"module_temperature":{"high_alarm_threshold":80,"units":"degrees C"}}]'
    )
    assert module.temperature_c == 50.5
    assert [lane.rx_power_dbm for lane in module.lanes] == [0.0, pytest.approx(-3.0103, abs=1e-4)]
    assert [lane.rx_los for lane in module.lanes] == [False, False]


def test_fec_as_text_and_as_json_is_the_same() -> None:
    text = read("synthetic/ethtool_fec_histogram.txt")
    assert text == read("synthetic/ethtool_fec_histogram.json")
    assert text.active == ("RS",)
    assert text.histogram[0].count.lanes == (125, 120, 100, 100)
    older = read("synthetic/ethtool_fec.txt")
    assert older.corrected_blocks.lanes == (100, 23)
    assert older.uncorrectable_blocks.total == 4


def test_statistics() -> None:
    counters = read("synthetic/ethtool_statistics_mlx5.txt")
    assert counters["rx_err_lane_2_phy"] == 249
    assert len(counters) == 10


# ------------------------------------------------------------------------- mlxlink, rdma


def test_mlxlink_as_coloured_text_and_as_json_is_the_same() -> None:
    text, json = read("synthetic/mlxlink_report.txt"), read("synthetic/mlxlink_report.json")
    assert (text.link, text.module, text.errors) == (json.link, json.module, json.errors)
    assert text.link.up
    assert (text.link.rate_bps, text.link.width) == (200 * 10**9, 4)
    assert text.module.voltage_v == pytest.approx(3.2567)
    assert [lane.rx_power_dbm for lane in text.module.lanes] == [1.25, 1.5, -math.inf, 1.375]
    assert [lane.rx_los for lane in text.module.lanes] == [False, False, True, False]
    errors = text.errors
    assert errors.since_clear_ns == 750 * 10**9
    assert errors.raw_errors == (12, 0, 3, 4)
    assert errors.raw_ber == pytest.approx(1e-13)
    assert errors.raw_ber_by_lane[1] == 0.0
    assert (errors.effective_errors, errors.effective_ber, errors.symbol_ber) == (0, 0.0, None)


def test_mlxlink_of_a_link_that_is_down() -> None:
    report = read("synthetic/mlxlink_link_down.txt")
    assert not report.link.up
    assert report.link.rate_bps is None
    assert report.errors.raw_ber is None
    assert report.errors.raw_errors is None


def test_mlxlink_in_test_mode() -> None:
    report = read("synthetic/mlxlink_prbs.txt")
    assert report.link is None
    assert report.prbs.locked == (True, True, False, True)
    assert report.prbs.errors == (7, 0, 390_625_000_000, 11)
    assert report.prbs.ber == pytest.approx(0.1)
    assert report.prbs.since_clear_ns == 30 * 10**9


def test_failed_mlxlink_raises_tool_reported_error() -> None:
    with pytest.raises(ToolReportedError):
        read("synthetic/mlxlink_busy.json")
    with pytest.raises(ToolReportedError, match="raised"):
        parser_of("synthetic/mlxlink")(
            "\x1b[31m \n\nErrors\n------\nShowing BER raised: no\n\x1b[0m"
        )


def test_rdma_links() -> None:
    first, second, third = read("synthetic/rdma_link.txt")
    assert (first.device, first.port, first.up, first.netdev) == ("mlx5_0", 1, True, "ens1f0np0")
    assert (second.lid, second.netdev, second.up) == (17, None, False)
    assert third.physical_state == "DISABLED"
    assert read("synthetic/rdma_link.json") == (first, second)


def test_a_data_counter_of_32_bits_at_its_top_is_flagged() -> None:
    """PortCounters has data in 32 bits that stay at their top; extended ones go beyond."""
    text = sample("rdma/gpud_sysfs_class_infiniband_h100.txt")
    parse = parser_of("rdma/gpud_sysfs_class_infiniband_h100.txt")
    for count, flagged in ((2**32 - 2, False), (2**32 - 1, True), (2**32, False)):
        changed = re.sub(r"(mlx5_0/ports/1/counters/port_xmit_data): \d+", rf"\1: {count}", text)
        first = next(port for port in parse(changed) if port.device == "mlx5_0")
        assert ("port_xmit_data" in first.saturated) is flagged


def test_saturated_infiniband_counters_are_flagged() -> None:
    ports = {port.device: port for port in read("rdma/gpud_sysfs_class_infiniband_h100.txt")}
    assert ports["mlx5_1"].saturated == {"link_downed", "excessive_buffer_overrun_errors"}
    assert ports["mlx5_0"].saturated == {"excessive_buffer_overrun_errors"}
    port = ports["mlx5_1"]
    assert (port.state, port.physical_state, port.rate_bps) == ("ACTIVE", "LinkUp", 400 * 10**9)
    assert port.refresh_ns == 12_000_000
    assert port.counters["port_rcv_data"] == 205_128_687_774_249
    assert port.hw_counters["rx_write_requests"] == 3_809_045_607


def test_ip_as_text_and_as_json_has_the_same_counters() -> None:
    (text,) = read("iproute2/generated_ip_link_lo.txt")
    (json,) = read("iproute2/generated_ip_link_lo.json")
    assert text.carrier
    assert text.flags == json.flags
    assert (text.mtu, text.operstate, text.mac) == (json.mtu, json.operstate, json.mac)
    assert text.rx["bytes"] == json.rx["bytes"] > 0
    assert text.tx["carrier_changes"] == text.carrier_changes == json.carrier_changes == 0
    assert set(text.rx) <= set(json.rx) | {"frame_errors"}


# --------------------------------------------------------------------------- traffic tools


@pytest.mark.parametrize(
    ("name", "collective", "factor"),
    [
        ("allreduce", "all_reduce", 1.75),
        ("allgather", "all_gather", 0.875),
        ("alltoall", "alltoall", 0.875),
        ("reducescatter", "reduce_scatter", 0.875),
        ("broadcast", "broadcast", 1.0),
        ("reduce", "reduce", 1.0),
    ],
)
def test_old_tables_of_nccl_tests(name: str, collective: str, factor: float) -> None:
    run = nccl_tests.parse(sample(f"nccl-tests/superbench_{name}.txt"), collective=collective)
    assert (run.ranks, run.hosts, run.factor) == (8, ("localhost",), factor)
    assert len(run.rows) == 34
    assert run.rows[-1].size == 8 * 2**30
    assert run.wrong == 0
    assert run.rows[-1].out_of_place.wrong is None  # old versions give an error, here N/A


def test_a_collective_that_it_was_not_is_refused() -> None:
    with pytest.raises(ToolOutputError):
        nccl_tests.parse(sample("nccl-tests/superbench_allreduce.txt"), collective="all_gather")
    with pytest.raises(ToolOutputError, match="in the list of devices"):
        nccl_tests.parse(sample("nccl-tests/superbench_allreduce.txt"), ranks=16)


def test_a_table_behind_a_launchers_label() -> None:
    text = sample("nccl-tests/aws_p4d_srun_label.txt")
    run = nccl_tests.parse(text, collective="all_reduce", ranks=16)
    assert run.factor == 1.875
    assert run.average_bus_gbytes is None  # the table has no end
    last = run.rows[-1]
    assert last.out_of_place.time_ns == 51_406_000
    assert last.in_place.bus_bps == 626_640_000_000
    with pytest.raises(ToolOutputError, match="for 8 ranks"):
        nccl_tests.parse(text, collective="all_reduce", ranks=8)


def test_a_tagged_table_without_its_average() -> None:
    lines = sample("nccl-tests/aws_eks_p5_mpirun_tagoutput.txt").splitlines()
    run = nccl_tests.parse("\n".join(line for line in lines if "Avg" not in line))
    assert len(run.rows) == 7
    assert run.rows[-1].out_of_place.algorithm_bps == 1_867_920_000_000


@pytest.mark.parametrize("name", ["current", "per_iteration", "timestamps"])
def test_current_tables_of_nccl_tests(name: str) -> None:
    run = read(f"synthetic/nccl_{name}.txt")
    assert (run.collective, run.ranks, run.version) == ("all_reduce", 8, "2.19.6")
    assert run.rows[0].in_place.wrong == 0
    assert (run.rows[0].in_place.iterations is not None) == (name == "per_iteration")


def test_the_file_of_nccl_tests_keeps_no_environment() -> None:
    run = read("synthetic/nccl_v3.json")
    assert (run.collective, run.ranks, run.factor) == ("all_reduce", 4, 1.5)
    assert "do-not-show-this" not in repr(run)
    for cut in range(200, 1200, 97):
        with pytest.raises(ToolOutputError) as refused:
            nccl_tests.parse(sample("synthetic/nccl_v3.json")[:cut])
        error: BaseException | None = refused.value
        while error is not None:
            assert "do-not-show-this" not in f"{error!r} {vars(error)}"
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_perftest_in_mib() -> None:
    first, second = read("perftest/superbench_ib_loopback_8M_size.txt")
    assert first.test == second.test == "RDMA_Write BW Test"
    assert first.settings["Device"] == "ib0"
    (row,) = first.bandwidths
    assert row.size == 8 * 2**20
    assert row.average_bps == pytest.approx(24056.72 * 2**20 * 8)
    assert row.messages_per_s == 3007
    (report,) = read("perftest/superbench_ib_loopback_all_sizes.txt")
    assert len(report.bandwidths) == 24  # both ends print the last


def test_perftest_in_gbits_and_its_latency() -> None:
    (report,) = read("synthetic/perftest_gbits.txt")
    assert [row.average_bps for row in report.bandwidths] == [51_200_000, 104.86e9, 196.05e9]
    assert [row.peak_bps for row in report.bandwidths] == [200e6, 105.02e9, None]
    (latency,) = read("synthetic/perftest_latency.txt")
    assert latency.latencies[0].p999_ns == 8390
    assert latency.latencies[0].average_ns == 1220


def test_perftests_file_names_no_unit_and_leaves_a_key_bare() -> None:
    (report,) = read("synthetic/perftest_qos.json")
    assert report.bandwidths[0].average_bps == pytest.approx(11030.78 * 2**20 * 8)
    wrong = sample("synthetic/perftest_qos.json").replace("0.176492", "0.196492")
    with pytest.raises(ToolOutputError, match="MiB/s or in Gb/s"):
        perftest.parse(wrong)
