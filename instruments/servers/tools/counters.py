"""Difference of two readings of a counter, if it can be known.

A counter grows; at its top it wraps to zero or stays there, and a reset starts it anew. Two
readings therefore do not always tell how much was counted between them. `delta` gives a number
only where there is one, else an `Unknown` with what is certain: the least that was counted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Reason = Literal["reset", "wrapped or reset", "saturated", "too soon", "too large", "not known"]


@dataclass(frozen=True, slots=True)
class CounterKind:
    """Behaviour of a counter.

    Attributes:
        bits: its width.
        at_top: what it does when it is full.
        fec: whether it counts errors before or after forward error correction.
        scale: how many bytes or events one count stands for.
        refresh_ns: it is read anew only this often; readings that are closer may be one.
        most_per_s: it cannot grow faster.
        registers: widths of device registers whose value a driver may hand on as its counter's;
            at its top each stays until it is read or reset.
    """

    bits: int = 64
    at_top: Literal["wraps", "saturates"] = "wraps"
    fec: Literal["before", "after"] | None = None
    scale: int = 1
    refresh_ns: int = 0
    most_per_s: float | None = None
    registers: tuple[int, ...] = ()

    @property
    def top(self) -> int:
        """Largest value of the counter."""
        return (1 << self.bits) - 1

    def may_be_full(self, value: int) -> bool:
        """Whether a counter that shows `value` may have stopped counting."""
        widths = self.registers if self.at_top == "wraps" else (*self.registers, self.bits)
        return any(value == (1 << width) - 1 for width in widths)


@dataclass(frozen=True, slots=True)
class Unknown:
    """The difference is unknown; `at_least` is certain, in the counter's scale.

    `reset`: it fell and cannot have wrapped. `wrapped or reset`: it fell. `saturated`: it stands
    at its top, or at that of a register. `too soon`: it may not have been refreshed. `too large`:
    the value does not fit its width, so it is of another kind. `not known`: nobody knows how this
    counter behaves.
    """

    reason: Reason
    at_least: int = 0

    @property
    def explanation(self) -> str:
        """The reason as a clause, for a measurement that is void by it."""
        return _EXPLANATIONS[self.reason]


_EXPLANATIONS: Mapping[Reason, str] = {
    "reset": "its counters were reset during the measurement",
    "wrapped or reset": "its counters fell: they wrapped or were reset",
    "saturated": "a counter is at its maximum and may count no further until it is reset",
    "too soon": "its counters may not have been updated yet",
    "too large": "a counter exceeds its width",
    "not known": "the behaviour of its counters is unknown",
}


def delta(
    before: int, after: int, kind: CounterKind, *, at_most: int | None = None
) -> int | Unknown:
    """Return the difference of two readings, in the counter's scale.

    A counter that wraps and fell has wrapped or was reset, and the readings alone do not say
    which. With `at_most`, the most that can have been counted, a fall that a wrap explains is
    taken for a wrap, if `at_most` is under a sixteenth of the counter's range: only a reset at
    the very moment of a wrap would be mistaken. A 64-bit counter never wraps: it was reset.
    """
    if not (0 <= before <= kind.top and 0 <= after <= kind.top):
        return Unknown("too large")
    scale = kind.scale
    if kind.may_be_full(after):
        return Unknown("saturated", scale * max(after - before, 0))
    if after >= before:
        return scale * (after - before)
    if kind.at_top == "saturates" or kind.bits >= 64:
        return Unknown("reset", scale * after)
    wrapped = after - before + kind.top + 1
    if at_most is not None and at_most < kind.top // 16 and scale * wrapped <= at_most:
        return scale * wrapped
    return Unknown("wrapped or reset", scale * after)


KindOf = Callable[[str], CounterKind | None]


def changes(
    before: Mapping[str, int], after: Mapping[str, int], kind_of: KindOf, *, apart_ns: int
) -> dict[str, int | Unknown]:
    """Return the differences of all counters of two readings that are `apart_ns` apart.

    Where one counter shows a reset, all were reset: a driver or firmware that starts anew takes
    them all along.
    """
    found: dict[str, int | Unknown] = {}
    for name in before.keys() & after.keys():
        kind = kind_of(name)
        if kind is None:
            found[name] = Unknown("not known")
        elif apart_ns < kind.refresh_ns:
            found[name] = Unknown("too soon", max(after[name] - before[name], 0) * kind.scale)
        else:
            pace = kind.most_per_s
            most = None if pace is None else int(pace * apart_ns / 1e9) + 1
            found[name] = delta(before[name], after[name], kind, at_most=most)
    if any(isinstance(each, Unknown) and each.reason == "reset" for each in found.values()):
        for name, grown in found.items():
            kind = kind_of(name)
            if kind is not None and not (
                isinstance(grown, Unknown) and grown.reason == "too large"
            ):
                found[name] = Unknown("reset", kind.scale * after[name])
    return found


# ----------------------------------------------------------------------- which is which

_COUNT = CounterKind()
FEC_COUNTER = CounterKind(registers=(16, 32))
"""A counter of `ethtool --show-fec`, of any driver.

