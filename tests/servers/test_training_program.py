"""Scripts of training jobs that know nothing of us: with PyTorch, and with a stand-in for it."""

import importlib.util
import os
import select
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from program_host import Here

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.jobs.traffic.gloo import NoPyTorchError
from lightrig.instruments.jobs.traffic.rendezvous import RendezvousStore
from lightrig.instruments.jobs.traffic.training import (
    Control,
    RunningScript,
    Script,
    TrainingFailedError,
    TrainingRank,
    Wanted,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.temporary_folders import remove_abandoned

STAND_IN = Path(__file__).parent / "stand_in_training"
ALONE = """
import sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
group = dist.new_group([0])
group.allreduce([torch.Tensor([1, 2, 3])], None).wait()
there, back = group.send([torch.Tensor([1])], 0, 0), group.recv([torch.Tensor([1])], 0, 0)
there.wait(), back.wait()
group.barrier().wait()
print("step 0 loss", sys.argv[1])
if sys.argv[1] == "bad":
    group.allreduce([torch.Tensor([-1])], None).wait()
dist.destroy_process_group()
"""
TWO = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
for step in range(2):
    model(torch.full((2, 4), float(rank + step))).pow(2).mean().backward()
    mine, other = torch.full((3,), float(rank)), torch.zeros(3)
    begun = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)]
    )
    for each in begun:
        each.wait()
    gathered = torch.empty(6)
    dist.all_gather_into_tensor(gathered, mine)
    dist.barrier()
    print(f"step {step} loss {model.module.weight.grad.sum().item() + gathered.sum().item()!r}")
    print(other.tolist())
dist.destroy_process_group()
"""


MESH = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch import nn

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
rank = dist.get_rank()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
for layer in model:
    fully_shard(layer, mesh=mesh["data"])
fully_shard(model, mesh=mesh["data"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.full((2, 4), float(rank // 2 + step))).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    whole = loss.detach().clone()
    dist.all_reduce(whole, op=dist.ReduceOp.AVG)
    beside = torch.tensor([float(rank)])
    dist.all_reduce(beside, group=mesh.get_group("tensor"))
    gathered = [torch.zeros(1) for _ in range(4)]
    dist.all_gather(gathered, torch.tensor([float(rank)]))
    first = torch.tensor([float(rank) + 7])
    dist.broadcast(first, 0)
    print(f"step {step} loss {whole.item()!r}", beside.item(), torch.cat(gathered).tolist())
    print(first.item())
"""
BESIDE = """
import tempfile
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch import nn

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
rank = dist.get_rank()
mine = torch.tensor([float(rank + 1)])
dist.reduce(mine, 2)
print("reduce", mine.item() if rank == 2 else "-")
out = [torch.zeros(2, dtype=torch.int64) for _ in range(4)] if rank == 1 else None
dist.gather(torch.tensor([rank, -rank]), out, dst=1)
print("gather", [each.tolist() for each in out] if out else "-")
part = torch.zeros(1)
dist.scatter(part, [torch.tensor([7.0 + each]) for each in range(4)] if rank == 3 else None, src=3)
print("scatter", part.item())
into = torch.zeros(sum((rank + other) % 3 for other in range(4)))
rows = torch.full((into.numel(),), float(rank))
splits = [(rank + other) % 3 for other in range(4)]
dist.all_to_all_single(into, rows, splits, splits)
print("exchange", into.tolist())
sharded = torch.zeros(1)
dist.reduce_scatter_tensor(sharded, torch.arange(4.0) + rank)
print("scattered sum", sharded.item())
objects = [None] * 4 if rank == 0 else None
dist.gather_object({"rank": rank}, objects)
print("objects", objects)
big = torch.arange(400_003, dtype=torch.float64) * (rank + 1)
dist.all_reduce(big)
print("big", torch.equal(big, torch.arange(400_003, dtype=torch.float64) * 10))
if rank == 0:
    dist.send(torch.arange(3), 3)
if rank == 3:
    got = torch.zeros(3, dtype=torch.int64)
    dist.recv(got, 0)
    print("sent", got.tolist())
torch.manual_seed(1)
model = nn.Linear(4, 4)
whole = {name: value.clone() for name, value in model.state_dict().items()}
fully_shard(model, mesh=mesh["data"])
full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
equal = [torch.equal(full[name], value) for name, value in whole.items() if full]
print("full state", equal)
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
saved = {"model": get_model_state_dict(model)}
dcp.save(saved, checkpoint_id=folder[0])
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
dcp.load(saved, checkpoint_id=folder[0])
print("loaded", torch.equal(model.weight.full_tensor(), whole["weight"]))
dist.barrier()
"""
OF_SERVERS = {"groups": {"even": (0, 2), "odd": (1, 3)}, "servers": ((0, 1), (2, 3))}


