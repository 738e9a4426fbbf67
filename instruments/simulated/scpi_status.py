"""The status registers that every IEEE 488.2 instrument has (section 11)."""

OPERATION_COMPLETE, POWER_ON = 1, 1 << 7
_ERROR_BITS = {1: 1 << 5, 2: 1 << 4, 3: 1 << 3, 4: 1 << 2}
"""Command, execution, device-dependent and query errors, by the hundreds of their codes."""
_ERRORS_WAITING, _EVENT_SUMMARY = 1 << 2, 1 << 5


class StatusRegisters:
    """Standard events, and what of them the status byte sums up.

    Attributes:
        events: the standard event status register, as *ESR? reads and clears it.
        enabled: which events show in the status byte, as *ESE sets it.
        requesting: which bits of the status byte ask for service, as *SRE sets it.
    """

    def __init__(self) -> None:
        self.events = POWER_ON
        self.enabled = 0
        self.requesting = 0

    def failed(self, code: int) -> None:
        """Note an error of the error queue."""
        self.events |= _ERROR_BITS.get(abs(code) // 100, _ERROR_BITS[3])

    def take_events(self) -> int:
        """Read the events, which clears them."""
        events, self.events = self.events, 0
        return events

    def byte(self, *, errors: bool) -> int:
        """The status byte; `errors` says whether the error queue holds any."""
        summary = _EVENT_SUMMARY if self.events & self.enabled else 0
        return summary | (_ERRORS_WAITING if errors else 0)
