"""All-to-alls of a training script's rows, over lanes of circuits that follow them.

It is sent to servers as source, needs PyTorch there and no Lightrig. A script calls
`all_to_all_single` of torch.distributed, through whichever interface. Those of rows, which are
tensors of floating-point numbers with two or more dimensions, come here; others, such as those of
counts, go over the script's process group.

Each announces how many rows this rank sends to each, waits until the controller has the circuits
in place, and is answered with each lane's share of the rows. Lanes are the network devices of
`settings["lanes"]`, with a process group for each. Only the counts go to the controller, over its
own channel. All-to-alls run one after the other, in the order of their calls.
"""

from __future__ import annotations

import math
import queue
import time  # noqa: TID251 - runs on a server without Lightrig
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["connect"]


class LaneExchange:
    """All-to-alls of one rank.

    Args:
        torch: PyTorch.
        emit: sends a message to the controller.
        settings: `lanes`, the devices.
    """

    def __init__(
        self, torch: Any, emit: Callable[[dict[str, Any]], None], settings: dict[str, Any]
    ) -> None:
        self._torch, self._emit, self._devices = torch, emit, list(settings["lanes"])
        self._groups: list[Any] = []
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._worker = ThreadPoolExecutor(1)

    def receive(self, message: Any) -> None:
        """Take an answer of the controller; a rank has one question at a time."""
        self._answers.put(message)

    def takes(self, rows: Any) -> bool:
        """Whether a tensor is one of rows."""
        return bool(rows.is_floating_point() and rows.dim() > 1)

    def begin(
        self,
        group_on: Callable[[str, str], Any],
        rank: int,
        out: Any,
        rows: Any,
        taken: Sequence[int],
        given: Sequence[int],
    ) -> Any:
        """Begin an all-to-all; return the future of `out`.

        group_on: makes a process group of all ranks on a network device, by device and name.
        taken, given: rows from and to each rank.
        """
        future = self._torch.futures.Future()

        def run() -> None:
            try:
                if not self._groups:
                    named = enumerate(self._devices)
                    self._groups = [group_on(device, f"lane {number}") for number, device in named]
                with self._torch.no_grad():
                    self._exchange(rank, out, rows, list(taken), list(given))
            except Exception as error:  # of any type: the script gets it
                future.set_exception(error)
            else:
                future.set_result(out)

        self._worker.submit(run)
        return future

    def _exchange(self, rank: int, out: Any, rows: Any, taken: list[int], given: list[int]) -> None:
        shape = rows.shape[1:]
        self._emit({"wants": given, "size": math.prod(shape) * rows.element_size()})
        lanes = self._answers.get()["lanes"]
        began = time.monotonic_ns()
        pieces, places = list(rows.split(given)), list(out.split(taken))
        pending = []
        for lane, sent, come in lanes:
            # A lane's share of what goes to a rank, and of what comes, is the next piece of it.
            now = self._torch.cat([pieces[to][:count] for to, count in enumerate(sent)])
            pieces = [pieces[to][count:] for to, count in enumerate(sent)]
            into = [places[source][:count] for source, count in enumerate(come)]
            places = [places[source][count:] for source, count in enumerate(come)]
            landing = rows.new_empty(sum(come), *shape)
            work = self._groups[lane].alltoall_base(landing, now, come, sent)
            pending.append((work, landing, come, into))
        places[rank].copy_(pieces[rank])  # no lane has a share of what stays
        for work, landing, come, into in pending:
            work.wait()
            for place, piece in zip(into, landing.split(come), strict=True):
                place.copy_(piece)
        self._emit({"began": began, "over": time.monotonic_ns()})


connect = LaneExchange
