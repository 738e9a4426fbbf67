"""All-to-alls of a script that a module carries: with PyTorch, and with a stand-in for it."""

import importlib.util
import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from program_host import Here

import lightrig.harness.systems.mixnet.runtime as mixnet
from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.jobs.traffic.rendezvous import RendezvousStore
from lightrig.instruments.jobs.traffic.training import (
    PrintedLines,
    Script,
    ScriptModule,
    TrainingFailedError,
    TrainingRank,
)
from lightrig.instruments.servers.host.linux import LinuxServer

STAND_IN = Path(__file__).parent / "stand_in_training"
DOUBLING = """
import threading
import torch

class Doubling:
    def __init__(self, torch, emit, settings):
        self.torch, self.emit, self.settings = torch, emit, settings

    def takes(self, rows, ranks, given):
        return rows[0] > 0

    def begin(self, group_on, rank, ranks, out, rows, taken, given):
        self.future, self.out, self.rows = self.torch.futures.Future(), out, rows
        self.emit({"wants": [rank, taken, given], **self.settings})
        return self.future

    def receive(self, factor):
        self.out[:] = [factor * row for row in self.rows]
        self.future.set_result(self.out)

connect = Doubling
"""
ALONE = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
group = dist.new_group([0])
out = torch.Tensor([0, 0])
group.alltoall_base(out, torch.Tensor([3, 5]), [2], []).wait()
print(out)
group.alltoall_base(out, torch.Tensor([-1]), [1], [1])
"""
EXPERTS = """
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.nn.functional import all_to_all_single

dist.init_process_group("gloo")
rank = dist.get_rank()
given = [[0, 3, 2], [4, 1, 0], [1, 2, 5]][rank]
taken = torch.empty(3, dtype=torch.int64)
dist.all_to_all_single(taken, torch.tensor(given))
taken = taken.tolist()
print("taken", taken)
weights = torch.empty(sum(taken))
dist.all_to_all_single(weights, torch.arange(float(sum(given))) + 100 * rank, taken, given)
print("weights", weights.tolist())
rows = (torch.arange(float(6 * sum(given))).view(-1, 2, 3) + 1000 * rank).requires_grad_()
out = torch.empty(sum(taken), 2, 3)
work = dist.all_to_all_single(out, rows.detach(), taken, given, async_op=True)
print("waited", work.wait())
print("rows", out.tolist())
for name, exchanged in (
    ("functional", functional.all_to_all_single_autograd(rows, taken, given, dist.group.WORLD)),
    ("nn", all_to_all_single(torch.empty(sum(taken), 2, 3), rows, taken, given)),
):
    exchanged = functional.wait_tensor(exchanged) if name == "functional" else exchanged
    (exchanged * (torch.arange(float(sum(taken))).view(-1, 1, 1) + rank)).sum().backward()
    print(name, exchanged.tolist(), rows.grad.tolist())
even = torch.empty(6, 1)
dist.all_to_all_single(even, torch.arange(6.0).view(6, 1) + 10 * rank)
print("even", even.flatten().tolist())
"""


@pytest.fixture
def ranks() -> Iterator[Callable[[int], list[TrainingRank]]]:
    made: list[TrainingRank] = []
    clock = SystemClock()

    def start(count: int) -> list[TrainingRank]:
        for number in range(count):
            server = LinuxServer(f"server{number}", Here(), clock, {})
            made.append(TrainingRank(number, server, clock))
        for rank in made:
            rank.loaded()
        return made

    yield start
    for rank in made:
        rank.close()


def trained(ranks: list[TrainingRank], source: str, module: ScriptModule | None) -> PrintedLines:
    listener, store = PrintedLines(), RendezvousStore()
    environment = {"WORLD_SIZE": str(len(ranks)), "GLOO_SOCKET_IFNAME": "lo"}
    running = [
        rank.train(
            *(Script(source, "script.py"), listener, "watched", {"all": range(len(ranks))}),
            {**environment, "RANK": str(rank.rank)},
            store,
            module=module,
        )
        for rank in ranks
    ]
    for each in running:
        each.result()
    return listener


def test_a_module_carries_the_all_to_alls_that_it_takes(
    ranks: Callable[[int], list[TrainingRank]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one goes to the stand-in's backend, which has none."""
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    (alone,) = ranks(1)
    emitted: list[Any] = []

    def answer(rank: int, message: Any, at: Span) -> None:
        emitted.append((rank, message))
        threading.Thread(target=alone.tell, args=(7,)).start()

    listener = PrintedLines()
    module = ScriptModule(DOUBLING, {"tone": "low"}, answer)
    running = alone.train(
        *(Script(ALONE, "script.py"), listener, "watched", {"all": [0]}),
        {"WORLD_SIZE": "1", "RANK": "0"},
        RendezvousStore(),
        module=module,
    )
    with pytest.raises(TrainingFailedError, match="has no attribute 'alltoall_base'"):
        running.result()
    assert emitted == [(0, {"wants": [0, [2], [2]], "tone": "low"})]
    assert [line for _, line in listener.lines[0]] == ["[21, 35]"]


