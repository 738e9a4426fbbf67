"""Requests to the program of one rank, by hand: warm-up, groups, loops, counts and replies."""

import io
import json
import queue
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from rank_parts import (
    SECOND,
    Stood,
    Torch,
    gloo_worker,
    seen_of,
)
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.programs import gloo_program
from lightrig.instruments.servers.programs import replies


def test_warm_up_is_not_timed_and_the_check_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Stood(monkeypatch, gloo_program)
    worker = gloo_worker(None)
    order: list[str] = []
    monkeypatch.setattr(worker, "_barrier", lambda: order.append("barrier"))

    class Task:
        size = 24

        def prepare(self) -> None:
            order.append("prepare")
            clock.at += 1000

        def operate(self) -> None:
            order.append("operate")
            clock.at += 10 * len(order)

        def wrong(self) -> int:
            clock.at += 1000
            return 3

    monkeypatch.setattr(
        worker, "_collective", lambda *given: given == ("all_reduce", 99) and Task()
    )
    request = {"collective": "all_reduce", "sizes": [99], "warm_up": 1, "iterations": 2}
    found = worker._run(request)
    assert order == ["prepare", "operate", *["prepare", "barrier", "operate"] * 2]
    assert found == {"sizes": [{"size": 24, "times": [50, 80], "wrong": 6}]}


def test_ranks_find_each_other_at_rank_0_and_have_a_group_for_each_further_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch()
    devices: list[str] = []
    environment: dict[str, str] = {}
    monkeypatch.setattr(gloo_program.os, "environ", environment)
    made = torch.distributed.new_group
    torch.distributed.new_group = lambda **more: (
        devices.append(environment["GLOO_SOCKET_IFNAME"]) or made(**more)
    )
    worker = gloo_worker(torch, rank=0)
    worker._ranks = 0
    request = {"rank": 0, "ranks": 3, "store": ["10.0.0.1", 29], "interfaces": ["a", "b", "c"]}
    assert worker._join({**request, "timeout_ns": 2_500_000_000}) == {}
    assert devices == ["b", "c"]
    names = [each[0] for each in torch.asked]
    assert names == ["TCPStore", "init_process_group", "new_group", "new_group", "barrier"]
    _, address, port, ranks, more = torch.asked[0]
    assert (address, port, ranks, more["is_master"]) == ("10.0.0.1", 29, 3, True)
    assert more["timeout"].total_seconds() == 2.5
    first = torch.asked[1]
    assert (first[1], first[2]["rank"], first[2]["world_size"]) == ("gloo", 0, 3)
    assert len(worker._groups) == 3
    assert worker._groups[0] is None
    torch.asked.clear()
    worker._join({**request, "rank": 2, "timeout_ns": SECOND})
    assert torch.asked[0] == ("destroy_process_group", {})
    assert torch.asked[1][-1]["is_master"] is False
    torch.asked.clear()
    assert worker._leave() == worker._leave() == {}
    assert torch.asked == [("destroy_process_group", {})]


def test_a_loop_ends_in_the_round_in_which_a_rank_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Stood(monkeypatch, gloo_program)
    torch = Torch({"all_reduce": [[3, 3, 0], [3, 2, 0], [3, 3, 1]]})
    worker = gloo_worker(torch)
    run = torch.distributed.all_reduce

    def reduced(tensor: Any) -> None:
        clock.at += 7
        run(tensor)
        if len(torch.asked) == 2:
            worker._stopping.set()

    torch.distributed.all_reduce = reduced
    seen: dict[str, Any] = {"operations": [], "wrong": 0, "failure": None}
    worker._looping = (3, 4, seen)
    assert worker._loop({"size": 8}) is seen
    begin = 5 * SECOND
    ends = [(begin + 7 * n, begin + 7 * n + 7) for n in range(3)]
    assert seen == {"operations": ends, "wrong": 1, "failure": None}
    assert [each[1][-1] for each in torch.asked] == [0, 0, 1]

    def failing(tensor: Any) -> None:
        raise RuntimeError("Connection closed by peer")

    torch.distributed.all_reduce = failing
    worker._looping = (3, 4, {"operations": [], "wrong": 0, "failure": None})
    assert worker._loop({"size": 8})["failure"] == "Connection closed by peer"


