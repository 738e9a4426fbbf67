"""Output of ethtool for a simulated port, from the port's registers."""

import json
import math
from collections.abc import Iterable, Sequence

from lightrig.instruments.simulated.hosts.host_ports import Registers, SimulatedPort

_WIDTH = 41
_FIRST_BUS = 0x1A
_FORMS = {1: (0x03, "SFP"), 4: (0x11, "QSFP28")}
_CMIS = (0x18, "QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628)")
_LEVELS = ("high alarm", "low alarm", "high warning", "low warning")

Limits = dict[str, tuple[int, int, int, int]]
"""By quantity, in its register's unit, the four levels in their order."""


def settings(port: SimulatedPort) -> str:
    """`ethtool IF`."""
    mbps, lanes = port.spec.rate_bps // 1_000_000, port.spec.lanes
    up = port.is_up("carrier")
    mode = f"{mbps}baseLR{lanes}_ER{lanes}/Full "
    modes = ["10000baseLR/Full ", mode]
    lines = [
        "Supported ports: [ FIBRE ]",
        *_link_modes("Supported link modes:   ", modes),
        "Supported pause frame use: Symmetric",
        "Supports auto-negotiation: Yes",
        "Supported FEC modes: RS",
        *_link_modes("Advertised link modes:  ", modes if port.advertises_all else [mode]),
        f"Advertised auto-negotiation: {'Yes' if port.auto_negotiation else 'No'}",
        f"Speed: {f'{mbps}Mb/s' if up else 'Unknown!'}",
        *([f"Lanes: {lanes}"] if up else []),
        f"Duplex: {'Full' if up else 'Unknown! (255)'}",
        f"Auto-negotiation: {'on' if port.auto_negotiation else 'off'}",
        "Port: FIBRE",
        "PHYAD: 0",
        "Transceiver: internal",
        f"Link detected: {'yes' if up else 'no (No signal)'}",
    ]
    return _lines([f"Settings for {port.spec.netdev}:", *(f"\t{line}" for line in lines)])


def _link_modes(key: str, modes: Sequence[str]) -> list[str]:
    """Return a mode a line, of which the first has the key; each ends with a blank."""
    return [f"{key if number == 0 else ' ' * len(key)}{mode}" for number, mode in enumerate(modes)]


def pci_address(index: int) -> str:
    """Return the address of the server's port `index` on PCI."""
    return f"0000:{_FIRST_BUS + index:02x}:00.0"


def driver(index: int, name: str) -> str:
    """`ethtool -i IF` for the server's port `index`, as its driver `name` answers."""
    return _lines(
        [
            f"driver: {name}",
            "version: 6.8.0",
            "firmware-version: 28.41.1000 (SIM_0000000001)",
            "expansion-rom-version: ",
            f"bus-info: {pci_address(index)}",
            "supports-statistics: yes",
            "supports-test: yes",
            "supports-eeprom-access: no",
            "supports-register-dump: no",
            "supports-priv-flags: yes",
        ]
    )


def pause(port: SimulatedPort) -> str:
    """`ethtool -a IF`, as mlx5_core has it by default."""
    values = ("Autonegotiate:\toff", "RX:\t\ton", "TX:\t\ton")
    return "\n".join((f"Pause parameters for {port.spec.netdev}:", *values, "", ""))


def statistics(port: SimulatedPort, driver: str) -> str:
    """`ethtool -S IF`, by the names of a driver."""
    port.accrue()
    counts = {"mlx5_core": _of_mlx5, "bnxt_en": _of_bnxt}.get(driver, _of_any)(port)
    return _lines(["NIC statistics:", *(f"     {name}: {count}" for name, count in counts.items())])


def _of_any(port: SimulatedPort) -> dict[str, int]:
    return {"rx_packets": 0, "tx_packets": 0, "link_down_events": port.link_downs}


def _of_bnxt(port: SimulatedPort) -> dict[str, int]:
    return _of_any(port) | {
        "rx_pcs_symbol_err": port.symbol_errors,
        "rx_corrected_bits": port.corrected_bits,
        "rx_fec_corrected_blocks": port.corrected_blocks,
        "rx_fec_uncorrectable_blocks": port.uncorrectable_blocks,
    }


def _of_mlx5(port: SimulatedPort) -> dict[str, int]:
    return {
        "rx_packets": 0,
        "tx_packets": 0,
        "rx_bits_phy": port.bits,
        "rx_pcs_symbol_err_phy": port.symbol_errors,
        "rx_corrected_bits_phy": port.corrected_bits,
        "rx_crc_errors_phy": port.uncorrectable_blocks,
        "rx_symbol_err_phy": port.symbol_errors,
        "link_down_events_phy": port.link_downs,
        "module_unplug": 0,
        **{f"rx_err_lane_{lane}_phy": count for lane, count in enumerate(port.raw_errors[:4])},
    }


