"""What an emulated server's kernel wrote and shows of an e1000e, beside what moved its link."""

import re
from pathlib import Path

from lightrig.instruments.servers.tools import pci_path
from lightrig.instruments.servers.tools.kernel_patterns import pattern_of

FILE = Path(__file__).with_name("virtual_server_kernel.txt")
SECTIONS = {
    section.partition(" | ")[0]: section.splitlines()[1:]
    for section in FILE.read_text(encoding="ascii").split("%% ")[1:]
}
LINK_LINE = re.compile(r"\[\s*([\d.]+)\] (e1000e .* NIC Link is (Up|Down)\b.*)")


def test_lines_about_the_link_are_told_from_those_about_nothing() -> None:
    lines = [line.partition("] ")[2] for line in SECTIONS["dmesg"]]
    kinds = [None if (found := pattern_of(line)) is None else found.kind for line in lines]
    # Its name, addresses and interrupts first; then up, "becomes ready", and twice down and up.
    assert kinds == [None] * 5 + ["link"] * 6


def test_each_move_of_the_link_is_a_line_within_a_second() -> None:
    """The kernel's clock is behind the bench's by one offset: the least that a line allows."""
    found = [match for line in SECTIONS["dmesg"] if (match := LINK_LINE.match(line))]
    lines = [(match[3].lower(), float(match[1])) for match in found]
    moves = [line.split() for line in SECTIONS["set_link"]]
    assert [state for state, _ in lines[1:]] == [state for state, *_ in moves]
    assert len(lines) + 1 == int(*SECTIONS["carrier_changes"]), "and down before the first line"
    ahead = [
        int(before) / 1e9 - at for (_, before, _), (_, at) in zip(moves, lines[1:], strict=True)
    ]
    assert max(ahead) - min(ahead) < 1


def test_its_path_is_read_as_lspci_has_it() -> None:
    device, *lines = SECTIONS["sysfs"]
    folders = {"": device, "../": device.rpartition("/")[0]}
    text = ""
    for line in lines:
        match = re.fullmatch(r"(\.\./)?((?:current|max)_link_(?:speed|width)) (.+)", line)
        text += f"{folders[match[1] or '']}/{match[2]}:{match[3]}\n" if match else ""
    (link,) = pci_path.parse(f"{device}\n", text).links
    for end, name in ((link.above, "lspci_root_port"), (link.below, "lspci_nic")):
        shown = "\n".join(SECTIONS[name])
        able = re.search(r"LnkCap:.*Speed ([\d.]+)GT/s, Width x(\d+)", shown)
        runs = re.search(r"LnkSta:.*Speed ([\d.]+)GT/s, Width x(\d+)", shown)
        assert able is not None
        assert runs is not None
        assert (end.max_speed, end.max_width) == (float(able[1]), int(able[2]))
        assert (end.speed, end.width) == (float(runs[1]), int(runs[2]))
    assert (link.ends, link.problem) == ("0000:00:06.0 - 0000:01:00.0", None)
