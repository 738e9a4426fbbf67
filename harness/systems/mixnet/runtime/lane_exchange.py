"""All-to-alls of a training script's rows, over lanes of circuits that follow them.

It is sent to servers as source, needs PyTorch there and no Lightrig. A script calls
`all_to_all_single` of torch.distributed, through whichever interface. Those of rows, which are
tensors of floating-point numbers with two or more dimensions, come here; others, such as those of
counts, go over the script's process group.

An all-to-all may be of some ranks alone, which exchange rows with no others. `settings["regions"]`
lists the ranks whose rows may pass over each other's NICs; all of a region begin the same
all-to-alls in the same order. Below, a rank is its place in its region.

Each announces how many rows this rank sends to each, waits until the controller has the circuits
in place, and is answered with its stages: `[number, sends, receives]`, where a send is `[lane,
rank, pieces]` and a piece `[source, sink, first, count]`, the rows of the flow between two ranks
from its `first` on. Rows are gathered within a server at the ranks that delegate for its NIC ports,
exchanged between those, and scattered within the other server. Odd stages are between servers, but
for what stays within one, which runs beside them. Lanes are the network devices of
`settings["lanes"]`, with a process group for each, and lane -1 is the group of the ranks of one
server, which `settings["servers"]` lists, over its loopback. Only the counts go to the controller,
over its own channel. All-to-alls run one after the other, in the order of their calls.
Without lanes those of rows are announced as they come, and go over the script's process group: with
their ranks, and whether they are of a forward pass, of one that a backward pass repeats for a layer
whose activations were not kept, or of gradients. Those of ranks of one server are none of these.

Sums of all ranks go over rings of packets where `settings["rings"]` has some, `[device, gateways]`
each: every ring adds up its part of a tensor, within a server at its gateway in the order of the
ranks, then from gateway to gateway, and the sum goes back the same way. So additions always have
the same order.
"""

from __future__ import annotations

import math
import queue
import sys
import time  # noqa: TID251 - runs on a server without Lightrig
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["connect"]

_SCALE_UP = -1
"""Stands for the group within a server where otherwise a lane's number does."""


