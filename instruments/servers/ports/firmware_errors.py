"""Bit errors of a NIC port by its firmware, for drivers without error counters: mlxlink."""

from lightrig.instruments.core.capabilities import ErrorCount
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.instruments.servers.host.commands import Reading, ToolFailedError, ToolMissingError
from lightrig.instruments.servers.ports.counter_gates import CounterGate, PortCounters
from lightrig.instruments.servers.tools.mlxlink import BitErrors, MlxlinkReport

_CLEAR_DIGIT = 6_000_000_000
"""Resolution of the time since the counters were cleared, in ns."""


class FirmwareErrors(PortCounters[MlxlinkReport]):
    """Raw errors of all lanes before FEC, or effective errors after it.

    The firmware does not count bits: the least number between two readings is used. A count is
    void if counters fell or were cleared since the first reading.

    Source: mstflint's mlxlink, `-c`.
    """

    def count(self, *, duration: int) -> CounterGate[ErrorCount]:
        """Read the counters now, and again `duration` ns later.

        Raises `DeniedError` if the firmware has no such counters, or cannot be read: by this tool
        that of another maker's NIC cannot.
        """
        try:
            return super().count(duration=duration)
        except (ToolFailedError, ToolMissingError) as error:
            text = f"its firmware cannot be read: {str(error).splitlines()[0]}"
            command = f"mlxlink -d {self._device} -c"
            raise DeniedError(self.name, code=CANNOT, text=text, command=command) from error

    def _read(self) -> Reading[MlxlinkReport]:
        return self._nic.firmware(self._device)

    def _lacking(self, value: MlxlinkReport) -> tuple[str, str] | None:
        if self._wrong(value) is not None:
            return None
        text = f"its firmware reports no errors {self._fec} FEC; is its link up?"
        return text, f"mlxlink -d {self._device} -c"

    def _between(self, first: Reading[MlxlinkReport], last: Reading[MlxlinkReport]) -> ErrorCount:
        before, after = self._wrong(first.value), self._wrong(last.value)
        apart = max(last.at.earliest - first.at.latest, 0)
        void = None
        if after is not None and (after < (before or 0) or self._cleared(last.value, apart)):
            void = "its counters were reset during the measurement"
        counted = after is not None and void is None
        return ErrorCount(
            first.at,
            last.at,
            int(self.bits_per_second * apart / 1e9) if counted else 0,
            (after or 0) - (before or 0) if counted else 0,
            sync_lost=False,
            clock_lost=after is None or _downs(first.value) != _downs(last.value),
            void=void,
            most_bits=int(self.bits_per_second * (last.at.latest - first.at.earliest) / 1e9),
        )

    def _wrong(self, report: MlxlinkReport) -> int | None:
        errors = report.errors
        if errors is None or not is_link_up(report):
            return None
        if self._after:
            return errors.effective_errors
        return None if errors.raw_errors is None else sum(errors.raw_errors)

    def _cleared(self, report: MlxlinkReport, apart: int) -> bool:
        since = report.errors.since_clear_ns if report.errors else None
        return since is not None and since + _CLEAR_DIGIT < apart


def is_link_up(report: MlxlinkReport) -> bool:
    """Whether the report says that the link is up."""
    return report.link is not None and report.link.up


def _downs(report: MlxlinkReport) -> int | None:
    errors: BitErrors | None = report.errors
    return None if errors is None else errors.link_down_count
