"""Exchanges over the front end: three ranks share tensors by a store, each value by hand."""

import base64
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightrig.instruments.jobs.programs import training_groups
from lightrig.instruments.jobs.programs.training_front_end import FrontEnd
from lightrig.instruments.jobs.programs.training_gate import Gate, RefusedError
from lightrig.instruments.jobs.programs.training_store import Exchanges

RANKS = (4, 9, 6)
"""Of the world: rank 1 of the group is rank 9."""


class Tensor(np.ndarray):
    """An array with the methods of a tensor that the front end uses."""

    device = "cpu"

    def detach(self) -> "Tensor":
        return self

    cpu = contiguous = detach

    def data_ptr(self) -> int:
        return self.ctypes.data

    def copy_(self, other: Any) -> None:
        assert self.shape == other.shape
        self[...] = other

    def view(self, shape: Any) -> Any:
        return self.reshape(shape)

    def chunk(self, count: int) -> list[Any]:
        return np.split(self, count)

    def split(self, rows: Any) -> list[Any]:
        ends = np.cumsum(rows) if isinstance(rows, list) else range(rows, len(self) + 1, rows)
        return np.split(self, list(ends)[:-1])

    def numel(self) -> int:
        return self.size

    def element_size(self) -> int:
        return self.itemsize


def tensor(*values: Any, dtype: Any = np.float32) -> Any:
    return np.ndarray.view(np.array(values, dtype), Tensor)


def filled(*shape: int) -> Any:
    return np.ndarray.view(np.full(shape, -1, np.float32), Tensor)


SUM, AVG, PRODUCT, MAX, MIN, XOR = "sum", "mean", "product", "max", "min", "xor"

TORCH = SimpleNamespace(
    distributed=SimpleNamespace(
        ReduceOp=SimpleNamespace(SUM=SUM, AVG=AVG, PRODUCT=PRODUCT, MAX=MAX, MIN=MIN)
    ),
    add=np.add,
    mul=np.multiply,
    maximum=np.maximum,
    minimum=np.minimum,
    empty_like=lambda like: np.ndarray.view(np.empty_like(like), Tensor),
    frombuffer=lambda data, dtype: np.ndarray.view(np.frombuffer(data, dtype), Tensor),
    futures=SimpleNamespace(Future=Future),
    Tensor=Tensor,
)