def test_segments_sent_again_are_noted_when_their_count_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Stood(monkeypatch, gloo_program)
    worker = gloo_worker(None)
    seen = seen_of(worker)
    counts = iter([5, 5, 6, 6, 9])

    def count() -> int:
        found = next(counts, None)
        if found is None:
            worker._seen = {}
            return 9
        return found

    monkeypatch.setattr(gloo_program, "_retransmitted", count)
    worker._watch_retransmissions(seen)
    period, begin = 20_000_000, 5 * SECOND
    assert seen["retransmitted"] == [begin + period, begin + 3 * period]
    assert set(clock.sleeps) == {period}
    assert clock.at == begin + 5 * period


def test_the_count_of_segments_sent_again_is_read_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\nTcp: 1 812 790 23 4\n"
    )
    monkeypatch.setattr(gloo_program, "open", lambda *_, **__: io.StringIO(text), raising=False)
    assert gloo_program._retransmitted() == 23


class Lines(io.StringIO):
    """Output of a program, as replies by the number of their request."""

    def found(self) -> dict[int, dict[str, Any]]:
        return {each["id"]: each for each in map(json.loads, self.getvalue().splitlines())}


def test_requests_are_answered_in_turn_and_a_loop_can_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop stands in its first operation until it is abandoned; then work goes on."""
    out, entered, leave = Lines(), threading.Event(), threading.Event()
    requests: queue.Queue[bytes] = queue.Queue()
    stdin = SimpleNamespace(buffer=SimpleNamespace(readline=requests.get))
    monkeypatch.setattr(gloo_program, "sys", SimpleNamespace(stdin=stdin, stdout=out))
    ended: list[int] = []
    monkeypatch.setattr(gloo_program, "os", SimpleNamespace(_exit=ended.append, getpid=lambda: 4))
    torch = Torch()
    torch.distributed.all_reduce = lambda _: (entered.set(), leave.wait(20))
    worker = gloo_worker(torch)
    worker._groups = ["mine"]
    serving = threading.Thread(target=worker.serve, daemon=True)
    serving.start()

    def ask(number: int, do: str, **body: Any) -> None:
        requests.put(json.dumps({"id": number, "do": do, **body}).encode() + b"\n")

    ask(1, "hum")
    until(lambda: 1 in out.found(), SystemClock())
    ask(2, "loop", size=8)
    assert entered.wait(20)
    assert not worker._stopping.is_set()
    ask(3, "stop")
    ask(4, "abandon")
    ask(5, "leave")
    until(lambda: 5 in out.found(), SystemClock())
    ask(6, "abandon")
    requests.put(b"")
    serving.join(20)
    leave.set()
    found = out.found()
    assert found[1]["error"]["text"] == "there is no request 'hum'"
    assert found[2]["ok"] == {"operations": [], "wrong": 0, "failure": "abandoned"}
    assert [found[number]["ok"] for number in (3, 4, 5, 6)] == [{}, {}, {}, {}]
    order = [json.loads(line)["id"] for line in out.getvalue().splitlines()]
    assert order.index(2) < order.index(4)
    assert order.count(2) == 1
    # The group that the abandoned thread is in is kept.
    assert worker._left == [(["mine"], "world")]
    assert (ended, worker._stopping.is_set()) == ([0], True)


def test_replies_carry_number_stamps_and_slew(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Lines()
    monkeypatch.setattr(replies, "now", lambda: 77)
    monkeypatch.setattr(replies, "slewed", lambda: -5)
    made = replies.Replies(out)
    made.reply(8, 70, {"a": 1})
    made.fail(9, 71, ValueError())
    made.fail(10, 72, OSError("no"))
    made.event({"b": 2})
    first, second, third, event = map(json.loads, out.getvalue().splitlines())
    assert first == {"id": 8, "at": [70, 77], "slewed": -5, "ok": {"a": 1}}
    assert second["error"] == {"kind": "ValueError", "text": "ValueError"}
    assert (third["id"], third["at"], third["error"]["text"]) == (10, [72, 77], "no")
    assert event == {"event": {"b": 2}, "at": [77, 77]}
