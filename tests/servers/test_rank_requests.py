"""Requests to the program of one rank, by hand: warm-up, groups, loops, counts and replies."""

import gc
import io
import json
import threading
import weakref
from typing import Any

import pytest
from rank_parts import SECOND, Stood, Torch, Values, gloo_rank, values

from lightrig.instruments.jobs.programs import gloo_program
from lightrig.instruments.servers.programs import replies

BEGIN = 5 * SECOND


def test_warm_up_is_not_timed_and_the_check_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers, barriers and checks take 1000 ns each, the operations 70, 50 and 80."""
    clock = Stood(monkeypatch, gloo_program)

    class Slow(Values):
        def copy_(self, other: Any) -> None:
            clock.at += 1000
            self[...] = other

        def __ne__(self, other: object) -> Any:
            clock.at += 1000
            return super().__ne__(other)

    torch = Torch({"all_reduce": [None, [3] * 6, [3, 6, 9, 12, 15, 17]]})
    durations = iter([70, 50, 80])
    with gloo_rank(monkeypatch, torch) as rank:
        torch.empty = lambda count: values(range(count)).view(Slow)
        torch.meanwhile = lambda name: setattr(
            clock, "at", clock.at + (1000 if name == "barrier" else next(durations))
        )
        found = rank.ask("run", collective="all_reduce", sizes=[27], warm_up=1, iterations=2)
    assert found == {"sizes": [{"size": 24, "times": [50, 80], "wrong": 6}]}
    assert torch.names() == ["all_reduce", *["barrier", "all_reduce"] * 2]


def test_ranks_find_each_other_at_rank_0_and_have_a_group_for_each_further_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch()
    with gloo_rank(monkeypatch, torch) as rank:
        request = {"ranks": 3, "store": ["10.0.0.1", 29], "interfaces": ["a", "b", "c"]}
        assert rank.ask("join", rank=0, **request, timeout_ns=2_500_000_000) == {}
        assert torch.names() == [
            "destroy_process_group",
            *("TCPStore", "init_process_group", "new_group", "new_group", "barrier"),
        ]
        _, address, port, ranks, more = torch.asked[1]
        assert (address, port, ranks, more["is_master"]) == ("10.0.0.1", 29, 3, True)
        assert more["timeout"].total_seconds() == 2.5
        first = torch.asked[2]
        assert (first[1], first[2]["rank"], first[2]["world_size"]) == ("gloo", 0, 3)
        torch.asked.clear()
        # The lanes are of the devices in their order, the first one of all ranks' own group.
        lanes = [{"lane": lane, "given": [1, 0, 0], "taken": [1, 0, 0]} for lane in (2, 0, 1)]
        rank.ask("exchange", lanes=lanes, warm_up=0, iterations=1)
        groups = [each[-1]["group"] for each in torch.asked if each[0] == "all_to_all_single"]
        assert groups == ["c", None, "b"]
        torch.asked.clear()
        rank.ask("join", rank=2, **request, timeout_ns=SECOND)
        assert torch.asked[0] == ("destroy_process_group", {})
        assert torch.asked[1][-1]["is_master"] is False
        torch.asked.clear()
        assert [rank.ask("leave"), rank.ask("leave")] == [{}, {}]
        assert torch.asked == [("destroy_process_group", {})]


def test_a_loop_ends_in_the_round_in_which_a_rank_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This rank is told to stop in the second round, after which the third is the last."""
    clock = Stood(monkeypatch, gloo_program)
    torch = Torch({"all_reduce": [[3, 3, 0], [3, 2, 0], [3, 3, 1]]})
    durations = iter([7, 9, 4])

    def meanwhile(_: str) -> None:
        clock.at += next(durations)
        if len(torch.asked) == 2:
            rank.ask("stop")

    with gloo_rank(monkeypatch, torch) as rank:
        torch.meanwhile = meanwhile
        found = rank.ask("loop", size=8)
        operations = [[BEGIN, BEGIN + 7], [BEGIN + 7, BEGIN + 16], [BEGIN + 16, BEGIN + 20]]
        assert found == {"operations": operations, "wrong": 1, "failure": None}
        assert [each[1][-1] for each in torch.asked] == [0, 0, 1]
        torch.meanwhile = lambda _: None
        torch.results["all_reduce"] = [[2, 2, 0], RuntimeError("Connection closed by peer")]
        found = rank.ask("loop", size=8)
        assert (len(found["operations"]), found["wrong"]) == (1, 2)
        assert found["failure"] == "Connection closed by peer"


def test_segments_sent_again_are_noted_when_their_count_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RFC 4022, tcpRetransSegs, by its name; the kernel counts 5, 5, 6, 6 and then 9 of them."""
    clock = Stood(monkeypatch, gloo_program, sleeps=True)
    counts, counted, over = iter([5, 5, 6, 6, 9]), threading.Event(), threading.Event()

    def snmp(path: str, **_: Any) -> io.StringIO:
        assert path == "/proc/self/net/snmp"
        count = next(counts, None)
        if count is None:
            counted.set()
            assert over.wait(20)
            count = 9
        return io.StringIO(
            "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
            "Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\n"
            f"Tcp: 1 {clock.at} {clock.at} {count} 4\n"
        )

    monkeypatch.setattr(gloo_program, "open", snmp, raising=False)
    torch = Torch()
    torch.meanwhile = lambda name: name == "all_reduce" and over.wait(20)
    with gloo_rank(monkeypatch, torch) as rank:
        rank.begin("checked", collective="all_reduce", count=4)
        assert counted.wait(20)
        state = rank.ask("state", since=0)
        rank.ask("abandon")
        over.set()
    period = 20_000_000
    assert state["retransmitted"] == [BEGIN + period, BEGIN + 3 * period]
    assert clock.sleeps[:4] == [period] * 4


class Group:
    """A group of PyTorch, which waits for its threads where it is no longer held."""


def test_requests_are_answered_in_turn_and_a_loop_can_be_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop stands in its first operation until it is abandoned; then work goes on."""
    entered, leave = threading.Event(), threading.Event()
    torch = Torch()
    made = [Group(), Group()]
    groups = [weakref.ref(each) for each in made]
    torch.distributed.new_group = lambda **_: made.pop()
    torch.distributed.group.WORLD = made.pop()
    with gloo_rank(monkeypatch, torch, lanes=2) as rank:
        torch.distributed.all_reduce = lambda _: (entered.set(), leave.wait(20))
        assert rank.error("hum")["text"] == "there is no request 'hum'"
        loop = rank.begin("loop", size=8)
        assert entered.wait(20)
        stopped, abandoned, again = (rank.begin(do) for do in ("stop", "abandon", "abandon"))
        left = rank.begin("leave")
        assert rank.reply(loop)["ok"] == {"operations": [], "wrong": 0, "failure": "abandoned"}
        for number in (stopped, abandoned, again, left):
            assert rank.reply(number)["ok"] == {}
        assert rank.order.index(loop) < rank.order.index(abandoned)
        # The groups that the abandoned thread is in are kept, where others follow.
        torch.distributed.group.WORLD = Group()
        torch.distributed.new_group = lambda **_: Group()
        rank.ask("join", rank=1, ranks=3, store=["", 1], interfaces=["a", "b"], timeout_ns=SECOND)
        leave.set()
        gc.collect()
        assert None not in [group() for group in groups]
        assert rank.ask("leave") == {}
    assert rank.order.count(loop) == 1


def test_replies_carry_number_stamps_and_slew(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
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
