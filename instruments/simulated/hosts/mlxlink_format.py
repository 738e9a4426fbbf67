"""Output of mlxlink for a simulated port: sections, as coloured text or as JSON."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lightrig.instruments.simulated.hosts.ethtool_format import limits
from lightrig.instruments.simulated.hosts.host_ports import SimulatedPort

_PATHS = {
    1: "DPDeactivated",
    2: "DPInit",
    3: "DPDeinit",
    4: "DPActivated",
    5: "DPTxTurnOn",
    6: "DPTxTurnOff",
    7: "DPInitialized",
}
_COLUMN = 37
_NONE = "N/A"
_GREEN, _PLAIN = "\x1b[32m", "\x1b[0m"
_CODED = 66 / 64
_LISTS = frozenset(
    {"Raw Physical Errors Per Lane", "Raw Physical BER Per Lane", "CDR RX", "CDR TX"}
)

T = TypeVar("T")

Sections = dict[str, dict[str, str]]
"""By title and key."""


def report(port: SimulatedPort, *, module: bool, counters: bool, paths: str = "none") -> Sections:
    """The sections that `mlxlink -d DEV [-m] [-c]` shows; `paths` as `host_tools.MlxlinkPaths`."""
    port.accrue()
    if port.prbs is not None:
        return _test_mode(port, counters=counters)
    up = port.is_up("firmware")
    sections: Sections = {
        "Operational Info": {
            "State": "Active" if up else "Polling",
            "Physical state": "LinkUp" if up else "ETH_AN_FSM_ABILITY_DETECT",
            "Speed": f"{port.spec.rate_bps // 10**9}G" if up else _NONE,
            "Width": f"{port.spec.lanes}x" if up else _NONE,
            "FEC": "Standard_RS-FEC - (544,514)" if up else _NONE,
            "Loopback Mode": "No Loopback",
            "Auto Negotiation": "ON",
        },
        "Troubleshooting Info": {
            "Status Opcode": "0" if up else "2",
            "Group Opcode": _NONE if up else "PHY FW",
            "Recommendation": "No issue was observed" if up else "Negotiation failure",
        },
        "Tool Information": {
            "Firmware Version": "28.41.1000",
            "amBER Version": "3.2",
            "MFT Version": "mft 4.30.0-139",
        },
    }
    if module:
        there = port.spec.transceiver
        sections["Module Info"] = _module(port, paths) if there else {"Identifier": _NONE}
    if counters:
        counted = _counters(port)
        shown = counted if up else dict.fromkeys(counted, _NONE)
        sections["Physical Counters and BER Info"] = shown
    return sections


def _module(port: SimulatedPort, paths: str) -> dict[str, str]:
    now, levels, lanes = port.registers(), limits(port), port.spec.lanes

    def power(received: Sequence[int], key: str) -> str:
        high, low, *_ = levels[key]
        return f"{_each(_dbm, received)} [{_dbm(low)}..{_dbm(high)}]"

    states = [_path(each, paths) for each in port.path_states()] if paths != "none" else []
    return {
        "Identifier": "QSFP28" if lanes == 4 else "QSFP_DD",
        "Compliance": "100GBASE-LR4",
        "Cable Technology": "1310 nm DFB",
        "Cable Type": "Optical Module (separated)",
        "OUI": "Other",
        "Vendor Name": "Lightrig        ",
        "Vendor Part Number": port.limits.name.upper(),
        "Vendor Serial Number": port.serial,
        "Wavelength [nm]": f"{port.limits.wavelength_nm:g}",
        "Digital Diagnostic Monitoring": "Yes",
        "CDR RX": ",".join(["ON"] * lanes),
        "CDR TX": ",".join(["ON"] * lanes),
        "Temperature [C]": f"{now.temperature // 256} [-10..80]",
        "Voltage [mV]": f"{now.voltage / 10:g} [3100..3500]",
        "Bias Current [mA]": f"{_each(_current, now.bias)} [5..130]",
        "Rx Power Current [dBm]": power(now.rx_power, "rx"),
        "Tx Power Current [dBm]": power(now.tx_power, "tx"),
        "Rx LOS [per lane]": _each(lambda lost: f"{lost:d}", port.signal_lost(now)),
        "Tx LOS [per lane]": ",".join(["0"] * lanes),
        **(
            {"Module State": "Ready state", "DataPath state [per lane]": ",".join(states)}
            if states
            else {}
        ),
    }


def _counters(port: SimulatedPort) -> dict[str, str]:
    errors, lanes = port.raw_errors, port.spec.lanes
    return {
        "Time Since Last Clear [Min]": _minutes(port, port.cleared),
        "Effective Physical Errors": f"{port.symbol_errors}",
        "Effective Physical BER": _ber(port.symbol_errors, port.bits),
        "Raw Physical Errors Per Lane": _each(str, errors),
        "Link Down Counter": f"{port.link_downs}",
        "Link Error Recovery Counter": "0",
        "Raw Physical BER Per Lane": _each(lambda one: _ber(one, port.bits // lanes), errors),
        "Raw Physical BER": _ber(sum(errors), port.bits),
    }


def _each(show: Callable[[T], str], values: Iterable[T]) -> str:
    return ",".join(show(value) for value in values)


def _ber(errors: int, bits: float) -> str:
    """One digit and a power of ten, as the firmware of a NIC gives it."""
    if not errors or bits < 1:
        return "15E-255"
    magnitude = -math.floor(math.log10(errors / bits))
    return f"{max(int(errors / bits * 10**magnitude), 1)}E-{magnitude}"


def _current(register: int) -> str:
    return f"{register / 500:g}"


def _dbm(register: int) -> str:
    return f"{10 * math.log10(register / 1e4):.6g}" if register else "-40"


def _minutes(port: SimulatedPort, since: int) -> str:
    return f"{port.nanoseconds_since(since) / 60e9:.1f}"


def _path(state: int, printed: str) -> str:
    """Return the name of a data path's state as `mlxlink -m` prints it.

    `getStrByMask` of mstflint names the bits of the number, each by the state of that number.
    """
    states = [state] if printed == "value" else [bit for bit in (1, 2, 4) if state & bit]
    return ",".join(_PATHS[each] for each in states)


def collection(port: SimulatedPort, *, timers: bool) -> tuple[str, str]:
    """Header and row that `mlxlink -d DEV --amber_collect FILE` writes, as far as it is known here.

    timers: whether its version has the page of the link-up. Names and units: mstflint's
    `MlxlinkAmBerCollector`.
    """
    fields = {"version": "3.2", "Port_Number": "1", "Phy_manager_State": "Active/Linkup"}
    if timers:
        shown = port.link_up_times()
        fields |= {
            "up_reason_pwr": "No_up_indication",
            "time_to_link_up_msec": f"{shown.whole}",
            "fast_link_up_status": "fast_link_up_was_not_performed",
            "time_to_link_up_phy_up_to_active": f"{shown.phy_to_active}msec",
            "time_to_link_up_sd_to_phy_up": f"{shown.signal_to_phy}msec",
            "time_to_link_up_disable_to_sd": "0msec",
        }
    fields["down_blame"] = "Unknown"
    return ",".join(fields), ",".join(fields.values())


def _test_mode(port: SimulatedPort, *, counters: bool) -> Sections:
    prbs = port.prbs
    assert prbs is not None
    lanes = port.spec.lanes
    rate = f"{port.lane_rate * _CODED / 1e9:.7g}G" if port.lane_rate < 26e9 else "53.125G"
    tuning = "completed" if prbs.tuned else "was not performed"
    sections: Sections = {
        "Test Mode Info": {
            "RX PRBS Mode": prbs.rx_pattern,
            "TX PRBS Mode": prbs.tx_pattern,
            "RX Lane Rate": rate,
            "TX Lane Rate": rate,
            "RX Modulation": "NRZ test pattern",
            "TX Modulation": "NRZ test pattern",
            "Tuning Status": f"PRBS mode tuning {tuning}.",
            "Lock Status": ",    ".join(["Locked" if port.locked() else "Not Locked"] * lanes),
        }
    }
    if counters:
        bits = port.lane_rate * lanes * port.nanoseconds_since(prbs.since) / 1e9
        sections["Physical Counters and BER Info (PRBS)"] = {
            "Time Since Last Clear [Min]": _minutes(port, prbs.since),
            "PRBS Errors": _each(str, prbs.errors),
            "PRBS BER": _ber(sum(prbs.errors), bits),
        }
    return sections


def as_text(sections: Sections) -> str:
    """With colours, each of which ends at the start of the line after."""
    text = ""
    for title, values in sections.items():
        text += f"\n{title}\n{'-' * len(title)}\n"
        for key, value in values.items():
            text += f"{key:<{_COLUMN - 2}}: {_GREEN}{value}\n{_PLAIN}"
    return text + "\n"


def as_json(sections: Sections, configured: list[str]) -> str:
    """A string a leaf, and lists as objects with `values`."""
    output = {
        title: {key: _leaf(key, value) for key, value in values.items()}
        for title, values in sections.items()
    }
    result: dict[str, object] = {"output": output or "N/A"}
    if configured:
        result["configurations"] = configured
    document = {"result": result, "status": {"code": 0, "message": "success"}}
    return json.dumps(document, indent=3, separators=(",", " : ")) + "\n"


def _leaf(key: str, value: str) -> object:
    value = value.strip().replace(",    ", ",")
    if key in _LISTS or key.endswith("[per lane]"):
        return {"values": value.split(",")}
    return value
