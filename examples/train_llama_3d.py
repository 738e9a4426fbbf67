"""A small Llama on tensor, data and pipeline parallelism, built as TorchTitan builds it.

    torchrun --nproc-per-node 8 examples/train_llama_3d.py --steps 4

Plain PyTorch: a device mesh of three dimensions, `parallelize_module` for tensor parallelism,
`fully_shard` (FSDP2) for data parallelism, `Schedule1F1B` for the pipeline, the gradient norm over
all three and the loss over all ranks. It knows nothing of switches and, as many scripts, leaves its
process group to the end of the process.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

GRID = {"pipeline": 2, "data": 2, "tensor": 2}
HEAD = 16


class Attention(nn.Module):
    """Causal attention; tensor parallelism shares its heads."""

    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        """Mix what stands before each position."""
        heads = [
            each(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        ]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """One layer: attention, then a gated feed-forward network, each normalised before."""

    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        """Add what both find."""
        x = x + self.attention(self.before(x))
        between = self.between(x)
        return x + self.down(functional.silu(self.gate(between)) * self.up(between))


TENSOR_PLAN = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "gate": ColwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}


def stage_of_model(stage, options):
    """The layers of one pipeline stage."""
    share = options.layers // GRID["pipeline"]
    blocks = [Block(options.width) for _ in range(share)]
    if stage == 0:
        return nn.Sequential(nn.Embedding(options.tokens, options.width), *blocks)
    head = nn.Linear(options.width, options.tokens, bias=False)
    return nn.Sequential(*blocks, nn.RMSNorm(options.width), head)


def parallelized(model, mesh):
    """Share each layer among tensor ranks, and shard all parameters over data ranks."""
    for layer in model:
        if isinstance(layer, Block):
            parallelize_module(layer, mesh["tensor"], TENSOR_PLAN)
            # As TorchTitan: with a pipeline, parameters stay until the last microbatch.
            fully_shard(layer, mesh=mesh["data"], reshard_after_forward=False)
    return fully_shard(model, mesh=mesh["data"], reshard_after_forward=False)


def clipped(model, mesh, largest):
    """Clip the gradients by their norm over all ranks of all dimensions; return the norm."""
    parameters = list(model.parameters())
    squares = []
    shared = [each for each in parameters if "tensor" in each.device_mesh.mesh_dim_names]
    alike = [each for each in parameters if "tensor" not in each.device_mesh.mesh_dim_names]
    for some in (shared, alike):
        norm = get_total_norm([each.grad for each in some])
        squares.append((norm.full_tensor() if isinstance(norm, DTensor) else norm) ** 2)
    whole = sum(squares)
    dist.all_reduce(whole, group=mesh.get_group("pipeline"))
    norm = whole.sqrt()
    for some in (shared, alike):
        clip_grads_with_norm_(some, largest, norm)
    return norm


def main():
    """Train, and print each step's loss on the ranks of the last stage."""
    parser = argparse.ArgumentParser()
    for name, value in (("steps", 4), ("width", 64), ("layers", 4), ("length", 32)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("tokens", 256), ("batch", 8), ("microbatches", 4), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device, tuple(GRID.values()), mesh_dim_names=tuple(GRID))
    stage, replica, shard = mesh.get_coordinate()
    torch.manual_seed(options.seed + stage)
    model = parallelized(stage_of_model(stage, options).to(device), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    pipeline = PipelineStage(
        model, stage, GRID["pipeline"], torch.device(device), group=mesh.get_group("pipeline")
    )

    def loss_of(out, tokens):
        return functional.cross_entropy(out.flatten(0, 1), tokens.flatten())

    schedule = Schedule1F1B(pipeline, options.microbatches, loss_fn=loss_of)
    draws = torch.Generator().manual_seed(options.seed * GRID["data"] + replica)
    # Few of the tokens, so that there is something to be learnt at once.
    text = torch.randint(
        options.tokens // 16, (options.batch, options.length + 1), generator=draws
    ).to(device)

    for step in range(options.steps):
        losses = []
        if stage == 0:
            schedule.step(text[:, :-1])
        else:
            schedule.step(target=text[:, 1:], losses=losses)
        norm = clipped(model, mesh, largest=1.0)
        optimizer.step()
        optimizer.zero_grad()
        # The mean loss, as every rank logs it: of each replica once.
        counts = stage == GRID["pipeline"] - 1 and shard == 0
        loss = torch.stack(losses).mean() if counts else torch.zeros((), device=device)
        loss = loss.detach() / GRID["data"]
        dist.all_reduce(loss)
        dist.all_reduce(norm, op=dist.ReduceOp.MAX)
        if stage == GRID["pipeline"] - 1:
            print(f"step {step} loss {loss.item()!r}")
            print(f"step {step} norm {norm.item()!r}")


if __name__ == "__main__":
    main()