class Store:
    """The harness's store: a text is kept for as many readers as it was left for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.texts: dict[str, tuple[str, int]] = {}
        self.handed: list[str] = []

    def ask(self, do: str, key: str, text: str = "", readers: int = 0) -> str:
        with self._changed:
            if do == "hand":
                assert key not in self.texts
                self.handed.append(key)
                if readers:
                    self.texts[key] = text, readers
                self._changed.notify_all()
                return ""
            assert self._changed.wait_for(lambda: key in self.texts, 20), key
            text, readers = self.texts.pop(key)
            if readers > 1:
                self.texts[key] = text, readers - 1
            return text


class Group:
    """Three ranks of a group with one store."""

    def __init__(self) -> None:
        self.store: Any = Store()
        self.gates = [Gate({}, lambda _: None, gated=False) for _ in RANKS]
        self.ends = [
            FrontEnd(TORCH, self.store, gate, lambda rank=rank: ("mine", rank, RANKS))  # type: ignore[misc]
            for rank, gate in enumerate(self.gates)
        ]

    def run(self, kind: str, given: Callable[[int], Sequence[Any]]) -> None:
        """Run a collective on all ranks."""
        failed: list[Exception] = []

        def one(rank: int) -> None:
            try:
                self.ends[rank].run(kind, given(rank), 8)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(RANKS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        if failed:
            raise failed[0]
        assert self.store.texts == {}


@pytest.fixture
def group() -> Group:
    return Group()


def options(how: str = SUM, root: int = 1) -> Any:
    return SimpleNamespace(reduceOp=how, rootRank=root)


@pytest.mark.parametrize("kind", ["allreduce", "allreduce_coalesced"])
@pytest.mark.parametrize(
    ("how", "first", "second"),
    [
        (SUM, [12, 3], [60]),
        (AVG, [4, 1], [20]),
        (PRODUCT, [48, 0], [6000]),
        (MAX, [6, 3], [30]),
        (MIN, [2, 0], [10]),
    ],
)
def test_values_are_reduced(
    group: Group, kind: str, how: str, first: list[int], second: list[int]
) -> None:
    """Ranks give 2 0, 4 0 and 6 3; and 10, 20 and 30."""
    ones = [tensor(2, 0), tensor(4, 0), tensor(6, 3)]
    others = [tensor(10), tensor(20), tensor(30)]
    group.run(kind, lambda rank: ([ones[rank], others[rank]], options(how)))
    assert [each.tolist() for each in ones] == [first] * 3
    assert [each.tolist() for each in others] == [second] * 3


def test_an_operator_that_is_not_known_is_refused(group: Group) -> None:
    with pytest.raises(RefusedError, match="combines by no xor"):
        group.ends[0].combined([tensor(1), tensor(2)], XOR)
    with pytest.raises(RefusedError, match=r"hum among ranks \[4, 6, 9\]: no front end carries it"):
        group.ends[0].run("hum", (), 1)


def test_a_root_gives_to_all_and_takes_of_all(group: Group) -> None:
    spread = [[tensor(rank, rank + 1), tensor(10 * rank)] for rank in range(3)]
    group.run("broadcast", lambda rank: (spread[rank], options(root=2)))
    assert [[each.tolist() for each in rank] for rank in spread] == [[[2, 3], [20]]] * 3
    reduced = [[tensor(rank, 5), tensor(10 * rank)] for rank in range(3)]
    group.run("reduce", lambda rank: (reduced[rank], options(SUM, root=1)))
    assert [[each.tolist() for each in rank] for rank in reduced] == [
        [[0, 5], [0]], [[3, 15], [30]], [[2, 5], [20]],
    ]  # fmt: skip
    out = [filled(2) for _ in RANKS]
    group.run("gather", lambda rank: (
        [out] if rank == 2 else [], [tensor(rank, 7)], options(root=2)))  # fmt: skip
    assert [each.tolist() for each in out] == [[0, 7], [1, 7], [2, 7]]
    parts = [filled(2) for _ in RANKS]
    given = [[tensor(3, 4), tensor(5, 6), tensor(7, 8)]]
    group.run("scatter", lambda rank: (
        [parts[rank]], given if rank == 1 else [], options(root=1)))  # fmt: skip
    assert [each.tolist() for each in parts] == [[3, 4], [5, 6], [7, 8]]


def test_all_ranks_get_what_each_gives(group: Group) -> None:
    lists = [[[filled(2) for _ in RANKS], [filled(1) for _ in RANKS]] for _ in RANKS]
    group.run("allgather", lambda rank: (
        lists[rank], [tensor(rank, 5), tensor(rank + 40)], options()))  # fmt: skip
    wanted = [[[0, 5], [1, 5], [2, 5]], [[40], [41], [42]]]
    assert [[[each.tolist() for each in one] for one in rank] for rank in lists] == [wanted] * 3
    # Each rank has left its tensor once, for both others.
    assert sum("mine 0 0 " in key for key in group.store.handed) == 3
    for number, kind in enumerate(("_allgather_base", "all_gather_single"), 1):
        whole = [filled(3, 2) for _ in RANKS]
        group.run(kind, lambda rank, whole=whole: (whole[rank], tensor(rank, 9), options()))  # type: ignore[misc]
        assert [each.tolist() for each in whole] == [[[0, 9], [1, 9], [2, 9]]] * 3
        assert any(f"mine {number} " in key for key in group.store.handed)
    several = [[filled(6), filled(3)] for _ in RANKS]
    group.run("allgather_into_tensor_coalesced", lambda rank: (
        several[rank], [tensor(rank, 9), tensor(-rank)]))  # fmt: skip
    assert [[each.tolist() for each in rank] for rank in several] == [
        [[0, 9, 1, 9, 2, 9], [0, -1, -2]]
    ] * 3


def test_each_rank_gets_its_share_of_a_sum(group: Group) -> None:
    """Rank r gives 10 r to rank 0, 10 r + 1 to rank 1 and 10 r + 2 to rank 2."""
    into = [filled(1) for _ in RANKS]
    group.run("reduce_scatter", lambda rank: (
        [into[rank]], [[tensor(10 * rank + to) for to in range(3)]], options()))  # fmt: skip
    assert [each.tolist() for each in into] == [[30], [33], [36]]
    for kind in ("_reduce_scatter_base", "reduce_scatter_single"):
        into = [filled(2) for _ in RANKS]
        given = [tensor(*range(6 * rank, 6 * rank + 6)) for rank in range(3)]
        group.run(kind, lambda rank, into=into, given=given: (  # type: ignore[misc]
            into[rank], given[rank], options(MAX)))  # fmt: skip
        assert [each.tolist() for each in into] == [[12, 13], [14, 15], [16, 17]]


def test_shares_go_from_each_rank_to_each(group: Group) -> None:
    out = [[filled(1) for _ in RANKS] for _ in RANKS]
    group.run("alltoall", lambda rank: (
        out[rank], [tensor(10 * rank + to) for to in range(3)]))  # fmt: skip
    assert [[each.tolist() for each in rank] for rank in out] == [
        [[0], [10], [20]], [[1], [11], [21]], [[2], [12], [22]],
    ]  # fmt: skip
    # Rank 0 gives one row to itself and two to rank 1; rank 1 all three to rank 2.
    rows = [[1, 2, 0], [0, 0, 3], [2, 0, 1]]
    columns = [[1, 0, 2], [2, 0, 0], [0, 3, 1]]
    whole = [filled(sum(each)) for each in columns]
    group.run("alltoall_base", lambda rank: (
        whole[rank], tensor(*(10 * rank + place for place in range(3))), columns[rank],
        rows[rank], options()))  # fmt: skip
    assert [each.tolist() for each in whole] == [[0, 20, 21], [1, 2], [10, 11, 12, 22]]
    equal = [filled(6) for _ in RANKS]
    group.run("all_to_all_single", lambda rank: (
        equal[rank], tensor(*(10 * rank + place for place in range(6))), [], []))  # fmt: skip
    assert equal[1].tolist() == [2, 3, 12, 13, 22, 23]


def test_messages_of_a_pair_keep_their_order_and_their_tags(group: Group) -> None:
    first, second, other = filled(2), filled(1), filled(1)
    sender, receiver = group.ends[2], group.ends[0]
    futures = [
        receiver.receive([first], 2, 7, 8),
        receiver.receive([other], 2, 8, 4),
        receiver.receive([second], 2, 7, 4),
    ]
    sender.send([tensor(1, 2)], 0, 7, 8)
    sender.send([tensor(3)], 0, 7, 4)
    sender.send([tensor(4)], 0, 8, 4)
    assert [future.result(20)[0].tolist() for future in futures] == [[1, 2], [4], [3]]
    assert group.store.texts == {}
    for rank, kind in ((2, "send"), (0, "recv")):
        noted = group.gates[rank].front_end
        assert sorted(each[2:4] for each in noted) == [[kind, 4], [kind, 4], [kind, 8]]
        # Ranks of the world.
        assert {each[0] for each in noted} == {"front end 4,6"}


def test_tensors_are_handed_over_in_parts(group: Group) -> None:
    """A line carries 512 KiB: two of them, and the last three values in a third one."""
    end, whole = group.ends[0], 2 * 2**19 // 4
    given = tensor(*range(whole - 2), 7, 5, 4, 9, 1).reshape(1, -1)
    end.give("key", given, 1)
    assert group.store.handed == [f"front end key, {at}" for at in (0, 2**19, 2**20)]
    assert (
        base64.b64decode(group.store.texts[f"front end key, {2**20}"][0])
        == tensor(4, 9, 1).tobytes()
    )
    taken = end.take("key", given)
    assert taken.tolist() == given.tolist()
    end.give("none", tensor(), 1)
    assert end.take("none", tensor()).tolist() == []
    assert group.store.texts == {}


# ------------------------------------------------------------------ beside PyTorch itself


def test_the_size_of_an_operation_is_its_largest_argument() -> None:
    three, five = tensor(1, 2, 3), tensor(1, 2, 3, 4, 5, dtype=np.float64)
    assert training_groups.bytes_of(TORCH, five) == 40
    assert training_groups.bytes_of(TORCH, [three, five]) == 52
    assert training_groups.bytes_of(TORCH, ([[three, three]], [five], "how")) == 40
    assert training_groups.bytes_of(TORCH, ([[three] * 4], [five], "how")) == 48
    assert training_groups.bytes_of(TORCH, ()) == 0


def test_the_device_of_an_operation_is_its_first_tensors() -> None:
    one = tensor(1)
    one.device = "cuda:2"
    assert training_groups.device_of(TORCH, ([[one]], tensor(2))) == "cuda:2"


def test_the_store_is_asked_by_number_and_gives_up_in_time() -> None:
    asked: list[Any] = []
    exchanges = Exchanges(asked.append)
    with pytest.raises(TimeoutError, match=r"get of \('a',\) was not answered in 0.01 s"):
        exchanges.ask("get", "a", 5, timeout=0.01)
    answered: list[Any] = []
    thread = threading.Thread(target=lambda: answered.append(exchanges.ask("add", "b")))
    thread.start()
    while len(asked) < 2:
        pass
    exchanges.stored(0, "late")
    exchanges.stored(1, 17)
    thread.join(20)
    assert answered == [17]
    assert asked == [{"store": 0, "do": ["get", "a", 5]}, {"store": 1, "do": ["add", "b"]}]