class LaneExchange:
    """All-to-alls of one rank.

    Args:
        torch: PyTorch.
        emit: sends a message to the controller.
        settings: `lanes`, the devices; `servers` and `regions`, the ranks of each; `rings`, those
            of sums.
    """

    def __init__(
        self, torch: Any, emit: Callable[[dict[str, Any]], None], settings: dict[str, Any]
    ) -> None:
        self._torch, self._emit, self._devices = torch, emit, list(settings["lanes"])
        self._servers = [list(ranks) for ranks in settings["servers"]]
        self._regions = [list(ranks) for ranks in settings["regions"]]
        self._groups: dict[int, Any] = {}
        rings = settings["rings"]
        self._rings = Rings(torch, rings, self._servers) if rings else None
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._worker = ThreadPoolExecutor(1)

    def receive(self, message: Any) -> None:
        """Take an answer of the controller; a rank has one question at a time."""
        self._answers.put(message)

    def takes(self, rows: Any, ranks: Sequence[int], given: Sequence[int]) -> bool:
        """Whether an all-to-all is one of rows between servers, only counted without lanes.

        given: rows to each of `ranks`.
        """
        taken = bool(rows.is_floating_point() and rows.dim() > 1)
        if not taken or any(set(ranks) <= set(server) for server in self._servers):
            return False
        if not self._devices:
            self._emit({"counted": list(given), "ranks": list(ranks), "part": part_of_step()})
            return False
        return True

    def adds(self, tensor: Any) -> bool:
        """Whether the sum of a tensor over all ranks goes over rings, which need a part each."""
        return (
            self._rings is not None
            and bool(tensor.is_floating_point())
            and tensor.numel() >= self._rings.parts
        )

    def add(self, group_on: Callable[..., Any], rank: int, tensor: Any) -> Any:
        """Begin to add up a tensor over all ranks; return the future of it in a list."""
        assert self._rings is not None
        if rank == 0:
            self._emit({"added": tensor.numel() * tensor.element_size()})
        return self._rings.begin(group_on, rank, tensor)

    def begin(
        self,
        group_on: Callable[..., Any],
        rank: int,
        ranks: Sequence[int],
        out: Any,
        rows: Any,
        taken: Sequence[int],
        given: Sequence[int],
    ) -> Any:
        """Begin an all-to-all; return the future of `out`.

        group_on: makes a process group on a network device, by device, name and ranks.
        rank, ranks: this one, and those that it exchanges rows with. taken, given: rows from and to
            each of them.
        """
        future = self._torch.futures.Future()

        def run() -> None:
            try:
                if not self._groups:
                    self._connect(group_on, rank)
                place = [self._region.index(one) for one in ranks]
                with self._torch.no_grad():
                    self._exchange(self._region.index(rank), place, out, rows, taken, given)
            except Exception as error:  # of any type: the script gets it
                future.set_exception(error)
            else:
                future.set_result(out)

        self._worker.submit(run)
        return future

    def _connect(self, group_on: Callable[..., Any], rank: int) -> None:
        self._region = next(ranks for ranks in self._regions if rank in ranks)
        for number, device in enumerate(self._devices):
            self._groups[number] = group_on(device, f"lane {number}", self._region)
        here = next(ranks for ranks in self._servers if rank in ranks)
        self._here = [self._region.index(one) for one in here]
        if len(here) > 1:
            self._groups[_SCALE_UP] = group_on("lo", "scale-up", here)

    def _exchange(
        self,
        rank: int,
        ranks: Sequence[int],
        out: Any,
        rows: Any,
        taken: Sequence[int],
        given: Sequence[int],
    ) -> None:
        shape = rows.shape[1:]
        wanted = [0] * len(self._region)
        for peer, count in zip(ranks, given, strict=True):
            wanted[peer] = count
        self._emit({"wants": wanted, "size": math.prod(shape) * rows.element_size()})
        stages = self._answers.get()["stages"]
        began = time.monotonic_ns()
        sent = dict(zip(ranks, rows.split(list(given)), strict=True))
        places = dict(zip(ranks, out.split(list(taken)), strict=True))
        passing: dict[tuple[int, int, int], Any] = {}

        def of(source: int, sink: int, first: int, count: int) -> Any:
            if source == rank:
                return sent[sink][first : first + count]
            return passing.pop((source, sink, first))

        def land(work: Any, landing: Any, pieces: Any) -> None:
            work.wait()
            parts = landing.split([count for *_, count in pieces])
            for (source, sink, first, count), part in zip(pieces, parts, strict=True):
                if sink == rank:
                    places[source][first : first + count].copy_(part)
                else:
                    passing[source, sink, first] = part

        beside: list[Any] = []
        leaving: list[Any] = []
        for stage, sends, receives in stages:
            coming: list[Any] = []
            for lane, peer, pieces in receives:
                landing = rows.new_empty(sum(count for *_, count in pieces), *shape)
                work = self._groups[lane].recv([landing], self._number(lane, peer), stage)
                # What stays within a server waits for nothing, and nothing waits for it.
                later = beside if lane == _SCALE_UP and stage % 2 else coming
                later.append((work, landing, pieces))
            for lane, peer, pieces in sends:
                batch = self._torch.cat([of(*piece) for piece in pieces])
                work = self._groups[lane].send([batch], self._number(lane, peer), stage)
                leaving.append((work, batch))  # kept until it has left
            for each in coming:
                land(*each)
        places[rank].copy_(sent[rank])
        for each in beside:
            land(*each)
        for work, _ in leaving:
            work.wait()
        self._emit({"began": began, "over": time.monotonic_ns()})

    def _number(self, lane: int, rank: int) -> int:
        """Return a rank's number in a lane's group."""
        return self._here.index(rank) if lane == _SCALE_UP else rank


