"""Data tree of a simulated Polatis, as defined by its YANG module.

Source: module optical-switch, revision 2018-03-22. Not confirmed, and therefore chosen: which
error tags the switch answers with, above all for an egress that is in use (in-use).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast, get_args

from lxml import etree

from lightrig.instruments.simulated.devices.polatis_box import (
    MANUFACTURER,
    AlarmKind,
    AlarmThreshold,
    BoxError,
    PolatisBox,
    Reason,
    VoaMode,
    VoaSetting,
)

MODULE = "optical-switch"
NAMESPACE = f"http://www.polatis.com/yang/{MODULE}"

Leaf: TypeAlias = int | float | str
Leaves: TypeAlias = Mapping[str, Leaf]
"""The leaves of a container or of one list entry; a float is a decimal with two places."""

Operation = Literal["merge", "replace", "create", "delete", "remove"]

_TAGS: dict[Reason, str] = {
    "port": "invalid-value",
    "monitor": "invalid-value",
    "busy": "in-use",
    "value": "invalid-value",
    "list": "in-use",
}


class YangError(Exception):
    """The switch refuses a request, with an error tag of RFC 6241."""

    def __init__(self, tag: str, message: str, path: str = "") -> None:
        super().__init__(message)
        self.tag = tag
        self.message = message
        self.path = path


@dataclass(frozen=True, slots=True)
class Container:
    """A top-level container: leaves of its own, or one list of entries with a key.

    Attributes:
        entry: the name of its list; empty if it has none.
        key: the leaf that tells entries apart.
        writable: the leaves that may be set; empty for a container that only tells.
    """

    entry: str = ""
    key: str = ""
    writable: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: of the entry `key` of a container, or without a key of all of it."""

    container: str
    operation: Operation
    key: int | None = None
    leaves: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """End of a change: its delay in ns, and an action at that moment."""

    after: int = 0
    then: Callable[[], None] = lambda: None


CONTAINERS: Mapping[str, Container] = {
    "product-information": Container(),
    "port-config": Container("port", "port-id", ("label", "peer-port")),
    "cross-connects": Container("pair", "ingress", ("egress",)),
    "opm-power": Container("port", "port-id"),
    "opm-config": Container("port", "port-id", ("wavelength", "offset", "averaging-time")),
    "opm-alarm-config": Container(
        "port",
        "port-id",
        (
            "mode",
            "signal-low-threshold",
            "signal-degrade-threshold",
            "signal-high-threshold",
            "alarm-clear-holdoff",
        ),
    ),
    "voa": Container("port", "port-id", ("atten-mode", "atten-level", "reference-port")),
}
_ALARM_MODES = {"POWER_ALARM_DISABLED": "OFF", "POWER_ALARM_ENABLED": "CONT"}
_LEVELS = ("low", "degrade", "high")


