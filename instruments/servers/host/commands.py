"""Programs that are run on a server to their end, or answer lines until they are closed."""

import contextlib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.errors import DisconnectedError, InstrumentError, NoReplyError
from lightrig.instruments.core.transcript import printed
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.supervisor import supervised
from lightrig.instruments.wire.shell import LineChannel, LineListener, Shell
from lightrig.instruments.wire.trace import Trace

T = TypeVar("T")

DEFAULT_TIMEOUT = 30_000_000_000
"""Time allowed for a program, in ns."""

_FORBIDDEN = re.compile("operation not permitted|permission denied|must be root", re.IGNORECASE)
_UNSUPPORTED = re.compile("operation not supported", re.IGNORECASE)
_SYSTEM_DIRECTORY = "/usr/sbin/"
_LONGEST_COMMAND = 60
_MISSING_FOR = 10_000_000_000
"""Time in ns for which a program that was missing is taken for missing, and not looked for."""

PACKAGES = {
    "ethtool": "the package ethtool",
    "ip": "the package iproute2",
    "rdma": "the package iproute2",
    "mlxlink": "NVIDIA's MFT; or mstflint, whose mstlink is the same",
    "mstlink": "the package mstflint",
    "ib_write_bw": "the package perftest",
    "all_reduce_perf": "nccl-tests, built on the server",
}
"""The package to install for a tool."""


class ToolMissingError(InstrumentError):
    """A server lacks a program.

    Attributes:
        tool: the program.
    """

    def __init__(self, server: str, tool: str, command: str) -> None:
        self.tool = tool
        name = tool.rpartition("/")[2]
        advice = f"install {PACKAGES[name]}" if name in PACKAGES else "install it, or name its path"
        super().__init__(
            server, f"has no program {tool}", command=command, details=[("try", advice)]
        )


class ToolFailedError(InstrumentError):
    """A program ended with a status other than zero.

    Attributes:
        status: that status.
        stderr: its standard error.
        last: the last line that it printed, on standard error if there is one.
        forbidden: whether it lacked a right.
        unsupported: whether the kernel or a driver does not know the operation (EOPNOTSUPP).
        advice: what to try; empty where nothing is known.
    """

    def __init__(
        self,
        server: str,
        result: "CommandResult",
        command: str,
        become: Sequence[str] | None = None,
    ) -> None:
        """`become` is the prefix with which the command ran; None where none would help."""
        self.status = result.status
        self.stderr = result.stderr
        self.forbidden = _FORBIDDEN.search(result.stderr) is not None
        self.unsupported = _UNSUPPORTED.search(result.stderr) is not None
        self.advice = ""
        printed_lines = (result.stderr or result.stdout).strip().splitlines() or ["nothing"]
        self.last = printed_lines[-1].strip()
        details = [("printed", line) for line in printed_lines[-5:]]
        tool = command.partition(" ")[0]
        if not tool.isprintable() or "=" in tool:  # a script
            tool = "sh"
        ran = f"`{command}`" if len(command) <= _LONGEST_COMMAND and command.isprintable() else tool
        problem = f"ran {ran}, which failed with status {result.status}: {self.last}"
        if become and result.stderr.startswith("sudo: "):
            problem = f"could not run {tool} by sudo: {self.last}"
            self.advice = (
                f"allow `{shlex.join(become)} sh` to this account, NOPASSWD: it ends {tool}"
            )
        elif self.forbidden:
            problem = f"may not do what {tool} needs: {self.last}"
            if become is not None and not become:
                self.advice = "`become: true` of the server in the testbed file: it runs by sudo -n"
        if self.advice:
            details.append(("try", self.advice))
        super().__init__(server, problem, command=command, details=details)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The output and the end of a program.

    Attributes:
        stdout: lines, each ended.
        stderr: lines, each ended.
        status: its exit status.
        at: from before it was started to after its end was known.
    """

    stdout: str
    stderr: str
    status: int
    at: Span


class Reading(NamedTuple, Generic[T]):
    """A parsed output of a tool, and the span on the bench's clock in which the tool ran."""

    value: T
    at: Span