The kernel's are 64 bits wide. The registers of IEEE 802.3, clause 45, have 16 and 32 bits and are
held at all ones, and some drivers add up nothing: ice hands on two halves of 16 bits as they are.
"""

_BEFORE_FEC = CounterKind(fec="before")
_AFTER_FEC = CounterKind(fec="after")

_ETHTOOL = {
    "rx_bits_phy": _COUNT,
    "rx_corrected_bits_phy": _BEFORE_FEC,
    "rx_pcs_symbol_err_phy": _AFTER_FEC,
    "rx_symbol_err_phy": _AFTER_FEC,
    "rx_crc_errors_phy": _AFTER_FEC,
    "rx_discards_phy": _COUNT,
    "tx_discards_phy": _COUNT,
    "tx_errors_phy": _COUNT,
    "link_down_events_phy": CounterKind(bits=32, most_per_s=1_000),
    "module_unplug": _COUNT,
    "module_bus_stuck": _COUNT,
    "module_high_temp": _COUNT,
    "module_bad_shorted": _COUNT,
    "rx_pause_ctrl_phy": _COUNT,
    "tx_pause_ctrl_phy": _COUNT,
}
_ETHTOOL_FAMILIES = (
    (re.compile(r"rx_err_lane_\d+_phy"), _BEFORE_FEC),
    (re.compile(r"[rt]x_(?:packets|bytes|multicast|broadcast)_phy"), _COUNT),
    (re.compile(r"[rt]x_(?:packets|bytes)"), _COUNT),
)


def ethtool_kind(name: str) -> CounterKind | None:
    """Return the behaviour of a counter of `ethtool -S`, if known: those of an mlx5 port.

    Source: the kernel's documentation of mlx5 counters; `link_down_events_phy` is a 32-bit field
    of the port's physical layer counters. That a link cannot go down more than 1,000 times a
    second is an assumption.
    """
    if name in _ETHTOOL:
        return _ETHTOOL[name]
    return next((kind for names, kind in _ETHTOOL_FAMILIES if names.fullmatch(name)), None)


def _saturating(bits: int) -> CounterKind:
    return CounterKind(bits=bits, at_top="saturates")


_DATA = CounterKind(scale=4)
_INFINIBAND = {
    "symbol_error": CounterKind(bits=16, at_top="saturates", fec="after"),
    "link_error_recovery": _saturating(8),
    "link_downed": _saturating(8),
    "port_rcv_errors": _saturating(16),
    "port_rcv_remote_physical_errors": _saturating(16),
    "port_rcv_switch_relay_errors": _saturating(16),
    "port_xmit_discards": _saturating(16),
    "port_xmit_constraint_errors": _saturating(8),
    "port_rcv_constraint_errors": _saturating(8),
    "local_link_integrity_errors": _saturating(4),
    "excessive_buffer_overrun_errors": _saturating(4),
    "VL15_dropped": _saturating(16),
    "port_xmit_wait": _saturating(32),
    "port_xmit_data": _DATA,
    "port_rcv_data": _DATA,
    "port_xmit_packets": _COUNT,
    "port_rcv_packets": _COUNT,
    "unicast_xmit_packets": _COUNT,
    "unicast_rcv_packets": _COUNT,
    "multicast_xmit_packets": _COUNT,
    "multicast_rcv_packets": _COUNT,
}


def infiniband_kind(name: str) -> CounterKind | None:
    """Return the behaviour of a counter below `/sys/class/infiniband/DEV/ports/N/counters` behaves.

    The error counters are those of the PortCounters attribute: 4 to 16 bits that stay at their
    top. `port_xmit_data` and `port_rcv_data` count 4 bytes at a time.
    Source: drivers/infiniband/core/sysfs.c, which has the widths; devices without extended
    counters show data and packets with 32 bits that stay at their top, which a reading of
    2^32 - 1 betrays and `saturated` in `infiniband_sysfs` names.
    """
    return _INFINIBAND.get(name)
