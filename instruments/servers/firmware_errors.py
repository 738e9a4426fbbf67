"""A NIC port's wrong bits as its firmware counts them, where its driver counts none: mlxlink."""

from instruments.capabilities import ErrorCount, FecSide
from instruments.clock import Clock
from instruments.errors import DeniedError
from instruments.servers.commands import Reading
from instruments.servers.nic import Nic
from instruments.servers.port_errors import SLACK, CounterGate
from instruments.servers.tools.mlxlink import BitErrors, MlxlinkReport

_CLEAR_DIGIT = 6_000_000_000
"""How finely it is told when the counters were cleared, in ns."""


class FirmwareErrors:
    """Raw errors of all lanes before FEC, or effective errors, which it leaves.

    The firmware tells no bits: the fewest that lie between two readings are taken. Counters
    that fall, or were cleared since the first reading, began anew.

    Source: mstflint's mlxlink, `-c`.

    Args:
        name: the port's name for people.
        nic: the tools of its server.
        device: the port's RDMA device.
        fec: which side of forward error correction.
        rate_bps: bits a second that it receives.
        clock: the bench's clock.
    """

    def __init__(
        self, name: str, nic: Nic, device: str, fec: FecSide, rate_bps: float, clock: Clock
    ) -> None:
        self.name = name
        self.bits_per_second = rate_bps
        self.slack = SLACK
        self._nic = nic
        self._device = device
        self._after = fec == "after"
        self._clock = clock

    def count(self, *, duration: int) -> CounterGate[MlxlinkReport]:
        """Read the counters now, and again `duration` ns later.

        Raises `DeniedError` where the firmware tells none, as while the link is down.
        """
        first = self.read()
        if self._wrong(first.value) is None:
            side = "after" if self._after else "before"
            raise DeniedError(
                self.name,
                code="cannot",
                text=f"its firmware tells no errors {side} FEC; is its link up?",
                command=f"mlxlink -d {self._device} -c",
            )
        return CounterGate(self, first, duration, self._clock)

    def read(self) -> Reading[MlxlinkReport]:
        """What the firmware tells now."""
        return self._nic.firmware(self._device)

    def between(self, first: Reading[MlxlinkReport], last: Reading[MlxlinkReport]) -> ErrorCount:
        """What was counted from one reading to another."""
        before, after = self._wrong(first.value), self._wrong(last.value)
        apart = max(last.at.earliest - first.at.latest, 0)
        void = None
        if after is not None and (after < (before or 0) or self._cleared(last.value, apart)):
            void = "its counters began anew while they were watched"
        counted = after is not None and void is None
        return ErrorCount(
            first.at,
            last.at,
            int(self.bits_per_second * apart / 1e9) if counted else 0,
            (after or 0) - (before or 0) if counted else 0,
            sync_lost=False,
            clock_lost=after is None or _downs(first.value) != _downs(last.value),
            void=void,
        )

    def _wrong(self, report: MlxlinkReport) -> int | None:
        told = report.errors
        if told is None or not _is_up(report):
            return None
        if self._after:
            return told.effective_errors
        return None if told.raw_errors is None else sum(told.raw_errors)

    def _cleared(self, report: MlxlinkReport, apart: int) -> bool:
        since = report.errors.since_clear_ns if report.errors else None
        return since is not None and since + _CLEAR_DIGIT < apart


def _is_up(report: MlxlinkReport) -> bool:
    return report.link is not None and report.link.up


def _downs(report: MlxlinkReport) -> int | None:
    told: BitErrors | None = report.errors
    return None if told is None else told.link_down_count
