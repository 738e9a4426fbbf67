"""Common functions of the preludes in `foreign_scripts.json`; a copy stands beside that list."""

import inspect
import json
import os
import queue
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as functions
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook


def begin(seed: int | None = 7) -> None:
    """Set the seed, and print what all parameters sum up to after each step of an optimizer."""
    register_optimizer_step_post_hook(_print_sum)
    if seed is not None:
        torch.manual_seed(seed)


def elsewhere() -> None:
    """Work in a folder of its own, where files are written."""
    os.chdir(tempfile.mkdtemp())


def processors_as_accelerators() -> None:
    """Let `torch.accelerator` find four, which are the processors."""
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cpu")
    torch.accelerator.is_available = lambda: True
    torch.accelerator.device_count = lambda: 4
    torch.accelerator.device_index = lambda *_: None


def processors_for_cuda() -> None:
    """Do on processors, over Gloo, what names devices of CUDA."""
    for kind in (torch.Tensor, torch.nn.Module):
        kind.to = _on_processors(kind.to)
        kind.cuda = lambda self, *_, **__: self
    parallel = DistributedDataParallel.__init__
    DistributedDataParallel.__init__ = lambda self, module, *_, **options: parallel(
        self, module, **{**options, "device_ids": None}
    )
    group = dist.init_process_group
    dist.init_process_group = lambda backend=None, device_id=None, **options: group(
        "gloo", **options
    )
    load = torch.load
    torch.load = lambda *args, **options: load(*args, **{**options, "map_location": "cpu"})
    torch.Tensor.pin_memory = lambda self, *_: self
    torch.cuda.set_device = lambda *_: None


def attention_by_shards() -> None:
    """Compute attention on each rank's heads: on processors DTensor has no rule for it."""
    whole = functions.scaled_dot_product_attention

    def attention(query: DTensor, key: DTensor, value: DTensor, **options: Any) -> DTensor:
        found = whole(query.to_local(), key.to_local(), value.to_local(), **options)
        return DTensor.from_local(found, query.device_mesh, query.placements)

    functions.scaled_dot_product_attention = attention


def shorter_sequences(length: int) -> None:
    """Generate sequences of that many tokens with `torch.randint`."""
    generate = torch.randint
    torch.randint = lambda high, size, **options: generate(high, (size[0], length), **options)


def counting(few: int, many: int) -> Callable[..., range]:
    """Return a `range` for a script that shall count up to `many` where it counts up to `few`."""
    return lambda *given: range(many) if given == (few,) else range(*given)


def filled_when_empty() -> None:
    """Fill what `to_empty` leaves as the memory was."""
    to_empty = torch.nn.Module.to_empty

    def filled(self: torch.nn.Module, **options: Any) -> torch.nn.Module:
        to_empty(self, **options)
        for parameter in self.parameters():
            _local(parameter).data.fill_(0.01)
        return self

    torch.nn.Module.to_empty = filled


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return getattr(parameter, "_local_tensor", parameter)


def _print_sum(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    every = [p for group in optimizer.param_groups for p in group["params"]]
    print("digest", sum(float(_local(p).detach().double().sum()) for p in every), flush=True)


def _on_processors(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if "device" in options:
            options["device"] = _processor(options["device"])
        return original(self, *map(_processor, args), **options)

    return call


def _processor(value: Any) -> Any:
    """Return processors for a device of CUDA, and for the number of one."""
    named = isinstance(value, str | torch.device) and str(value).startswith(("cuda", "cpu:"))
    number = isinstance(value, int) and not isinstance(value, bool)
    return torch.device("cpu") if named or number else value


_COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
)


def stamps(folder: str) -> None:
    """Note when each rank's collectives begin and end, and when its steps end.

    In the run on circuits, by the machine's clock: lines `[group, name, begun, ended]` in a file of
    the rank, where `group` has the ranks, and `[null, "step", at, at]`. A collective is begun
    without waiting, and ends when its result is there, which a thread that waits for a processor
    may see later. Those of DistributedDataParallel's reducer are begun by a hook of its own, which
    adds up the same numbers.
    """
    if not os.environ.get("TORCHELASTIC_RUN_ID", "").startswith("circuits"):
        return
    file = open(f"{folder}/{os.environ['RANK']}", "w", encoding="utf-8")  # noqa: SIM115

    def note(group: Any, name: str, begun: int, ended: int) -> None:
        file.write(json.dumps([group, name, begun, ended]) + "\n")
        file.flush()

    def stamped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            given = inspect.signature(original).bind(*args, **options).arguments
            ranks = None
            begun = time.monotonic_ns()
            work = original(**{**given, "async_op": True})
            if work is None:  # this rank is not in the group
                return None
            ended: queue.SimpleQueue[int] = queue.SimpleQueue()

            def end(_: Any) -> None:
                ended.put(time.monotonic_ns())
                if given.get("async_op"):
                    note(ranks, name, begun, ended.get())

            ranks = dist.get_process_group_ranks(given.get("group") or dist.group.WORLD)
            work.get_future().add_done_callback(end)
            if given.get("async_op"):
                return work
            work.wait()
            note(ranks, name, begun, ended.get())
            return None

        return call

    def note_step() -> None:
        at = time.monotonic_ns()
        note(None, "step", at, at)

    for name in _COLLECTIVES:
        if hasattr(dist, name):  # the newest names are those of PyTorch 2.14
            setattr(dist, name, stamped(name, getattr(dist, name)))
    parallel = DistributedDataParallel.__init__

    def hooked(self: Any, *args: Any, **options: Any) -> None:
        parallel(self, *args, **options)
        self.register_comm_hook(self.process_group, _summed)

    DistributedDataParallel.__init__ = hooked
    register_optimizer_step_post_hook(lambda *_: note_step())


def _summed(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum up a bucket of gradients, as the reducer does without a hook."""
    part = bucket.buffer().div_(group.size())
    work = dist.all_reduce(part, group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def cuda_for_the_script() -> None:
    """Let the script itself, and no library, believe that there is CUDA."""

    def asked_by_the_script() -> bool:
        # Threads of libraries ask as well: `inspect.stack` would take them milliseconds.
        return bool(sys._getframe(1).f_globals["__name__"] == "__main__")  # noqa: SLF001

    torch.cuda.is_available = asked_by_the_script
