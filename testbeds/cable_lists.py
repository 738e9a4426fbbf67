"""Readers of lists of cables: NetBox's and sonic-mgmt's, and of the names that a testbed gives.

Columns of NetBox are those of its bulk import (netbox/dcim/forms/bulk_import.py, CableImportForm);
those of sonic-mgmt are of `ansible/files/*_l1_links.csv` (ansible/module_utils/graph_utils.py).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lightrig.testbeds.errors import Problem, TestbedError
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.regular_files import read_regular

NETBOX: Final = (
    "side_a_device", "side_a_type", "side_a_name", "side_b_device", "side_b_type", "side_b_name",
)  # fmt: skip
SONIC_L1: Final = ("StartDevice", "StartPort", "EndDevice", "EndPort")
_PACKETS: Final = {"BandWidth", "VlanID", "VlanMode"}
_DISPLAYED: Final = re.compile(r"(termination|device|side|rack|site|location) [ab]", re.IGNORECASE)
_NAME_COLUMNS: Final = (
    "device", "port", "name", "kind", "model", "address", "login", "size", "rate", "place",
)  # fmt: skip
KINDS: Final = ("optical", "packet", "server", "panel")
_PLANNED: Final = ("", "connected")
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class CableEnd:
    """One end of a cable: a port of a device, both by their names in the list."""

    device: str
    port: str

    def __str__(self) -> str:
        return f"{self.device} {self.port}"


@dataclass(frozen=True, slots=True)
class Cable:
    """A line of a list of cables.

    numbers: of the ports that the cable's fibers have at its second end, where the list has them.
    absent: why nothing is there yet; empty for a cable that is connected.
    """

    line: int
    a: CableEnd
    b: CableEnd
    label: str = ""
    numbers: tuple[str, ...] = ()
    absent: str = ""


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device of the list in the testbed; texts that the file of names leaves out are empty.

    kind: one of `KINDS`. ports: names in the testbed by those in the list, with their lines.
    """

    line: int
    name: str
    kind: str
    model: str
    address: str
    login: str
    size: str
    rate: str
    place: str
    ports: Mapping[str, tuple[str, int]]


