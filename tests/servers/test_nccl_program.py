"""The program of one rank of NCCL with stand-ins for PyTorch: what it sets, gives and takes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rank_parts import SECOND, Torch, Values, block, values

from lightrig.instruments.jobs.programs import gloo_program, nccl_program
from lightrig.instruments.jobs.programs.nccl_program import _NcclWorker


class OnGpu(Values):
    """An array that must be brought back before it is read."""

    def to(self, device: object) -> "OnGpu":
        assert device == ("cuda", 1)
        return np.array(self).view(OnGpu)

    def cpu(self) -> Values:
        return values(np.array(self))

    def numpy(self) -> Any:
        raise TypeError("the block is on the GPU")


def torch_of(results: dict[str, list[Any]] | None = None, gpus: int = 2) -> Any:
    torch: Any = Torch(results)
    torch.__version__ = "2.11.0"
    torch.frombuffer = lambda data, dtype: np.frombuffer(data, dtype).view(OnGpu)
    torch.empty_like = lambda other: np.zeros_like(other).view(OnGpu)
    torch.device = lambda kind, place: (kind, place)
    torch.cuda = SimpleNamespace(
        device_count=lambda: gpus,
        set_device=lambda device: torch.asked.append(("set_device", device)),
        is_available=lambda: gpus > 0,
        nccl=SimpleNamespace(version=lambda: (2, 28, 9)),
    )
    torch.distributed.is_nccl_available = lambda: True
    return torch


def worker_of(torch: Any, rank: int = 2) -> Any:
    made: Any = _NcclWorker()
    made._torch, made._rank, made._ranks, made._device = torch, rank, 3, ("cuda", 1)
    return made


def test_a_rank_joins_over_tcp_as_a_host_of_its_own_on_one_of_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch, environment = torch_of(), dict[str, str]()
    monkeypatch.setattr(nccl_program.os, "environ", environment)
    worker = worker_of(torch)
    worker._ranks = 0
    request = {"rank": 3, "ranks": 4, "store": ["198.18.0.1", 29], "interfaces": ["fabric"]}
    worker._join({**request, "timeout_ns": 5 * SECOND, "address": "198.18.0.4"})
    assert environment == {
        "NCCL_SOCKET_IFNAME": "=fabric",  # no other whose name begins so
        "NCCL_NET": "Socket",
        "NCCL_HOSTID": "198.18.0.4",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "GLOO_SOCKET_IFNAME": "fabric",
    }
    assert torch.asked[0] == ("set_device", ("cuda", 1))  # rank 3 on two GPUs
    name, backend, more = torch.asked[2]
    assert (name, backend) == ("init_process_group", "nccl")
    assert (more["rank"], more["world_size"], more["device_id"]) == (3, 4, ("cuda", 1))
    assert more["timeout"].total_seconds() == 5


def test_blocks_go_to_the_gpu_and_come_back_when_the_operation_is_complete() -> None:
    given = block(5, 6, 7, 8, 9)
    torch = torch_of({
        "all_reduce": [[1, 2, 3, 4, 5], [10, 20], [30, 40], [50]],
        "all_to_all_single": [[9, 8, 7, 6, 5]],
    })  # fmt: skip
    rank = worker_of(torch)
    assert rank._communicate("all_reduce", given) == block(1, 2, 3, 4, 5)
    assert rank._communicate("all_to_all", given) == block(9, 8, 7, 6, 5)
    assert rank._communicate("train", given) == block(10, 20, 30, 40, 50)
    assert [each.waits for each in torch.waited] == [1] * 5
    assert [each[1] for each in torch.asked] == [
        [5, 6, 7, 8, 9], [0] * 5, [5, 6], [7, 8], [9],
    ]  # fmt: skip


def test_a_block_goes_to_the_next_rank_and_comes_from_the_one_before() -> None:
    torch, asked = torch_of(), []

    def batch(operations: list[Any]) -> list[Any]:
        asked.extend((name, each.tolist(), peer) for name, each, peer in operations)
        operations[1][1][...] = [4, 4, 4, 4, 1]
        return [SimpleNamespace(wait=lambda: asked.append("waited"))] * 2

    torch.distributed.P2POp = lambda *given: given
    torch.distributed.isend, torch.distributed.irecv = "send", "receive"
    torch.distributed.batch_isend_irecv = batch
    assert worker_of(torch)._communicate("send_receive", block(5, 6, 7, 8, 9)) == block(
        4, 4, 4, 4, 1
    )
    # Rank 2 of three.
    assert asked == [("send", [5, 6, 7, 8, 9], 0), ("receive", [0] * 5, 1), "waited", "waited"]


def test_a_missing_gpu_or_library_is_an_error_and_versions_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker: Any = _NcclWorker()
    torch = torch_of(gpus=0)
    monkeypatch.setattr(gloo_program, "load_torch", lambda: torch)
    assert worker._hello() == {"torch": None, "why": "this PyTorch finds no GPU"}
    torch = torch_of()
    torch.distributed.is_nccl_available = lambda: False
    assert worker._hello() == {"torch": None, "why": "this PyTorch has no NCCL"}
    torch.distributed.is_nccl_available = lambda: True
    assert worker._hello()["torch"] == "2.11.0, NCCL 2.28.9"
