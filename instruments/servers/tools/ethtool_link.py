"""`ethtool IF`: what a port's link is set to and whether it is up."""

import re
from dataclasses import dataclass
from typing import Literal

from lightrig.instruments.servers.tools.output import ToolOutputError, whole

TOOL = "ethtool"

_HEADER = re.compile(r"Settings for (\S+):")
_SPEED = re.compile(r"(\d+)Mb/s", re.ASCII)
_MODE = re.compile(r"\d+base\S+/(?:Half|Full)", re.ASCII)
_DETECTED = re.compile(r"(yes|no)(?: \((.+)\))?")


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """A port's link; None where the driver does not say.

    Attributes:
        netdev: the network device.
        speed_bps: None while the link is down, on most drivers.
        lanes: how many lanes carry it.
        modes: the link modes that the device supports, such as `100000baseLR4_ER4/Full`.
        detected: whether the link is up, by the driver.
        reason: what newer kernels say about a link that is down, such as `No cable`.
    """

    netdev: str
    speed_bps: int | None
    duplex: Literal["half", "full"] | None
    lanes: int | None
    port: str | None
    auto_negotiation: bool | None
    modes: tuple[str, ...]
    detected: bool
    reason: str | None


def parse(text: str) -> LinkSettings:
    """Parse the output of `ethtool IF`.

    Raises:
        ToolOutputError: it is something else; a speed without a duplex or a report that does
            not end with `Link detected` is one that was cut off or changed.
    """
    header, *lines = [line for line in text.splitlines() if line.strip()] or [""]
    match = _HEADER.fullmatch(header.strip())
    if match is None:
        raise ToolOutputError(TOOL, "`Settings for IF:`", header)
    fields: dict[str, list[str]] = {}
    last = ""
    for line in lines:
        key, colon, value = line.strip().partition(":")
        if colon:
            if key in fields:
                raise ToolOutputError(TOOL, f"{key!r} once", line)
            fields[key], last = [value.strip()], key
        elif last.endswith("link modes") and all(map(_MODE.fullmatch, line.split())):
            fields[last].append(line.strip())
        elif last != "Current message level":
            raise ToolOutputError(TOOL, "`key: value`, or more link modes", line)
    if "Link detected" not in fields or ("Speed" in fields) != ("Duplex" in fields):
        raise ToolOutputError(TOOL, "speed and duplex, and `Link detected` at the end", lines[-1:])
    try:
        return _settings(match[1], {key: " ".join(values) for key, values in fields.items()})
    except ValueError as error:
        raise ToolOutputError(TOOL, str(error)) from error


def _settings(netdev: str, fields: dict[str, str]) -> LinkSettings:
    detected = _DETECTED.fullmatch(fields["Link detected"])
    if detected is None:
        raise ValueError(f"`Link detected` to be yes or no, not {fields['Link detected']!r}")
    modes = fields.get("Supported link modes", "Not reported")
    lanes = fields.get("Lanes")
    return LinkSettings(
        netdev=netdev,
        speed_bps=_speed(fields.get("Speed")),
        duplex=_duplex(fields.get("Duplex")),
        lanes=None if lanes is None or lanes.startswith("Unknown!") else whole(lanes),
        port=fields.get("Port"),
        auto_negotiation=_on(fields.get("Auto-negotiation")),
        modes=() if modes == "Not reported" else tuple(modes.split()),
        detected=detected[1] == "yes",
        reason=detected[2],
    )


def _speed(text: str | None) -> int | None:
    if text is None or text.startswith("Unknown!"):
        return None
    match = _SPEED.fullmatch(text)
    if match is None:
        raise ValueError(f"a speed in Mb/s, not {text!r}")
    return whole(match[1]) * 1_000_000


def _duplex(text: str | None) -> Literal["half", "full"] | None:
    match text:
        case "Full":
            return "full"
        case "Half":
            return "half"
        case None:
            return None
    if text.startswith("Unknown!"):
        return None
    raise ValueError(f"a duplex of Full or Half, not {text!r}")


def _on(text: str | None) -> bool | None:
    if text not in ("on", "off", None):
        raise ValueError(f"`Auto-negotiation` to be on or off, not {text!r}")
    return None if text is None else text == "on"
