"""The stages of a reconfiguration: their usual order and what they mean."""

from collections.abc import Iterable

MEANING: dict[str, str] = {
    "acknowledged": "the switch said done, on every switch",
    "light_gone": "light lost, on the first egress",
    "datagrams_lost": "the first datagram that did not arrive",
    "firmware_down": "firmware reports the link down, on the first NIC port",
    "carrier_down": "the kernel's carrier is lost, on the first NIC port",
    "light_back": "light is back, on the last egress",
    "firmware_up": "firmware reports the link up, on the last NIC port",
    "carrier_up": "the kernel's carrier is back, on the last NIC port",
    "first_datagram": "a datagram arrives again, on the last NIC port",
}
"""What a whole event's stage says, in the order in which the stages usually come."""

_FIRST = frozenset(("light_gone", "datagrams_lost", "firmware_down", "carrier_down"))


def ordered(stages: Iterable[str]) -> list[str]:
    """Each stage once, in the usual order; unknown ones last, as they came."""
    found = dict.fromkeys(stages)
    known = [stage for stage in MEANING if stage in found]
    return known + [stage for stage in found if stage not in MEANING]


def end_word(stage: str) -> str:
    """Which subject settles the stage of a whole event: "first" or "last"."""
    return "first" if stage in _FIRST else "last"
