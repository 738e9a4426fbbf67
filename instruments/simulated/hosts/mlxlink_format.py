"""Output of mlxlink for a simulated port: sections, as coloured text or as JSON."""

import json

from lightrig.instruments.simulated.hosts.ethtool_format import limits
from lightrig.instruments.simulated.hosts.host_ports import SimulatedPort
from lightrig.instruments.simulated.hosts.templates import render

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
_GREEN, _PLAIN = "\x1b[32m", "\x1b[0m"
_CODED = 66 / 64
_LISTS = frozenset(
    {"Raw Physical Errors Per Lane", "Raw Physical BER Per Lane", "CDR RX", "CDR TX"}
)

Sections = dict[str, dict[str, str]]
"""By title and key."""


def report(port: SimulatedPort, *, module: bool, counters: bool, paths: str = "none") -> Sections:
    """The sections that `mlxlink -d DEV [-m] [-c]` shows; `paths` as `host_tools.MlxlinkPaths`."""
    port.accrue()
    if port.prbs is not None:
        return _test_mode(port, counters=counters)
    now = port.registers() if module and port.spec.transceiver else None
    text = render(
        "mlxlink",
        port=port,
        up=port.is_up("firmware"),
        module=module,
        counters=counters,
        now=now,
        levels=limits(port),
        lost=port.signal_lost(now) if now else (),
        paths=[_path(each, paths) for each in port.path_states()] if paths != "none" else (),
    )
    return _sections(text)


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
    text = render(
        "mlxlink_test_mode",
        port=port,
        prbs=prbs,
        locked="Locked" if port.locked() else "Not Locked",
        rate=f"{port.lane_rate * _CODED / 1e9:.7g}G" if port.lane_rate < 26e9 else "53.125G",
        counters=counters,
        bits=port.lane_rate * port.spec.lanes * port.nanoseconds_since(prbs.since) / 1e9,
    )
    return _sections(text)


def _sections(text: str) -> Sections:
    sections: Sections = {}
    for line in text.splitlines():
        if line.startswith("["):
            values = sections[line.strip("[]")] = {}
        else:
            key, _, value = line.partition(": ")
            values[key] = value
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
