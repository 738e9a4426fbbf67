"""State of a simulated Polatis: circuits, shutters, monitors, attenuators, labels.

Its four wires read and change this one state. Not confirmed, and therefore chosen: the times of
a shutter and of an attenuator's control loop, the strongest attenuation, and the product code
for monitors on both sides.
"""

import bisect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.optics import DARK_DBM, Matrix
from lightrig.testbeds import Circuit, Identity

WINDOWS_NS = tuple(ms * 1_000_000 for ms in (10, 20, 50, 100, 200, 500, 1000, 2000))
"""Averaging windows of the monitors by their step, 1 to 8, in ns.

They are those of PyPolatis, the vendor's wrapper; the YANG module says that each step doubles.
"""

SHUTTER_NS = 5_000_000
LOOP_NS = 100_000_000
"""Time of a shutter, and of an attenuator's control loop, to reach its setting, in ns."""

STRONGEST_DB = 40.0

MANUFACTURER, SOFTWARE = "Polatis", "6.7.3.9"
_CODES = {"egress": "N-VST-{}-LU1-DMHNV-701", "both": "N-VST-{}-LU1-DMHNV-801"}
_WITHOUT_MONITORS = "I-OST-{}-LU1-DMHNS"

Reason = Literal["port", "monitor", "busy", "value", "list"]


class BoxError(Exception):
    """The switch refuses a request; each wire has a code for the reason.

    Attributes:
        reason: no such port, no monitor there, a port in use, a bad value, or a bad list.
        text: message of the switch.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


@dataclass(slots=True)
class MonitorSetting:
    """Settings of one port's monitor: nm, dB, and the step of its averaging time, 1 to 8."""

    wavelength: float
    offset: float
    step: int


VoaMode = Literal["NONE", "RELATIVE", "ABSOLUTE", "CONVERGED", "MAXIMUM", "FIXED"]


@dataclass(frozen=True, slots=True)
class VoaSetting:
    """Attenuation at one egress; `level` in dBm, or in dB above the power at `reference`."""

    mode: VoaMode = "NONE"
    level: float = 0.0
    reference: int = 0


AlarmKind = Literal["LOS", "DEGRADED"]


@dataclass(frozen=True, slots=True)
class AlarmThreshold:
    """Alarm of a monitor; levels in dBm, with the defaults of the YANG module."""

    mode: str = "OFF"
    edge: str = "LOW"
    low: float = -60.0
    high: float = 25.0


@dataclass(slots=True)
class ProgrammedShutter:
    """Cycles of a shutter: dark ms, lit ms, their number, and when the last one ends, in ns."""

    dark: int
    lit: int
    cycles: int
    ends: int = 0


