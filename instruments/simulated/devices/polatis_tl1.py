"""A simulated Polatis over TL1, its native protocol.

Codes and texts are those of the vendor's test suite; settings of monitors and attenuators, alarm
thresholds, reverse monitors and the force flag those of PyPolatis, the vendor's wrapper. Not
confirmed, and therefore chosen: the code for a port in use (SRCN) and for a missing login (PLNA),
and the words for a monitor at an ingress and at an egress.
"""

import functools
import re
from collections.abc import Collection, Mapping

from lightrig.instruments.simulated.devices.polatis_box import (
    MANUFACTURER,
    AlarmKind,
    AlarmThreshold,
    BoxError,
    PolatisBox,
    ProgrammedShutter,
    Reason,
    VoaMode,
    VoaSetting,
)
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection
from lightrig.instruments.simulated.protocols.tl1_device import (
    PROCESSING,
    Tl1Denial,
    Tl1Device,
    Tl1Reply,
    Tl1Request,
    Tl1ServerSession,
    split_quoted,
    time_of_day,
    unquoted,
)
from lightrig.testbeds import Circuit

_SECONDS = 1_000_000_000
_MS = 1_000_000
_CODES: dict[Reason, str] = {
    "port": "IDNV",
    "monitor": "IDNV",
    "busy": "SRCN",
    "value": "IPNV",
    "list": "IIAC",
}
_MODES: tuple[VoaMode, ...] = (
    "NONE",
    "RELATIVE",
    "ABSOLUTE",
    "CONVERGED",
    "MAXIMUM",
    "FIXED",
)
_LEVELLED = {"RELATIVE", "ABSOLUTE", "CONVERGED"}
_SHORT = {
    "RELATIVE": "REL",
    "ABSOLUTE": "ABS",
    "CONVERGED": "CONV",
    "MAXIMUM": "MAX",
    "FIXED": "FIX",
}
_FORCED = "FRCD"
_ALARM_MODES = ("OFF", "SINGLE", "CONT")


