"""The store through which ranks of separate machines find each other."""

import base64
from typing import Any

import pytest

from lightrig.instruments.jobs.traffic.rendezvous import RendezvousStore


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Asking:
    """Ranks that ask a store, and what each was answered."""

    def __init__(self) -> None:
        self.store = RendezvousStore()
        self.answers: dict[str, Any] = {}

    def ask(self, who: str, do: str, *given: Any) -> Any:
        self.store.handle(do, given, lambda result: self.answers.update({who: result}))
        return self.answers.get(who, "waits")


def test_a_value_is_awaited_until_another_rank_sets_it() -> None:
    ranks = Asking()
    assert ranks.ask("rank 1", "get", "address") == "waits"
    assert ranks.ask("rank 2", "wait", ["address", "port"]) == "waits"
    ranks.ask("rank 0", "set", "address", packed("198.18.0.1"))
    assert ranks.answers["rank 1"] == packed("198.18.0.1")
    assert "rank 2" not in ranks.answers
    ranks.ask("rank 0", "set", "port", packed("9"))
    assert ranks.answers["rank 2"] is None


def test_a_count_ends_a_wait_for_it() -> None:
    ranks = Asking()
    assert ranks.ask("rank 1", "get", "arrived") == "waits"
    assert [ranks.ask("rank 0", "add", "arrived", 1) for _ in range(2)] == [1, 2]
    assert ranks.answers["rank 1"] == packed("1")
    assert ranks.ask("rank 0", "check", ["arrived", "left"]) is False
    assert ranks.ask("rank 0", "count") == 1
    assert ranks.ask("rank 0", "delete", "arrived") is True
    assert ranks.ask("rank 0", "delete", "arrived") is False


def test_a_value_is_swapped_only_for_what_was_expected() -> None:
    ranks = Asking()
    assert ranks.ask("rank 0", "swap", "leader", packed(""), packed("0")) == packed("0")
    assert ranks.ask("rank 1", "swap", "leader", packed(""), packed("1")) == packed("0")
    with pytest.raises(ValueError, match="no operation rename of 1 arguments"):
        ranks.ask("rank 0", "rename", "leader")


def test_a_stored_value_is_removed_after_its_last_reader() -> None:
    ranks = Asking()
    assert ranks.ask("rank 1", "take", "gradients") == "waits"
    ranks.ask("rank 0", "hand", "gradients", packed("bulk"), 2)
    assert ranks.answers["rank 1"] == packed("bulk")
    assert ranks.ask("rank 2", "take", "gradients") == packed("bulk")
    assert ranks.ask("rank 3", "take", "gradients") == "waits"
    assert ranks.ask("rank 0", "count") == 0