class Follower:
    """Lets every operation run that is announced, unless it is told not to."""

    def __init__(self) -> None:
        self.wanted: list[tuple[int, Wanted]] = []
        self.over: list[tuple[int, int]] = []
        self.lines: dict[int, list[str]] = {}
        self.steps: list[int] = []
        self.ranks: list[TrainingRank] = []
        self.refused: str | None = None
        self.news = threading.Event()

    def wants(self, rank: int, number: int, operation: Wanted) -> None:
        self.wanted.append((rank, operation))
        threading.Thread(target=self.ranks[rank].go, args=(number, self.refused)).start()

    def ended(self, rank: int, number: int) -> None:
        self.over.append((rank, number))

    def printed(self, rank: int, line: str, at: Span) -> None:
        self.lines.setdefault(rank, []).append(line)
        self.news.set()

    def stepped(self, rank: int, at: Span) -> None:
        self.steps.append(rank)


@pytest.fixture
def follower() -> Iterator[Follower]:
    made = Follower()
    yield made
    for rank in made.ranks:
        rank.close()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))


@pytest.fixture
def begin(follower: Follower) -> Callable[..., list[RunningScript]]:
    clock = SystemClock()

    def run(
        ranks: int,
        source: str,
        control: Control,
        *arguments: str,
        groups: Mapping[str, Sequence[int]] | None = None,
        servers: Sequence[Sequence[int]] = (),
    ) -> list[RunningScript]:
        while len(follower.ranks) < ranks:
            number = len(follower.ranks)
            server = LinuxServer(f"server{number}", Here(), clock, {})
            follower.ranks.append(TrainingRank(number, server, clock))
        for rank in follower.ranks:
            rank.loaded()
        common = {"WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": "lo"}
        script = Script(source, "script.py", arguments)
        store = RendezvousStore()
        groups = groups or {"data": tuple(range(ranks))}
        return [
            rank.train(
                script,
                follower,
                control,
                groups,
                {**common, "RANK": str(rank.rank)},
                store,
                servers,
            )
            for rank in follower.ranks
        ]

    return run


