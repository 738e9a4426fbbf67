"""Signal quality of modules as a SONiC switch reports it (CMIS versatile diagnostics, VDM).

Coherent modules have a table of their own, `show interfaces transceiver pm PORT`. All CMIS
modules have a hash in the state database: `sonic-db-cli STATE_DB HGETALL
"TRANSCEIVER_VDM_REAL_VALUE|PORT"`, printed as a Python dictionary; its keys have the statistic, the
side and the lane in their name (`prefec_ber_avg_media_input1`). Sources: sonic-net/sonic-utilities,
doc/Command-Reference.md; sonic-net/SONiC, doc/platform/cmis_and_c-cmis_support.
"""

import ast
import re

from lightrig.instruments.core.capabilities import Diagnostic
from lightrig.instruments.servers.tools.output import ToolOutputError, number

TABLE = "show interfaces transceiver pm"
DATABASE = "sonic-db-cli HGETALL TRANSCEIVER_VDM_REAL_VALUE"

_PORT = re.compile(r"(Ethernet\d+):", re.ASCII)
_COLUMNS = ("Parameter", "Unit", "Min", "Avg", "Max")
_STATISTICS = {"min": "minimum", "avg": "average", "max": "maximum", "curr": "current"}
_KEY = re.compile(
    r"(?P<name>[a-z]\w*?)(?:_(?P<statistic>min|avg|max|curr))?(?:_(?P<side>media|host)(?:_input)?)?"
    r"(?P<lane>\d)",
    re.ASCII,
)
_NAMES = {"eSNR": "esnr", "Pre-FEC BER": "prefec_ber", "Post-FEC BER": "postfec_ber"}
_MISSING = ("", "N/A", "None")


def parse_table(text: str) -> dict[str, tuple[Diagnostic, ...]]:
    """Parse `show interfaces transceiver pm`: the diagnostics of every port that has some.

    Raises:
        ToolOutputError: it is something else, or a row has more or fewer columns than the table.
    """
    found: dict[str, list[Diagnostic]] = {}
    port, widths = "", list[tuple[int, int]]()
    for line in text.splitlines():
        if match := _PORT.match(line.strip()):
            port, widths = match[1], []
            found.setdefault(port, [])
        elif re.fullmatch(r"\s*-+(\s+-+)+\s*", line):
            widths = [each.span() for each in re.finditer(r"-+", line)]
        elif port and widths and line.strip():
            found[port].append(_row(line, widths))
    if not any(found.values()):
        raise ToolOutputError(TABLE, "a table of a port's parameters", text.strip()[:80])
    return {port: tuple(rows) for port, rows in found.items() if rows}


def _row(line: str, widths: list[tuple[int, int]]) -> Diagnostic:
    cells = [line[start:end].strip() for start, end in widths]
    printed = re.split(r"\s{2,}", line.strip())
    if len(cells) < len(_COLUMNS) or printed != cells:
        raise ToolOutputError(TABLE, f"the columns {', '.join(_COLUMNS)}", line.strip())
    name = _NAMES.get(cells[0], re.sub(r"\W+", "_", cells[0].lower()))
    least, mean, most = (_value(TABLE, line, cell) for cell in cells[2:5])
    return Diagnostic(name, minimum=least, average=mean, maximum=most)


def parse_database(text: str) -> tuple[Diagnostic, ...]:
    """Parse the hash of one port; keys that are no diagnostics, such as times, are left out.

    Raises:
        ToolOutputError: it is something else, or a value is no number.
    """
    try:
        values = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        values = None
    if not isinstance(values, dict) or not all(
        isinstance(each, str) for pair in values.items() for each in pair
    ):
        raise ToolOutputError(DATABASE, "a dictionary of texts", text.strip()[:80])
    found: dict[tuple[str, str, int], Diagnostic] = {}
    for key, value in values.items():
        match = _KEY.fullmatch(key)
        if match is None:
            continue
        name, side, lane = match["name"], match["side"] or "", int(match["lane"])
        diagnostic = found.setdefault((name, side, lane), Diagnostic(name, side, lane))
        statistic = _STATISTICS[match["statistic"] or "curr"]
        setattr(diagnostic, statistic, _value(DATABASE, f"{key}: {value}", value))
    if not found:
        raise ToolOutputError(DATABASE, "a diagnostic of a lane", text.strip()[:80])
    return tuple(found.values())


def _value(tool: str, line: str, cell: str) -> float | None:
    if cell in _MISSING:
        return None
    try:
        return number(cell).value
    except ValueError as error:
        raise ToolOutputError(tool, "a number", line.strip()) from error