class PolatisYang:
    """Reads and edits one switch by the paths of its module."""

    def __init__(self, box: PolatisBox) -> None:
        self.box = box

    def leaves(self, container: str) -> Leaves:
        """Return the leaves of a container that has no list."""
        assert container == "product-information"
        return {
            "manufacturer": MANUFACTURER,
            "serial-number": self.box.serial,
            "model-name": self.box.product,
            "software-version": self.box.software,
        }

    def entries(self, container: str, keys: Collection[int] | None = None) -> list[Leaves]:
        """Return the existing entries of a container's list, those of `keys` or all."""
        box, key = self.box, CONTAINERS[container].key
        every, of = {
            "port-config": (box.ports, self._port),
            "cross-connects": (sorted(box.matrix.egress_of), self._pair),
            "opm-power": (box.monitored, lambda port: {}),
            "opm-config": (box.monitored, self._monitor),
            "opm-alarm-config": (box.monitored, self._alarm),
            "voa": (box.egress_ports, self._voa),
        }[container]
        wanted = [port for port in every if keys is None or port in keys]
        if container == "opm-power":
            powers = box.powers(wanted)
            return [{key: p, "power": dbm} for p, dbm in zip(wanted, powers, strict=True)]
        return [{key: port, **of(port)} for port in wanted]

    def deprecated_ports(self) -> list[dict[str, Any]]:
        """Return the ports of the container that later revisions deprecate, with all leaves."""
        box, listed = self.box, []
        powers = dict(zip(box.monitored, box.powers(box.monitored), strict=True))
        for port in box.ports:
            state = "DISABLED" if box.is_shut(port) else "ENABLED"
            entry: dict[str, Any] = {
                "port-id": port,
                "port-label": box.labels.get(port, ""),
                "port-state": f"PC_{state}",
                "port-status": f"PO_{state}",
            }
            if port in powers:
                entry["opm"] = {
                    "lambda": box.monitor(port).wavelength,
                    "power": round(powers[port], 2),
                }
            listed.append(entry)
        return listed

    def edit(self, edits: Sequence[Edit]) -> Done:
        """Carry out all of `edits`; raise `YangError`."""
        pairs = [edit for edit in edits if edit.container == "cross-connects"]
        for edit in edits:
            self._check(edit)
        try:
            done = self._cross_connect(pairs) if pairs else Done()
            for edit in edits:
                if edit.container != "cross-connects":
                    self._set(edit)
        except BoxError as error:
            raise YangError(_TAGS[error.reason], error.text) from error
        return done

    def set_port_states(self, enabled: Collection[int], disabled: Collection[int]) -> Done:
        """The rpc port-set-state."""
        try:
            took = max(
                self.box.shut(ports, shut=shut) if ports else 0
                for ports, shut in ((enabled, False), (disabled, True))
            )
        except BoxError as error:
            raise YangError(_TAGS[error.reason], error.text) from error
        return Done(took)

    # --------------------------------------------------------------------------- entries

    def _port(self, port: int) -> Leaves:
        box = self.box
        return {
            "status": "DISABLED" if box.is_shut(port) else "ENABLED",
            "label": box.labels.get(port, ""),
            "peer-port": box.peer_ports.get(port, ""),
        }

    def _pair(self, ingress: int) -> Leaves:
        return {"egress": self.box.matrix.egress_of[ingress]}

    def _monitor(self, port: int) -> Leaves:
        setting = self.box.monitor(port)
        return {
            "wavelength": setting.wavelength,
            "offset": setting.offset,
            "averaging-time": setting.step,
        }

    def _alarm(self, port: int) -> Leaves:
        signal, degraded = (self.box.threshold(kind, port) for kind in ("LOS", "DEGRADED"))
        enabled = {signal.mode, degraded.mode} != {"OFF"}
        return {
            "mode": f"POWER_ALARM_{'ENABLED' if enabled else 'DISABLED'}",
            "signal-low-threshold": signal.low,
            "signal-degrade-threshold": degraded.low,
            "signal-high-threshold": signal.high,
            "alarm-clear-holdoff": self.box.holdoffs.get(port, 0),
        }

    def _voa(self, egress: int) -> Leaves:
        setting = self.box.voa_of(egress)
        leaves: dict[str, Leaf] = {"atten-mode": f"VOA_MODE_{setting.mode}"}
        if setting.mode in {"RELATIVE", "ABSOLUTE", "CONVERGED"}:
            leaves["atten-level"] = setting.level
        if setting.mode == "RELATIVE":
            leaves["reference-port"] = setting.reference
        return leaves

    # ----------------------------------------------------------------------------- edits

    def _check(self, edit: Edit) -> None:
        container = CONTAINERS[edit.container]
        if not container.writable:
            raise YangError("operation-not-supported", f"/{edit.container} cannot be configured")
        for name in edit.leaves:
            if name not in (*container.writable, container.key):
                raise YangError("unknown-element", f"no leaf {name} can be set there")

    def _cross_connect(self, edits: Sequence[Edit]) -> Done:
        """Only the result counts: two circuits may swap their egress ports in one operation."""
        wanted = dict(self.box.matrix.egress_of)
        for edit in edits:
            if edit.key is None:
                if edit.operation != "merge":
                    wanted.clear()
            elif edit.operation in {"delete", "remove"}:
                if wanted.pop(edit.key, None) is None and edit.operation == "delete":
                    raise YangError("data-missing", f"No connection at {edit.key}")
            elif edit.operation == "create" and edit.key in wanted:
                raise YangError("data-exists", f"Port in use: {edit.key}")
            elif "egress" in edit.leaves:
                wanted[edit.key] = _whole(edit.leaves["egress"])
            elif edit.key not in wanted:
                raise YangError("missing-element", "egress is mandatory")
        by_egress: dict[int, int] = {}
        for ingress, egress in wanted.items():
            if egress in by_egress:
                text = f"Port in use: {egress}, by {by_egress[egress]} and {ingress}"
                raise YangError("in-use", text)
            by_egress[egress] = ingress
        return Done(self.box.become(wanted), self.box.acknowledge)

    def _set(self, edit: Edit) -> None:
        removed = edit.operation in {"delete", "remove"}
        if edit.key is None:
            keys: list[int] = [int(entry["port-id"]) for entry in self.entries(edit.container)]
            for key in keys if edit.operation != "merge" else ():
                self._set(Edit(edit.container, "remove", key))
            return
        leaves = {} if removed else dict(edit.leaves)
        match edit.container:
            case "port-config":
                for name, stored in (
                    ("label", self.box.labels),
                    ("peer-port", self.box.peer_ports),
                ):
                    if removed or edit.operation == "replace":
                        stored.pop(edit.key, None)
                    if name == "label" and name in leaves:
                        self.box.label(edit.key, leaves[name])
                    elif name in leaves:
                        stored[edit.key] = leaves[name]
            case "opm-config":
                defaults = {"wavelength": "1550", "offset": "0", "averaging-time": "4"}
                if removed or edit.operation == "replace":
                    leaves = defaults | leaves
                step = leaves.get("averaging-time")
                self.box.set_monitor(
                    edit.key,
                    _decimal(leaves.get("wavelength")),
                    _decimal(leaves.get("offset")),
                    None if step is None else _whole(step),
                )
            case "opm-alarm-config":
                self._set_alarm(edit.key, leaves, fresh=removed or edit.operation == "replace")
            case "voa":
                current = VoaSetting() if removed else self.box.voa.get(edit.key, VoaSetting())
                mode = leaves.get("atten-mode", f"VOA_MODE_{current.mode}").removeprefix(
                    "VOA_MODE_"
                )
                if mode not in get_args(VoaMode):
                    raise YangError("invalid-value", f"no attenuation mode {mode}")
                level = _decimal(leaves.get("atten-level"))
                setting = VoaSetting(
                    cast(VoaMode, mode),
                    current.level if level is None else level,
                    _whole(leaves.get("reference-port", str(current.reference))),
                )
                self.box.set_voa(edit.key, setting)

    def _set_alarm(self, port: int, leaves: Mapping[str, str], *, fresh: bool) -> None:
        """Set the alarms at the monitor of `port`; `fresh`: absent leaves get their defaults."""
        box = self.box
        box.monitor(port)
        if (mode := leaves.get("mode", "POWER_ALARM_DISABLED")) not in _ALARM_MODES:
            raise YangError("invalid-value", f"no alarm mode {mode}")
        holdoff = _whole(leaves.get("alarm-clear-holdoff", "0"))
        levels = {name: _decimal(leaves.get(f"signal-{name}-threshold")) for name in _LEVELS}
        for kind in get_args(AlarmKind):
            before = AlarmThreshold() if fresh else box.threshold(kind, port)
            low = levels["low" if kind == "LOS" else "degrade"]
            box.thresholds[kind, port] = replace(
                before,
                mode=_ALARM_MODES[mode] if "mode" in leaves else before.mode,
                low=before.low if low is None else low,
                high=before.high if levels["high"] is None else levels["high"],
            )
        if fresh or "alarm-clear-holdoff" in leaves:
            box.holdoffs[port] = holdoff


def add_leaves(element: Any, leaves: Leaves) -> None:
    """Add `leaves` to an element of XML; a decimal has two places."""
    for name, value in leaves.items():
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        etree.SubElement(element, f"{{{NAMESPACE}}}{name}").text = text


def _whole(text: str) -> int:
    if not str(text).strip().isdigit():
        raise YangError("invalid-value", f"{text} is no number of a port or a step")
    return int(text)


def _decimal(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise YangError("invalid-value", f"{text} is no decimal number") from None