def test_ranks_of_pytorch_wait_for_their_word(
    follower: Follower, begin: Callable[..., list[RunningScript]]
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    seen = [running.result() for running in begin(2, TWO, "watched")]
    watched = dict(follower.lines)
    follower.lines = {}
    gated = [running.result() for running in begin(2, TWO, "gated")]
    assert follower.lines == watched
    assert follower.lines[0][1::2] == ["[1.0, 1.0, 1.0]"] * 2
    assert follower.lines[0][::2] == follower.lines[1][::2]
    assert [one.operation for one in gated[0]] == [one.operation for one in seen[0]]
    assert len(follower.wanted) == len(gated[0]) + len(gated[1])
    assert len(follower.over) == len(follower.wanted)
    kinds = [one.operation.kind for one in gated[0]]
    # Sent and received at once is one operation.
    assert kinds[-3:-1] == ["allreduce", "send"]
    assert all(one.began.latest <= one.ended.latest for one in gated[1])


def test_a_mesh_of_devices_with_sharded_layers_trains(
    follower: Follower, begin: Callable[..., list[RunningScript]]
) -> None:
    """Twice, as it destroys no process group; losses and small collectives cross no rail."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    lines = []
    for control in ("watched", "gated"):
        done = [running.result() for running in begin(4, MESH, control, **OF_SERVERS)]
        lines.append(follower.lines)
        follower.lines = {}
    assert lines[0] == lines[1]
    assert [line.split()[:4] for line in lines[0][0]] == [line.split()[:4] for line in lines[0][2]]
    assert lines[0][0][0].endswith(" 1.0 [0.0, 1.0, 2.0, 3.0]")
    assert lines[0][3][0].endswith(" 5.0 [0.0, 1.0, 2.0, 3.0]")
    assert lines[0][3][1] == "7.0"
    kinds = [one.operation.kind for one in done[0]]
    assert {one.operation.group for one in done[0]} == {"even"}
    assert {kind.replace("_", "") for kind in kinds} <= {
        *("allgatherbase", "allgathersingle"),  # by the version of PyTorch
        *("reducescatterbase", "reducescattersingle"),
    }
    assert len(set(kinds)) == 2


def test_what_no_rail_carries_goes_over_the_front_end(
    follower: Follower, begin: Callable[..., list[RunningScript]]
) -> None:
    """Reductions, exchanges, objects, checkpoints and full states; the values by hand."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    done = [running.whole() for running in begin(4, BESIDE, "gated", **OF_SERVERS)]
    said = [dict(line.split(" ", 1) for line in follower.lines[rank]) for rank in range(4)]
    assert [each["reduce"] for each in said] == ["-", "-", "10.0", "-"]
    assert said[1]["gather"] == "[[0, 0], [1, -1], [2, -2], [3, -3]]"
    assert [each["scatter"] for each in said] == ["7.0", "8.0", "9.0", "10.0"]
    # Rank r has (r + s) % 3 rows of rank s.
    assert said[0]["exchange"] == "[1.0, 2.0, 2.0]"
    assert said[2]["exchange"] == "[0.0, 0.0, 2.0, 3.0, 3.0]"
    # The sum over ranks of r, four times its own place: 6 + 4 r.
    assert [each["scattered"] for each in said] == [f"sum {6.0 + 4 * rank}" for rank in range(4)]
    assert said[0]["objects"] == str([{"rank": rank} for rank in range(4)])
    assert [each["big"] for each in said] == ["True"] * 4
    assert said[3]["sent"] == "[0, 1, 2]"
    assert said[0]["full"] == "state [True, True]"
    assert [each["loaded"] for each in said] == ["True"] * 4
    kinds = {one.operation.kind.strip("_") for one in done[0].front_end}
    assert {"reduce", "gather", "scatter", "send", "barrier", "allreduce"} <= kinds
    biggest = max(done[2].front_end, key=lambda one: one.operation.size)
    assert biggest.operation.size == 400_003 * 8
    assert BESIDE.splitlines()[biggest.line - 1] == "dist.all_reduce(big)"


def test_every_operation_is_announced_and_its_end_reported(
    follower: Follower, begin: Callable[..., list[RunningScript]], stand_in: None
) -> None:
    (running,) = begin(1, ALONE, "gated", "4.5")
    done = running.result()
    # What is received as well is not known when the sending is announced.
    first, second = Wanted("data", 0, "allreduce", 12), Wanted("data", 1, "send", 4)
    assert [operation for _, operation in follower.wanted] == [first, second]
    assert [one.operation for one in done] == [first, replace(second, size=8)]
    assert sorted(follower.over) == [(0, 0), (0, 1)]
    assert follower.lines == {0: ["step 0 loss 4.5"]}
    assert all(one.asked < one.began <= one.ended for one in done)


WORKERS = """
import multiprocessing
import os
import sys

def work(queue):
    queue.put(os.getpid())
    while sys.argv[2:] == ["stay"]:
        multiprocessing.Event().wait(60)

def main():
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    worker = context.Process(target=work, args=(queue,))
    worker.start()
    print(queue.get() == worker.pid, flush=True)
    print(worker.pid, flush=True)
    worker.join()
    print("joined", worker.exitcode)

if __name__ == "__main__":
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_script_may_start_workers(
    follower: Follower, begin: Callable[..., list[RunningScript]], stand_in: None, method: str
) -> None:
    """As a DataLoader with workers does: a forked one closes sys.stdin first."""
    (running,) = begin(1, WORKERS, "gated", method)
    running.result()
    assert follower.lines[0][::2] == ["True", "joined 0"]


def test_closing_a_rank_ends_the_workers_of_its_script(
    follower: Follower, begin: Callable[..., list[RunningScript]], stand_in: None
) -> None:
    begin(1, WORKERS, "gated", "fork", "stay")
    while len(follower.lines.get(0, ())) < 2:
        assert follower.news.wait(30)
        follower.news.clear()
    worker = os.pidfd_open(int(follower.lines[0][1]))
    follower.ranks[0].close()
    # Readable once the process has ended.
    assert select.select([worker], [], [], 5)[0] == [worker]
    os.close(worker)


DAEMON = """
import os, sys, time
import torch

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()):
    time.sleep(0.01)
print("started", flush=True)
time.sleep(600)
"""


def test_closing_a_rank_ends_a_daemon_of_its_script(
    follower: Follower,
    begin: Callable[..., list[RunningScript]],
    stand_in: None,
    tmp_path: Path,
) -> None:
    """Which has left the rank's session, and whose parent has ended."""
    begin(1, DAEMON, "gated", str(tmp_path / "pid"))
    while "started" not in follower.lines.get(0, ()):
        assert follower.news.wait(30)
        follower.news.clear()
    daemon = os.pidfd_open(int((tmp_path / "pid").read_text()))
    follower.ranks[0].close()
    assert select.select([daemon], [], [], 5)[0] == [daemon]
    os.close(daemon)