class PolatisTl1(Tl1Device):
    """The TL1 commands of one switch; `box` has its state."""

    def __init__(self, box: PolatisBox, login: tuple[str, str], stated: Mapping[str, str]) -> None:
        """`stated` are the forms of its dialects."""
        super().__init__(box.name, box.clock, login)
        self.prompt = "" if stated["terminal"] == "raw" else ">"
        self.echo = stated["terminal"] == "echo"
        self._reports_after = 2 * PROCESSING if stated["reports"] == "after" else 0
        self.box = box
        self._timeouts = {"ADMIN": 0, "USER": 0, "VIEW": 0}
        self._lists: dict[str, list[int]] = {}

    def session(self, connection: DeviceConnection, index: int) -> Tl1ServerSession:
        """Open the session of a new client, which hears of what happens at the switch."""
        session = super().session(connection, index)

        def report(text: str) -> None:
            if not self._reports_after:
                session.report(text)
                return
            at = self.clock.now() + self._reports_after
            self.clock.schedule(at, f"{self.name}!report{index:04d}", lambda: session.report(text))

        self.box.listeners.append(report)
        self.box.users.append(lambda: session.user)
        return session

    def execute(self, request: Tl1Request) -> Tl1Reply:
        """Carry out one command; a session that was idle for too long must log in again."""
        session, allowed = request.session, self._timeouts["ADMIN"] * 60 * _SECONDS
        idle = self.clock.now() - session.last_command
        if allowed and idle > allowed and request.verb != self.login_verb:
            session.user = None
        try:
            return super().execute(request)
        except BoxError as error:
            raise Tl1Denial(_CODES[error.reason], error.text) from error

    # -------------------------------------------------------------------------- session

    def log_in(self, request: Tl1Request) -> Tl1Reply:
        """Log the user of a session in; raise `Tl1Denial`."""
        if request.session.user is not None:
            raise Tl1Denial("PICC", "Already logged in")
        if len(request.blocks) < 2 or not request.blocks[1]:
            raise Tl1Denial("IPMS", "Too few parameters (0/1) in block 1")
        if (unquoted(request.aid), unquoted(request.blocks[1])) != self.login:
            raise Tl1Denial("PICC", "Authentication failure")
        request.session.user = request.aid
        return Tl1Reply()

    @command("CANC-USER")
    def _log_out(self, request: Tl1Request) -> Tl1Reply:
        if request.aid != request.session.user:
            raise Tl1Denial("PICC", " Permission denied ")
        request.session.user = None
        return Tl1Reply()

    @command("OPR-ARC-EQPT", "RLS-ARC-EQPT")
    def _inhibit_reports(self, request: Tl1Request) -> Tl1Reply:
        request.session.reports = request.verb.startswith("RLS")
        return Tl1Reply()

    @command("RTRV-ARC-EQPT")
    def _retrieve_inhibition(self, request: Tl1Request) -> Tl1Reply:
        return Tl1Reply([f"REPMGR:{'' if request.session.reports else 'IND'},,"])

    @command("SET-SID")
    def _set_sid(self, request: Tl1Request) -> Tl1Reply:
        name = unquoted(request.blocks[1]) if len(request.blocks) > 1 else ""
        if not 1 <= len(name) <= 20:
            raise Tl1Denial("IPNV", "Parameter not valid")
        request.session.sid = self.sid = name
        return Tl1Reply()

    @command("RTRV-HDR")
    def _keep_alive(self, _: Tl1Request) -> Tl1Reply:
        return Tl1Reply()

    # ------------------------------------------------------------------------ equipment

    @command("RTRV-NETYPE")
    def _retrieve_type(self, _: Tl1Request) -> Tl1Reply:
        return Tl1Reply([f"{MANUFACTURER},{self.box.product},OCS,{self.box.software}"])

    @command("RTRV-INV")
    def _retrieve_inventory(self, _: Tl1Request) -> Tl1Reply:
        return Tl1Reply([f"OCS::SN={self.box.serial}"])

    @command("RTRV-EQPT")
    def _retrieve_equipment(self, request: Tl1Request) -> Tl1Reply:
        asked = request.blocks[-1].upper() if request.blocks else ""
        match request.aid.upper(), asked.removeprefix("PARAMETER="):
            case "SYSTEM", "SIZE":
                size = f"{len(self.box.ingress_ports)}x{len(self.box.egress_ports)}"
                return Tl1Reply([f"SYSTEM:SIZE={size}"])
            case "PMON", "CONFIG":
                first = self.box.egress_ports.start
                return Tl1Reply(
                    [
                        f"PMON::PORT={port},MODE={'OUTPUT' if port >= first else 'INPUT'}"
                        for port in self.box.monitored
                    ]
                )
            case "REVPMON", "CONFIG":
                return Tl1Reply()  # no port has a reverse monitor
            case "ATTEN", "CONFIG":
                return Tl1Reply([f"ATTEN:CONFIG={self.box.attenuation}"])
            case "TIMEOUT", group if group in self._timeouts:
                return Tl1Reply([f"TIMEOUT:{group}={self._timeouts[group]}"])
            case "BOOT", "MODE":
                return Tl1Reply([f"BOOT:MODE={self.box.boot}"])
        raise Tl1Denial("IDNV", "Bad parameter value")

    @command("ED-EQPT")
    def _edit_equipment(self, request: Tl1Request) -> Tl1Reply:
        settings = _settings(request)
        for key, value in settings.items():
            match request.aid.upper(), key:
                case "TIMEOUT", group if group in self._timeouts:
                    if not value.isdigit() or int(value) > 60:
                        raise Tl1Denial("IPNV", "Parameter not valid")
                    self._timeouts[group] = int(value)
                case "BOOT", "MODE":
                    if value.upper() not in {"DARK", "RESTORE"}:
                        raise Tl1Denial("IDNV", f"Invalid value {value}")
                    self.box.boot = value.upper()
                case _:
                    raise Tl1Denial("IPNV", f"Unexpected parameter {key.lower()} in block 2")
        return Tl1Reply()

    @command("RTRV-TOD")
    def _retrieve_time(self, _: Tl1Request) -> Tl1Reply:
        now = time_of_day(self.clock.now() // _SECONDS)
        return Tl1Reply([f"{now:%Y,%m,%d,%H,%M,%S}"])

    @command("INIT-SYS")
    def _initialise(self, request: Tl1Request) -> Tl1Reply:
        if request.aid.upper() != "SYSTEM" or request.blocks[1:2] not in (("0",), ("1",)):
            raise Tl1Denial("IDNV", "Bad parameter value")
        took = self.box.disconnect(list(self.box.matrix.egress_of))
        return Tl1Reply((), max(took, self.box.shut(self.box.ports, shut=False)))

    @command("RTRV-ALM-EQPT", "RTRV-ALM-ENV", "RTRV-ALM-ALL")
    def _retrieve_alarms(self, request: Tl1Request) -> Tl1Reply:
        if request.aid.upper() != "ALL":
            raise Tl1Denial("IIAC", "Bad AID")
        return Tl1Reply()

    # ------------------------------------------------------------------------- circuits

    @command("RTRV-PATCH")
    def _retrieve_circuits(self, request: Tl1Request) -> Tl1Reply:
        every = not request.aid or request.aid.upper() == "ALL"
        wanted = None if every else self._ports(request.aid)
        return Tl1Reply(
            [
                f"{ingress},{egress}"
                for ingress, egress in sorted(self.box.matrix.egress_of.items())
                if wanted is None or ingress in wanted or egress in wanted
            ]
        )

    @command("ENT-PATCH")
    def _connect(self, request: Tl1Request) -> Tl1Reply:
        _check_forced(request)
        sides = request.aid.split(",")
        if len(sides) != 2:
            raise Tl1Denial("IIAC", f"Too few parameters ({len(sides)}/2)")
        ingress, egress = (self._ports(side) for side in sides)
        if not ingress or len(ingress) != len(egress):
            raise Tl1Denial("IIAC", "Empty parameters" if not ingress else "Unequal lists")
        circuits = [Circuit(*pair) for pair in zip(ingress, egress, strict=True)]
        return Tl1Reply((), self.box.connect(circuits), self.box.acknowledge)

    @command("DLT-PATCH")
    def _disconnect(self, request: Tl1Request) -> Tl1Reply:
        _check_forced(request)
        every = not request.aid or request.aid.upper() == "ALL"
        ports = list(self.box.matrix.egress_of) if every else self._ports(request.aid)
        return Tl1Reply((), self.box.disconnect(ports), self.box.acknowledge)

    # ---------------------------------------------------------------------------- ports

    @command("OPR-PORT-SHUTTER", "RLS-PORT-SHUTTER")
    def _shutters(self, request: Tl1Request) -> Tl1Reply:
        ports = self._some(request.aid, self.box.ports)
        return Tl1Reply((), self.box.shut(ports, shut=request.verb.startswith("OPR")))

    @command("RTRV-PORT-SHUTTER")
    def _retrieve_shutters(self, request: Tl1Request) -> Tl1Reply:
        ports = self._some(request.aid, self.box.ports)
        return Tl1Reply([f"{p}:{'CLOSED' if self.box.is_shut(p) else 'OPEN'}" for p in ports])

    # ---------------------------------------------------------------- programmed shutters

    @command("ENT-PORT-FLAP")
    def _enter_flap(self, request: Tl1Request) -> Tl1Reply:
        """Program dark ms, lit ms and cycles of ports: `ENT-PORT-FLAP::10:1::1000,500,1`."""
        texts = [text.strip() for text in (request.blocks[1:2] or [""])[0].split(",")]
        if len(texts) != 3 or not all(text.isdigit() for text in texts):
            raise Tl1Denial("IPMS", f"Too few parameters ({len(texts)}/3) in block 2")
        off, on, cycles = map(int, texts)
        if not (10 <= off <= 10_000 and 500 <= on <= 30_000):
            raise Tl1Denial("IPNV", "Parameter not valid")
        for port in self._some(request.aid, self.box.ports):
            self.box.flaps[port] = ProgrammedShutter(off, on, cycles)
        return Tl1Reply()

    @command("RTRV-PORT-FLAP")
    def _retrieve_flaps(self, request: Tl1Request) -> Tl1Reply:
        flaps = self.box.flaps
        ports = [port for port in self._some(request.aid, sorted(flaps)) if port in flaps]
        return Tl1Reply([f"{p}:{flaps[p].dark},{flaps[p].lit},{flaps[p].cycles}" for p in ports])

    @command("OPR-PORT-FLAP", "RLS-PORT-FLAP")
    def _flap(self, request: Tl1Request) -> Tl1Reply:
        """Start the programmed cycles of ports, or end them with open shutters."""
        flaps, now = self.box.flaps, self.clock.now()
        ports = self._some(request.aid, sorted(flaps))
        if request.verb.startswith("RLS"):
            for port in flaps.keys() & ports:
                flaps[port].ends = now
            return Tl1Reply((), self.box.shut(ports, shut=False))
        for port in ports:
            if port not in flaps:
                raise Tl1Denial("IDNV", f"No flap is programmed at {port}")
            flap = flaps[port]
            flap.ends = now + flap.cycles * (flap.dark + flap.lit) * _MS
            for cycle in range(flap.cycles):
                begin = now + cycle * (flap.dark + flap.lit) * _MS
                for at, shut in ((begin, True), (begin + flap.dark * _MS, False)):
                    act = functools.partial(self._set_shutter, port, shut=shut)
                    self.clock.schedule(at, f"{self.name}!flap{port:05d}", act)
        return Tl1Reply()

    def _set_shutter(self, port: int, *, shut: bool) -> None:
        self.box.shut([port], shut=shut)

    # --------------------------------------------------------------------- alarm thresholds

    @command("RTRV-PORT-REVPOWER", "RTRV-PORT-REVPMON", "SET-PORT-REVPMON", "SET-TH-REVPMON")
    def _reverse_monitors(self, request: Tl1Request) -> Tl1Reply:
        for port in self._some(request.aid, ()):
            raise Tl1Denial("IDNV", f"Port has no power monitor: {port}")
        return Tl1Reply()

    @command("SET-TH-PMON")
    def _set_threshold(self, request: Tl1Request) -> Tl1Reply:
        settings = dict(_settings(request))
        kind = _alarm_kind(settings.pop("TYPE", ""), "IPNV")
        mode = settings.pop("MODE", "").upper()
        edge = settings.pop("EDGE", "LOW").upper()
        low, high = _number(settings.pop("LOW", None)), _number(settings.pop("HIGH", None))
        if settings or mode not in {"", *_ALARM_MODES}:
            raise Tl1Denial("IPNV", "Parameter not valid")
        for port in self._some(request.aid, self.box.monitored):
            self.box.monitor(port)
            before = self.box.threshold(kind, port)
            self.box.thresholds[kind, port] = AlarmThreshold(
                mode or before.mode,
                edge,
                before.low if low is None else low,
                before.high if high is None else high,
            )
        return Tl1Reply()

    @command("RTRV-TH-PMON")
    def _retrieve_thresholds(self, request: Tl1Request) -> Tl1Reply:
        kind, lines = _alarm_kind("".join(request.blocks[:1]), "IDNV"), []
        for port in self._some(request.aid, self.box.monitored):
            found = self.box.threshold(kind, port)
            high = "" if kind == "DEGRADED" else f"{found.high:.2f}"
            lines.append(f"{port}:{found.mode},{found.edge},{high},{found.low:.2f}")
        return Tl1Reply(lines)

    @command("RTRV-STATE-PMON")
    def _retrieve_alarm_states(self, request: Tl1Request) -> Tl1Reply:
        kind, ports = (
            _alarm_kind("".join(request.blocks[:1]), "IDNV"),
            self._some(request.aid, self.box.monitored),
        )
        powers = dict(zip(ports, self.box.powers(ports), strict=True))
        lines = []
        for port in ports:
            found = self.box.threshold(kind, port)
            fired = found.mode != "OFF" and powers[port] < found.low
            lines.append(f"{port}:{found.mode}{'&TRIGGERED' if fired else ''}")
        return Tl1Reply(lines)

    # ----------------------------------------------------------------------------- monitors

    @command("RTRV-PORT-POWER")
    def _retrieve_power(self, request: Tl1Request) -> Tl1Reply:
        ports = self._some(request.aid, self.box.monitored)
        readings = zip(ports, self.box.powers(ports), strict=True)
        return Tl1Reply([f"{port}:{dbm:.2f}" for port, dbm in readings])

    @command("RTRV-PORT-PMON")
    def _retrieve_monitors(self, request: Tl1Request) -> Tl1Reply:
        lines = []
        for port in self._some(request.aid, self.box.monitored):
            setting = self.box.monitor(port)
            lines.append(f"{port}:{setting.wavelength:.1f},{setting.offset:.2f},{setting.step}")
        return Tl1Reply(lines)

    @command("SET-PORT-PMON")
    def _set_monitors(self, request: Tl1Request) -> Tl1Reply:
        settings = _settings(request)
        if unknown := settings.keys() - {"WAVE", "OFFSET", "ATIME"}:
            raise Tl1Denial("IPNV", f"Unexpected parameter {min(unknown).lower()} in block 2")
        wave, offset, step = (_number(settings.get(key)) for key in ("WAVE", "OFFSET", "ATIME"))
        for port in self._some(request.aid, self.box.monitored):
            self.box.set_monitor(port, wave, offset, None if step is None else round(step))
        return Tl1Reply()

    @command("RTRV-PORT-ATTEN")
    def _retrieve_attenuators(self, request: Tl1Request) -> Tl1Reply:
        lines = []
        for port in self._some(request.aid, self.box.egress_ports):
            setting = self.box.voa_of(port)
            level = f"{setting.level:.2f}" if setting.mode in _LEVELLED else ""
            reference = str(setting.reference) if setting.mode == "RELATIVE" else ""
            lines.append(f"{port}:{_SHORT.get(setting.mode, setting.mode)},{level},{reference}")
        return Tl1Reply(lines)

    @command("SET-PORT-ATTEN")
    def _attenuate(self, request: Tl1Request) -> Tl1Reply:
        settings = _settings(request)
        word = settings.get("MODE", "").upper()
        mode = next((mode for mode in _MODES if len(word) > 2 and mode.startswith(word)), None)
        if mode is None:
            raise Tl1Denial("IPMS" if not word else "IDNV", f"Invalid value {word}")
        level = _number(settings.get("LEVEL"))
        if level is None and mode in _LEVELLED:
            raise Tl1Denial("IPMS", "Too few parameters (1/2) in block 2")
        ports = self._some(request.aid, self.box.egress_ports)
        references = self._ports(settings.get("REFS", "")) or [0] * len(ports)
        if len(references) != len(ports):
            raise Tl1Denial("IIAC", "Unequal lists")
        for port, reference in zip(ports, references, strict=True):
            self.box.set_voa(port, VoaSetting(mode, level or 0.0, reference))
        return Tl1Reply()

    @command("ED-PORT-LABEL")
    def _label(self, request: Tl1Request) -> Tl1Reply:
        block = request.blocks[-1] if request.blocks else ""
        key, _, texts = block.partition("=")
        labels = [unquoted(text) for text in split_quoted(texts, "&")]
        ports = self._some(request.aid, self.box.ports)
        if key.upper() != "LABEL" or len(labels) not in (1, len(ports)):
            raise Tl1Denial("IPNV", "Parameter not valid")
        for port, label in zip(ports, labels * (len(ports) // len(labels)), strict=True):
            self.box.label(port, label)
        return Tl1Reply()

    @command("RTRV-PORT-LABEL")
    def _retrieve_labels(self, request: Tl1Request) -> Tl1Reply:
        ports = self._some(request.aid, self.box.ports)
        return Tl1Reply([f"{port}:{self.box.labels.get(port, '')}" for port in ports])

    @command("DLT-PORT-LABEL")
    def _remove_labels(self, request: Tl1Request) -> Tl1Reply:
        for port in self._some(request.aid, self.box.ports):
            self.box.labels.pop(port, None)
        return Tl1Reply()

    def _some(self, aid: str, every: Collection[int]) -> list[int]:
        """Return the ports that an AID lists, or all of `every` where it lists none."""
        return self._ports(aid) if aid and aid.upper() != "ALL" else [*every]

    def _ports(self, aid: str) -> list[int]:
        if aid not in self._lists:
            if len(self._lists) > 1000:
                self._lists.clear()
            self._lists[aid] = self._parse_ports(aid)
        return self._lists[aid]

    def _parse_ports(self, aid: str) -> list[int]:
        ports: list[int] = []
        for item in filter(None, re.split(r"(?<!&)&(?!&)", aid)):
            first, separator, last = item.partition("&&")
            for bound in (first, last) if separator else (first,):
                if not bound.isdigit() or int(bound) not in self.box.ports:
                    raise Tl1Denial("IDNV", f"Invalid OXC port: {bound}")
            ports.extend(range(int(first), int(last if separator else first) + 1))
        return ports


def _check_forced(request: Tl1Request) -> None:
    """Raise `Tl1Denial` for blocks other than the force flag, `:frcd`."""
    flags = [block for block in request.blocks if block]
    if flags and [flag.upper() for flag in flags] != [_FORCED]:
        raise Tl1Denial("IPNV", f"Unexpected parameter {flags[0].lower()} in block 2")


def _alarm_kind(text: str, code: str) -> AlarmKind:
    match text.upper():
        case "LOS" | "":
            return "LOS"
        case "DEGRADED":
            return "DEGRADED"
    raise Tl1Denial(code, f"Invalid value {text}")


def _settings(request: Tl1Request) -> Mapping[str, str]:
    """Return the `KEY=value` pairs of the last block."""
    settings = {}
    for part in split_quoted(request.blocks[-1] if request.blocks else "", ","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise Tl1Denial("IPMS", "Too few parameters (0/1) in block 2")
        settings[key.upper()] = unquoted(value)
    return settings


def _number(text: str | None) -> float | None:
    """Parse a number; a negative one may stand in parentheses."""
    if text is None:
        return None
    try:
        return float(text.strip("()"))
    except ValueError:
        raise Tl1Denial("IDNV", f"Invalid value {text}") from None