_COUNTS_BITS = ("mlx5_core", "bnxt_en")
"""Drivers that fill in the kernel's count of corrected bits."""

_HAS_HISTOGRAM = ("mlx5_core",)
"""Drivers that fill in the kernel's histogram, from Linux 6.18 on."""


def fec(
    port: SimulatedPort, driver: str, *, counted: bool, as_json: bool, histogram: bool = False
) -> str:
    """`ethtool [--json] [-I] --show-fec IF`, with what a driver fills in.

    Source of the histogram's form: ethtool's commit "netlink: fec: add errors histogram
    statistics" (V. Fedorenko, October 2025).
    """
    port.accrue()
    histogram = histogram and driver in _HAS_HISTOGRAM
    encodings = port.fec_encodings
    in_use = next((each for each in encodings if each != "Auto"), "RS")
    active = in_use if port.is_up("firmware") else "None"
    counts = {
        "corrected_blocks": port.corrected_blocks,
        "uncorrectable_blocks": port.uncorrectable_blocks,
    }
    if driver in _COUNTS_BITS:
        counts["corrected_bits"] = port.corrected_bits
    if as_json:
        document: dict[str, object] = {
            "ifname": port.spec.netdev,
            "config": list(encodings),
            "active": [active],
        }
        if counted:
            statistics: dict[str, object] = {
                name: {"total": count} for name, count in counts.items()
            }
            if histogram:
                statistics["hist"] = [
                    {"bin_low": errors, "bin_high": errors, "total": count}
                    for errors, count in enumerate(_histogram(port))
                ]
            document["statistics"] = statistics
        return json.dumps([document]) + "\n"
    lines = [
        f"FEC parameters for {port.spec.netdev}:",
        f"Supported/Configured FEC encodings: {' '.join(encodings)}",
        f"Active FEC encoding: {active}",
    ]
    if counted:
        lines += ["Statistics:", *(f"  {name}: {count}" for name, count in counts.items())]
    if counted and histogram:
        lines += [f"  fec_symbols_err_{n}: {count}" for n, count in enumerate(_histogram(port))]
    return _lines(lines)


def _histogram(port: SimulatedPort) -> list[int]:
    """Return code words by their number of symbol errors, from 0 to as many as are corrected."""
    clean = port.codewords - port.corrected_blocks - port.uncorrectable_blocks
    return [clean, *port.symbol_error_counts]


# ------------------------------------------------------------------------------- module


def limits(port: SimulatedPort) -> Limits:
    """The thresholds in a transceiver's memory: a warning at what it is built for."""
    kind = port.limits

    def power(dbm: float) -> int:
        return round(10 ** (dbm / 10) * 1e4)

    def context(low: float, high: float) -> tuple[int, int, int, int]:
        return power(high + 1), power(low - 1), power(high), power(low)

    return {
        "temperature": (80 * 256, -10 * 256, 70 * 256, 0),
        "voltage": (35000, 31000, 34650, 31350),
        "bias": (65000, 2500, 60000, 5000),
        "tx": context(kind.launch.min, kind.launch.max),
        "rx": context(kind.receive.min, kind.receive.max),
    }


def module(port: SimulatedPort, *, state_key: str = "Module State") -> str:
    """`ethtool -m IF`; `state_key` is "Module state" from 6.14 on."""
    lanes = port.spec.lanes
    now, levels = port.registers(), limits(port)
    lines = [*_identity_lines(port)]
    if lanes > 1:
        lines.append(("Rx loss of signal", _flag_names(port.signal_lost(now))))
        lines += [(f"{what}", "None") for what in ("Tx loss of signal", "Tx fault")]
    if lanes == 8:
        lines += [
            (state_key, "0x03 (ModuleReady)"),
            ("LowPwrAllowRequestHW", "On"),
            ("LowPwrRequestSW", "Off"),
        ]
    if lanes == 1:
        lines.append(("Optical diagnostics support", "Yes"))
        lines += _lane_lines(port, now)
    lines.append(("Module temperature", _temperature(now.temperature)))
    lines.append(("Module voltage", f"{now.voltage / 1e4:.4f} V"))
    if lanes != 8:
        lines.append(("Alarm/warning flags implemented", "Yes"))
    if lanes > 1:
        lines += _lane_lines(port, now)
    lines += _flag_lines(lanes, now, levels)
    for name, key, show in (
        ("Laser bias current", "bias", _current),
        ("Laser output power", "tx", _power),
        ("Module temperature", "temperature", _temperature),
        ("Module voltage", "voltage", lambda value: f"{value / 1e4:.4f} V"),
        ("Laser rx power", "rx", _power),
    ):
        lines += [
            (f"{name} {level} threshold", show(value))
            for level, value in zip(_LEVELS, levels[key], strict=True)
        ]
    return _lines(f"\t{key:<{_WIDTH}} : {value}" for key, value in lines)


