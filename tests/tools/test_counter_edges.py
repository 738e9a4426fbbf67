"""Counters and reports of ports where they begin to tell something else: numbers by hand."""

import json
from typing import Any

import pytest

from lightrig.instruments.jobs.tools import nccl_tests
from lightrig.instruments.servers.tools import ethtool_fec, mlxlink_sections
from lightrig.instruments.servers.tools.counters import CounterKind, Unknown, changes, delta
from lightrig.instruments.servers.tools.ethtool_fec import FecBin, FecCount
from lightrig.instruments.servers.tools.output import ToolOutputError, ToolReportedError

BYTE = CounterKind(bits=8, scale=4)
FULL = CounterKind(bits=8, at_top="saturates", scale=4)


@pytest.mark.parametrize(
    ("before", "after", "kind", "at_most", "found"),
    [
        (3, 10, BYTE, None, 28),
        (10, 10, BYTE, None, 0),
        (0, 255, BYTE, None, 1020),
        (0, 256, BYTE, None, Unknown("too large")),
        (256, 0, BYTE, None, Unknown("too large")),
        (-1, 5, BYTE, None, Unknown("too large")),
        (5, -1, BYTE, None, Unknown("too large")),
        (10, 255, FULL, None, Unknown("saturated", 980)),
        (10, 254, FULL, None, 976),
        (10, 3, FULL, None, Unknown("reset", 12)),
        (10, 3, CounterKind(), None, Unknown("reset", 3)),
        (10, 3, CounterKind(bits=63), None, Unknown("wrapped or reset", 3)),
        # From 254 to 1 there are three counts, of four bytes each; 255 // 16 are 15.
        (254, 1, BYTE, None, Unknown("wrapped or reset", 4)),
        (254, 1, BYTE, 12, 12),
        (254, 1, BYTE, 11, Unknown("wrapped or reset", 4)),
        (254, 1, BYTE, 14, 12),
        (254, 1, BYTE, 15, Unknown("wrapped or reset", 4)),
    ],
)
def test_differences_of_counters(
    before: int, after: int, kind: CounterKind, at_most: int | None, found: int | Unknown
) -> None:
    assert delta(before, after, kind, at_most=at_most) == found


def test_differences_of_all_counters_of_a_port() -> None:
    kinds = {
        "plain": CounterKind(), "slow": CounterKind(refresh_ns=100, scale=2),
        "paced": CounterKind(bits=16, most_per_s=1000), "wide": CounterKind(bits=4),
    }  # fmt: skip
    before = {"plain": 5, "slow": 7, "paced": 65_534, "odd": 1, "gone": 1}
    after = {"plain": 9, "slow": 10, "paced": 1, "odd": 2, "new": 1}
    # A thousand a second: three counts, of which two and one for rounding fit into 2 ms.
    assert changes(before, after, kinds.get, apart_ns=2_000_000) == {
        "plain": 4, "slow": 6, "paced": 3, "odd": Unknown("not known"),
    }  # fmt: skip
    assert changes(before, after, kinds.get, apart_ns=1_999_999)["paced"] == Unknown(
        "wrapped or reset", 1
    )
    assert changes(before, after, kinds.get, apart_ns=100)["slow"] == 6
    assert changes(before, after, kinds.get, apart_ns=99)["slow"] == Unknown("too soon", 6)
    assert changes(after, before, kinds.get, apart_ns=99)["slow"] == Unknown("reset", 14)
    # One reset resets all: each has counted at least what it shows.
    found = changes(
        {"plain": 9, "slow": 7, "wide": 3}, {"plain": 2, "slow": 8, "wide": 99}, kinds.get,
        apart_ns=500,
    )  # fmt: skip
    assert found == {
        "plain": Unknown("reset", 2), "slow": Unknown("reset", 16), "wide": Unknown("too large"),
    }  # fmt: skip


# ----------------------------------------------------------------------------------- FEC

HEAD = "FEC parameters for ens1:\nSupported/Configured FEC encodings: Auto RS\n"
ACTIVE = "Active FEC encoding: RS\n"


