"""Variants of outputs that labs have shown: partial answers, virtual functions, log prefixes."""

import json

import pytest
from tool_samples import sample

from lightrig.instruments.jobs.tools import nccl_tests, osu
from lightrig.instruments.servers.tools import (
    ethtool_module,
    ip_link,
    mlxlink,
    rdma_link,
    recognition,
)
from lightrig.instruments.servers.tools.output import ToolOutputError, ToolReportedError

SR_IOV = """\
5: ens1f0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP mode DEFAULT qlen 1000
    link/ether 3c:fd:fe:00:00:01 brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
        670348    5123      0       0       0     100
    TX:  bytes packets errors dropped carrier collsns
        225778    2342      0       0       0       0
    vf 0     link/ether 00:00:00:00:00:00 brd ff:ff:ff:ff:ff:ff, spoof checking on, link-state auto
    RX: bytes  packets  mcast   bcast   dropped
    0          0        0       0        0
    TX: bytes  packets   dropped
    0          0         0
    vf 1     link/ether 00:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff, spoof checking on, link-state auto
    RX: bytes  packets  mcast   bcast   dropped
    505712     4021     12      3        0
    TX: bytes  packets   dropped
    0          0         0
"""
"""The form of iproute2's print_vf_stats64, of a NIC with two virtual functions."""


def test_counters_of_virtual_functions_are_not_taken_for_the_nics() -> None:
    (link,) = ip_link.parse(SR_IOV)
    assert link.rx["bytes"] == 670348
    assert link.tx["bytes"] == 225778
    assert link.rx["packets"] == 5123


# ------------------------------------------------------------------------------- mlxlink


def document(output: object, code: int = 0, message: str = "success") -> str:
    return json.dumps({"result": {"output": output}, "status": {"code": code, "message": message}})


OPERATIONAL = {
    "State": "Active",
    "Physical state": "LinkUp",
    "Speed": "400G",
    "Width": "4x",
    "FEC": "Standard_RS-FEC",
}


def test_an_answer_with_status_1_keeps_what_was_answered() -> None:
    """A public consumer keeps the data (its messages: FEC Histogram is not supported, ...)."""
    message = "FEC Histogram is not supported for the current device"
    report = mlxlink.parse(document({"Operational Info": OPERATIONAL}, 1, message))
    assert report.link is not None
    assert report.link.up
    assert report.warning == message


def test_an_answer_with_status_1_and_nothing_else_is_a_refusal() -> None:
    for output in ("N/A", {}):
        with pytest.raises(ToolReportedError, match="not supported"):
            mlxlink.parse(document(output, 1, "The operation is not supported"))
    with pytest.raises(ToolReportedError, match="semaphore"):
        mlxlink.parse(document({"Operational Info": OPERATIONAL}, 1, "ICMD semaphore is taken"))


def test_a_trailing_remark_does_not_refuse_the_text() -> None:
    text = sample("synthetic/mlxlink_report.txt")
    remarked = mlxlink.parse(f"{text}\n-E- Failed to get the eye opening\n")
    assert remarked.link == mlxlink.parse(text).link
    assert remarked.warning == "-E- Failed to get the eye opening"


def test_the_fec_histogram_is_read_from_json_and_text() -> None:
    """The bins of mlxlink's showHistogram: `[n]` or `[low:high]`, then the number of code words."""
    values = {"Header": {"values": ["Range", "Occurrences"]}}
    values |= {"Bin 0": {"values": ["[0]  ", "812345"]}, "Bin 1": {"values": ["[1:3]", "77"]}}
    of_json = mlxlink.parse(document({"Histogram of FEC Errors": values}))
    title = "Histogram of FEC Errors"
    rows = ("Header : Range,Occurrences", "Bin 0  : [0]  812345", "Bin 1  : [1:3] 77")
    text = "\n".join([title, "-" * len(title), *rows, ""])
    for report in (of_json, mlxlink.parse(text)):
        assert [(b.low, b.high, b.count.total) for b in report.histogram] == [
            (0, 0, 812345),
            (1, 3, 77),
        ]


