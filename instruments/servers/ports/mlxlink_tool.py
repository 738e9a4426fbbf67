"""`mlxlink`, or `mstlink` if that is installed instead, for one device of a server."""

import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from lightrig.instruments.core.capabilities import LinkUpTimes
from lightrig.instruments.core.errors import InstrumentError, NotDoneError
from lightrig.instruments.servers.host.commands import (
    CommandResult,
    Commands,
    Reading,
    ToolFailedError,
    ToolMissingError,
)
from lightrig.instruments.servers.tools import mlxlink, mlxlink_amber
from lightrig.instruments.servers.tools.mlxlink import MlxlinkReport, PrbsTest
from lightrig.instruments.servers.tools.output import ToolOutputError, ToolReportedError, is_json

_BUSY_TRIES = 5
_BUSY_PAUSE = 200_000_000
_RESTORE_TRIES = 3


class MlxlinkTool:
    """Firmware readings and settings of one device, such as `mlx5_0`."""

    def __init__(self, commands: Commands, device: str) -> None:
        self._commands = commands
        self._device = device

    def report(self, *options: str) -> Reading[MlxlinkReport]:
        """Return its report with `options`, such as `-m` and `-c`.

        Retries while another tool locks the device for a moment.
        """
        for _ in range(_BUSY_TRIES - 1):
            try:
                return self._report(*options)
            except ToolReportedError as error:
                if "semaphore" not in error.found.lower():
                    raise
            self._commands.clock.sleep(_BUSY_PAUSE)
        return self._report(*options)

    def link_up_times(self) -> Reading[LinkUpTimes]:
        """Return the firmware's timers of the last link-up.

        mlxlink writes them to a file only, and a header only if that file is new.
        """
        path = f"/tmp/lightrig-{secrets.token_hex(8)}.csv"  # noqa: S108 - nobody knows it before
        try:
            self.configure("--amber_collect", path)
            return self._commands.read(["cat", path], mlxlink_amber.parse)
        finally:
            self._commands.run(["rm", "-f", path])

    def configure(self, *options: str) -> None:
        """Run it for its effect; its report is ignored."""
        result = self._run(*options)
        if result.status != 0:
            raise self._failed(result, *options)

    @contextmanager
    def prbs(self, pattern: str, lane_rate: str | None) -> Iterator["MlxlinkPrbs"]:
        """Enable test mode within the context; see `instruments.servers.nic.Nic.prbs`."""
        if self.report().value.prbs is not None:
            raise InstrumentError(
                self._commands.server,
                f"has {self._device} in test mode already",
                details=[("try", f"mlxlink -d {self._device} --test_mode DS, if it is not in use")],
            )
        rates = [] if lane_rate is None else ["--rx_rate", lane_rate, "--tx_rate", lane_rate]
        try:
            self.configure("--test_mode", "EN", "--rx_prbs", pattern, "--tx_prbs", pattern, *rates)
            yield MlxlinkPrbs(self)
        finally:
            self._leave_test_mode()

    def _leave_test_mode(self) -> None:
        failure: InstrumentError | ToolOutputError | None = None
        for _ in range(_RESTORE_TRIES):
            try:
                self.configure("--test_mode", "DS")
                if self.report().value.prbs is None:
                    return
            except (InstrumentError, ToolOutputError) as error:
                failure = error
        raise NotDoneError(
            self._commands.server,
            f"still has {self._device} in test mode, its link down",
            command=f"mlxlink -d {self._device} --test_mode DS",
            details=[("try", "this command on the server, by hand")],
            trace=self._commands.trace.tail(),
        ) from failure

    def _report(self, *options: str) -> Reading[MlxlinkReport]:
        asked = (*options, "--json")
        result = self._run(*asked)
        if result.status != 0 and not is_json(result.stdout):
            asked = options  # an old version has no JSON
            result = self._run(*asked)
            if result.status != 0:
                raise self._failed(result, *asked)
        return self._commands.parsed(["mlxlink", "-d", self._device, *asked], result, mlxlink.parse)

    def _run(self, *options: str) -> CommandResult:
        try:
            return self._commands.run(["mlxlink", "-d", self._device, *options])
        except ToolMissingError as missing:
            try:
                return self._commands.run(["mstlink", "-d", self._device, *options])
            except ToolMissingError:
                raise missing from None

    def _failed(self, result: CommandResult, *options: str) -> ToolFailedError:
        command = shlex.join(["mlxlink", "-d", self._device, *options])
        return ToolFailedError(self._commands.server, result, command)


class MlxlinkPrbs:
    """A device in test mode; implements `instruments.servers.nic.PrbsMode`."""

    def __init__(self, tool: MlxlinkTool) -> None:
        self._tool = tool

    def read(self) -> Reading[PrbsTest]:
        """Return its locks and errors; raises `ToolOutputError` if it is not in test mode."""
        test, at = self._tool.report("-c")
        if test.prbs is None:
            raise ToolOutputError("mlxlink", "the sections of a port in test mode")
        return Reading(test.prbs, at)

    def clear(self) -> None:
        """Reset the error counters."""
        self._tool.configure("--pc")

    def tune(self) -> None:
        """Start tuning the receiver to the pattern."""
        self._tool.configure("--test_mode", "TU")
