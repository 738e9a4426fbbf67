"""Status registers of SCPI-99 (volume 1, chapter 9): operation and questionable."""

import functools
from collections.abc import Callable

from lightrig.instruments.simulated.protocols.commands import Constant, Query, command
from lightrig.instruments.simulated.protocols.scpi_values import (
    OUT_OF_RANGE,
    ScpiError,
    ScpiNode,
    number,
)

_ALL = 0x7FFF


class _Group:
    """One group of registers; its condition is always zero: nothing of the device is in it."""

    def __init__(self) -> None:
        self.preset()

    def preset(self) -> None:
        """Let positive transitions pass and negative ones not; enable nothing."""
        self.enable, self.positive, self.negative = 0, _ALL, 0


def _register(
    group: str, header: str, name: str
) -> tuple[Callable[["StatusSubsystem", str], None], Query]:
    """Return the command that sets a register of a group, and the query that reads it."""

    @command(header)
    def set_register(self: "StatusSubsystem", text: str) -> None:
        setattr(self._groups[group], name, _mask(text))

    return set_register, Query(f"{header}?", reply=lambda self: getattr(self._groups[group], name))


class StatusSubsystem(ScpiNode):
    """The registers and filters of both groups can be set and read; no event ever occurs."""

    @functools.cached_property
    def _groups(self) -> dict[str, _Group]:
        return {"OPER": _Group(), "QUES": _Group()}

    @command("STATus:PRESet")
    def _preset_status(self) -> None:
        for group in self._groups.values():
            group.preset()

    _events_and_conditions = Constant(
        "STATus:OPERation[:EVENt]?",
        "STATus:QUEStionable[:EVENt]?",
        "STATus:OPERation:CONDition?",
        "STATus:QUEStionable:CONDition?",
        reply="0",
    )

    _set_operation_enable, _operation_enable = _register(
        "OPER", "STATus:OPERation:ENABle", "enable"
    )
    _set_operation_rises, _operation_rises = _register(
        "OPER", "STATus:OPERation:PTRansition", "positive"
    )
    _set_operation_falls, _operation_falls = _register(
        "OPER", "STATus:OPERation:NTRansition", "negative"
    )
    _set_questionable_enable, _questionable_enable = _register(
        "QUES", "STATus:QUEStionable:ENABle", "enable"
    )
    _set_questionable_rises, _questionable_rises = _register(
        "QUES", "STATus:QUEStionable:PTRansition", "positive"
    )
    _set_questionable_falls, _questionable_falls = _register(
        "QUES", "STATus:QUEStionable:NTRansition", "negative"
    )


def _mask(text: str) -> int:
    value = round(number(text))
    if not 0 <= value <= 0xFFFF:
        raise ScpiError(*OUT_OF_RANGE)
    return value & _ALL
