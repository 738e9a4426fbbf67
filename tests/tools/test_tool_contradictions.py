"""One thing changed in a real output, and the parser message what is wrong with it."""

import pytest
from tool_samples import parser_of, sample

from lightrig.instruments.servers.tools import ethtool_module, infiniband_sysfs, ip_link
from lightrig.instruments.servers.tools.output import ToolOutputError

SFP = "ethtool/jc_module_sfp.txt"
CMIS = "synthetic/ethtool_module_cmis.txt"
JSON = "synthetic/ethtool_module_repeating_keys.json"
SETTINGS = "ethtool/jc_settings_2.txt"
COUNTERS = "synthetic/ethtool_statistics_mlx5.txt"
FEC = "synthetic/ethtool_fec.txt"
MLX = "synthetic/mlxlink_report.txt"
MLX_JSON = "synthetic/mlxlink_report.json"
PRBS = "synthetic/mlxlink_prbs.txt"
RDMA = "synthetic/rdma_link.txt"
IB = "rdma/gpud_sysfs_class_infiniband_h100.txt"
IP = "iproute2/generated_ip_link_lo.txt"
NCCL = "synthetic/nccl_current.txt"
OLD_NCCL = "nccl-tests/superbench_allreduce.txt"
BW = "perftest/superbench_ib_loopback_8M_size.txt"
LAT = "synthetic/perftest_latency.txt"

CHANGES = [
    (SFP, "0.8183 mW", "0.8283 mW", "mW and dBm that agree"),
    (SFP, "-0.87 dBm", "0.87 dBm", "mW and dBm that agree"),
    (SFP, "0.0001 mW / -40.00", "0.0000 mW / -40.00", "-inf dBm for no light"),
    (SFP, "34.99 degrees C", "39.99 degrees C", "degrees C and degrees F that agree"),
    (SFP, "34.99 degrees C / 94.99 degrees F", "134.99 degrees C / 274.98 degrees F", "registers"),
    (SFP, "51.494 mA", "51.494 A", "in mA"),
    (SFP, "51.494 mA", "51,494 mA", "is no number"),
    (SFP, ": On", ": Onn", "On or Off"),
    (SFP, "1310nm", "1310µm", "is no number"),
    (SFP, "Vendor PN   ", "Vendor name ", "'Vendor name' once"),
    (CMIS, "current (Channel 3)", "current (Channel 9)", "channels 1, 2, 3"),
    (CMIS, "power (Channel 8) ", "power (Channel 9) ", "channels 1, 2, 3"),
    (CMIS, "(Chan 8)", "(Chan 9)", "the channels that have values"),
    (CMIS, "[ No, No, No, No, ", "[ No, No, No, ", "as many values of each kind"),
    (CMIS, "0x03 (ModuleReady)", "ModuleReady", "a code and its meaning"),
    (JSON, '"module_voltage": 3.2741', '"module_temperature": 3.2741', "one int for"),
    (JSON, '"Rcvr signal avg optical power"', '"peak power"', "a known type"),
    (JSON, "[ 0,0.612,0.5923,0.6307 ]", "[ 0,0.612,0.5923 ]", "as many values of each kind"),
    (JSON, "[ true,false,false,false ]", "[ true,false ]", "for each of 4 lanes"),
    (JSON, "53.125", "530.125", "registers hold"),
    (JSON, "[ 6.75,6.7,6.8,6.65 ]", '[ 6.75,6.7,6.8,"6.65" ]', "numbers in"),
    (SETTINGS, "Speed: ", "Sped: ", "speed and duplex"),
    (SETTINGS, "40000Mb/s", "40000Gb/s", "a speed in Mb/s"),
    (SETTINGS, "Link detected: yes", "Link detected: maybe", "yes or no"),
    (SETTINGS, "Settings for", "Sets for", "Settings for IF:"),
    (SETTINGS, "Duplex: Full", "Duplex  Full", "or more link modes"),
    (COUNTERS, "_lane_1_", "_lane_0_", "'rx_err_lane_0_phy' once"),
    (COUNTERS, "991", "-991", "name: count"),
    (COUNTERS, "991", "9.9e2", "name: count"),
    (FEC, "Lane 1", "Lane 2", "lane 1 of corrected_blocks"),
    (FEC, "uncorrectable_blocks", "corrected_blocks", "each name once"),
    (MLX, "----------------\n", "---------------\n", "underlined in its length"),
    (MLX, "Raw Physical BER Per Lane", "Effective Physical BER   ", "each key once"),
    (MLX, "12,0,3,4", "12,0,-3,4", "no whole number"),
    (MLX, ": \x1b[32m1E-13", ": \x1b[32m1E+13", "a ratio such as 1E-13"),
    (MLX, "-40,1.375", "1.375", "as many values of each kind"),
    (MLX, "0,0,1,0", "0,0,x,0", "0 or 1 by lane"),
    (MLX, "\x1b[32m4x", "\x1b[32mx4", "a width such as 4x"),
    (MLX_JSON, '"Width"', '"Speed"', "each key once"),
    (MLX_JSON, '"code" : 0', '"code" : false', "'code' to be int"),
    (PRBS, "Not Locked", "Unlocked", "Locked or Not Locked"),
    (PRBS, "7,0,390625000000,11", "7,0,11", "errors of 4 lanes"),
    (RDMA, "state DOWN", "state OFF", "one of the states"),
    (RDMA, "LINK_UP netdev", "LINKUP netdev", "a known physical state"),
    (RDMA, "link rxe0/1", "link rxe0", "a device and its port|no whole number"),
    (RDMA, "lmc 0 ", "lmc ", "tokens in pairs"),
    (RDMA, "lmc 0 ", "fec 0 ", "pairs of"),
    (IB, "state: 4: ACTIVE", "state: 1: ACTIVE", "a code and its word"),
    (IB, "link_downed: 255", "link_downed: 256", "which has 8 bits"),
    (IB, "symbol_error: 0", "symbol_error: none", "a count in counters/symbol_error"),
    (IB, "400 Gb/sec", "400 Gbit/s", "a rate in Gb/sec"),
    (IP, "RX:  bytes", "RX:  bytes more", "counts below"),
    (IP, " mtu 65536", " mtu 64k", "no whole number"),
    (NCCL, "     1048576  ", "     1048577  ", "size to be count x type"),
    (NCCL, "  float  ", "  foat   ", "one of the types"),
    (NCCL, "#wrong", "#mistakes", "columns that are known"),
    (NCCL, ": 0 OK", ": 1 OK", "OK for no value out of bounds"),
    (NCCL, "#       size", "#       size         count\n#       size", "one table"),
    (OLD_NCCL, "63896", "63796", "algbw to be size / time"),
    (OLD_NCCL, "134.44", "135.44", "algbw to be size / time"),
    (OLD_NCCL, "235.26", "236.26", "one ratio of busbw to algbw|as a collective has it"),
    (OLD_NCCL, "68.4048", "68.4148", "values whose average is"),
    (OLD_NCCL, "Rank  7", "Rank  8", "size to be|for 9 ranks"),
    (BW, "24056.72", "24156.72", "size x message rate"),
    (BW, "0.003007", "0.003107", "size x message rate"),
    (BW, "24056.74", "24055.74", "a peak that is not below"),
    (BW, "MsgRate[Mpps]", "MsgRate[kpps]", "a header of known columns"),
    (BW, " 8388608    20000 ", " 8388608 ", "5 values, one below each name"),
    (LAT, "1.46 ", "0.46 ", "in this order"),
    (LAT, "1.22 ", "9.22 ", "an average between"),
]


