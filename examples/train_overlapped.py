"""Two pipeline stages and two replicas that compute while their collectives are under way.

    torchrun --nproc-per-node 4 examples/train_overlapped.py --steps 8

Plain PyTorch, and nothing of switches. Each step starts the sum of its gradients, computes the
forward pass of what it can meanwhile, and waits for the sum as late as it may. Between the last
operation of one parallelism and the first of the next there is computation: a control plane that
provisions circuits ahead moves them in these windows, and one that waits for demand cannot.
"""

import argparse
import time  # noqa: TID251 - a script of its own

import torch
import torch.distributed as dist
from torch import nn

STAGES, REPLICAS = 2, 2


def computed(layer, value, seconds):
    """Pass a value through a layer again and again, for at least so long."""
    end = time.monotonic() + seconds
    out = layer(value)
    while time.monotonic() < end:
        out = layer(value)
    return out


def main():
    """Train, and print each step's loss on the last stage."""
    parser = argparse.ArgumentParser()
    for name, value in (("steps", 4), ("width", 64), ("batch", 16), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--compute", type=float, default=0.2, help="seconds between the phases")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage, replica = divmod(rank, REPLICAS)
    data = [dist.new_group([0, 1]), dist.new_group([2, 3])][stage]
    peer = (1 - stage) * REPLICAS + replica

    torch.manual_seed(options.seed + stage)
    layer = nn.Linear(options.width, options.width, bias=False)
    draws = torch.Generator().manual_seed(options.seed * REPLICAS + replica)
    shape = options.batch, options.width
    given = torch.randn(shape, generator=draws)
    rate, pending = 0.1, None

    for step in range(options.steps):
        # The forward pass of the first stage needs no other rank: it hides the change to the
        # pipeline's circuits, and the end of the sum that the step before has started.
        with torch.no_grad():
            computed(layer, given, options.compute)
        if pending is not None:
            pending.wait()
            with torch.no_grad():
                layer.weight -= rate * layer.weight.grad / REPLICAS
            layer.weight.grad = None
        if stage == 0:
            out = layer(given)
            dist.send(out.detach(), peer)
            back = torch.empty(shape)
            dist.recv(back, peer)
            out.backward(back)
        else:
            come = torch.empty(shape)
            dist.recv(come, peer)
            come.requires_grad_()
            loss = (layer(come) - given).square().mean()
            loss.backward()
            dist.send(come.grad, peer)
            print(f"step {step} loss {loss.item()!r}")
        # What is left of the backward pass hides the change to the replicas' circuits.
        with torch.no_grad():
            computed(layer, given, options.compute)
        pending = dist.all_reduce(layer.weight.grad, group=data, async_op=True)
    pending.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
