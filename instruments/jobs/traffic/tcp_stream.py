"""Exchanges of blocks over one TCP connection between ports of two servers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs import programs
from lightrig.instruments.jobs.core.streams import StreamState
from lightrig.instruments.servers.host.linux import LinuxServer, this_boot_id
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.host.program import Program, ProgramRun
from lightrig.instruments.wire.trace import Trace

STREAM = Program(
    "lightrig-stream",
    "the stream's program",
    1,
    ("server_clock", "replies", "stream_program"),
    "a python3 of 3.8 or newer",
    programs.__name__,
)


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """A port of a server: its network device and its IP address."""

    server: str
    netdev: str
    address: str


class TcpStream:
    """Blocks that one server sends and another answers, over one link, until `close`.

    Each block is sent when the one before was answered, and each byte of an answer is checked.

    Args:
        servers: by name.
        clock: the bench's clock.
        sender, answerer: the ports.
        size: of a block, in bytes.
        user_timeout: how long the kernel keeps data that nobody acknowledges, in ns
            (TCP_USER_TIMEOUT, RFC 5482); 0 for the system's own limit.

    Raises `InstrumentError` where the ports do not reach each other.
    """

    def __init__(
        self,
        servers: Mapping[str, LinuxServer],
        clock: Clock,
        sender: StreamEnd,
        answerer: StreamEnd,
        *,
        size: int = 4096,
        user_timeout: int = 0,
    ) -> None:
        self._runs: list[ProgramRun] = []
        try:
            listening, _ = self._start(servers[answerer.server], clock)
            self._sending, self._clocks = self._start(servers[sender.server], clock)
            listen = {"address": answerer.address, "netdev": answerer.netdev}
            there = listening.submit("listen", listen).result()
            connect = {
                "address": answerer.address,
                "port": there["port"],
                "netdev": sender.netdev,
                "size": size,
                "user_timeout_ns": user_timeout,
            }
            self._sending.submit("exchange", connect).result()
        except InstrumentError:
            self.close()
            raise

    def _start(self, server: LinuxServer, clock: Clock) -> tuple[ProgramRun, ClockMap]:
        clocks = ClockMap(name=server.name)
        run = server.start(STREAM, Trace(clock), clocks)
        self._runs.append(run)
        clocks.same_clock = run.submit("hello", {}).result()["boot"] == this_boot_id()
        return run, clocks

    def state(self) -> StreamState:
        """Return what has become of the exchanges so far; raises `InstrumentError`."""
        return self._state("state")

    def stop(self) -> StreamState:
        """End the exchanges; return what has become of them. Raises `InstrumentError`."""
        return self._state("stop")

    def close(self) -> None:
        """End the programs on both servers."""
        for run in self._runs:
            run.close()

    def _state(self, verb: str) -> StreamState:
        request = self._sending.submit(verb, {})
        given: Mapping[str, Any] = request.result()
        here = self._clocks.here
        try:
            return StreamState(
                exchanges=int(given["exchanges"]),
                wrong=int(given["wrong"]),
                slow=tuple((here(began), here(ended)) for began, ended in given["slow"]),
                durations=tuple(ended - began for began, ended in given["slow"]),
                began=here(given["began"]),
                error=given["error"] or "",
                failed=None if given["failed"] is None else here(given["failed"]),
                rto=None if given["rto_us"] is None else given["rto_us"] * 1000,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._sending.garbled("no state of exchanges", request, given) from error
