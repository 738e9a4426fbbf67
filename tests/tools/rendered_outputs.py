"""Outputs in the tools' formats from values that Hypothesis draws, for round trips.

Written from the formats alone; nothing of the parsers is used.
"""

import json
import math
from dataclasses import dataclass, field

import hypothesis.strategies as st

from lightrig.instruments.jobs.tools.nccl_results import bus_factor

WIDTH = 41
TYPES = {"float": 4, "half": 2, "int8": 1, "double": 8}


def dbm(register: int) -> str:
    return f"{10 * math.log10(register / 1e4):.2f}" if register else "-inf"


def power(register: int) -> str:
    return f"{register / 1e4:.4f} mW / {dbm(register)} dBm"


def temperature(register: int) -> str:
    return f"{register / 256:.2f} degrees C / {register / 256 * 1.8 + 32:.2f} degrees F"


@dataclass
class Module:
    """Registers of a transceiver: 0.1 µW, 2 µA, 1/256 °C, 100 µV."""

    lanes: int
    rx: list[int]
    tx: list[int]
    bias: list[int]
    los: list[bool]
    temperature: int
    voltage: int
    low_alarms: list[bool] = field(default_factory=list)


def registers(count: int, most: int = 0xFFFF) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), min_size=count, max_size=count)


def flags(count: int) -> st.SearchStrategy[list[bool]]:
    return st.lists(st.booleans(), min_size=count, max_size=count)


@st.composite
def modules(draw: st.DrawFn, lanes: tuple[int, ...] = (1, 4, 8, 16)) -> Module:
    count = draw(st.sampled_from(lanes))
    return Module(
        count,
        draw(registers(count)),
        draw(registers(count)),
        draw(registers(count)),
        draw(flags(count)),
        draw(st.integers(-(1 << 15), (1 << 15) - 1)),
        draw(st.integers(1, 0xFFFF)),  # 0 V is a cable without sensors
        draw(flags(count)),
    )


def module_text(module: Module, *, first: int = 1, spaced: bool = True, tab: str = "\t") -> str:
    """`ethtool -m`: channels from `first`, with or without a blank before the bracket."""
    lines = [("Identifier", "0x18 (QSFP-DD)"), ("Vendor name", "Example: Optics")]
    if module.lanes == 1:
        lines += [
            ("Laser bias current", f"{module.bias[0] / 500:.3f} mA"),
            ("Laser output power", power(module.tx[0])),
            ("Receiver signal average optical power", power(module.rx[0])),
        ]
    else:
        tokens = ", ".join("Yes" if each else "No" for each in module.los)
        lines.append(("Rx loss of signal", f"[ {tokens} ]" if any(module.los) else "None"))
    lines += [
        ("Module temperature", temperature(module.temperature)),
        ("Module voltage", f"{module.voltage / 1e4:.4f} V"),
    ]
    for lane in range(module.lanes if module.lanes > 1 else 0):
        channel = f"(Channel {lane + first})"
        blank = " " if spaced else ""
        lines += [
            (f"Laser tx bias current {channel}", f"{module.bias[lane] / 500:.3f} mA"),
            (f"Transmit avg optical power {channel}", power(module.tx[lane])),
            (f"Rcvr signal avg optical power{blank}{channel}", power(module.rx[lane])),
            (
                f"Laser rx power low alarm    (Channel {lane + first})",
                "On" if module.low_alarms[lane] else "Off",
            ),
        ]
    return "".join(f"{tab}{key:<{WIDTH}} : {value}\n" for key, value in lines)


def module_json(module: Module, *, repeating: bool) -> str:
    """`ethtool --json -m`, its keys repeating or not."""
    suffix = "" if repeating else "_measurement"
    pairs = [
        ("identifier", 17),
        ("identifier_description", "QSFP28"),
        (f"module_temperature{suffix}", round(module.temperature / 256, 4)),
        (f"module_voltage{suffix}", module.voltage / 1e4),
        ("rx_loss_of_signal", ["Yes" if each else "No" for each in module.los]),
        ("laser_tx_bias_current", [each / 500 for each in module.bias]),
        ("transmit_avg_optical_power", [each / 1e4 for each in module.tx]),
        (
            "rx_power",
            {"values": [each / 1e4 for each in module.rx], "type": "Rcvr signal avg optical power"},
        ),
        ("laser_rx_power_low_alarm", module.low_alarms),
        ("module_temperature", {"high_alarm_threshold": 80, "low_alarm_threshold": -10}),
        ("module_voltage", {"high_alarm_threshold": 3.5, "low_alarm_threshold": 3.1}),
    ]
    inner = ",\n".join(f"        {json.dumps(key)}: {json.dumps(value)}" for key, value in pairs)
    return f"[ {{\n{inner}\n    }} ]\n"


# ------------------------------------------------------------------------------- mlxlink

Sections = dict[str, dict[str, str]]


def mlxlink_text(sections: Sections, *, coloured: bool) -> str:
    colour, plain = ("\x1b[32m", "\x1b[0m") if coloured else ("", "")
    text = ""
    for title, values in sections.items():
        text += f"\n{title}\n{'-' * len(title)}\n"
        for key, value in values.items():
            text += f"{key:<35}: {colour}{value}\n{plain}"
    return text + "\n"


def mlxlink_json(sections: Sections, lists: frozenset[str]) -> str:
    output = {
        title: {
            key: {"values": value.split(",")} if key in lists else value
            for key, value in values.items()
        }
        for title, values in sections.items()
    }
    return json.dumps({"result": {"output": output}, "status": {"code": 0, "message": "success"}})


