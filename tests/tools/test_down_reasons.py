"""Why links are down, quoted from public captures; see down_reasons.txt."""

from pathlib import Path
from typing import Any, cast

import pytest

from lightrig.instruments.clock import Span
from lightrig.instruments.servers.host.commands import CommandResult, Reading, ToolFailedError
from lightrig.instruments.servers.ports.down_reasons import AskedNic, down_reasons
from lightrig.instruments.servers.tools import ethtool_driver, ethtool_link, mlxlink

NOW = Span(0, 0)
DRIVER = """driver: mlx5_core
version: 6.8.0
firmware-version: 28.41.1000 (MT_0000000838)
expansion-rom-version: 
bus-info: 0000:01:00.0
"""  # noqa: W291 - as ethtool prints it


def captures() -> list[list[str]]:
    lines = Path(__file__).with_name("down_reasons.txt").read_text(encoding="ascii").splitlines()
    return [[part.strip() for part in one.split(" | ")] for one in lines if one[0] != "#"]


class Nic:
    """A NIC one of whose tools prints a capture; the other tool is not installed."""

    def __init__(self, tool: str, lines: list[tuple[str, str]]) -> None:
        self.tool, self.lines = tool, lines

    def driver(self, netdev: str) -> Any:
        return Reading(ethtool_driver.parse(DRIVER), NOW)

    def link(self, netdev: str) -> Any:
        self.check("ethtool")
        text = "".join(f"\t{key}: {value}\n" for key, value in self.lines)
        return Reading(ethtool_link.parse(f"Settings for {netdev}:\n{text}"), NOW)

    def firmware(self, device: str) -> Any:
        self.check("mlxlink")
        sections = {"Troubleshooting Info": self.lines[:3], "Tool Information": self.lines[3:]}
        text = "".join(
            f"\n{title}\n{'-' * len(title)}\n" + "".join(f"{k:<35}: {v}\n" for k, v in lines)
            for title, lines in sections.items()
            if lines
        )
        return Reading(mlxlink.parse(text), NOW)

    def check(self, tool: str) -> None:
        if tool != self.tool:
            raise ToolFailedError("server0", CommandResult("", "not found\n", 127, NOW), tool)


@pytest.mark.parametrize("capture", captures(), ids=lambda each: each[0])
def test_reasons_are_quoted(capture: list[str]) -> None:
    _, tool, text, quoted = capture
    shown = text.encode().decode("unicode_escape")
    pairs = [one.partition(":")[::2] for one in shown.split(";")]
    lines = [(key.strip(), value.removeprefix(" ")) for key, value in pairs]
    nic = cast("AskedNic", Nic(tool, lines))
    assert down_reasons(nic, "eth0", "mlx5_0") == (() if quoted == "-" else (quoted,))


def test_of_22_captures_15_have_a_reason() -> None:
    found = captures()
    assert (len(found), sum(one[3] != "-" for one in found)) == (22, 15)