class Commands:
    """Runs programs on one server and collects their output.

    Args:
        server: its name in the testbed.
        shell: starts programs there.
        clock: the bench's clock.
        become: prefix of every command, such as `sudo -n`.
        wire: the address, for recordings; without it nothing is recorded.
        supervises: whether programs end there with their limit and caller, see `supervisor`.
        timeout_ns: time allowed for a program of which no other is stated.

    Attributes:
        timeout_ns: time allowed for a program of which no other is stated.
        greeting: the first line that a login shell there prints before any program; "" for none.
        advice: remedy in the error of a program that does not end in time.
    """

    def __init__(
        self,
        server: str,
        shell: Shell,
        clock: Clock,
        *,
        become: Sequence[str] = (),
        wire: str = "",
        supervises: bool = False,
        timeout_ns: int = DEFAULT_TIMEOUT,
    ) -> None:
        self.server = server
        self.clock = clock
        self.trace = Trace(clock, server if wire else "")
        self._shell = shell
        self._become = tuple(become)
        self._wire = wire
        self._supervises = supervises
        self.timeout_ns = timeout_ns
        self.advice = "the same by hand; is the device busy?"
        self._paths: dict[str, str] = {}
        self._missing: dict[str, int] = {}
        self.greeting = ""

    def run(self, command: Sequence[str], timeout_ns: int | None = None) -> CommandResult:
        """Run `command` and wait for its end, with any exit status.

        A tool that is not found is looked for in /usr/sbin as well, which is not on the path of
        every login, and not again for ten seconds: it is asked for at each of many ports.

        Raises:
            ToolMissingError: there is no such program.
            NoReplyError: it has not ended in time.
            DisconnectedError: the connection to the server ended first.
        """
        timeout_ns = self.timeout_ns if timeout_ns is None else timeout_ns
        tool, *arguments = command
        since = self._missing.get(tool)
        if since is not None and self.clock.now() - since < _MISSING_FOR:
            raise ToolMissingError(self.server, tool, shlex.join(command))
        program = self._paths.get(tool, tool)
        result = self._run([program, *arguments], timeout_ns)
        if _is_missing(program, result) and "/" not in program:
            program = _SYSTEM_DIRECTORY + tool
            result = self._run([program, *arguments], timeout_ns)
        if _is_missing(program, result):
            self._missing[tool] = self.clock.now()
            raise ToolMissingError(self.server, tool, shlex.join(command))
        self._paths[tool] = program
        return result

    def read(self, command: Sequence[str], parse: Callable[[str], T]) -> Reading[T]:
        """Run `command` and parse its output.

        Raises:
            ToolFailedError: its status is not zero.
            ToolOutputError: `parse` rejects it; the error names server and command.
        """
        result = self.run(command)
        if result.status != 0:
            raise ToolFailedError(self.server, result, shlex.join(command), self._become)
        return self.parsed(command, result, parse)

    def parsed(
        self, command: Sequence[str], result: CommandResult, parse: Callable[[str], T]
    ) -> Reading[T]:
        """Parse the output of `command`, which has run before; see `read`."""
        try:
            return Reading(parse(result.stdout), result.at)
        except ToolOutputError as error:
            note = ""
            if self.greeting and result.stdout.startswith(f"{self.greeting}\n"):
                note = (
                    f"the login shell printed {self.greeting[:100]!r} first: let it print only "
                    "where it is interactive"
                )
            raise error.at(self.server, shlex.join(command), note) from error

    def start(self, command: Sequence[str], limit_ns: int | None = None) -> "Started":
        """Start `command` and return at once; it is not looked for in /usr/sbin.

        limit_ns: after which it may be ended; None for a program that reads its input, which ends
            by the end of that.
        """
        full = [*self._become, *command]
        text = shlex.join(full)
        if self._wire:
            self.trace.opened("connected", self._wire)
            self._wire = ""
        self.trace.sent(text)
        before = self.clock.now()
        output = _Output(self.clock)
        self.clock.delay_write()
        if self._supervises:
            reads = limit_ns is None
            full = [*self._become, *supervised(command, limit_ns, reads=reads)]
        channel = self._shell.start(full, output)
        self.clock.delay_write(written=True)
        return Started(self, text, Span(before, self.clock.now()), channel, output)

    def _run(self, command: Sequence[str], timeout_ns: int) -> CommandResult:
        return self.start(command, timeout_ns).result(timeout_ns)


