"""What can go wrong between a driver and its instrument, told to the person at the bench."""

from collections.abc import Sequence

from testbeds.errors import LightrigError


class InstrumentError(LightrigError):
    """An instrument did not do what it was asked.

    Attributes:
        instrument: its name in the testbed, with what is known of its identity.
        command: what was asked of it, secrets masked; empty if nothing was.
        trace: the last lines that went over its wire, oldest first.
    """

    def __init__(
        self,
        instrument: str,
        problem: str,
        *,
        command: str = "",
        details: Sequence[tuple[str, str]] = (),
        trace: Sequence[str] = (),
    ) -> None:
        self.instrument = instrument
        self.command = command
        self.trace = tuple(trace)
        lines = [f"{instrument} {problem}"]
        shown = [("sent", command), *details] if command else list(details)
        lines += [f"  {label:<9} {text}" for label, text in shown]
        if trace:
            lines.append("  last on the wire")
            lines += [f"    {line}" for line in trace]
        super().__init__("\n".join(lines))


class UnreachableError(InstrumentError):
    """No connection could be made, or the peer refused the login."""


class DisconnectedError(InstrumentError):
    """The peer closed the connection before it had answered."""


class NoReplyError(InstrumentError):
    """The peer did not answer within the timeout."""


class GarbledError(InstrumentError):
    """The peer answered something that its protocol does not allow."""


CANNOT = "cannot"
"""The code of a refusal by a driver itself, before anything was sent."""


class DeniedError(InstrumentError):
    """The instrument refused a command, or its driver knows that it would.

    Attributes:
        code: the instrument's own error code, such as `IDNV` or `-222`; `CANNOT` if nothing
            was sent.
        text: its own words.
    """

    def __init__(
        self,
        instrument: str,
        *,
        code: str,
        text: str,
        command: str,
        answered: str | None = None,
        details: Sequence[tuple[str, str]] = (),
        trace: Sequence[str] = (),
    ) -> None:
        """`answered` is the refusal as it came, where it says more than code and text."""
        self.code = code
        self.text = text
        if code == CANNOT:
            problem = f"cannot do what was asked: {text}"
            details = [("asked", command), *details] if command else details
            super().__init__(instrument, problem, details=details, trace=trace)
            self.command = command
            return
        answer = f"{code} {text}".rstrip() if answered is None else answered
        super().__init__(
            instrument,
            "denied a command",
            command=command,
            details=[("answered", answer), *details],
            trace=trace,
        )


class WrongIdentityError(InstrumentError):
    """Something answered, but it is not the instrument that the testbed describes."""


class NotDoneError(InstrumentError):
    """The instrument said done, and reading back shows that it is not."""
