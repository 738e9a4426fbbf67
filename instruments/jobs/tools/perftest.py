"""perftest (`ib_write_bw`, `ib_send_lat` and their like): bandwidth or latency, by size.

One output may hold several tables (client and server into one terminal); each is a report.
Bandwidth is in MiB/s (older versions call it MB/sec and mean the same) or Gb/s; the message
rate says which, so a changed number or a misread unit shows. The file of --out_json does not
name its unit at all; with QoS it leaves a key without quotes, and up to version 4.5 it has none but
those of the device, and a comma behind every value.
Source: perftest, src/perftest_parameters.h and .c.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.servers.tools.output import (
    Printed,
    ToolOutputError,
    field,
    is_json,
    load,
    number,
    optional,
    whole,
)

TOOL = "perftest"

_TITLE = re.compile(r"\s+(\S.* Test)\s*")
_SETTING = re.compile(r"([A-Za-z][\w .-]*?)\s*: (\S+)")
_COLUMN = re.compile(
    r"#bytes|#iterations|#sl|(?:BW peak|BW average|BW Port[12])\[(?:MB|MiB|Gb)/sec\]"
    r"|MsgRate(?: Port[12])?\[Mpps\]|CPU_Util\[%+\]"
    r"|t_(?:min|max|typical|avg|stdev)\[usec\]|99(?:\.9)?% percentile\[usec\]|tps average"
)
_PREFIX = re.compile(r"\s*#?\s*(?=\d)")
_BARE_KEY = re.compile(r"^(\s*)([a-zA-Z][\w.]*?) *:", re.MULTILINE)
_BARE_VALUE = re.compile(r": ([A-Za-z]\w*)(?=,?$)", re.MULTILINE)
_LAST_COMMA = re.compile(r",(?=\s*})")

MIB_S = 8 * 2**20
"""Bits in one MiB, which perftest may also call MB."""

GB_S = 10**9


@dataclass(frozen=True, slots=True)
class BandwidthRow:
    """Messages of one size.

    Attributes:
        size: of a message in bytes.
        peak_bps: None where no peak was looked for (-D), which is printed as 0.
        messages_per_s: of both directions together, where both are in use.
    """

    size: int
    iterations: int
    peak_bps: float | None
    average_bps: float
    messages_per_s: float


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One-way times of messages of one size (there and back, for reads and atomics)."""

    size: int
    iterations: int
    least_ns: int | None
    most_ns: int | None
    typical_ns: int | None
    average_ns: int
    deviation_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    per_s: float | None = None


@dataclass(frozen=True, slots=True)
class PerftestReport:
    """One table: either bandwidths or latencies, sizes ascending as they were run.

    Attributes:
        test: its title, such as `RDMA_Write BW Test`; None where it was cut off.
        settings: what stands above the table, such as `Device`, `Link type`, `Mtu`.
    """

    test: str | None
    settings: Mapping[str, str]
    bandwidths: tuple[BandwidthRow, ...] = ()
    latencies: tuple[LatencyRow, ...] = ()


def parse(text: str) -> tuple[PerftestReport, ...]:
    """Parse the output of a test, or the file that it wrote with --out_json.

    Raises:
        ToolOutputError: no table with a row is there; a row contradicts itself: average
            against size and message rate, peak below average, quantiles out of order; or sizes
            that differ, as `-a` runs them, are not powers of two.
    """
    if is_json(text):
        return (_of_json(text),)
    reports = [report for report in _tables(text) if report.bandwidths or report.latencies]
    if not reports:
        raise ToolOutputError(TOOL, "a table with at least one row", text.strip()[-80:])
    return tuple(reports)


def _tables(text: str) -> list[PerftestReport]:
    reports: list[PerftestReport] = []
    test: str | None = None
    settings: dict[str, str] = {}
    columns: list[str] = []
    rows: list[dict[str, str]] = []

    def finish() -> None:
        if columns:
            reports.append(_report(test, settings, rows))

    for line in text.splitlines():
        try:
            if match := _TITLE.fullmatch(line):
                finish()
                test, settings, columns, rows = match[1], {}, [], []
            elif "#bytes" in line:
                finish()
                columns, rows = _columns(line), []
            elif columns and (match := _PREFIX.match(line)):
                tokens = line[match.end() :].split()
                if len(tokens) != len(columns):
                    raise ValueError(f"{len(columns)} values, one below each name")
                rows.append(dict(zip(columns, tokens, strict=True)))
            elif not columns:
                settings |= {key.strip(): value for key, value in _SETTING.findall(line)}
        except ValueError as error:
            raise ToolOutputError(TOOL, str(error), line) from error
    finish()
    return reports


def _columns(line: str) -> list[str]:
    columns = _COLUMN.findall(line)
    rest = _COLUMN.sub("", line).replace("#", "").strip()
    if rest or len(set(columns)) != len(columns):
        raise ValueError("a header of known columns, each once")
    return columns


def _report(
    test: str | None, settings: Mapping[str, str], rows: list[dict[str, str]]
) -> PerftestReport:
    if rows and "t_avg[usec]" in rows[0]:
        latencies = tuple(map(_latency, rows))
        _check_sizes([row.size for row in latencies])
        return PerftestReport(test, settings, latencies=latencies)
    bandwidths = tuple(map(_bandwidth, rows))
    _check_sizes([row.size for row in bandwidths])
    return PerftestReport(test, settings, bandwidths=bandwidths)


