"""Errors of drivers and instruments, written for the engineer at the bench."""

from collections.abc import Sequence

from lightrig.instruments.machine_limits import limits_met
from lightrig.testbeds.errors import LightrigError


class InstrumentError(LightrigError):
    """An instrument failed to carry out a command, or a driver to reach it.

    Attributes:
        instrument: its name in the testbed.
        command: the command, secrets masked; empty if none was sent.
        trace: the last lines that went over its wire, oldest first.
        in_preparation: whether it came while links were brought up for what follows.
        silent: whether it stands for an answer that did not come, which a limit of this machine
            can explain.
    """

    in_preparation = False
    silent = False

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
        if self.silent:
            shown += [("this host", f"a thread failed before: {each}") for each in limits_met()]
        lines += [f"  {label:<9} {text}" for label, text in shown]
        if trace:
            lines.append("  last on the wire")
            lines += [f"    {line}" for line in trace]
        # Some drivers add to its name what answered.
        super().__init__("\n".join(lines), subjects=[instrument.partition(" ")[0]])


class UnreachableError(InstrumentError):
    """No connection could be made, or the login was refused."""

    silent = True


class NotThereError(InstrumentError):
    """An instrument was asked that had not answered when the bench was opened without it."""


class KnownHostsError(UnreachableError):
    """The file of known host keys cannot be read, so that no host behind SSH can be told apart."""


class ClockError(InstrumentError):
    """Stamps of a server cannot be mapped to the bench's clock; `problem` says why.

    Raised for a stamp across which the exchanges show that the server's clock jumped.
    """


class SshConfigError(UnreachableError):
    """The configuration of OpenSSH's client cannot be read, so that no way to the host is known."""


class DisconnectedError(InstrumentError):
    """The instrument closed the connection before it had answered."""

    silent = True


class NoReplyError(InstrumentError):
    """The instrument did not answer within the timeout."""

    silent = True


class GarbledError(InstrumentError):
    """The instrument answered something that its protocol does not allow."""


CANNOT = "cannot"
"""Code of a `DeniedError` that a driver raises before anything is sent."""


class DeniedError(InstrumentError):
    """The instrument refused a command, or the driver refused to send it.

    Attributes:
        code: the instrument's own error code, such as `IDNV` or `-222`; `CANNOT` if nothing
            was sent.
        text: the text that came with it.
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
        """`answered` is the whole reply, where it has more than code and text."""
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
    """The instrument that answered is not the one that the testbed describes."""


class NotDoneError(InstrumentError):
    """The instrument acknowledged a command, and reading back shows that it was not done."""


class StateUnknownError(InstrumentError):
    """A change failed and has been carried out, in whole or in part, or may have been.

    The details say what reading back shows.
    """
