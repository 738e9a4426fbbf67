"""A simulated Polatis over TL1, its native tongue; knows nothing of any driver.

Codes and texts are those of the vendor's test suite. Not confirmed, and therefore chosen: the
code for a port in use (SRCN) and for a missing login (PLNA), how an attenuator's settings are
listed, and which words say that a monitor sits at an ingress or at an egress.
"""

import re
from collections.abc import Callable, Collection, Mapping

from instruments.simulated.peer_server import PeerConnection
from instruments.simulated.polatis_box import (
    MANUFACTURER,
    SOFTWARE,
    BoxError,
    PolatisBox,
    Reason,
    VoaMode,
    VoaSetting,
)
from instruments.simulated.tl1_peer import (
    Answer,
    Refusal,
    Request,
    Tl1Dialogue,
    split_quoted,
    time_of_day,
    unquoted,
)
from testbeds import Circuit

_SECONDS = 1_000_000_000
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
_SHORT = {"RELATIVE": "REL", "ABSOLUTE": "ABS", "CONVERGED": "CONV", "MAXIMUM": "MAX"}


class PolatisTl1:
    """The TL1 commands of one switch, for any number of sessions."""

    def __init__(self, box: PolatisBox, login: tuple[str, str]) -> None:
        self._box = box
        self._clock = box.clock
        self._login = login
        self._sid = box.name
        self._timeouts = {"ADMIN": 0, "USER": 0, "VIEW": 0}
        self._boot = "RESTORE"
        self._lists: dict[str, list[int]] = {}
        self._commands: dict[str, Callable[[Request], Answer]] = {
            "RTRV-HDR": lambda _: Answer(),
            "RTRV-NETYPE": self._network_element,
            "RTRV-INV": self._inventory,
            "RTRV-EQPT": self._equipment,
            "ED-EQPT": self._edit_equipment,
            "RTRV-PATCH": self._circuits,
            "ENT-PATCH": self._connect,
            "DLT-PATCH": self._disconnect,
            "OPR-PORT-SHUTTER": lambda request: self._shutters(request, shut=True),
            "RLS-PORT-SHUTTER": lambda request: self._shutters(request, shut=False),
            "RTRV-PORT-SHUTTER": self._shutters_now,
            "RTRV-PORT-POWER": self._power,
            "RTRV-PORT-PMON": self._monitors,
            "SET-PORT-PMON": self._set_monitors,
            "RTRV-PORT-ATTEN": self._attenuators,
            "SET-PORT-ATTEN": self._attenuate,
            "ED-PORT-LABEL": self._label,
            "RTRV-PORT-LABEL": self._labels,
            "DLT-PORT-LABEL": self._unlabel,
            "RTRV-TOD": self._time,
            "INIT-SYS": self._initialise,
            "RTRV-ALM-EQPT": self._alarms,
            "RTRV-ALM-ENV": self._alarms,
            "RTRV-ALM-ALL": self._alarms,
        }

    def session(self, connection: PeerConnection, index: int) -> Tl1Dialogue:
        """A new client's session."""
        owner = f"{self._box.name}#{index:04d}"
        dialogue = Tl1Dialogue(connection, self._clock, owner, self._sid, self.execute)
        self._box.listeners.append(dialogue.report)
        return dialogue

    def execute(self, session: Tl1Dialogue, request: Request) -> Answer:
        """Carry out one command, or raise `Refusal`."""
        if request.verb == "ACT-USER":
            return self._log_in(session, request)
        allowed = self._timeouts["ADMIN"] * 60 * _SECONDS
        if allowed and self._clock.now() - session.heard > allowed:
            session.user = None
        if session.user is None:
            raise Refusal("PLNA", "Not logged in")
        try:
            return self._of_session(session, request) or self._command(request)
        except BoxError as error:
            raise Refusal(_CODES[error.reason], error.text) from error

    def _command(self, request: Request) -> Answer:
        command = self._commands.get(request.verb)
        if command is None:
            raise Refusal("IICC", "Invalid command")
        return command(request)

    def _of_session(self, session: Tl1Dialogue, request: Request) -> Answer | None:
        """What concerns the session itself."""
        match request.verb:
            case "CANC-USER":
                if request.aid != session.user:
                    raise Refusal("PICC", " Permission denied ")
                session.user = None
            case "OPR-ARC-EQPT" | "RLS-ARC-EQPT":
                session.reports = request.verb.startswith("RLS")
            case "RTRV-ARC-EQPT":
                return Answer([f"REPMGR:{'' if session.reports else 'IND'},,"])
            case "SET-SID":
                name = unquoted(request.blocks[1]) if len(request.blocks) > 1 else ""
                if not 1 <= len(name) <= 20:
                    raise Refusal("IPNV", "Parameter not valid")
                session.sid = self._sid = name
            case _:
                return None
        return Answer()

    def _log_in(self, session: Tl1Dialogue, request: Request) -> Answer:
        if session.user is not None:
            raise Refusal("PICC", "Already logged in")
        if len(request.blocks) < 2 or not request.blocks[1]:
            raise Refusal("IPMS", "Too few parameters (0/1) in block 1")
        if (unquoted(request.aid), unquoted(request.blocks[1])) != self._login:
            raise Refusal("PICC", "Authentication failure")
        session.user = request.aid
        return Answer()

    # ------------------------------------------------------------------------ equipment

    def _network_element(self, _: Request) -> Answer:
        return Answer([f"{MANUFACTURER},{self._box.product},OCS,{SOFTWARE}"])

    def _inventory(self, _: Request) -> Answer:
        return Answer([f"OCS::SN={self._box.serial}"])

    def _equipment(self, request: Request) -> Answer:
        asked = request.blocks[-1].upper() if request.blocks else ""
        match request.aid.upper(), asked.removeprefix("PARAMETER="):
            case "SYSTEM", "SIZE":
                size = f"{len(self._box.ingress_ports)}x{len(self._box.egress_ports)}"
                return Answer([f"SYSTEM:SIZE={size}"])
            case "PMON", "CONFIG":
                first = self._box.egress_ports.start
                return Answer(
                    [
                        f"PMON::PORT={port},MODE={'OUTPUT' if port >= first else 'INPUT'}"
                        for port in self._box.monitored
                    ]
                )
            case "ATTEN", "CONFIG":
                return Answer(["ATTEN:CONFIG=RELATIVE"])
            case "TIMEOUT", group if group in self._timeouts:
                return Answer([f"TIMEOUT:{group}={self._timeouts[group]}"])
            case "BOOT", "MODE":
                return Answer([f"BOOT:MODE={self._boot}"])
        raise Refusal("IDNV", "Bad parameter value")

    def _edit_equipment(self, request: Request) -> Answer:
        settings = _settings(request)
        for key, value in settings.items():
            match request.aid.upper(), key:
                case "TIMEOUT", group if group in self._timeouts:
                    if not value.isdigit() or int(value) > 60:
                        raise Refusal("IPNV", "Parameter not valid")
                    self._timeouts[group] = int(value)
                case "BOOT", "MODE":
                    if value.upper() not in {"DARK", "RESTORE"}:
                        raise Refusal("IDNV", f"Invalid value {value}")
                    self._boot = value.upper()
                case _:
                    raise Refusal("IPNV", f"Unexpected parameter {key.lower()} in block 2")
        return Answer()

    def _time(self, _: Request) -> Answer:
        now = time_of_day(self._clock.now() // _SECONDS)
        return Answer([f"{now:%Y,%m,%d,%H,%M,%S}"])

    def _initialise(self, request: Request) -> Answer:
        if request.aid.upper() != "SYSTEM" or request.blocks[1:2] not in (("0",), ("1",)):
            raise Refusal("IDNV", "Bad parameter value")
        took = self._box.disconnect(list(self._box.matrix.egress_of))
        return Answer((), max(took, self._box.shut(self._box.ports, shut=False)))

    def _alarms(self, request: Request) -> Answer:
        if request.aid.upper() != "ALL":
            raise Refusal("IIAC", "Bad AID")
        return Answer()

    # ------------------------------------------------------------------------- circuits

    def _circuits(self, request: Request) -> Answer:
        every = not request.aid or request.aid.upper() == "ALL"
        wanted = None if every else self._ports(request.aid)
        return Answer(
            [
                f"{ingress},{egress}"
                for ingress, egress in sorted(self._box.matrix.egress_of.items())
                if wanted is None or ingress in wanted or egress in wanted
            ]
        )

    def _connect(self, request: Request) -> Answer:
        sides = request.aid.split(",")
        if len(sides) != 2:
            raise Refusal("IIAC", f"Too few parameters ({len(sides)}/2)")
        ingress, egress = (self._ports(side) for side in sides)
        if not ingress or len(ingress) != len(egress):
            raise Refusal("IIAC", "Empty parameters" if not ingress else "Unequal lists")
        circuits = [Circuit(*pair) for pair in zip(ingress, egress, strict=True)]
        return Answer((), self._box.connect(circuits), self._box.acknowledge)

    def _disconnect(self, request: Request) -> Answer:
        every = not request.aid or request.aid.upper() == "ALL"
        ports = list(self._box.matrix.egress_of) if every else self._ports(request.aid)
        return Answer((), self._box.disconnect(ports), self._box.acknowledge)

    # ---------------------------------------------------------------------------- ports

    def _shutters(self, request: Request, *, shut: bool) -> Answer:
        return Answer((), self._box.shut(self._some(request.aid, self._box.ports), shut=shut))

    def _shutters_now(self, request: Request) -> Answer:
        ports = self._some(request.aid, self._box.ports)
        return Answer([f"{p}:{'CLOSED' if self._box.is_shut(p) else 'OPEN'}" for p in ports])

    def _power(self, request: Request) -> Answer:
        ports = self._some(request.aid, self._box.monitored)
        readings = zip(ports, self._box.powers(ports), strict=True)
        return Answer([f"{port}:{dbm:.2f}" for port, dbm in readings])

    def _monitors(self, request: Request) -> Answer:
        lines = []
        for port in self._some(request.aid, self._box.monitored):
            setting = self._box.monitor(port)
            lines.append(f"{port}:{setting.wavelength:.1f},{setting.offset:.2f},{setting.step}")
        return Answer(lines)

    def _set_monitors(self, request: Request) -> Answer:
        settings = _settings(request)
        if unknown := settings.keys() - {"WAVE", "OFFSET", "ATIME"}:
            raise Refusal("IPNV", f"Unexpected parameter {min(unknown).lower()} in block 2")
        wave, offset, step = (_number(settings.get(key)) for key in ("WAVE", "OFFSET", "ATIME"))
        for port in self._some(request.aid, self._box.monitored):
            self._box.set_monitor(port, wave, offset, None if step is None else round(step))
        return Answer()

    def _attenuators(self, request: Request) -> Answer:
        lines = []
        for port in self._some(request.aid, self._box.egress_ports):
            setting = self._box.voa_of(port)
            level = f"{setting.level:.2f}" if setting.mode in _LEVELLED else ""
            reference = str(setting.reference) if setting.mode == "RELATIVE" else ""
            lines.append(f"{port}:{_SHORT.get(setting.mode, setting.mode)},{level},{reference}")
        return Answer(lines)

    def _attenuate(self, request: Request) -> Answer:
        settings = _settings(request)
        said = settings.get("MODE", "").upper()
        mode = next((mode for mode in _MODES if len(said) > 2 and mode.startswith(said)), None)
        if mode is None:
            raise Refusal("IPMS" if not said else "IDNV", f"Invalid value {said}")
        level = _number(settings.get("LEVEL"))
        if level is None and mode in _LEVELLED:
            raise Refusal("IPMS", "Too few parameters (1/2) in block 2")
        ports = self._some(request.aid, self._box.egress_ports)
        references = self._ports(settings.get("REFS", "")) or [0] * len(ports)
        if len(references) != len(ports):
            raise Refusal("IIAC", "Unequal lists")
        for port, reference in zip(ports, references, strict=True):
            self._box.set_voa(port, VoaSetting(mode, level or 0.0, reference))
        return Answer()

    def _label(self, request: Request) -> Answer:
        block = request.blocks[-1] if request.blocks else ""
        key, _, texts = block.partition("=")
        labels = [unquoted(text) for text in split_quoted(texts, "&")]
        ports = self._some(request.aid, self._box.ports)
        if key.upper() != "LABEL" or len(labels) not in (1, len(ports)):
            raise Refusal("IPNV", "Parameter not valid")
        for port, label in zip(ports, labels * (len(ports) // len(labels)), strict=True):
            self._box.label(port, label)
        return Answer()

    def _labels(self, request: Request) -> Answer:
        ports = self._some(request.aid, self._box.ports)
        return Answer([f"{port}:{self._box.labels.get(port, '')}" for port in ports])

    def _unlabel(self, request: Request) -> Answer:
        for port in self._some(request.aid, self._box.ports):
            self._box.labels.pop(port, None)
        return Answer()

    def _some(self, aid: str, every: Collection[int]) -> list[int]:
        """The ports that an AID lists, or all of `every` where it lists none."""
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
                if not bound.isdigit() or int(bound) not in self._box.ports:
                    raise Refusal("IDNV", f"Invalid OXC port: {bound}")
            ports.extend(range(int(first), int(last if separator else first) + 1))
        return ports


def _settings(request: Request) -> Mapping[str, str]:
    """The `KEY=value` pairs of the last block."""
    settings = {}
    for part in split_quoted(request.blocks[-1] if request.blocks else "", ","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise Refusal("IPMS", "Too few parameters (0/1) in block 2")
        settings[key.upper()] = unquoted(value)
    return settings


def _number(text: str | None) -> float | None:
    """A number; a negative one stands in parentheses, or does not."""
    if text is None:
        return None
    try:
        return float(text.strip("()"))
    except ValueError:
        raise Refusal("IDNV", f"Invalid value {text}") from None
