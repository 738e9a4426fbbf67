"""A small Llama on two pipeline stages and two data-parallel replicas: plain PyTorch.

    torchrun --nproc-per-node 4 examples/train_llama.py --steps 4

It knows nothing of switches. Run by Lightrig, its collectives wait for their circuits. Parameters
are sharded over the replicas of a stage: gathered before the forward passes and again before the
backward passes, and their gradients are reduced and scattered at the end, as FSDP does it.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

STAGES, REPLICAS = 2, 2


class Attention(nn.Module):
    """Causal attention with rotary positions and fewer key heads than query heads."""

    def __init__(self, width, heads, key_heads):
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * key_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        """Mix what stands before each position."""
        batch, length, width = x.shape
        query = self.query(x).view(batch, length, self.heads, self.size)
        pairs = self.key_value(x).view(batch, length, 2 * self.key_heads, self.size)
        key, value = pairs.chunk(2, dim=2)
        share = self.heads // self.key_heads
        query, key = rotated(query), rotated(key).repeat_interleave(share, dim=2)
        value = value.repeat_interleave(share, dim=2)
        mixed = functional.scaled_dot_product_attention(
            *(each.transpose(1, 2) for each in (query, key, value)), is_causal=True
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def rotated(x):
    """Turn pairs of channels by an angle that grows with the position."""
    _, length, _, size = x.shape
    angle = torch.outer(
        torch.arange(length), 10_000.0 ** (-torch.arange(0, size, 2) / size)
    ).unsqueeze(1)
    even, odd = x[..., ::2], x[..., 1::2]
    turned = (even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos())
    return torch.stack(turned, dim=-1).flatten(-2)


class Block(nn.Module):
    """One layer: attention, then a gated feed-forward network, each normalised before."""

    def __init__(self, width):
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads=8, key_heads=2)
        self.gate_up = nn.Linear(width, 8 * width // 3 * 2, bias=False)
        self.down = nn.Linear(8 * width // 3, width, bias=False)

    def forward(self, x):
        """Add what both find."""
        x = x + self.attention(self.before(x))
        gate, up = self.gate_up(self.between(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


def stage_of_model(stage, tokens, width, layers):
    """The layers of one pipeline stage."""
    blocks = [Block(width) for _ in range(layers // STAGES)]
    if stage == 0:
        return nn.Sequential(nn.Embedding(tokens, width), *blocks)
    return nn.Sequential(*blocks, nn.RMSNorm(width), nn.Linear(width, tokens, bias=False))


class Sharded:
    """A stage's parameters as one vector, of which each replica keeps and updates its share."""

    def __init__(self, model, group, replica, rate):
        self.parameters, self.group = list(model.parameters()), group
        whole = nn.utils.parameters_to_vector(self.parameters).detach()
        whole = functional.pad(whole, (0, -len(whole) % REPLICAS))
        self.share = whole.chunk(REPLICAS)[replica].clone()
        self.whole = torch.empty_like(whole)
        self.optimizer = torch.optim.AdamW([self.share], lr=rate)

    def gather(self):
        """Bring all parameters here."""
        dist.all_gather_into_tensor(self.whole, self.share, group=self.group)
        nn.utils.vector_to_parameters(self.whole, self.parameters)

    def update(self):
        """Reduce the gradients, each replica its share of them, and make one step."""
        gradient = torch.cat([each.grad.flatten() for each in self.parameters]) / REPLICAS
        gradient = functional.pad(gradient, (0, len(self.whole) - len(gradient)))
        self.share.grad = torch.empty_like(self.share)
        dist.reduce_scatter_tensor(self.share.grad, gradient, group=self.group)
        self.optimizer.step()
        for each in self.parameters:
            each.grad = None


def main():
    """Train, and print each step's loss on the last stage."""
    parser = argparse.ArgumentParser()
    for name, value in (("steps", 4), ("width", 128), ("layers", 4), ("length", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("tokens", 256), ("batch", 4), ("microbatches", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()

    dist.init_process_group("gloo")  # the model stays on the CPU
    rank = dist.get_rank()
    stage, replica = divmod(rank, REPLICAS)
    groups = [
        dist.new_group(range(first, first + REPLICAS))
        for first in range(0, STAGES * REPLICAS, REPLICAS)
    ]
    second = (1 - stage) * REPLICAS + replica

    torch.manual_seed(options.seed)
    model = stage_of_model(stage, options.tokens, options.width, options.layers)
    sharded = Sharded(model, groups[stage], replica, rate=1e-3)
    draws = torch.Generator().manual_seed(options.seed * REPLICAS + replica)
    size = (options.microbatches, options.batch, options.length + 1)
    # Few of the tokens, so that there is something to be learnt at once.
    text = torch.randint(options.tokens // 16, size, generator=draws)

    for step in range(options.steps):
        sharded.gather()
        sent, losses = [], []
        for microbatch in text:
            if stage == 0:
                out = model(microbatch[:, :-1])
                dist.send(out.detach(), second)
                sent.append(out)
            else:
                come = torch.empty(options.batch, options.length, options.width)
                dist.recv(come, second)
                come.requires_grad_()
                tokens = model(come).flatten(0, 1)
                losses.append(functional.cross_entropy(tokens, microbatch[:, 1:].flatten()))
                sent.append(come)
        sharded.gather()
        for index, shard in enumerate(sent):
            if stage == 0:
                gradient = torch.empty_like(shard)
                dist.recv(gradient, second)
                shard.backward(gradient)
            else:
                (losses[index] / options.microbatches).backward()
                dist.send(shard.grad, second)
        sharded.update()
        if stage == STAGES - 1:
            print(f"step {step} loss {sum(each.item() for each in losses) / len(losses)!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