LISTENS = """
import multiprocessing, os, time
import torch
from multiprocessing.connection import Listener

def work(queue):
    listener = Listener()
    queue.put(listener.address)
    time.sleep(600)

queue = multiprocessing.get_context("fork").Queue()
worker = multiprocessing.get_context("fork").Process(target=work, args=(queue,))
worker.start()
print(queue.get(), flush=True)
print(worker.pid, flush=True)
print(os.getpid(), flush=True)
time.sleep(600)
"""

WRITES_LATE = """
import multiprocessing.util, os, sys
import torch

folder = os.path.dirname(multiprocessing.util.get_temp_dir())

def thread(event, arguments):
    if event == "os.rename" and arguments[0] == folder:
        open(os.path.join(folder, "late"), "w").close()

sys.addaudithook(thread)
print(folder, flush=True)
import time
time.sleep(600)
"""
"""Writes amid the removal, as a thread of the script may that still runs."""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("killed", [False, True])
def test_no_folder_of_a_script_is_left(
    follower: Follower,
    begin: Callable[..., list[RunningScript]],
    stand_in: None,
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed: bool,
) -> None:
    """Nor of its workers: of a rank that is closed, and of one that was killed by the next run."""
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    begin(1, LISTENS, "gated")
    while len(follower.lines.get(0, ())) < 3:
        assert follower.news.wait(30)
        follower.news.clear()
    address, *processes = follower.lines[0]
    assert Path(address).is_relative_to(short)
    several = [os.pidfd_open(int(each)) for each in processes]
    remove_abandoned()
    assert Path(address).exists()
    if killed:
        for each in reversed(several):
            signal.pidfd_send_signal(each, signal.SIGKILL)
    else:
        follower.ranks[0].close()
    for each in several:
        assert select.select([each], [], [], 30)[0] == [each]
        os.close(each)
    if killed:
        assert Path(address).exists()
        remove_abandoned()
    assert [*short.iterdir()] == []


def test_the_next_run_removes_what_a_thread_of_a_script_wrote_into_its_folder_amid_its_removal(
    follower: Follower,
    begin: Callable[..., list[RunningScript]],
    stand_in: None,
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    begin(1, WRITES_LATE, "gated")
    while not follower.lines.get(0, ()):
        assert follower.news.wait(30)
        follower.news.clear()
    (folder,) = follower.lines[0]
    follower.ranks[0].close()
    assert Path(folder, "late").exists()
    remove_abandoned()
    assert [*short.iterdir()] == []


def test_the_whole_traceback_of_a_script_is_shown(
    follower: Follower, begin: Callable[..., list[RunningScript]], stand_in: None
) -> None:
    chain = "".join(f"def step{n}():\n    step{n + 1}()\n\n" for n in range(7))
    source = f"import torch\n{chain}def step7():\n    1 / 0\n\nstep0()  # called here\n"
    (running,) = begin(1, source, "gated")
    with pytest.raises(TrainingFailedError) as failed:
        running.result()
    text = str(failed.value)
    assert "step0()  # called here" in text
    assert [f"in step{n}\n" in text for n in range(8)] == [True] * 8
    assert "ZeroDivisionError: division by zero" in text


def test_watched_rank_does_not_wait(
    follower: Follower, begin: Callable[..., list[RunningScript]], stand_in: None
) -> None:
    for _ in range(2):
        (running,) = begin(1, ALONE, "watched", "4.5")
        assert [one.operation.kind for one in running.result()] == ["allreduce", "send"]
    assert not follower.wanted


def test_a_script_that_fails_is_quoted(
    follower: Follower, begin: Callable[..., list[RunningScript]], stand_in: None
) -> None:
    (running,) = begin(1, ALONE, "watched", "bad")
    with pytest.raises(TrainingFailedError, match="server0 failed as rank 0") as failed:
        running.result()
    assert "Connection closed by peer" in str(failed.value)
    (again,) = begin(1, ALONE, "watched", "4.5")
    assert len(again.result()) == 2


def test_an_operation_that_is_refused_ends_the_script(
    follower: Follower, begin: Callable[..., list[RunningScript]], stand_in: None
) -> None:
    follower.refused = "no rail is left: ocs did not answer"
    (running,) = begin(1, ALONE, "gated", "4.5")
    with pytest.raises(TrainingFailedError, match="no rail is left: ocs did not answer"):
        running.result()


def test_server_without_pytorch_is_reported(
    begin: Callable[..., list[RunningScript]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is none')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(NoPyTorchError, match="server0 has no PyTorch"):
        begin(1, ALONE, "watched")