@pytest.mark.parametrize(
    ("name", "was", "now", "message"), CHANGES, ids=[f"{name}-{now}" for name, _, now, _ in CHANGES]
)
def test_a_change_is_refused(name: str, was: str, now: str, message: str) -> None:
    text = sample(name)
    assert was in text
    with pytest.raises(ToolOutputError, match=message):
        parser_of(name)(text.replace(was, now))


def test_a_dump_of_memory_is_no_reading() -> None:
    dump = "Offset\t\tValues\n------\t\t------\n0x0000:\t\t11 07 00 0f 00 00\n"
    with pytest.raises(ToolOutputError, match="can only dump the memory"):
        ethtool_module.parse(dump)


def test_two_readings_in_one_are_refused() -> None:
    with pytest.raises(ToolOutputError, match="'Identifier' once"):
        ethtool_module.parse(sample(SFP) * 2)


def test_a_counter_without_an_answer_is_left_out() -> None:
    root = "/sys/class/infiniband/mlx5_0/ports/1"
    (port,) = infiniband_sysfs.parse(
        f"{root}/counters/symbol_error:N/A (no PMA)\n{root}/counters/link_downed:3\n"
        f"{root}/gids/0:fe80:0000:0000:0000:0000:0000:0000:0001\n"
    )
    assert port.counters == {"link_downed": 3}


def test_a_glued_title_of_errors_is_still_one() -> None:
    text = sample(IP).replace("RX errors:  length", "RX errors:length")
    assert ip_link.parse(text) == ip_link.parse(sample(IP))


def test_no_device_at_all_is_no_error() -> None:
    assert parser_of(RDMA)("[]") == parser_of(RDMA)("") == ()
    assert ip_link.parse("[{}]") == ()