def measurements(port: SimulatedPort) -> str:
    """What `ethtool -m IF` prints below the identity of a module."""
    lines = module(port).splitlines(keepends=True)
    return "".join(lines[len(_identity_lines(port)) :])


def dump(memory: bytes, offset: int) -> str:
    """`ethtool -m IF hex on page N offset N length N`, in ethtool's form of any dump."""
    rows = [
        f"0x{offset + start:04x}:\t\t"
        + "".join(f"{each:02x} " for each in memory[start : start + 16])
        for start in range(0, len(memory), 16)
    ]
    return _lines(["Offset\t\tValues", "------\t\t------", *rows])


def _identity_lines(port: SimulatedPort) -> list[tuple[str, str]]:
    code, form = _FORMS.get(port.spec.lanes, _CMIS)
    return [
        ("Identifier", f"0x{code:02x} ({form})"),
        ("Connector", "0x{:02x} ({})".format(*connector(port))),
        ("Laser wavelength", f"{port.limits.wavelength_nm:.3f}nm"),
        ("Vendor name", "Lightrig"),
        ("Vendor OUI", "00:00:00"),
        ("Vendor PN", port.limits.name.upper()),
        ("Vendor rev", "A0"),
        ("Vendor SN", port.serial),
    ]


def connector(port: SimulatedPort) -> tuple[int, str]:
    """Return the connector of a module by SFF-8024; unspecified where the file does not tell."""
    used, sharing = port.spec.lanes_in_use, port.limits.wavelengths
    if used == 1 or (sharing or 1) > 1:
        return 0x07, "LC"
    return (0x0C, "MPO Parallel Optic") if sharing == 1 else (0x00, "unknown or unspecified")


def _lane_lines(port: SimulatedPort, now: Registers) -> list[tuple[str, str]]:
    if port.spec.lanes == 1:
        return [
            ("Laser bias current", _current(now.bias[0])),
            ("Laser output power", _power(now.tx_power[0])),
            ("Receiver signal average optical power", _power(now.rx_power[0])),
        ]
    # SFF-8636 leaves no blank before the bracket of the received power, CMIS does.
    received = "Rcvr signal avg optical power" + (" " if port.spec.lanes == 8 else "")
    return [
        (f"{name}(Channel {lane})", show(value))
        for name, values, show in (
            ("Laser tx bias current ", now.bias, _current),
            ("Transmit avg optical power ", now.tx_power, _power),
            (received, now.rx_power, _power),
        )
        for lane, value in enumerate(values, 1)
    ]


def _flag_lines(lanes: int, now: Registers, levels: Limits) -> list[tuple[str, str]]:
    named = [
        (f"{name} {level}", "On" if on else "Off")
        for name, value, key in (
            ("Module temperature", now.temperature, "temperature"),
            ("Module voltage", now.voltage, "voltage"),
        )
        for level, on in zip(_LEVELS, crossed(value, levels[key]), strict=True)
    ]
    for name, values, key, word in (
        ("Laser bias current", now.bias, "bias", "Chan"),
        ("Laser output power" if lanes == 1 else "Laser tx power", now.tx_power, "tx", "Channel"),
        ("Laser rx power", now.rx_power, "rx", "Channel"),
    ):
        for lane, value in enumerate(values, 1):
            for level, on in zip(_LEVELS, crossed(value, levels[key]), strict=True):
                where = "" if lanes == 1 else f" ({word} {lane})"
                named.append((f"{name} {level:<12}".rstrip() + where, "On" if on else "Off"))
    return named


def crossed(value: int, levels: Sequence[int]) -> tuple[bool, bool, bool, bool]:
    """Return which of the four levels a value exceeds."""
    high_alarm, low_alarm, high_warning, low_warning = levels
    return value > high_alarm, value < low_alarm, value > high_warning, value < low_warning


def _temperature(register: int) -> str:
    celsius = register / 256
    return f"{celsius:.2f} degrees C / {celsius * 1.8 + 32:.2f} degrees F"


def _current(register: int) -> str:
    return f"{register / 500:.3f} mA"


def _power(register: int) -> str:
    milliwatt = register / 1e4
    dbm = f"{10 * math.log10(milliwatt):.2f}" if register else "-inf"
    return f"{milliwatt:.4f} mW / {dbm} dBm"


def _flag_names(flags: list[bool]) -> str:
    if not any(flags):
        return "None"
    return "[ " + ", ".join("Yes" if flag else "No" for flag in flags) + " ]"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
