"""Output of mlxlink for a simulated port: sections, as coloured text or as JSON."""

import json
import math

from lightrig.instruments.simulated.hosts.ethtool_format import limits
from lightrig.instruments.simulated.hosts.host_ports import SimulatedPort

_COLUMN = 37
_GREEN, _PLAIN = "\x1b[32m", "\x1b[0m"
_CODED = 66 / 64
_NO_ERRORS = "15E-255"
_LISTS = frozenset(
    {"Raw Physical Errors Per Lane", "Raw Physical BER Per Lane", "CDR RX", "CDR TX"}
)

Sections = dict[str, dict[str, str]]
"""By title and key."""


def report(port: SimulatedPort, *, module: bool, counters: bool) -> Sections:
    """The sections that `mlxlink -d DEV [-m] [-c]` shows."""
    port.accrue()
    if port.prbs is not None:
        return _test_mode(port, counters=counters)
    up = port.is_up("firmware")

    def when_up(text: str) -> str:
        return text if up else "N/A"

    sections: Sections = {
        "Operational Info": {
            "State": "Active" if up else "Polling",
            "Physical state": "LinkUp" if up else "ETH_AN_FSM_ABILITY_DETECT",
            "Speed": when_up(f"{port.spec.rate_bps // 10**9}G"),
            "Width": when_up(f"{port.spec.lanes}x"),
            "FEC": when_up("Standard_RS-FEC - (544,514)"),
            "Loopback Mode": "No Loopback",
            "Auto Negotiation": "ON",
        },
        "Troubleshooting Info": {
            "Status Opcode": "0" if up else "2",
            "Group Opcode": "N/A" if up else "PHY FW",
            "Recommendation": "No issue was observed" if up else "Negotiation failure",
        },
        "Tool Information": {
            "Firmware Version": "28.41.1000",
            "amBER Version": "3.2",
            "MFT Version": "mft 4.30.0-139",
        },
    }
    if module:
        sections["Module Info"] = _module(port)
    if counters:
        sections["Physical Counters and BER Info"] = {
            "Time Since Last Clear [Min]": when_up(_minutes(port, port.cleared)),
            "Effective Physical Errors": when_up(str(port.symbol_errors)),
            "Effective Physical BER": when_up(_ber(port.symbol_errors, port.bits)),
            "Raw Physical Errors Per Lane": when_up(",".join(map(str, port.raw_errors))),
            "Link Down Counter": when_up(str(port.link_downs)),
            "Link Error Recovery Counter": when_up("0"),
            "Raw Physical BER Per Lane": when_up(
                ",".join(_ber(each, port.bits // port.spec.lanes) for each in port.raw_errors)
            ),
            "Raw Physical BER": when_up(_ber(sum(port.raw_errors), port.bits)),
        }
    return sections


def _test_mode(port: SimulatedPort, *, counters: bool) -> Sections:
    prbs = port.prbs
    assert prbs is not None
    locked = "Locked" if port.locked() else "Not Locked"
    rate = f"{port.lane_rate * _CODED / 1e9:.7g}G" if port.lane_rate < 26e9 else "53.125G"
    sections: Sections = {
        "Test Mode Info": {
            "RX PRBS Mode": prbs.rx_pattern,
            "TX PRBS Mode": prbs.tx_pattern,
            "RX Lane Rate": rate,
            "TX Lane Rate": rate,
            "RX Modulation": "NRZ test pattern",
            "TX Modulation": "NRZ test pattern",
            "Tuning Status": "PRBS mode tuning completed."
            if prbs.tuned
            else "PRBS mode tuning was not performed.",
            "Lock Status": ",    ".join([locked] * port.spec.lanes),
        }
    }
    if counters:
        now_minutes = _minutes(port, prbs.since)
        bits = port.lane_rate * port.spec.lanes * port.nanoseconds_since(prbs.since) / 1e9
        sections["Physical Counters and BER Info (PRBS)"] = {
            "Time Since Last Clear [Min]": now_minutes,
            "PRBS Errors": ",".join(map(str, prbs.errors)),
            "PRBS BER": _ber(sum(prbs.errors), bits),
        }
    return sections


def _module(port: SimulatedPort) -> dict[str, str]:
    if port.spec.transceiver is None:
        return {"Identifier": "N/A"}
    now, levels = port.registers(), limits(port)
    lost = ",".join("1" if each else "0" for each in port.signal_lost(now))

    def power(register: int) -> str:
        return f"{10 * math.log10(register / 1e4):.6g}" if register else "-40"

    def shown(values: str, low: str, high: str) -> str:
        return f"{values} [{low}..{high}]"

    def within(key: str) -> tuple[str, str]:
        high, low, _, _ = levels[key]
        return power(low), power(high)

    return {
        "Identifier": "QSFP28" if port.spec.lanes == 4 else "QSFP_DD",
        "Compliance": "100GBASE-LR4",
        "Cable Technology": "1310 nm DFB",
        "Cable Type": "Optical Module (separated)",
        "OUI": "Other",
        "Vendor Name": "Lightrig        ",
        "Vendor Part Number": port.limits.name.upper(),
        "Vendor Serial Number": port.serial,
        "Wavelength [nm]": f"{port.limits.wavelength_nm:g}",
        "Digital Diagnostic Monitoring": "Yes",
        "CDR RX": ",".join(["ON"] * port.spec.lanes),
        "CDR TX": ",".join(["ON"] * port.spec.lanes),
        "Temperature [C]": shown(str(now.temperature // 256), "-10", "80"),
        "Voltage [mV]": shown(f"{now.voltage / 10:g}", "3100", "3500"),
        "Bias Current [mA]": shown(",".join(f"{each / 500:g}" for each in now.bias), "5", "130"),
        "Rx Power Current [dBm]": shown(",".join(map(power, now.rx_power)), *within("rx")),
        "Tx Power Current [dBm]": shown(",".join(map(power, now.tx_power)), *within("tx")),
        "Rx LOS [per lane]": lost,
        "Tx LOS [per lane]": ",".join(["0"] * port.spec.lanes),
    }


def _minutes(port: SimulatedPort, since: int) -> str:
    return f"{port.nanoseconds_since(since) / 60e9:.1f}"


def _ber(errors: int, bits: float) -> str:
    """One digit and a power of ten, as the firmware gives it."""
    if not errors or bits < 1:
        return _NO_ERRORS
    magnitude = -math.floor(math.log10(errors / bits))
    return f"{max(int(errors / bits * 10**magnitude), 1)}E-{magnitude}"


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