class Rings:
    """Sums over all ranks, part by part on rings of the servers' gateways.

    Args:
        torch: PyTorch.
        rings: device and gateways of each, a gateway of each server in the order of the ring.
        servers: the ranks of each.
    """

    def __init__(self, torch: Any, rings: Sequence[Any], servers: Sequence[Sequence[int]]) -> None:
        self._torch, self._rings, self._servers = torch, rings, servers
        self.parts = len(rings) * len(servers)
        self._within: Any = None
        self._groups: list[Any] = []
        self._worker = ThreadPoolExecutor(1)

    def begin(self, group_on: Callable[..., Any], rank: int, tensor: Any) -> Any:
        """Begin to add up `tensor` over all ranks, in place; return the future of it in a list."""
        future = self._torch.futures.Future()

        def run() -> None:
            try:
                if not self._groups:
                    self._connect(group_on, rank)
                with self._torch.no_grad():
                    self._add(rank, tensor)
            except Exception as error:  # of any type: the script gets it
                future.set_exception(error)
            else:
                future.set_result([tensor])

        self._worker.submit(run)
        return future

    def _connect(self, group_on: Callable[..., Any], rank: int) -> None:
        self._here = next(ranks for ranks in self._servers if rank in ranks)
        if len(self._here) > 1:
            self._within = group_on("lo", "sums", self._here)
        for number, (device, _) in enumerate(self._rings):
            self._groups.append(group_on(device, f"ring {number}"))

    def _add(self, rank: int, tensor: Any) -> None:
        flat = tensor.reshape(-1)
        parts = [part.contiguous() for part in flat.tensor_split(len(self._rings))]
        gateways = [next(one for one in of if one in self._here) for _, of in self._rings]
        leaving, coming = [], []
        for number, gateway in enumerate(gateways):
            if gateway != rank:
                place, added = self._here.index(gateway), parts[number].clone()
                leaving.append((self._within.send([parts[number]], place, number), parts[number]))
                coming.append(self._within.recv([added], place, number))
                parts[number] = added
        for number, gateway in enumerate(gateways):
            if gateway == rank:
                parts[number] = self._gather(rank, parts[number], number)
                self._around(rank, parts[number], number)
                for place, peer in enumerate(self._here):
                    if peer != rank:
                        work = self._within.send([parts[number]], place, number)
                        leaving.append((work, parts[number]))
        # A send ends once its peer receives: all receive before one waits for a send.
        for work in (*coming, *(work for work, _ in leaving)):
            work.wait()
        flat.copy_(self._torch.cat(parts))
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view_as(tensor))

    def _gather(self, rank: int, mine: Any, number: int) -> Any:
        """Return the sum of a part within the server, in the order of its ranks."""
        come = []
        for place, peer in enumerate(self._here):
            part = mine if peer == rank else mine.new_empty(mine.shape)
            work = None if peer == rank else self._within.recv([part], place, number)
            come.append((part, work))
        total = None
        for part, work in come:
            if work is not None:
                work.wait()
            total = part.clone() if total is None else total.add_(part)
        return total

    def _around(self, rank: int, total: Any, number: int) -> None:
        """Add up a part over the gateways of its ring, in place."""
        group, gateways = self._groups[number], self._rings[number][1]
        count, place = len(gateways), gateways.index(rank)
        after, before = gateways[(place + 1) % count], gateways[place - 1]
        chunks = total.tensor_split(count)
        for step in range(2 * (count - 1)):
            adds = step < count - 1
            out = chunks[(place - step) % count]
            into = chunks[(place - step - 1) % count]
            landing = into.new_empty(into.shape)
            come = group.recv([landing], before, number)
            work = group.send([out.contiguous()], after, number)
            come.wait()
            into.copy_(landing + into if adds else landing)
            work.wait()


_TO_LOOK = 200
"""Frames of Python that are looked through for who has begun an all-to-all."""


def part_of_step() -> str:
    """Return where this thread is: "forward", "gradient", or "again".

    That is a forward pass that a backward pass repeats, by PyTorch's checkpoint or a function of a
    similar name. PyTorch's engine of gradients is called from Python and calls back into it.
    """
    frame, repeats = sys._getframe(1), False  # noqa: SLF001 - Python's way to the callers
    for _ in range(_TO_LOOK):
        code = frame.f_code
        if code.co_name in ("_engine_run_backward", "run_backward"):
            return "again" if repeats else "gradient"
        repeats = repeats or "checkpoint" in f"{code.co_filename} {code.co_qualname}".lower()
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "forward"


connect = LaneExchange