class PolatisBox:
    """One simulated switch, without its wires.

    Options: `rerouting`, whether connecting a port in use moves it, as public examples expect,
    or is refused; `monitors` (`egress`, `both` or `none`), where power monitors are fitted;
    `attenuation` (`relative`, `absolute` or `none`), what its attenuators can do.

    Attributes:
        flaps: programmed shutters, by port.
        thresholds: alarms that were set, by kind and port.
        holdoffs: seconds of good signal that clear an alarm, by port; 0 where absent.
        listeners: called with the text of each autonomous message.
        users: returns who is logged in, for each session of TL1 that was opened.
    """

    def __init__(
        self,
        name: str,
        size: tuple[int, int],
        options: Mapping[str, bool | int | float | str],
        matrix: Matrix,
        clock: Clock,
        truth: GroundTruth,
        serial: str,
        stated: Identity = Identity(),  # noqa: B008 -- frozen
    ) -> None:
        self.name = name
        self.serial = serial
        self.clock = clock
        self.matrix = matrix
        self.ingress_ports = range(1, size[0] + 1)
        self.egress_ports = range(size[0] + 1, sum(size) + 1)
        self.ports = range(1, sum(size) + 1)
        self.rerouting = bool(options.get("rerouting", True))
        self.labels: dict[int, str] = {}
        self.peer_ports: dict[int, str] = {}
        self.voa: dict[int, VoaSetting] = {}
        self.flaps: dict[int, ProgrammedShutter] = {}
        self.thresholds: dict[tuple[AlarmKind, int], AlarmThreshold] = {}
        self.holdoffs: dict[int, int] = {}
        self.listeners: list[Callable[[str], None]] = []
        self.users: list[Callable[[], str | None]] = []
        self._truth = truth
        where = str(options.get("monitors", "egress"))
        code = _CODES.get(where, _WITHOUT_MONITORS).format(f"{size[0]}x{size[1]}")
        self.product = stated.model or code
        self.software = stated.firmware or SOFTWARE
        self.monitored: Collection[int] = {
            "egress": self.egress_ports,
            "both": self.ports,
        }.get(where, range(0))
        self._settings: dict[int, MonitorSetting] = {}
        self.attenuation = str(options.get("attenuation", "relative")).upper()
        self.boot = "RESTORE"

    # ------------------------------------------------------------------------- circuits

    def connect(self, circuits: Collection[Circuit]) -> int:
        """Make all of `circuits`, or none; return the time to the acknowledgement, in ns."""
        self._check_circuits(circuits)
        if not self.rerouting:
            egress_of, ingress_of = self.matrix.egress_of, self.matrix.ingress_of
            for circuit in circuits:
                made = egress_of.get(circuit.ingress)
                if made != circuit.egress and (made is not None or circuit.egress in ingress_of):
                    raise BoxError("busy", f"Port in use: {circuit}")
        return self.matrix.connect(circuits)

    def disconnect(self, ports: Iterable[int]) -> int:
        """Disconnect the circuits at `ports`; return the time to the acknowledgement, in ns."""
        return self.matrix.disconnect(ports)

    def become(self, wanted: Mapping[int, int]) -> int:
        """Replace all circuits by `wanted`, egress by ingress, in one operation; return its ns.

        Only the result must be a matching: a circuit may take a port that another one leaves.
        """
        circuits = [Circuit(ingress, egress) for ingress, egress in wanted.items()]
        self._check_circuits(circuits)
        current = dict(self.matrix.egress_of)
        removed = [ingress for ingress in current if ingress not in wanted]
        new = [circuit for circuit in circuits if current.get(circuit.ingress) != circuit.egress]
        took = self.matrix.disconnect(removed) if removed else 0
        return max(took, self.matrix.connect(new)) if new else took

    def acknowledge(self) -> None:
        """Note that a change of circuits is being acknowledged now."""
        now = self.clock.now()
        self._truth.note(self.name, "acknowledged", up=True, at=Span(now, now))

    def _check_circuits(self, circuits: Collection[Circuit]) -> None:
        for side, ports in (("ingress", self.ingress_ports), ("egress", self.egress_ports)):
            used: set[int] = set()
            for circuit in circuits:
                port = getattr(circuit, side)
                if port not in ports:
                    raise BoxError("port", f"Invalid OXC port: {port}")
                if port in used:
                    raise BoxError("list", "Port given twice")
                used.add(port)

    # ------------------------------------------------------------------------- shutters

    def shut(self, ports: Collection[int], *, shut: bool) -> int:
        """Close or open the shutters of `ports`; return the time that takes, in ns."""
        for port in ports:
            self.check_port(port)

        def act() -> None:
            for port in ports:
                if shut == (port in self.matrix.shut):
                    continue
                self.matrix.shutter(port, shut=shut)
                for listener in tuple(self.listeners):
                    listener(f"Port {port} {'disabled' if shut else 'enabled'}")

        self.clock.schedule(self.clock.now() + SHUTTER_NS, f"{self.name}!shutter", act)
        return SHUTTER_NS

    def is_shut(self, port: int) -> bool:
        """Whether the shutter of `port` is closed."""
        return port in self.matrix.shut

    # ------------------------------------------------------------------------- monitors

    def powers(self, ports: Collection[int]) -> list[float]:
        """Return the readings of the monitors of `ports` now, in dBm."""
        monitored, first_egress = self.monitored, self.egress_ports.start
        for port in ports:
            if port not in monitored:
                raise BoxError("monitor", f"Port has no power monitor: {port}")
        egresses = [port for port in ports if port >= first_egress]
        if len(egresses) == len(ports):
            shown = self.matrix.readings(egresses)
        else:
            ingresses = [port for port in ports if port < first_egress]
            readings = self.matrix.readings(egresses, ingresses)
            by_port = dict(zip([*egresses, *ingresses], readings, strict=True))
            shown = [by_port[port] for port in ports]
        if self._settings:
            offsets = (self.monitor(port).offset for port in ports)
            shown = [power + offset for power, offset in zip(shown, offsets, strict=True)]
        return shown

    def monitor(self, port: int) -> MonitorSetting:
        """Return the settings of the monitor of `port`."""
        if port not in self.monitored:
            raise BoxError("monitor", f"Port has no power monitor: {port}")
        if port in self._settings:
            return self._settings[port]
        # The step whose window is not shorter than the true one.
        step = bisect.bisect_left(WINDOWS_NS, self.matrix.window(port)) + 1
        return MonitorSetting(1310.0, 0.0, min(step, 8))

    def set_monitor(
        self,
        port: int,
        wavelength: float | None = None,
        offset: float | None = None,
        step: int | None = None,
    ) -> None:
        """Set what is not None at the monitor of `port`, within the published ranges."""
        setting = self.monitor(port)
        if wavelength is not None:
            setting.wavelength = _within(wavelength, 1260.0, 1640.0)
        if offset is not None:
            setting.offset = _within(offset, -100.0, 100.0)
        if step is not None:
            setting.step = round(_within(step, 1, 8))
            self.matrix.average(port, WINDOWS_NS[setting.step - 1])
        self._settings[port] = setting

    def threshold(self, kind: AlarmKind, port: int) -> AlarmThreshold:
        """Return the alarm of one kind at the monitor of `port`."""
        return self.thresholds.get((kind, port), AlarmThreshold())

    # ---------------------------------------------------------------------- attenuators

    def set_voa(self, egress: int, setting: VoaSetting) -> None:
        """Attenuate at `egress`; the light follows when the control loop has settled."""
        if egress not in self.egress_ports:
            raise BoxError("port", f"Invalid OXC port: {egress}")
        if setting.reference and setting.reference not in self.ingress_ports:
            raise BoxError("port", f"Invalid OXC port: {setting.reference}")
        _within(setting.level, -100.0, 100.0)
        if self.attenuation == "NONE" or (
            setting.mode == "RELATIVE" and self.attenuation != "RELATIVE"
        ):
            raise BoxError("value", f"Invalid value {setting.mode}")
        self.voa[egress] = setting
        self.clock.schedule(
            self.clock.now() + LOOP_NS,
            f"{self.name}!voa",
            lambda: self._attenuate(egress, setting),
        )

    def voa_of(self, egress: int) -> VoaSetting:
        """Return the attenuation of `egress`, with the reference port that is in use."""
        if egress not in self.egress_ports:
            raise BoxError("port", f"Invalid OXC port: {egress}")
        setting = self.voa.get(egress, VoaSetting())
        if setting.mode != "RELATIVE" or setting.reference:
            return setting
        return VoaSetting("RELATIVE", setting.level, self.matrix.ingress_of.get(egress, 0))

    def _attenuate(self, egress: int, setting: VoaSetting) -> None:
        matrix, level = self.matrix, setting.level

        def above_reference(entering: float) -> float:
            power = matrix.entering(setting.reference) if setting.reference else entering
            return level + (DARK_DBM if power is None else power)

        match setting.mode:
            case "FIXED":
                # Freeze the present attenuation, whatever control loop brought it about.
                decibel = self._attenuated(egress)
                matrix.limit(egress, None)
                matrix.attenuate(egress, decibel)
                return
            case "RELATIVE":
                matrix.limit(egress, above_reference)
            case "ABSOLUTE" | "CONVERGED":
                matrix.limit(egress, lambda _: level)
            case _:
                matrix.limit(egress, None)
        matrix.attenuate(egress, STRONGEST_DB if setting.mode == "MAXIMUM" else 0.0)

    def _attenuated(self, egress: int) -> float:
        """Return by how many dB less leaves `egress` than its circuit would deliver."""
        ingress = self.matrix.ingress_of.get(egress)
        power = None if ingress is None else self.matrix.entering(ingress)
        leaving = self.matrix.level(egress)
        if ingress is None or power is None or not leaving:
            return self.matrix.attenuation(egress)
        delivered = power - self.matrix.loss(Circuit(ingress, egress))
        return max(delivered - 10 * math.log10(leaving), 0.0)

    # --------------------------------------------------------------------------- labels

    def label(self, port: int, text: str) -> None:
        """Name `port`; up to 128 printable ASCII characters."""
        self.check_port(port)
        if not re.fullmatch(r"[ -~]{0,128}", text):
            raise BoxError("value", f"Invalid value {text}")
        self.labels[port] = text

    def check_port(self, port: int) -> None:
        """Raise `BoxError` unless there is such a port."""
        if port not in self.ports:
            raise BoxError("port", f"Invalid OXC port: {port}")


def _within(value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise BoxError("value", f"Invalid value {value:g}")
    return value