def _check_sizes(sizes: Sequence[int]) -> None:
    """Check that sizes that differ, which only `-a` runs, are powers of two."""
    for size in sizes if len(set(sizes)) > 1 else ():
        if size.bit_count() != 1:
            raise ToolOutputError(TOOL, "powers of two where sizes differ", str(size))


def _bandwidth(row: Mapping[str, str]) -> BandwidthRow:
    try:
        unit = (
            "Gb" if "BW average[Gb/sec]" in row else "MiB" if "BW average[MiB/sec]" in row else "MB"
        )
        bits = GB_S if unit == "Gb" else MIB_S
        return _checked_bandwidth(
            whole(row["#bytes"]),
            whole(row["#iterations"]),
            number(row[f"BW peak[{unit}/sec]"]).times(bits),
            number(row[f"BW average[{unit}/sec]"]).times(bits),
            number(row["MsgRate[Mpps]"]).times(1e6),
        )
    except KeyError as error:
        raise ToolOutputError(TOOL, f"a column {error}", " ".join(row)) from error
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error), " ".join(row.values())) from error


def _checked_bandwidth(
    size: int, iterations: int, peak: Printed, average: Printed, messages: Printed
) -> BandwidthRow:
    if min(peak.value, average.value, messages.value) < 0:
        raise ValueError("rates from 0")
    if not messages.times(8 * size).agrees(average):
        raise ValueError("an average bandwidth of size x message rate")
    if peak.value and peak.value + peak.half + average.half < average.value:
        raise ValueError("a peak that is not below the average")
    return BandwidthRow(size, iterations, peak.value or None, average.value, messages.value)


def _latency(row: Mapping[str, str]) -> LatencyRow:
    def ns(name: str) -> int | None:
        return round(number(row[name]).value * 1e3) if name in row else None

    try:
        average = ns("t_avg[usec]")
        if average is None:
            raise ValueError("an average")
        return _checked_latency(
            LatencyRow(
                whole(row["#bytes"]),
                whole(row["#iterations"]),
                ns("t_min[usec]"),
                ns("t_max[usec]"),
                ns("t_typical[usec]"),
                average,
                ns("t_stdev[usec]"),
                ns("99% percentile[usec]"),
                ns("99.9% percentile[usec]"),
                number(row["tps average"]).value if "tps average" in row else None,
            )
        )
    except KeyError as error:
        raise ToolOutputError(TOOL, f"a column {error}", " ".join(row)) from error
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error), " ".join(row.values())) from error


def _checked_latency(row: LatencyRow) -> LatencyRow:
    reported = (row.least_ns, row.typical_ns, row.p99_ns, row.p999_ns, row.most_ns)
    quantiles = [each for each in reported if each is not None]
    if quantiles != sorted(quantiles) or row.average_ns < 0 or (quantiles and quantiles[0] < 0):
        raise ValueError("least, typical, 99 %, 99.9 % and most in this order, from 0")
    if quantiles and not quantiles[0] <= row.average_ns <= quantiles[-1]:
        raise ValueError("an average between least and most")
    return row


# --------------------------------------------------------------------------------- JSON


def _of_json(text: str) -> PerftestReport:
    quoted = _BARE_VALUE.sub(r': "\1"', _BARE_KEY.sub(r'\1"\2":', text))
    document = load(TOOL, _LAST_COMMA.sub("", quoted))
    info = field(TOOL, document, "test_info", dict)
    results = field(TOOL, document, "results", dict)
    settings = {key: str(value) for key, value in info.items() if key != "test"}
    test = optional(TOOL, info, "test", str)
    try:
        if "t_avg" in results:
            return PerftestReport(test, settings, latencies=(_latency_of(results),))
        return PerftestReport(test, settings, bandwidths=(_bandwidth_of(results),))
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error), results) from error


def _bandwidth_of(results: Any) -> BandwidthRow:
    """The unit is the one in which average, size and message rate agree: they are 119 apart."""
    size = field(TOOL, results, "MsgSize", int)
    iterations = field(TOOL, results, "n_iterations", int)
    rate = Printed(float(field(TOOL, results, "MsgRate", (int, float))), 5e-7).times(1e6)
    fitting = []
    for bits in (MIB_S, GB_S):
        average, peak = (
            Printed(float(field(TOOL, results, key, (int, float))), 5e-3).times(bits)
            for key in ("BW_average", "BW_peak")
        )
        if rate.times(8 * size).agrees(average):
            fitting.append((peak, average))
    if not fitting:
        raise ValueError("an average bandwidth of size x message rate, in MiB/s or in Gb/s")
    if len(fitting) > 1:
        raise ValueError("a bandwidth that tells MiB/s from Gb/s, which this file does not name")
    return _checked_bandwidth(size, iterations, *fitting[0], rate)


def _latency_of(results: Any) -> LatencyRow:
    def ns(key: str) -> int | None:
        value = optional(TOOL, results, key, (int, float))
        return None if value is None else round(value * 1e3)

    average = ns("t_avg")
    assert average is not None
    return _checked_latency(
        LatencyRow(
            field(TOOL, results, "MsgSize", int),
            field(TOOL, results, "n_iterations", int),
            ns("t_min"),
            ns("t_max"),
            ns("t_typical"),
            average,
            ns("t_stdev"),
            ns("percentile_99"),
            ns("percentile_99.9"),
            optional(TOOL, results, "tps_average", (int, float)),
        )
    )
