"""Prints of tools that were taken for something else, each with its source."""

import json

import pytest

from lightrig.instruments.jobs.tools import iperf3, nccl_tests, osu
from lightrig.instruments.servers.tools import (
    cmis_diagnostics,
    ethtool_module,
    infiniband_sysfs,
    mlxlink,
    recognition,
)
from lightrig.instruments.servers.tools.output import ToolOutputError, ToolReportedError


def report(**sections: dict[str, str]) -> str:
    """Return a report of mlxlink in JSON, with sections by name."""
    named = {name.replace("_", " "): section for name, section in sections.items()}
    status = {"code": 0, "message": "success"}
    return json.dumps({"result": {"output": named}, "status": status})


def module(power: str, **more: str) -> str:
    fields = {"Identifier": "QSFP28", "Rx Power Current [dBm]": power, **more}
    return report(Module_Info=fields)


def test_state_of_a_module_by_either_key() -> None:
    """ethtool's cmis.c: `Module State` until 6.13, `Module state` from 6.14 on."""
    for key in ("Module State", "Module state"):
        text = f"\tIdentifier : 0x18 (QSFP-DD)\n\t{key} : 0x03 (ModuleReady)\n"
        assert ethtool_module.parse(text).state == "ModuleReady"


def test_files_below_the_place_of_a_pci_device() -> None:
    """node_exporter's issue 966: the path itself has colons."""
    path = "/sys/devices/pci0000:05/0000:05:02.0/0000:06:00.0/infiniband/i40iw0/ports/1"
    text = f"{path}/state:4: ACTIVE\n{path}/counters/port_rcv_data:7\n{path}/gids/0:fe80::1\n"
    (port,) = infiniband_sysfs.parse(text)
    assert (port.device, port.port, port.state) == ("i40iw0", 1, "ACTIVE")
    assert port.counters == {"port_rcv_data": 7}


def test_a_page_of_ones_and_a_ratio_above_one_are_no_values() -> None:
    """CMIS 5.2, 8.14: F16 is the mantissa in 11 bits times 10 to (5 bits - 24)."""
    descriptors = dict(enumerate(bytes(128), 128))
    samples = dict(enumerate(bytes(128), 128))
    # Lanes 1 to 3: ones; 1.50e-6, mantissa 150 and exponent 16; 2000e7; the last two of 5: SNR.
    values = {0: (0x00, 0x0F, 0xFFFF), 2: (0x01, 0x0F, 16 << 11 | 150), 4: (0x02, 0x0F, 0xFFD0)}
    values |= {6: (0x00, 0x05, 0xFFFF), 8: (0x01, 0x05, 20 << 8)}
    for place, (lane, kind, raw) in values.items():
        descriptors |= {128 + place: lane, 129 + place: kind}
        samples |= {128 + place: raw >> 8, 129 + place: raw & 0xFF}
    found = {
        (one.name, one.lane): one.current
        for one in cmis_diagnostics.decode([(descriptors, samples)])
    }
    assert found["prefec_ber", 1] is None
    assert found["prefec_ber", 2] == pytest.approx(1.5e-6)
    assert found["prefec_ber", 3] is None
    assert (found["esnr", 1], found["esnr", 2]) == (None, 20)


def test_bins_of_a_histogram_by_number() -> None:
    """MFT 4.34.1 sorts the keys of its JSON as text (yuuki/rdma_exporter, fec-serdes.json)."""
    bins = {f"Bin {n}": f"[{n}:{n}],{100 - n}" for n in (0, 1, 10, 11, 2, 3)}
    found = mlxlink.parse(report(**{"Histogram of FEC Errors": bins})).histogram
    assert [(each.low, each.count.total) for each in found] == [
        (n, 100 - n) for n in (0, 1, 2, 3, 10, 11)
    ]
    overlapping = report(**{"Histogram of FEC Errors": {"Bin 0": "[0:3],1", "Bin 1": "[2:4],1"}})
    with pytest.raises(ToolOutputError, match="bins that do not overlap"):
        mlxlink.parse(overlapping)


@pytest.mark.parametrize(
    ("printed", "kind"), [("OMA", "oma"), ("Average power", "average"), (None, "average")]
)
def test_kind_of_received_power(printed: str | None, kind: str) -> None:
    """mstflint's mlxlink_maps.cpp has these two texts."""
    more = {"Rx Power Type": printed} if printed else {}
    read = mlxlink.parse(module("-1.2", **more)).module
    assert read is not None
    assert (read.rx_power_is, read.lanes[0].rx_power_dbm) == (kind, -1.2)


@pytest.mark.parametrize("power", ["65535", "813", "20.5"])
def test_more_light_than_a_register_holds_is_refused(power: str) -> None:
    """mstflint's pull requests 1377, 1378; 65,535 steps of 0.1 µW are 6.5 mW, 8.2 dBm."""
    with pytest.raises(ToolOutputError, match="rx_power"):
        mlxlink.parse(module(power))


OSU = """# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)        Validation
1                       1.38              Pass
2                       1.36              {}
"""


def test_validation_of_osu() -> None:
    """open-mpi/ompi's issue 12717: the column that `-c` adds."""
    read = osu.parse(OSU.format("Pass"))
    assert read.columns == ("Avg Latency(us)",)
    assert [row.values["Avg Latency(us)"] for row in read.rows] == [1.38, 1.36]
    with pytest.raises(ToolReportedError, match="did not succeed"):
        osu.parse(OSU.format("Fail"))


