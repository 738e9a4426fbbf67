"""The module `mixnet` of training scripts: all-to-alls over circuits that follow their gates.

It is sent to servers as source, needs PyTorch there and no Lightrig. For each layer a script calls

- `gate(layer, given)` when its gate has chosen: how many rows this rank sends to each;
- `all_to_all(rows, given, taken, layer, phase)` for the layer's exchanges; phase is "dispatch",
  "combine", "combine gradient" or "dispatch gradient".

Both wait for the controller: the first until it knows the counts of all ranks, the second until
the circuits are in place. It answers with each lane's share of the rows. Lanes are the network
devices of `settings["lanes"]`, with a process group for each, which are made at the first gate.
Only the counts go to the controller, over its own channel; rows go over the fabric.
"""

from __future__ import annotations

import importlib
import os
import queue
import time  # noqa: TID251 - runs on a server without Lightrig
from typing import Any

__all__ = ["all_to_all", "connect", "gate", "receive"]


class _State:
    emit: Any
    lanes: list[str]
    groups: list[Any]
    answers: queue.SimpleQueue[Any]


_state = _State()


def connect(emit: Any, settings: dict[str, Any]) -> None:
    """Take the channel to the controller, and the devices of the lanes."""
    _state.emit, _state.lanes = emit, list(settings["lanes"])
    _state.groups, _state.answers = [], queue.SimpleQueue()


def receive(message: Any) -> None:
    """Take an answer of the controller; a rank has one question at a time."""
    _state.answers.put(message)


def gate(layer: int, given: list[int]) -> list[int]:
    """Announce how many rows of a layer go to each rank; return how many come from each."""
    if not _state.groups:
        _make_groups()
    _state.emit({"gate": layer, "given": list(given)})
    taken: list[int] = _state.answers.get()["taken"]
    return taken


def all_to_all(rows: Any, given: list[int], taken: list[int], layer: int, phase: str) -> Any:
    """Send `given` rows to each rank, in order; return those that come, `taken` from each."""
    distributed: Any = importlib.import_module("torch.distributed")
    size = rows.shape[1] * rows.element_size()
    _state.emit({"wants": [layer, phase], "size": size})
    lanes = _state.answers.get()["lanes"]
    began = time.monotonic_ns()
    pieces, room = list(rows.split(given)), rows.new_empty(sum(taken), rows.shape[1])
    out = list(room.split(taken))
    pending = []
    for lane, sent, come in lanes:
        # A lane's share of what goes to a rank, and of what comes, is the next piece of it.
        now = [pieces[rank][:count] for rank, count in enumerate(sent)]
        pieces = [pieces[rank][count:] for rank, count in enumerate(sent)]
        into = [out[rank][:count] for rank, count in enumerate(come)]
        out = [out[rank][count:] for rank, count in enumerate(come)]
        landing = rows.new_empty(sum(come), rows.shape[1])
        work = distributed.all_to_all_single(
            landing, _joined(now), come, sent, group=_state.groups[lane], async_op=True
        )
        pending.append((work, landing, come, into))
    local = distributed.get_rank()
    out[local].copy_(pieces[local])  # no lane has a share of what stays
    for work, landing, come, into in pending:
        work.wait()
        for place, piece in zip(into, landing.split(come), strict=True):
            place.copy_(piece)
    _state.emit({"ended": [layer, phase], "began": began, "over": time.monotonic_ns()})
    return room


def _joined(pieces: list[Any]) -> Any:
    torch: Any = importlib.import_module("torch")
    return torch.cat(pieces)


def _make_groups() -> None:
    distributed: Any = importlib.import_module("torch.distributed")
    found = os.environ["GLOO_SOCKET_IFNAME"]
    try:
        for device in _state.lanes:
            os.environ["GLOO_SOCKET_IFNAME"] = device
            _state.groups.append(distributed.new_group(backend="gloo"))
    finally:
        os.environ["GLOO_SOCKET_IFNAME"] = found