class HalvingController:
    """Answers three ranks, once all have asked: half of the rows over each lane."""

    def __init__(self, ranks: list[TrainingRank]) -> None:
        self._ranks = ranks
        self.wanted: dict[int, list[int]] = {}
        self.exchanges: list[dict[int, list[int]]] = []
        self.sizes: list[int] = []
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self) -> None:
        while (each := self.messages.get()) is not None:
            rank, message = each
            if "wants" in message:
                self.wanted[rank] = message["wants"]
                self.sizes.append(message["size"])
            if len(self.wanted) == len(self._ranks):
                wanted, self.wanted = self.wanted, {}
                self.exchanges.append(wanted)
                for one in self._ranks:
                    sends = self._batches(wanted, one.rank, sends=True)
                    receives = self._batches(wanted, one.rank, sends=False)
                    one.tell({"stages": [[1, sends, receives]]})

    @staticmethod
    def _batches(wanted: dict[int, list[int]], rank: int, *, sends: bool) -> list[Any]:
        found = []
        for lane, peer in itertools.product((0, 1), (n for n in range(3) if n != rank)):
            source, sink = (rank, peer) if sends else (peer, rank)
            rows = wanted[source][sink]
            first, end = (0, rows // 2) if lane == 0 else (rows // 2, rows)
            if end > first:
                found.append([lane, peer, [[source, sink, first, end - first]]])
        return found


def test_all_interfaces_of_pytorch_send_rows_over_lanes_as_over_its_own_group(
    ranks: Callable[[int], list[TrainingRank]],
) -> None:
    """Counts and one-dimensional weights are no rows; the first all-to-all's values by hand."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    three = ranks(3)
    plain = trained(three, EXPERTS, None)
    control = HalvingController(three)
    threading.Thread(target=control.run, daemon=True).start()
    source = (Path(mixnet.__file__).parent / "lane_exchange.py").read_text("utf-8")
    module = ScriptModule(
        source,
        {"lanes": ["lo", "lo"], "servers": [[0], [1], [2]], "regions": [[0, 1, 2]], "rings": []},
        lambda rank, message, at: control.messages.put((rank, message)),
    )
    carried = trained(three, EXPERTS, module)
    control.messages.put(None)
    lines = {rank: [line for _, line in of] for rank, of in carried.lines.items()}
    assert lines == {rank: [line for _, line in of] for rank, of in plain.lines.items()}
    # Rank 0 gets no row of its own, the first four of rank 1, and the first of rank 2.
    assert lines[0][0] == "taken [0, 4, 1]"
    assert lines[0][1] == "weights [100.0, 101.0, 102.0, 103.0, 200.0]"
    first = next(line for line in lines[0] if line.startswith("rows")).removeprefix("rows ")
    starts = [1000, 1006, 1012, 1018, 2000]
    assert first == str([
        [[float(start + 3 * row + n) for n in range(3)] for row in range(2)] for start in starts
    ])  # fmt: skip
    there = {0: [0, 3, 2], 1: [4, 1, 0], 2: [1, 2, 5]}
    back = {0: [0, 4, 1], 1: [3, 1, 2], 2: [2, 0, 5]}
    even = {0: [2, 2, 2], 1: [2, 2, 2], 2: [2, 2, 2]}
    assert control.exchanges == [there, there, there, back, back, even]
    assert set(control.sizes) == {2 * 3 * 4, 4}
