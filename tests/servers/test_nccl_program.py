"""The program of one rank of NCCL with stand-ins for PyTorch: what it sets, gives and takes."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rank_parts import SECOND, Rank, Torch, Values, gloo_rank, values

from lightrig.instruments.jobs.programs.nccl_program import NcclWorker

# Of five values of rank 2 of three, as in test_rank_rounds.
GIVEN = [131075, 131078, 131081, 131084, 131087]
SUMS = [196614, 196620, 196626, 196632, 196638]
OVER = RuntimeError("over")


class OnGpu(Values):
    """An array that must be brought back before it is read."""

    def to(self, device: object) -> "OnGpu":
        assert device == ("cuda", 0)
        return np.array(self).view(OnGpu)

    def cpu(self) -> Values:
        return values(np.array(self))

    def numpy(self) -> Any:
        raise TypeError("the block is on the GPU")


def torch_of(results: dict[str, list[Any]] | None = None, gpus: int = 2) -> Any:
    torch: Any = Torch(results)
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


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the variables of this process, of which joining sets some."""
    monkeypatch.setattr(os, "environ", {})


def nccl_rank(monkeypatch: pytest.MonkeyPatch, torch: Any) -> Any:
    return gloo_rank(monkeypatch, torch, rank=2, kind=NcclWorker, address="198.18.0.3")


def test_a_rank_joins_over_tcp_as_a_host_of_its_own_on_one_of_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = torch_of()
    with nccl_rank(monkeypatch, torch) as rank:
        request = {"rank": 3, "ranks": 4, "store": ["198.18.0.1", 29], "interfaces": ["fabric"]}
        rank.ask("join", **request, timeout_ns=5 * SECOND, address="198.18.0.4")
        found = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        assert found == {
            "NCCL_SOCKET_IFNAME": "=fabric",  # no other whose name begins so
            "NCCL_NET": "Socket",
            "NCCL_HOSTID": "198.18.0.4",
            "TORCH_NCCL_BLOCKING_WAIT": "1",
            "GLOO_SOCKET_IFNAME": "fabric",
        }
    assert torch.asked[0] == ("set_device", ("cuda", 1))  # rank 3 on two GPUs
    ((name, backend, more),) = (each for each in torch.asked if each[0] == "init_process_group")
    assert (name, backend) == ("init_process_group", "nccl")
    assert (more["rank"], more["world_size"], more["device_id"]) == (3, 4, ("cuda", 1))
    assert more["timeout"].total_seconds() == 5


@pytest.mark.parametrize(
    ("collective", "results", "asked"),
    [
        ("all_reduce", [SUMS, [*SUMS[:4], 0], OVER], [GIVEN]),
        (
            "train",
            [SUMS[:2], SUMS[2:4], SUMS[4:], SUMS[:2], SUMS[2:4], SUMS[4:], OVER, OVER, OVER],
            [GIVEN[:2], GIVEN[2:4], GIVEN[4:]],
        ),
        ("all_to_all", [[3, 65542, 131081], [3, 65542, 131081], OVER], [[0] * 3]),
    ],
)
def test_blocks_go_to_the_gpu_and_come_back_when_the_operation_is_complete(
    collective: str,
    results: list[Any],
    asked: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One right result, and another that is wrong: of the first round, or in its last value."""
    operation = "all_to_all_single" if collective == "all_to_all" else "all_reduce"
    torch = torch_of({operation: results})
    with nccl_rank(monkeypatch, torch) as rank:
        state = rank.checked(collective, 5)
    assert (state["exchanges"], state["wrong"], state["failure"]) == (2, 1, "RuntimeError: over")
    assert [each[1] for each in torch.asked[: len(asked)]] == asked
    if collective == "all_to_all":
        assert torch.asked[0][2] == GIVEN[:3]
    assert [each.waits for each in torch.waited[: len(asked)]] == [1] * len(asked)


def test_a_block_goes_to_the_next_rank_and_comes_from_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rank 1 gives 2, 4, 6 ... and 65536, first those from 2 and then those from 4."""
    torch, asked = torch_of(), list[Any]()
    taken = iter([[65538, 65540, 65542, 65544, 65546], [65540, 65542, 65544, 65546, 0]])

    def batch(operations: list[Any]) -> list[Any]:
        asked.append([(name, each.tolist(), peer) for name, each, peer in operations])
        result = next(taken, None)
        if result is None:
            raise OVER
        operations[1][1][...] = result
        return [SimpleNamespace(wait=lambda: asked.append("waited"))] * 2

    torch.distributed.P2POp = lambda *given: given
    torch.distributed.isend, torch.distributed.irecv = "send", "receive"
    torch.distributed.batch_isend_irecv = batch
    with nccl_rank(monkeypatch, torch) as rank:
        state = rank.checked("send_receive", 5)
    assert (state["exchanges"], state["wrong"]) == (2, 1)
    assert asked[:3] == [[("send", GIVEN, 0), ("receive", [0] * 5, 1)], "waited", "waited"]


def test_a_missing_gpu_or_library_is_an_error_and_versions_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = Rank(NcclWorker)
    monkeypatch.setitem(sys.modules, "torch", torch_of(gpus=0))
    assert rank.ask("hello") == {"torch": None, "why": "this PyTorch finds no GPU"}
    torch = torch_of()
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.distributed.is_nccl_available = lambda: False
    assert rank.ask("hello") == {"torch": None, "why": "this PyTorch has no NCCL"}
    torch.distributed.is_nccl_available = lambda: True
    assert rank.ask("hello")["torch"] == "2.11.0, NCCL 2.28.9"
    rank.close()