@pytest.mark.parametrize(
    ("devices", "gpus", "ranks"),
    [
        ([(0, 7)], 4, 4),
        ([(0, 7), (4, 8)], 4, 8),
        ([(0, 7), (1, 8)], 1, 2),
        ([(0, 7), (1, 7), (2, 7), (3, 7)], 4, 4),
    ],
    ids=["1 process", "2 processes", "1 GPU each", "all listed"],
)
def test_ranks_of_a_file_of_nccl_tests(
    devices: list[tuple[int, int]], gpus: int, ranks: int
) -> None:
    """src/util.cu of nccl-tests 2.19.6 lists the first device of each process."""
    factor = 2 * (ranks - 1) / ranks  # of all_reduce: bus over algorithm bandwidth
    place = {"time": 100.0, "alg_bw": 10.0, "bus_bw": round(10 * factor, 6), "nwrong": 0.0}
    row = {"size": 1_000_000, "count": 250_000, "type": "float", "redop": "sum", "root": "    -1"}
    listed = [{"rank": rank, "pid": pid, "hostname": "node0"} for rank, pid in devices]
    document = {
        "version": 3,
        "args": ["./build/all_reduce_perf", "-J", "out.json"],
        "nccl_version": 22809,
        "config": {"nthreads": 1, "ngpus": gpus, "devices": listed},
        "results": [{**row, "out_of_place": place, "in_place": place}],
    }
    assert nccl_tests.parse(json.dumps(document)).ranks == ranks


def test_alltoallv_of_nccl_tests_counts_elements_for_each_rank() -> None:
    """src/alltoallv.cu of nccl-tests 2.19: 65,536 floats to each of four ranks are 1 MiB."""
    devices = "".join(
        f"#  Rank {rank:2} Group  0 Pid 42{rank} on node0 device {rank} [0000:1{rank}:00] GPU\n"
        for rank in range(4)
    )
    (row,) = (
        run := nccl_tests.parse(
            "# nccl-tests version 2.19.6 nccl-headers=22907 nccl-library=22907\n"
            "# Collective test starting: alltoallv_perf\n"
            f"# Using devices\n{devices}#\n"
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
            "     time   algbw   busbw  #wrong\n"
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
            "             (us)  (GB/s)  (GB/s)\n"
            "     1048576         65536     float    none      -1    52.43   20.00   15.00       0"
            "    52.43   20.00   15.00    N/A\n"
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 15\n"
        )
    ).rows
    assert (run.collective, run.ranks, run.factor) == ("alltoallv", 4, 0.75)
    assert row.out_of_place is not None
    assert row.out_of_place.algorithm_gbytes.value == 20


@pytest.mark.parametrize("name", ["Ethernet1/1", "fourHundredGigE1", "etp1a", "Eth1(Port1)"])
def test_sonic_names_ports_by_their_aliases(name: str) -> None:
    """sonic-net/sonic-buildimage, issue 4653: names of hardware SKUs in the naming mode `alias`."""
    text = (
        f"{name}: SFP EEPROM detected\n"
        "        Application Advertisement: IB NDR - Host Assign (0x11) - Copper cable\n"
        "                                   IB SDR (Arch.Spec.Vol.2) - Host Assign (0x11)\n"
        "        Identifier: OSFP 8X Pluggable Transceiver\n        Vendor PN: PART-1\n"
    )
    tool, modules = recognition.read(text)
    assert tool == "show interfaces transceiver eeprom"
    assert {port: module.part for port, module in modules.items()} == {name: "PART-1"}


def test_zeros_of_a_passive_cable_are_no_reading() -> None:
    """ethtool 6.1 and 6.14 on the memory of a QSFP28 DAC (SFF-8636, bytes 22 to 27 are 0)."""
    text = (
        "\tIdentifier : 0x11 (QSFP28)\n\tVendor PN : DAC-1M\n"
        "\tModule temperature : 0.00 degrees C / 32.00 degrees F\n\tModule voltage : {} V\n"
    )
    read = ethtool_module.parse(text.format("0.0000"))
    assert (read.part, read.temperature_c, read.voltage_v) == ("DAC-1M", None, None)
    cold = ethtool_module.parse(text.format("3.2800"))
    assert (cold.temperature_c, cold.voltage_v) == (0, 3.28)
    as_json = '[{"identifier": 17, "module_temperature": 0.0, "module_voltage": 0.0}]'
    assert ethtool_module.parse(as_json).temperature_c is None


@pytest.mark.parametrize("reporter", ["connecting_to", "accepted_connection"])
def test_udp_of_iperf3_before_3_11(reporter: str) -> None:
    """esnet/iperf, issue 802 and pull request 1174: `sum` alone, 2 of 87 lost."""
    total = {
        "seconds": 1.000294, "bytes": 125976, "bits_per_second": 1007511.821641,
        "jitter_ms": 0.304162, "lost_packets": 2, "packets": 87,
    }  # fmt: skip
    test = {"protocol": "UDP", "num_streams": 1, "reverse": 0}
    start = {"version": "iperf 3.9", reporter: {}, "test_start": test}
    flow = iperf3.parse(json.dumps({"start": start, "end": {"sum": total}})).forward
    assert flow is not None
    assert (flow.packets, flow.lost_packets, flow.jitter_ms) == (87, 2, 0.304162)
    rates = (flow.sent_bps, flow.received_bps)
    expected = (1007511.821641, None)
    assert rates == (expected if reporter == "connecting_to" else expected[::-1])