def test_snr_and_eye_are_read_by_lane() -> None:
    report = mlxlink.parse(
        document(
            {
                "Operational Info": OPERATIONAL,
                "Module Info": {
                    "Identifier": "OSFP",
                    "SNR Media Lanes [dB]": {"values": ["23.5", "24.125"]},
                    "SNR Host Lanes [dB]": {"values": ["N/A"]},
                },
                "EYE Opening Info": {"Physical Grade": {"values": ["61", "58"]}},
            }
        )
    )
    assert report.snr_media_db == (23.5, 24.125)
    assert report.snr_host_db is None
    assert report.eye_grade == (61, 58)
    assert report.eye_grades == {}


def test_eye_grades_of_mft_4_34_are_read_by_lane() -> None:
    """`EYE Opening Info` of a 400G port as yuuki/rdma_exporter shows it (mft-4.34.1-400g-eye)."""
    eye = {
        "FOM Mode": {"values": ["SLRG_FOM_MODE_EYEO"]},
        "Initial FOM": {"values": ["100", "116", "87", "98"]},
        "Lane": {"values": ["0", "1", "2", "3"]},
        "Last FOM": {"values": ["107", "112", "88", "101"]},
        "Lower Grades": {"values": ["106", "109", "91", "95"]},
        "Mid Grades": {"values": ["124", "121", "111", "114"]},
        "Upper Grades": {"values": ["108", "111", "85", "100"]},
    }
    report = mlxlink.parse(document({"Operational Info": OPERATIONAL, "EYE Opening Info": eye}))
    assert report.eye_grade == (107, 112, 88, 101)
    assert report.eye_grades == {
        "upper": (108, 111, 85, 100),
        "mid": (124, 121, 111, 114),
        "lower": (106, 109, 91, 95),
    }


# --------------------------------------------------------------------------- log prefixes


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>: ",
        "[prterun-node0-4711@1,0]<stdout>: ",
        "[0] ",
        "[pod/nccl-test-launcher-x7/launcher] ",
        "[pod/nccl-test-launcher-x7/launcher] 2026-03-04T05:06:07.123456789Z ",
        "2026-03-04T05:06:07.123456789Z [1,0]<stdout>: ",
        "\x1b[32m0: \x1b[0m",
    ],
    ids=["openmpi 4", "openmpi 5", "mpich", "kubectl", "kubectl with times", "both", "colour"],
)
def test_a_table_behind_the_prefixes_of_a_log_is_the_same_table(prefix: str) -> None:
    plain = sample("nccl-tests/superbench_allreduce.txt")
    logged = "".join(f"{prefix}{line}\n" for line in plain.splitlines())
    assert nccl_tests.parse(logged) == nccl_tests.parse(plain)


# ----------------------------------------------------------------------------------- OSU

NON_BLOCKING = """\
# OSU MPI Non-blocking Allreduce Latency Test v5.7
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
4                       9.48              4.73              4.55              0.00
8                       9.40              4.70              4.52              0.05
"""
BARRIER = """\
[0] MPI startup(): Intel(R) MPI Library
# OSU MPI Barrier Latency Test v5.7
# Avg Latency(us)
             2.41
"""


def test_a_non_blocking_collective_has_its_overlap() -> None:
    run = osu.parse(NON_BLOCKING)
    assert (run.title, run.version) == ("OSU MPI Non-blocking Allreduce Latency Test", "5.7")
    assert [row.size for row in run.rows] == [4, 8]
    assert run.rows[1].values["Overlap(%)"] == 0.05
    assert run.rows[0].values["Overall(us)"] == 9.48


def test_a_barrier_has_no_size() -> None:
    run = osu.parse(BARRIER)
    assert [(row.size, dict(row.values)) for row in run.rows] == [(None, {"Avg Latency(us)": 2.41})]


def test_a_row_that_does_not_fit_its_columns_is_refused() -> None:
    with pytest.raises(ToolOutputError, match="5 values"):
        osu.parse(NON_BLOCKING + "16 9.5\n")
    with pytest.raises(ToolOutputError, match="a title"):
        osu.parse("hello\n")


