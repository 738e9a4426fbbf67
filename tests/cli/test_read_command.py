"""`lightrig read` names the tool of every public sample, and prints what its parser reads."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.instruments.servers.tools import ethtool_fec, sonic_eeprom, sonic_optics
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.recognition import read, readers

SAMPLES = Path(__file__).parents[1] / "tools" / "samples"
TOOLS = {
    "ethtool/jc_settings": "ethtool",
    "ethtool/jc_module": "ethtool -m",
    "iproute2/": "ip link",
    "nccl-tests/": "nccl-tests",
    "osu/": "OSU micro-benchmarks",
    "perftest/": "perftest",
    "rdma/gpud_sysfs": "/sys/class/infiniband",
    "synthetic/ethtool_fec": "ethtool --show-fec",
    "synthetic/ethtool_module": "ethtool -m",
    "synthetic/ethtool_statistics": "ethtool -S",
    "synthetic/iperf3": "iperf3",
    "synthetic/mlxlink": "mlxlink",
    "synthetic/nccl": "nccl-tests",
    "synthetic/perftest": "perftest",
    "synthetic/rdma": "rdma link",
    "synthetic/sonic_eeprom": sonic_eeprom.TOOL,
    "synthetic/sonic_transceiver_pm": sonic_optics.TABLE,
    "synthetic/sonic_vdm": sonic_optics.DATABASE,
}
"""By the beginning of a sample's path, the tool that printed it (samples/SOURCES.md)."""


def samples() -> list[str]:
    files = (path.relative_to(SAMPLES).as_posix() for path in SAMPLES.glob("*/*"))
    return sorted(files)


@pytest.mark.parametrize("name", samples())
def test_the_tool_of_every_sample_is_named(name: str) -> None:
    (tool,) = (tool for beginning, tool in TOOLS.items() if name.startswith(beginning))
    text = (SAMPLES / name).read_text()
    (parse,) = (reader.parse for reader in readers() if reader.tool == tool)
    assert outcome(lambda: tuple(read(text))) == outcome(lambda: (tool, parse(text)))


def outcome(call: Callable[[], Any]) -> Any:
    """Return the value, or the text of the error: some samples contradict themselves."""
    try:
        return call()
    except ToolOutputError as error:
        return str(error)


def test_what_is_read_is_printed(tmp_path: Path) -> None:
    file = SAMPLES / "synthetic" / "ethtool_fec.txt"
    ended = CliRunner().invoke(application(), ["read", str(file)])
    assert ended.exit_code == 0
    assert ended.stdout.startswith(f"{file}: output of ethtool --show-fec\n")
    fec = ethtool_fec.parse(file.read_text())
    assert f"  netdev: {fec.netdev}\n" in ended.stdout
    as_json = CliRunner().invoke(application(), ["read", str(file), "--json"])
    printed = json.loads(as_json.stdout)
    assert printed["tool"] == "ethtool --show-fec"
    assert printed["read"]["corrected_blocks"] == {
        **dataclasses.asdict(fec)["corrected_blocks"],
        "lanes": list(fec.corrected_blocks.lanes if fec.corrected_blocks else ()),
    }


def test_standard_input_is_read() -> None:
    text = (SAMPLES / "osu" / "pkb_omb_latency.txt").read_text()
    ended = CliRunner().invoke(application(), ["read", "-"], input=text)
    assert ended.exit_code == 0
    assert "output of OSU micro-benchmarks" in ended.stdout


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"Dear diary,\n", "the output of one of: mlxlink"),
        (b"\xff\xfe\x00", "the output of one of"),
        (b"Settings for eth0:\n\tSpeed: fast\n", "ethtool"),
    ],
)
def test_an_unreadable_file_is_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "output.txt"
    file.write_bytes(content)
    ended = CliRunner().invoke(application(), ["read", str(file)])
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert sentence in ended.stderr
