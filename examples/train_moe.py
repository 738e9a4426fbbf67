"""A small mixture of experts, one expert a rank, with data-parallel attention: plain PyTorch.

    torchrun --nproc-per-node 4 examples/train_moe.py --steps 4

Gates send each token to the experts that score it highest; no loss balances them.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional


def announced(given):
    """Tell all ranks how many rows each is sent; return how many come from each."""
    come = torch.empty(len(given), dtype=torch.int64)
    dist.all_to_all_single(come, torch.tensor(given))
    return come.tolist()


def all_to_all(rows, given, taken):
    """Send `given` rows to each rank, and return those that come, `taken` from each."""
    out = rows.new_empty(sum(taken), rows.shape[1])
    dist.all_to_all_single(out, rows.contiguous(), taken, given)
    return out


class Exchange(torch.autograd.Function):
    """An all-to-all whose gradient goes the way back."""

    @staticmethod
    def forward(ctx, rows, given, taken):
        """Send rows."""
        ctx.shares = given, taken
        return all_to_all(rows, given, taken)

    @staticmethod
    def backward(ctx, gradient):
        """Send their gradients back."""
        given, taken = ctx.shares
        return all_to_all(gradient, taken, given), None, None


class Experts(nn.Module):
    """A gate that chooses `top` of the ranks for each token, and this rank's expert."""

    def __init__(self, width, ranks, top):
        super().__init__()
        self.top, self.ranks = top, ranks
        self.gate = nn.Linear(width, ranks, bias=False)
        self.expert = nn.Sequential(
            nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        """Dispatch tokens, apply the experts, combine what they return."""
        weights, chosen = self.gate(x).softmax(dim=-1).topk(self.top, dim=-1)
        order = chosen.flatten().argsort(stable=True)
        given = chosen.flatten().bincount(minlength=self.ranks).tolist()
        taken = announced(given)
        token = order // self.top
        come = Exchange.apply(x[token], given, taken)
        back = Exchange.apply(self.expert(come), taken, given)
        back = back * weights.flatten()[order].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, token, back)


class Block(nn.Module):
    """One layer: causal attention, then experts, each normalised before."""

    def __init__(self, width, ranks, top):
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.experts = Experts(width, ranks, top)

    def forward(self, x):
        """Add what both find."""
        batch, length, width = x.shape
        heads = (
            each.view(batch, length, 4, -1).transpose(1, 2)
            for each in self.mix(self.before(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.experts(self.between(x).flatten(0, 1)).view_as(x)


def main():
    """Train, and print each step's loss on every rank."""
    parser = argparse.ArgumentParser()
    for name, value in (("steps", 4), ("layers", 2), ("width", 64), ("length", 128), ("batch", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("tokens", 256), ("topics", 4), ("top", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    blocks = [Block(options.width, ranks, options.top) for _ in range(options.layers)]
    model = nn.Sequential(
        nn.Embedding(options.tokens, options.width),
        *blocks,
        nn.RMSNorm(options.width),
        nn.Linear(options.width, options.tokens, bias=False),
    )
    torch.manual_seed(options.seed * ranks + rank)
    for block in blocks:
        block.experts.expert.apply(lambda each: getattr(each, "reset_parameters", int)())
    mine = {id(each) for block in blocks for each in block.experts.expert.parameters()}
    shared = [each for each in model.parameters() if id(each) not in mine]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # Each rank reads of few topics, so that its tokens go to few experts.
    topics = torch.randint(options.tokens, (options.topics,))
    text = topics[torch.randint(options.topics, (options.batch, options.length + 1))]

    for step in range(options.steps):
        scores = model(text[:, :-1]).flatten(0, 1)
        loss = functional.cross_entropy(scores, text[:, 1:].flatten())
        loss.backward()
        gradient = nn.utils.parameters_to_vector([each.grad for each in shared])
        dist.all_reduce(gradient)
        nn.utils.vector_to_parameters(gradient / ranks, [each.grad for each in shared])
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        print(f"step {step} loss {loss.item()!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