# ----------------------------------------------------------------------------- rdma link


@pytest.mark.parametrize(
    "text",
    [
        # A page on ConnectX-6 Dx with MLNX_OFED 5; one on containers has no netdev.
        "0/1: mlx5_0/1: state ACTIVE physical_state LINK_UP netdev eth0 \n"
        "8/2: mlx5_bond_0/2: state DOWN physical_state POLLING \n",
        # A page that prints the output of /opt/mellanox/iproute2/sbin/rdma.
        "link mlx5_0/1: state ACTIVE physical_state LINK_UP netdev eth0\n"
        "link mlx5_bond_0/2: state DOWN physical_state POLLING\n",
    ],
)
def test_rdma_links_of_older_programs_are_read(text: str) -> None:
    expected = (
        rdma_link.RdmaLink("mlx5_0", 1, "ACTIVE", "LINK_UP", "eth0"),
        rdma_link.RdmaLink("mlx5_bond_0", 2, "DOWN", "POLLING", None),
    )
    found = recognition.read(text)
    assert (found.tool, found.value) == ("rdma link", expected)
    indented = "".join(f"        {line}\n" for line in text.splitlines())
    if text[0].isdigit():  # as a page indents it; `link` is not at the margin of its further lines
        assert rdma_link.parse(indented) == expected


@pytest.mark.parametrize(
    "line",
    [
        "0/1: mlx5_0/2: state ACTIVE physical_state LINK_UP",  # two ports
        "0/1: mlx5_0/1 state ACTIVE physical_state LINK_UP",
        "0/1: state ACTIVE physical_state LINK_UP",
        "0/1: mlx5_0/1: state ACTIVE physical_state",
    ],
)
def test_rdma_links_of_no_known_form_are_refused(line: str) -> None:
    with pytest.raises(ToolOutputError):
        rdma_link.parse(line)


DNOS = """\
	Identifier                                : QSFP
	Connector                                 : MPO Parallel Optic
	Laser wavelength                          : 850.000nm
	Vendor name                               : Mellanox
	Vendor PN                                 : MMA1B00-C100D
	Module temperature                        : 47.11 degrees C / 116.79 degrees F
	Module voltage                            : 3.2531 V
	Laser tx bias current (Channel 0)         : 6.600 mA
	Laser tx bias current (Channel 1)         : 6.600 mA
	Transmit avg optical power (Channel 0)    : 0.9077 mW / -0.42 dBm
	Transmit avg optical power (Channel 1)    : 0.9700 mW / -0.13 dBm
	Rcvr signal avg optical power(Channel 0)  : 0.9522 mW / -0.21 dBm
	Rcvr signal avg optical power(Channel 1)  : 0.8316 mW / -0.80 dBm
"""
"""Two of four channels of `show interfaces transceiver`, command reference of DNOS."""


def test_channels_of_dnos_are_counted_from_0_and_its_identifier_has_no_code() -> None:
    reading = ethtool_module.parse(DNOS)
    assert (reading.identifier, reading.form, reading.part) == (None, "QSFP", "MMA1B00-C100D")
    assert [lane.tx_power_dbm for lane in reading.lanes] == pytest.approx([-0.42, -0.13], abs=0.005)
    assert [lane.rx_power_dbm for lane in reading.lanes] == pytest.approx([-0.21, -0.80], abs=0.005)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Identifier                                : QSFP", "Identifier : 0x18"),
        ("Identifier                                : QSFP", "Identifier : 18 (QSFP_DD)"),
        ("0.9522 mW / -0.21 dBm", "3.1 dBm"),  # its QSFP_DD form, of a doubtful unit
        ("power(Channel 1)", "power(Channel 2)"),
    ],
    ids=["half an identifier", "a decimal code", "dBm alone", "a gap"],
)
def test_forms_of_dnos_whose_meaning_is_in_doubt_are_refused(old: str, new: str) -> None:
    assert DNOS.count(old) == 1
    with pytest.raises(ToolOutputError):
        ethtool_module.parse(DNOS.replace(old, new))
