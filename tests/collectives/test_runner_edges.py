"""Sizes of nccl-tests, and the rendezvous of perftest, at their edges by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.traffic import nccl_runner
from lightrig.instruments.jobs.traffic.rdma_pair import RdmaEnd, RdmaPair
from lightrig.instruments.servers.host.commands import (
    CommandResult,
    ToolFailedError,
    ToolMissingError,
)
from lightrig.instruments.servers.tools.output import ToolOutputError


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((8, 16, 32), [([8, 16, 32], 2)]),
        ((8, 24, 72, 100), [([8, 24, 72], 3), ([100], 2)]),
        ((8, 8), [([8], 2), ([8], 2)]),
        ((16, 8), [([16], 2), ([8], 2)]),
        ((8, 20), [([8], 2), ([20], 2)]),
        ((8, 16, 48, 96), [([8, 16], 2), ([48, 96], 2)]),
        ((), []),
    ],
)
def test_sizes_are_split_into_progressions(sizes: tuple[int, ...], found: Any) -> None:
    assert nccl_runner.progressions(sizes) == found


def test_a_size_may_lack_less_than_16_bytes_a_rank() -> None:
    """1000 B in 4-byte elements: 250, or 50 on each of five ranks, whose 20 bytes count."""

    def differs(size: int, count: int, asked: int) -> bool:
        row: Any = SimpleNamespace(size=size, count=count)
        return nccl_runner.size_differs(row, asked)

    assert not differs(1000, 250, 1000)
    assert differs(1004, 251, 1000)
    assert [differs(1000, 250, asked) for asked in (1063, 1064)] == [False, True]
    assert [differs(1000, 50, asked) for asked in (1319, 1320)] == [False, True]
    assert [differs(0, 0, asked) for asked in (0, 15, 16)] == [False, False, True]


class Server:
    """A server on whose clock each look takes 100 ms; its programs end as they are told to."""

    def __init__(self, name: str, *results: tuple[int, str, str]) -> None:
        self.server, self.results, self.at = name, list(results), 0
        self.ran: list[Any] = []
        self.sleeps: list[int] = []
        self.timeout_ns = 30_000_000_000
        self.clock = SimpleNamespace(now=lambda: self.at, sleep=self.sleep)

    def sleep(self, duration: int) -> None:
        self.sleeps.append(duration)
        self.at += duration

    def _next(self) -> CommandResult:
        status, stdout, stderr = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        return CommandResult(stdout, stderr, status, Span(self.at, self.at))

    def run(self, command: list[str], timeout: int) -> CommandResult:
        self.ran.append(command)
        self.at += 100_000_000
        return self._next()

    def start(self, command: list[str], limit_ns: int) -> Any:
        self.ran.append(command)

        def result(timeout: int) -> CommandResult:
            self.ran.append(timeout)
            if not self.results:
                raise InstrumentError(self.server, "did not end")
            return self._next()

        failed = bool(self.results and self.results[0][0])
        return SimpleNamespace(result=result, has_ended=failed)

    def parsed(self, command: Any, result: CommandResult, parse: Any) -> Any:
        return SimpleNamespace(value=parse(result.stdout), at=result.at)


LATE = (1, "", "Couldn't connect to s1:18515")
HEAD = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
GOOD = (0, f"{HEAD} 1000 500 10.50 10.00 1.250000\n", "")


def pair(source: Server, sink: Server, **more: int) -> RdmaPair:
    ends: list[Any] = [
        RdmaEnd(each, f"mlx5_{number}", each.server)  # type: ignore[arg-type]
        for number, each in enumerate((source, sink))
    ]
    return RdmaPair(*ends, **more)


def test_a_pair_meets_once_the_sink_listens() -> None:
    source, sink = Server("s0", LATE, LATE, GOOD), Server("s1", (0, "", ""))
    found = pair(source, sink, gid_index=3, qp_timeout=12, port=99).bandwidth(
        1000, 500, timeout=7_000_000_000
    )
    assert (found.size, found.iterations, source.sleeps) == (1000, 500, [200_000_000] * 2)
    options = ["-F", "-u", "12", "-p", "99", "-x", "3", "-s", "1000", "-n", "500"]
    assert sink.ran == [["ib_write_bw", "-d", "mlx5_1", *options], 7_000_000_000]
    assert source.ran == [["ib_write_bw", "-d", "mlx5_0", *options, "s1"]] * 3
    # 4.096 us times 2 ** 12: the first try and seven more.
    assert pair(source, sink, qp_timeout=12).retry_ns == 8 * 4096 * 4096


def test_a_sink_that_never_listens_is_given_up_after_the_time_of_a_measurement() -> None:
    source, sink = Server("s0", LATE), Server("s1")
    with pytest.raises(ToolFailedError, match="s0"):
        pair(source, sink).bandwidth(timeout=7_000_000_000)
    # Looks end 0.1 s after the start and 0.3 s apart: one at 7.0 s, which is not beyond 7 s.
    assert source.at == 7_300_000_000
    assert sink.ran[1:] == [0]


def test_a_sink_that_has_ended_is_not_waited_for() -> None:
    source, sink = Server("s0", LATE), Server("s1", (1, "", "no such device"))
    with pytest.raises(ToolFailedError, match=r"s1 ran .* no such device"):
        pair(source, sink).bandwidth()
    assert len(source.ran) == 1
    source, sink = Server("s0", (1, "", "no route")), Server("s1", (127, "", "not found"))
    with pytest.raises(ToolMissingError, match="s1"):
        pair(source, sink).bandwidth()
    assert len(source.ran) == 1


def test_a_measurement_is_of_the_size_that_was_asked_for() -> None:
    source, sink = Server("s0", GOOD), Server("s1", (0, "", ""))
    with pytest.raises(ToolOutputError, match="one row of 1001 B"):
        pair(source, sink).bandwidth(1001, 500)
    with pytest.raises(ToolOutputError, match="one row of 1000 B"):
        pair(source, sink).latency(1000, 500)