def test_errors_and_bins_of_a_port() -> None:
    found = ethtool_fec.parse(
        f"{HEAD}{ACTIVE}Statistics:\n"
        "  corrected_blocks: 12 [ per_lane:  5, 7 ]\n"
        "  corrected_bits: 90\n    Lane 0: 40\n    Lane 1: 50\n"
        "  fec_symbol_err_3: 8\n  fec_symbols_err_4_to_6: 2\n"
    )
    assert (found.netdev, found.configured, found.active) == ("ens1", ("Auto", "RS"), ("RS",))
    assert found.corrected_blocks == FecCount(12, (5, 7))
    assert found.corrected_bits == FecCount(90, (40, 50))
    assert found.uncorrectable_blocks is None
    assert found.histogram == (FecBin(3, 3, FecCount(8)), FecBin(4, 6, FecCount(2)))
    assert ethtool_fec.parse(f"{HEAD}{ACTIVE}").corrected_blocks is None
    for wrong in (
        HEAD, f"{HEAD}Active: RS\n", f"{HEAD}{ACTIVE}Counters:\n", f"{ACTIVE}{HEAD}",
        f"{HEAD}{ACTIVE}Statistics:\n corrected_bits: 90\n Lane 1: 50\n",
        f"{HEAD}{ACTIVE}Statistics:\n corrected_bits: 90\n corrected_bits: 91\n",
        f"{HEAD}{ACTIVE}Statistics:\n Lane 0: 50\n",
    ):  # fmt: skip
        with pytest.raises(ToolOutputError):
            ethtool_fec.parse(wrong)


def test_errors_and_bins_of_a_port_as_json() -> None:
    port: dict[str, Any] = {
        "ifname": "ens1", "config": ["RS"], "active": ["None"],
        "statistics": {
            "corrected_blocks": {"total": 12, "lanes": [5, 7]}, "corrected_bits": {"total": 0},
            "hist": [{"bin_low": 0, "bin_high": 0, "total": 8},
                     {"bin_low": 1, "bin_high": 4, "total": 2, "lanes": [2, 0]}],
        },
    }  # fmt: skip
    found = ethtool_fec.parse(json.dumps([port]))
    assert (found.netdev, found.configured, found.active) == ("ens1", ("RS",), ("None",))
    assert found.corrected_blocks == FecCount(12, (5, 7))
    assert found.corrected_bits == FecCount(0)
    assert found.histogram == (FecBin(0, 0, FecCount(8)), FecBin(1, 4, FecCount(2, (2, 0))))
    bins = {"bin_low": 3, "bin_high": 2, "total": 8}
    for wrong in (
        [port, port], [], {**port}, [{**port, "config": ["RS", 5]}],
        [{**port, "statistics": {"hist": [bins]}}],
        [{**port, "statistics": {"hist": [{**bins, "bin_low": -1}]}}],
        [{**port, "statistics": {"corrected_bits": {"total": -1}}}],
        [{**port, "statistics": {"corrected_bits": {"total": 4, "lanes": [True]}}}],
    ):  # fmt: skip
        with pytest.raises(ToolOutputError):
            ethtool_fec.parse(json.dumps(wrong))


# ------------------------------------------------------------------------------- mlxlink


def test_sections_of_text() -> None:
    text = "\n".join([
        "", "Operational Info", "----------------", "State   : Active", "Speed : 100G : x",
        "Reading ...", "-I- hello", "Tool", "----", "Version : N/A", "Empty :",
    ])  # fmt: skip
    sections, warning = mlxlink_sections.sections_of(text)
    assert sections == {
        "Operational Info": {"State": "Active", "Speed": "100G : x"},
        "Tool": {"Version": "N/A", "Empty": ""},
    }
    assert warning == "-I- hello"
    tool = sections["Tool"]
    assert [mlxlink_sections.text_of(tool, key) for key in ("Version", "Empty", "x")] == [None] * 3
    assert mlxlink_sections.read_value(sections["Operational Info"], "State", len) == 6
    assert mlxlink_sections.read_section(sections, "none", len) is None
    assert mlxlink_sections.read_section(sections, "Tool", len) == 2
    with pytest.raises(ToolOutputError, match="in 'Tool': Version: "):
        mlxlink_sections.read_section(
            {"Tool": {"Version": "x"}}, "Tool",
            lambda section: mlxlink_sections.read_value(section, "Version", int),
        )  # fmt: skip
    for wrong in (
        "Tool\n---\nA : 1", "Tool\n-----\nA : 1", "Tool\n----\nA : 1\nTool\n----\nB : 1",
        "Tool\n----\nA : 1\nA : 2", "Tool\n----\n: 1", "Tool\n----\nA 1", "A : 1", "",
    ):  # fmt: skip
        with pytest.raises(ToolOutputError):
            mlxlink_sections.sections_of(wrong)
    with pytest.raises(ToolReportedError, match="no device here"):
        mlxlink_sections.sections_of("Errors\n------\nno device\nhere")
    with pytest.raises(ToolReportedError, match="-E- no device -E- gone"):
        mlxlink_sections.sections_of("-E- no device\n-E- gone")