@dataclass(eq=False)
class Started:
    """A program that was started.

    Attributes:
        asked: stamps before and after its start.
    """

    _commands: Commands
    _text: str
    asked: Span
    _channel: LineChannel
    _output: "_Output"

    def query(self, lines: Sequence[str], timeout_ns: int = DEFAULT_TIMEOUT) -> str:
        """Write lines of which it answers the last one, with one line; return that.

        Raises:
            NoReplyError: it has not answered in time.
            ToolFailedError: it has ended instead.
        """
        commands, output = self._commands, self._output
        answered = output.answered = commands.clock.event()
        text = "\n".join(lines)
        commands.trace.sent(text)
        with contextlib.suppress(OSError):  # it has ended
            self._channel.send(text)
        if not output.over.is_set() and not answered.wait(timeout_ns):
            raise NoReplyError(
                commands.server,
                f"did not answer within {timeout_ns / 1e9:g} s",
                command=text,
                trace=commands.trace.tail(),
            )
        if output.over.is_set():
            raise ToolFailedError(commands.server, self.result(), text)
        commands.trace.received(output.lines[-1])
        return output.lines.pop()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, or its connection has."""
        return self._output.over.is_set()

    def close(self) -> None:
        """End it, by the end of its input."""
        self._channel.close()

    def result(self, timeout_ns: int = DEFAULT_TIMEOUT) -> CommandResult:
        """Wait for its end; raises what `Commands.run` raises, but for a missing program."""
        commands, output, channel = self._commands, self._output, self._channel
        try:
            if not output.over.wait(timeout_ns) and not output.over.is_set():
                raise NoReplyError(
                    commands.server,
                    f"did not end a program within {timeout_ns / 1e9:g} s",
                    command=self._text,
                    details=[("try", commands.advice)],
                    trace=commands.trace.tail(),
                )
        finally:
            channel.close()
        at = Span(self.asked.earliest, commands.clock.now())
        if channel.status is None:
            commands.trace.remarked(output.reason)
            raise DisconnectedError(
                commands.server,
                "ended the connection before a program had ended",
                command=self._text,
                details=[("because", output.reason)],
                trace=commands.trace.tail(),
            )
        stdout = "".join(f"{line}\n" for line in output.lines)
        result = CommandResult(stdout, channel.stderr, channel.status, at)
        trace = commands.trace
        trace.received(
            f"{len(output.lines)} lines, status {channel.status}",
            printed(result.stdout, result.stderr, result.status) if trace.recorded else None,
        )
        return result


class _Output(LineListener):
    """Collects lines until the program has ended; `answered` is set by the next line or the end."""

    def __init__(self, clock: Clock) -> None:
        self.lines: list[str] = []
        self.reason = ""
        self.over, self.answered = clock.event(), clock.event()

    def line(self, text: str) -> None:
        self.lines.append(text)
        self.answered.set()

    def ended(self, reason: str) -> None:
        self.reason = reason
        self.over.set()
        self.answered.set()


def _is_missing(tool: str, result: CommandResult) -> bool:
    """Whether the shell, sudo or the entry into a namespace reported a missing program."""
    match result.status:
        case 127:
            return True
        case 126:
            return f"cannot run {tool}" in result.stderr and "No such file" in result.stderr
        case 0:
            return False
        case _:
            return f"{tool}: command not found" in result.stderr