class _Table:
    """A CSV file with a header, read as a whole; problems are noted with line and column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.header: list[str] = []
        try:
            text = read_regular(path, _MOST_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.add(1, 1, f"is no UTF-8 (byte {error.start})")
            text = ""
        self._rows = list(self._read(text))

    def _read(self, text: str) -> Iterator[tuple[int, list[str]]]:
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        before = 0
        try:
            for row in rows:
                line, before = before + 1, rows.line_num
                if not any(map(str.strip, row)):
                    continue
                cells = [cell.strip() for cell in row]
                if not self.header:
                    self.header = cells
                    continue
                if len(cells) != len(self.header):
                    wrong = f"found {len(cells)} columns, expected the header's {len(self.header)}"
                    self.add(line, 1, wrong)
                    continue
                yield line, cells
        except csv.Error as error:
            self.add(rows.line_num, 1, f"is no CSV: {error}")

    def add(self, line: int, column: int, message: str) -> None:
        self.problems.append(Problem(str(self.path), line, column, message))

    def rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        for line, cells in self._rows:
            yield line, dict(zip(self.header, cells, strict=True))

    def column(self, line: int, name: str) -> int:
        """Return the column of the text in which a cell without quotes begins, from 1."""
        cells = next(cells for at, cells in self._rows if at == line)
        return 1 + sum(len(cell) + 1 for cell in cells[: self.header.index(name)])

    def check_header(self, needed: Sequence[str], what: str) -> None:
        """Raise `TestbedError` with one problem unless the columns are there, each once."""
        if self.problems:
            raise TestbedError(self.problems)
        if not self.header:
            message = f"is empty, expected {what}"
        elif len(self.header) == 1 and (found := re.search(r"[;\t|]", self.header[0])):
            message = f"found {found[0]!r} between columns, expected ','; write it with commas"
        elif twice := sorted({name for name in self.header if self.header.count(name) > 1}):
            message = f"found the column {twice[0]!r} twice"
        elif lacking := [name for name in needed if name not in self.header]:
            close = did_you_mean(lacking[0], self.header)
            message = f"found no column {lacking[0]!r}{close}; expected {what}"
        else:
            return
        raise TestbedError([Problem(str(self.path), 1, 1, message)])


def read_cables(path: Path) -> tuple[Cable, ...]:
    """Return the cables of a list; raises `TestbedError` with all problems, and `OSError`."""
    table = _Table(path)
    what = f"NetBox's columns {','.join(NETBOX)},label, or sonic-mgmt's {','.join(SONIC_L1)}"
    if _PACKETS & {*table.header}:
        raise _refused(
            table,
            "is a list of links between packet switches, which has no cables of an optical "
            "switch; give the file that ends in _l1_links.csv",
        )
    if any(map(_DISPLAYED.fullmatch, table.header)):
        raise _refused(
            table,
            "has the columns that NetBox displays, which name no ports for certain; choose an "
            f"export template that writes the columns of its bulk import, {','.join(NETBOX)},label",
        )
    is_netbox = "side_a_device" in table.header or "StartDevice" not in table.header
    table.check_header(NETBOX if is_netbox else SONIC_L1, what)
    cables = [_netbox(*row) if is_netbox else _sonic(*row) for row in table.rows()]
    needed = (0, 2, 3, 5) if is_netbox else range(4)
    columns = [(NETBOX if is_netbox else SONIC_L1)[at] for at in needed]
    for line, row in table.rows():
        for column in columns:
            if not row[column]:
                table.add(line, table.column(line, column), f"found no {column}")
    seen: dict[tuple[CableEnd, str], int] = {}
    panels_count = _panel_sides(table) if is_netbox else {}
    for cable in cables:
        for end, column, numbers in (
            (cable.a, columns[1], ("",)),
            (cable.b, columns[3], cable.numbers or ("",)),
        ):
            side = panels_count.get((cable.line, column), "")
            for number in numbers:
                first = seen.setdefault((end, number + side), cable.line)
                if first != cable.line or cable.a == cable.b:
                    at = f"{end.device} {number}" if number else str(end)
                    place = table.column(cable.line, column)
                    table.add(cable.line, place, f"{at} has two cables, the first in line {first}")
                    break
    if table.problems:
        raise TestbedError(sorted(table.problems))
    return tuple(cables)


def _refused(table: _Table, message: str) -> TestbedError:
    return TestbedError([Problem(str(table.path), 1, 1, message)])


def _panel_sides(table: _Table) -> dict[tuple[int, str], str]:
    """Return the type of the port at each end: front and rear of a panel may have one name."""
    return {
        (line, f"side_{side}_name"): row[f"side_{side}_type"]
        for line, row in table.rows()
        for side in "ab"
    }


def _netbox(line: int, row: Mapping[str, str]) -> Cable:
    a, b = (CableEnd(row[f"side_{side}_device"], row[f"side_{side}_name"]) for side in "ab")
    status = row.get("status", "").lower()
    absent = "" if status in _PLANNED else f"its status is {status}"
    return Cable(line, a, b, row.get("label", ""), absent=absent)


def _sonic(line: int, row: Mapping[str, str]) -> Cable:
    a, b = CableEnd(row["StartDevice"], row["StartPort"]), CableEnd(row["EndDevice"], "")
    numbers = tuple(part.strip() for part in row["EndPort"].split("|"))
    return Cable(line, a, b, row.get("label", ""), numbers)


def read_names(path: Path) -> dict[str, DeviceName]:
    """Return the devices of a file of names, by their names in the list of cables.

    A line without a port names a device, one with a port that port of a device. Raises
    `TestbedError` with all problems, and `OSError`.
    """
    table = _Table(path)
    what = f"the columns {','.join(_NAME_COLUMNS)}, of which device, name and kind are needed"
    table.check_header(("device", "name", "kind"), what)
    for column in table.header:
        if column not in _NAME_COLUMNS:
            close = did_you_mean(column, _NAME_COLUMNS) or f"; expected {what}"
            raise _refused(table, f"found the unknown column {column!r}{close}")
    found: dict[str, DeviceName] = {}
    ports: dict[str, dict[str, tuple[str, int]]] = {}
    lines: dict[str, int] = {}
    for line, row in table.rows():
        device, port, name = row["device"], row.get("port", ""), row["name"]
        for column in ("device", "name")[: 1 + bool(port)]:
            if not row[column]:
                table.add(line, table.column(line, column), f"found no {column}")
        if port:
            first = ports.setdefault(device, {}).setdefault(port, (name, line))
            if first[1] != line:
                table.add(line, 1, f"{device} {port} is named twice, first in line {first[1]}")
            continue
        if device in found:
            table.add(line, 1, f"{device} is named twice, first in line {found[device].line}")
            continue
        name = name or device
        if name in lines:
            at = table.column(line, "name")
            table.add(line, at, f"{name} is the name of two devices, first in line {lines[name]}")
        lines.setdefault(name, line)
        if row["kind"] not in KINDS:
            close = did_you_mean(row["kind"], KINDS) or f", expected one of {', '.join(KINDS)}"
            table.add(line, table.column(line, "kind"), f"found kind {row['kind']!r}{close}")
        elif row["kind"] != "panel" and not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
            text = f"found {name!r}, expected a name of letters, digits, - and _, e.g. ocs-7"
            table.add(line, table.column(line, "name"), text)
        stated = {key: row.get(key, "") for key in _NAME_COLUMNS[3:]}
        found[device] = DeviceName(line, name, ports=ports.setdefault(device, {}), **stated)
    for device, named in ports.items():
        if device not in found:
            line = min(at for _, at in named.values())
            table.add(line, 1, f"{device} has a line for a port and none for itself")
    if table.problems:
        raise TestbedError(sorted(table.problems))
    return found