def test_sections_of_json() -> None:
    def parsed(code: int = 0, message: str = "", **result: Any) -> Any:
        document = {"status": {"code": code, "message": message}, "result": result}
        return mlxlink_sections.sections_of(json.dumps(document))

    output = {"Tool": {"Version": "7", "Lanes": {"values": ["1", "2"]}}}
    sections = {"Tool": {"Version": "7", "Lanes": "1,2"}}
    assert parsed(output=output) == (sections, None)
    assert parsed(output=output, warning={"message": "old"}) == (sections, "old")
    assert parsed(1, "not all", output=output, warning={"message": "old"}) == (
        sections, "not all; old",
    )  # fmt: skip
    for result in ({}, {"output": ""}, {"output": {}}, {"output": "text"}):
        with pytest.raises(ToolReportedError, match="not all"):
            parsed(1, "not all", **result)
    with pytest.raises(ToolReportedError, match="Semaphore"):
        parsed(1, "Semaphore is taken", output=output)
    for wrong in ({"output": "text"}, {"output": {}}, {"output": {"Tool": {"A": {"values": [1]}}}}):
        with pytest.raises(ToolOutputError):
            parsed(**wrong)


# ----------------------------------------------------------------- the file of nccl-tests


def file(**more: Any) -> str:
    """4000 B among three ranks: 0.5 GB/s, and 4 / 3 of that on the bus."""
    times = {"min_us": 7.5, "max_us": 9, "p99_us": 8.9, "cv_pct": 3, "times_us": [8, 7.5, 9]}
    one = {"time": 8, "alg_bw": 0.5, "bus_bw": 0.666667, "nwrong": 0}
    other = {"time": 10, "alg_bw": 0.4, "bus_bw": 0.533333, "nwrong": 2}
    row = {"size": 4000, "count": 1000, "type": "float", "redop": "sum ", "root": " -1",
           "out_of_place": one, "in_place": other, "out_of_place_per_iter": times}  # fmt: skip
    row |= more.pop("row", {})
    devices = [{"rank": rank, "hostname": f"host{rank // 2}"} for rank in (2, 0, 1)]
    return json.dumps({
        "version": 3, "config": {"devices": devices}, "results": [row], "nccl_version": 22703,
        "args": ["/opt/all_reduce_perf_mpi", "-b"], "average_bus_bandwidth": {"bandwidth": 0.6},
        "out_of_bounds": {"count": 2}, **more,
    })  # fmt: skip


def test_a_file_of_collectives_by_value() -> None:
    found = nccl_tests.parse(file())
    assert (found.collective, found.ranks, found.hosts) == ("all_reduce", 3, ("host1", "host0"))
    assert (found.version, found.wrong, found.factor) == ("22703", 2, 4 / 3)
    assert found.average_bus_gbytes is not None
    assert found.average_bus_gbytes.value == 0.6
    (row,) = found.rows
    assert (row.redop, row.root) == ("sum", None)
    assert [(one.time_us.value, one.wrong) for one in row.measured] == [(8, 0), (10, 2)]
    times = row.measured[0].iterations
    assert times is not None
    assert (times.least_us.value, times.most_us.value, times.each_us) == (7.5, 9, (8, 7.5, 9))
    assert (times.p99_us.value, row.measured[1].iterations) == (8.9, None)
    assert nccl_tests.parse(file(args=[])).collective is None
    assert nccl_tests.parse(file(args=[5])).collective is None
    assert nccl_tests.parse(file(row={"root": "2", "redop": "none"})).rows[0].root == 2
    times = {"min_us": 7.5, "max_us": 9, "p99_us": 8.9, "cv_pct": 3}  # type: ignore[assignment]
    for wrong in (
        {"version": 0}, {"version": 4}, {"results": []}, {"row": {"size": -1}},
        {"row": {"out_of_place_per_iter": {**times, "times_us": [8, 7.6, 9]}}},  # type: ignore[dict-item]
        {"row": {"out_of_place_per_iter": {**times, "times_us": [8, 7.5, 8.9]}}},  # type: ignore[dict-item]
        {"row": {"out_of_place_per_iter": {**times, "times_us": [8, -7.5, 9]}}},  # type: ignore[dict-item]
        {"row": {"in_place": {"time": 10, "alg_bw": 0.4, "bus_bw": 0.533333, "nwrong": -1}}},
        {"row": {"in_place": {"time": 10, "alg_bw": 0.4, "bus_bw": 0.533333, "nwrong": 1.5}}},
        {"average_bus_bandwidth": {"bandwidth": 0.7}},
    ):  # fmt: skip
        with pytest.raises(ToolOutputError):
            nccl_tests.parse(file(**wrong))
