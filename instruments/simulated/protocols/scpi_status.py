"""Status registers of SCPI-99 (volume 1, chapter 9): operation and questionable."""

import functools

from lightrig.instruments.simulated.protocols.commands import command
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


class StatusSubsystem(ScpiNode):
    """The registers and filters of both groups can be set and read; no event ever occurs."""

    @functools.cached_property
    def _groups(self) -> dict[str, _Group]:
        return {"OPER": _Group(), "QUES": _Group()}

    @command("STATus:PRESet")
    def _preset_status(self) -> None:
        for group in self._groups.values():
            group.preset()

    @command(
        "STATus:OPERation[:EVENt]?",
        "STATus:QUEStionable[:EVENt]?",
        "STATus:OPERation:CONDition?",
        "STATus:QUEStionable:CONDition?",
    )
    def _query_status_register(self) -> str:
        return "0"

    @command("STATus:OPERation:ENABle")
    def _enable_operation(self, text: str) -> None:
        self._groups["OPER"].enable = _mask(text)

    @command("STATus:OPERation:ENABle?")
    def _query_operation_enable(self) -> str:
        return str(self._groups["OPER"].enable)

    @command("STATus:QUEStionable:ENABle")
    def _enable_questionable(self, text: str) -> None:
        self._groups["QUES"].enable = _mask(text)

    @command("STATus:QUEStionable:ENABle?")
    def _query_questionable_enable(self) -> str:
        return str(self._groups["QUES"].enable)

    @command("STATus:OPERation:PTRansition")
    def _filter_operation_rises(self, text: str) -> None:
        self._groups["OPER"].positive = _mask(text)

    @command("STATus:OPERation:PTRansition?")
    def _query_operation_rises(self) -> str:
        return str(self._groups["OPER"].positive)

    @command("STATus:OPERation:NTRansition")
    def _filter_operation_falls(self, text: str) -> None:
        self._groups["OPER"].negative = _mask(text)

    @command("STATus:OPERation:NTRansition?")
    def _query_operation_falls(self) -> str:
        return str(self._groups["OPER"].negative)

    @command("STATus:QUEStionable:PTRansition")
    def _filter_questionable_rises(self, text: str) -> None:
        self._groups["QUES"].positive = _mask(text)

    @command("STATus:QUEStionable:PTRansition?")
    def _query_questionable_rises(self) -> str:
        return str(self._groups["QUES"].positive)

    @command("STATus:QUEStionable:NTRansition")
    def _filter_questionable_falls(self, text: str) -> None:
        self._groups["QUES"].negative = _mask(text)

    @command("STATus:QUEStionable:NTRansition?")
    def _query_questionable_falls(self) -> str:
        return str(self._groups["QUES"].negative)


def _mask(text: str) -> int:
    value = round(number(text))
    if not 0 <= value <= 0xFFFF:
        raise ScpiError(*OUT_OF_RANGE)
    return value & _ALL
