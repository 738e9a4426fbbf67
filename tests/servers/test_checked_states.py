"""States of a job with checked results: of uneven ranks, of one that failed, by hand."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.checked_job import CheckedJob
from lightrig.instruments.servers.host.offset import ClockMap

RANKS = ("server2", "server0", "server1")


class Ranks:
    """Programs of ranks on this machine's clock, whose states are given."""

    tool = "by hand"

    def __init__(self, states: dict[str, dict[str, Any]], *, reforms: bool) -> None:
        self.states, self.reforms = states, reforms
        self.left: list[str] = []

    def program(self, rank: str) -> Any:
        def submit(verb: str, body: Mapping[str, Any], duration: int = 0) -> Any:
            if verb == "checked":
                assert body == {"collective": "train", "count": 9}
                return SimpleNamespace()
            state = self.states[rank]
            operations = state["operations"][body["since"] :]
            return SimpleNamespace(result=lambda: {**state, "operations": operations})

        clocks = ClockMap(name=rank)
        clocks.same_clock = True
        return SimpleNamespace(submit=submit, clocks=clocks, over=False)

    def give_up(self, running: Mapping[str, Any]) -> None:
        self.left = list(running)


def state(exchanges: int, wrong: int, began: int, **more: Any) -> dict[str, Any]:
    rounds = [[number * 7, number * 7 + 6] for number in range(exchanges)]
    return {
        "exchanges": exchanges, "operations": rounds, "wrong": wrong, "began": began,
        "failed": None, "failure": None, "retransmitted": [], "reformed": [],
        "members": [0, 1, 2], **more,
    }  # fmt: skip


def states(**of_second: Any) -> dict[str, dict[str, Any]]:
    """The first rank is ahead, the second behind; the third began its round first."""
    return {
        "server2": state(9, 0, 93, retransmitted=[44]),
        "server0": state(5, 2, 71, retransmitted=[20, 61], **of_second),
        "server1": state(7, 1, 60, reformed=[66]),
    }


def job(ranks: Any) -> CheckedJob:
    return CheckedJob(ranks, RANKS, "train", 9)


@pytest.mark.parametrize("reforms", [False, True])
def test_a_job_is_as_far_as_its_slowest_rank(reforms: bool) -> None:
    ranks = Ranks(states(), reforms=reforms)
    running = job(ranks)
    found = running.state()
    assert (found.exchanges, found.wrong, found.error, found.failed) == (5, 2 + 1, "", None)
    assert found.began == Span(60, 60)
    assert found.ends == tuple(Span(end, end) for end in range(6, 69, 7))
    assert found.retransmitted == tuple(Span(at, at) for at in (20, 44, 61))
    assert found.reformed == (Span(66, 66),)
    # Of rounds that are known already only later ones are asked for.
    ranks.states["server2"] = state(11, 0, 99)
    assert len(running.stop().ends) == 11
    assert ranks.left == list(RANKS)


def test_wrong_results_of_a_rank_that_failed_since_are_counted() -> None:
    """The others go on without it: its two wrong results were results of the job."""
    failed = {"failed": 90, "failure": "RuntimeError: lost"}
    found = job(Ranks(states(**failed), reforms=True)).state()
    assert (found.exchanges, found.wrong) == (7, 2 + 1)
    assert (found.error, found.failed) == ("", None)


def test_the_first_failure_is_the_job_s_where_no_others_go_on() -> None:
    given = states(failed=90, failure="RuntimeError: lost")
    given["server1"] |= {"failed": 87, "failure": "OSError: reset"}
    found = job(Ranks(given, reforms=False)).state()
    assert (found.exchanges, found.wrong) == (5, 3)
    assert (found.error, found.failed) == ("server1: OSError: reset", Span(87, 87))