# ---------------------------------------------------------------------------- nccl-tests


@dataclass
class Collective:
    """Measurements of a run of nccl-tests: by size, times in µs out of place and in place."""

    name: str
    ranks: int
    type: str
    rows: list[tuple[int, float, float]]


@st.composite
def collectives(draw: st.DrawFn) -> Collective:
    name = draw(st.sampled_from(["all_reduce", "all_gather", "alltoall", "broadcast", "sendrecv"]))
    times = st.floats(1.0, 5e6, allow_nan=False)
    counts = draw(st.lists(st.integers(1, 1 << 28), min_size=1, max_size=12, unique=True))
    return Collective(
        name,
        draw(st.integers(2, 1440)),
        draw(st.sampled_from(sorted(TYPES))),
        [(count, draw(times), draw(times)) for count in sorted(counts)],
    )


def width_limited(value: float, width: int) -> str:
    """As many decimals as fit, as nccl-tests prints."""
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:.1e}" if width >= 7 else f"{value:.0e}"


def collective_text(
    run: Collective, *, prefix: str = "", old: bool = False, iterations: bool = False
) -> str:
    factor = bus_factor(run.name, run.ranks)
    assert factor is not None
    shared = run.ranks if run.name in ("all_gather", "alltoall") else 1
    lines = [f"#   Rank {run.ranks - 1:2d} Pid 42 on node0 device  0 [0x00] Example"]
    if not old:
        lines.insert(0, f"# Collective test starting: {run.name}_perf")
    half = ["time", "algbw", "busbw", "error" if old else "#wrong"]
    half += ["i_min", "i_max", "i_p99", "i_cv%"] if iterations else []
    first = ["size", "count", "type"] if old else ["size", "count", "type", "redop", "root"]
    lines.append("#  " + "  ".join([*first, *half, *half]))
    lines.append("#  (B)    (elements)    (us)  (GB/s)  (GB/s)")
    rates = []
    for count, *times in run.rows:
        size = count * TYPES[run.type] * shared
        tokens = [str(size), str(count), run.type, *([] if old else ["sum", "-1"])]
        for time in times:
            algorithm = size / time / 1e3
            rates.append(algorithm * factor)
            tokens += [
                width_limited(time, 7),
                width_limited(algorithm, 6),
                width_limited(algorithm * factor, 6),
                "N/A" if old else "0",
            ]
            tokens += [width_limited(time * part, 7) for part in (0.9, 1.2, 1.1)] * iterations
            tokens += ["2.50"] * iterations
        lines.append("  ".join(f"{word:>8}" for word in tokens))
    lines.append("# Out of bounds values : 0 OK")
    lines.append(f"# Avg bus bandwidth    : {sum(rates) / len(rates):g} ")
    return "".join(f"{prefix}{line}\n" for line in lines)


# ------------------------------------------------------------------------------ mutations


@st.composite
def digit_changes(draw: st.DrawFn, text: str, marks: tuple[str, ...]) -> str:
    """`text` with one digit changed in a line that has one of `marks`."""
    lines = text.splitlines(keepends=True)
    index = draw(
        st.sampled_from([i for i, line in enumerate(lines) if any(mark in line for mark in marks)])
    )
    line = lines[index]
    at = draw(st.sampled_from([i for i, letter in enumerate(line) if letter.isdigit()]))
    lines[index] = line[:at] + draw(st.sampled_from("0123456789")) + line[at + 1 :]
    return "".join(lines)


@st.composite
def mutations(draw: st.DrawFn, text: str) -> str:
    """`text` with one thing changed: a character, a line, or its end."""
    lines = text.splitlines(keepends=True)
    at = draw(st.integers(0, len(text) - 1))
    line = draw(st.integers(0, len(lines) - 1))
    kind = draw(st.sampled_from(["digit", "character", "delete", "drop", "repeat", "cut", "swap"]))
    match kind:
        case "digit":
            places = [index for index, each in enumerate(text) if each.isdigit()]
            at = draw(st.sampled_from(places or [0]))
            return text[:at] + draw(st.sampled_from("0123456789")) + text[at + 1 :]
        case "character":
            letter = draw(st.sampled_from(list("0123456789.,:;-+eE #{}[]\"'\\\n\t\x1b\x00é٣")))
            return text[:at] + letter + text[at + 1 :]
        case "delete":
            return text[:at] + text[at + 1 :]
        case "drop":
            return "".join(lines[:line] + lines[line + 1 :])
        case "repeat":
            return "".join(lines[: line + 1] + lines[line:])
        case "cut":
            return text[:at]
        case _:
            second = draw(st.integers(0, len(lines) - 1))
            lines[line], lines[second] = lines[second], lines[line]
            return "".join(lines)


ODD = [None, True, -1, 0, 1.5, 1e308, 10**40, "", "x", "N/A", [], {}, [None], {"values": ["x"]}]


def _paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else []
    inner = enumerate(value) if isinstance(value, list) else inner
    return [path, *(found for key, each in inner for found in _paths(each, (*path, key)))]


@st.composite
def json_mutations(draw: st.DrawFn, text: str) -> str:
    """A document with one of its values changed for another kind of value, or gone."""
    document = json.loads(text)
    *path, last = draw(st.sampled_from([path for path in _paths(document) if path]))
    holder = document
    for key in path:
        holder = holder[key]
    if draw(st.booleans()):
        holder[last] = draw(st.sampled_from(ODD))
    else:
        del holder[last]
    return json.dumps(document)
