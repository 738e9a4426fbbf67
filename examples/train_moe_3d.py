"""A mixture of experts by tensor, pipeline, data and expert parallelism: plain PyTorch.

    torchrun --nproc-per-node 8 examples/train_moe_3d.py --tp 2 --pp 2 --ep 2

Ranks count tensor parallelism fastest, then data parallelism, and stages of the pipeline slowest.
The ranks of a stage with the same part of tensors are replicas of each other: `ep` neighbours of
them exchange tokens, an expert each. Tensor-parallel ranks have the same tokens and each a part of
every expert. `--recompute` keeps no activations of layers, and every `--evaluate` steps there is a
pass without gradients.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class AllToAll(torch.autograd.Function):
    """Rows to the ranks of a group, whose gradients go the way back."""

    @staticmethod
    def forward(ctx, rows, given, taken, group):
        """Send `given` rows to each rank; return those that come, `taken` from each."""
        ctx.shares = given, taken, group
        out = rows.new_empty(sum(taken), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), taken, given, group=group)
        return out

    @staticmethod
    def backward(ctx, gradient):
        """Send gradients back."""
        given, taken, group = ctx.shares
        return AllToAll.apply(gradient, taken, given, group), None, None, None


class Sum(torch.autograd.Function):
    """The sum over the ranks of a group, whose gradients stay."""

    @staticmethod
    def forward(ctx, part, group):
        """Add up."""
        part = part.clone()
        dist.all_reduce(part, group=group)
        return part

    @staticmethod
    def backward(ctx, gradient):
        """Leave the gradient."""
        return gradient, None


class Copy(torch.autograd.Function):
    """The same on the ranks of a group, whose gradients are added up."""

    @staticmethod
    def forward(ctx, whole, group):
        """Leave it."""
        ctx.group = group
        return whole

    @staticmethod
    def backward(ctx, gradient):
        """Add up gradients."""
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Layer(nn.Module):
    """A mixing layer on all, then experts: this rank has its part of one."""

    def __init__(self, width, groups, tensor_parts):
        super().__init__()
        self.groups, self.members = groups, dist.get_world_size(groups["ep"])
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.gate = nn.Linear(width, self.members, bias=False)
        self.up = nn.Linear(width, 2 * width // tensor_parts, bias=False)
        self.down = nn.Linear(2 * width // tensor_parts, width, bias=False)

    def forward(self, x):
        """Send each token to the expert that its gate likes best, and back."""
        x = x + torch.tanh(self.mix(x))
        rows = self.norm(x)
        weight, chosen = self.gate(rows).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        given = chosen.bincount(minlength=self.members)
        taken = torch.empty_like(given)
        dist.all_to_all_single(taken, given, group=self.groups["ep"])
        given, taken = given.tolist(), taken.tolist()
        come = AllToAll.apply(rows[order], given, taken, self.groups["ep"])
        within = functional.silu(self.up(Copy.apply(come, self.groups["tp"])))
        come = Sum.apply(self.down(within), self.groups["tp"])
        back = AllToAll.apply(come, taken, given, self.groups["ep"])
        return x + torch.zeros_like(x).index_copy(0, order, back) * weight.unsqueeze(-1)


def groups_of(options, ranks, rank):
    """Return this rank's groups, which all ranks make in the same order."""
    replicas = ranks // options.tp // options.pp
    found = {}

    def make(name, members):
        group = dist.new_group(members)
        if rank in members:
            found[name] = group

    def at(stage, replica, part):
        return (stage * replicas + replica) * options.tp + part

    for stage in range(options.pp):
        for replica in range(replicas):
            make("tp", [at(stage, replica, part) for part in range(options.tp)])
        for part in range(options.tp):
            make("dp", [at(stage, replica, part) for replica in range(replicas)])
            for first in range(0, replicas, options.ep):
                make("ep", [at(stage, first + place, part) for place in range(options.ep)])
    for place in range(options.ep):  # replicas of one expert
        for stage in range(options.pp):
            for part in range(options.tp):
                same = range(place, replicas, options.ep)
                make("experts", [at(stage, replica, part) for replica in same])
    return found


def main():
    """Train, and print each step's loss on the ranks of the last stage."""
    parser = argparse.ArgumentParser()
    for name, value in (("tp", 1), ("pp", 1), ("ep", 2), ("steps", 4), ("layers", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("width", 32), ("tokens", 64), ("micro", 1), ("evaluate", 0), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--recompute", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups = groups_of(options, ranks, rank)
    each = ranks // options.pp
    stage, replica, part = rank // each, rank % each // options.tp, rank % options.tp
    torch.manual_seed(options.seed + stage)
    layers = nn.ModuleList(Layer(options.width, groups, options.tp) for _ in range(options.layers))
    torch.manual_seed(1000 * options.seed + 100 * stage + 10 * (replica % options.ep) + part)
    for layer in layers:
        layer.up.reset_parameters()
        layer.down.reset_parameters()
    experts = {id(one) for layer in layers for one in (layer.up.weight, layer.down.weight)}
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.05)
    torch.manual_seed(10 * options.seed + replica)
    text = torch.randn(options.micro, options.tokens, options.width)
    aim = torch.randn(options.micro, options.tokens, options.width)
    before, after = rank - each, rank + each

    def forward(micro):
        x = text[micro]
        if stage:
            x = torch.empty_like(x)
            dist.recv(x, before)
        come = x.requires_grad_()
        x = come
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False) if options.recompute else layer(x)
        if after < ranks:
            dist.send(x.detach(), after)
        return come, x

    for step in range(options.steps):
        if options.evaluate and step % options.evaluate == 0:
            with torch.no_grad():
                for layer in layers:  # of this stage alone, on its first micro-batch
                    layer(text[0].detach())
        total = 0.0
        for micro in range(options.micro):
            come, x = forward(micro)
            if after < ranks:
                gradient = torch.empty_like(x)
                dist.recv(gradient, after)
                x.backward(gradient)
            else:
                loss = functional.mse_loss(x, aim[micro]) / options.micro
                loss.backward()
                total += loss.item()
            if stage:
                dist.send(come.grad, before)
            come.grad = None
        for one in layers.parameters():
            group = groups["experts" if id(one) in experts else "dp"]
            dist.all_reduce(one.grad, group=group)
            one.grad /= each // options.tp
        optimizer.step()
        optimizer.zero_grad()
        if after >= ranks:
            print(f"step {step} loss {total!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
