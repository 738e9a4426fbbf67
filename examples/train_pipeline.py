"""A model in pipeline stages by any of PyTorch's schedules, with replicas: plain PyTorch.

    torchrun --nproc-per-node 4 examples/train_pipeline.py --schedule ZBVZeroBubble --replicas 2

Ranks count replicas fastest. Each rank has one stage or two, as the schedule needs: those of a V,
the first and the last one, or those of a loop. Gradients are summed over replicas after a step.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.nn import functional

SINGLE = ("GPipe", "1F1B")
LOOP = ("Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS")
V = ("ZBVZeroBubble", "DualPipeV")


def stages_of(rank, ranks, schedule):
    """Return the numbers of the stages of a rank, and how many there are."""
    if schedule in SINGLE:
        return [rank], ranks
    return [rank, 2 * ranks - 1 - rank if schedule in V else ranks + rank], 2 * ranks


def model_of(stage, width):
    """Return the layers of a stage."""
    torch.manual_seed(11 + stage)
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh())


def main():
    """Train, and print each step's loss on the rank of the last stage."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", choices=(*SINGLE, *LOOP, *V), default="1F1B")
    for name, value in (("replicas", 1), ("steps", 4), ("width", 48), ("microbatches", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    ranks = dist.get_world_size() // options.replicas
    mesh = init_device_mesh("cpu", (ranks, options.replicas), mesh_dim_names=("pp", "dp"))
    pipeline, data = mesh["pp"].get_group(), mesh["dp"].get_group()
    rank, replica = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()

    numbers, count = stages_of(rank, ranks, options.schedule)
    models = [model_of(number, options.width) for number in numbers]
    stages = [
        PipelineStage(model, number, count, torch.device("cpu"), group=pipeline)
        for model, number in zip(models, numbers, strict=True)
    ]
    schedule = get_schedule_class(options.schedule)(
        stages[0] if options.schedule in SINGLE else stages,
        options.microbatches,
        loss_fn=functional.mse_loss,
    )
    parameters = [each for model in models for each in model.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.01)

    draws = torch.Generator().manual_seed(5 + replica)
    for step in range(options.steps):
        given = torch.randn(3 * options.microbatches, options.width, generator=draws)
        losses = []
        inputs = [given] if 0 in numbers else []
        if count - 1 in numbers:
            schedule.step(*inputs, target=given.cumsum(0).tanh(), losses=losses)
        else:
            schedule.step(*inputs)
        if options.replicas > 1:
            gradient = nn.utils.parameters_to_vector([each.grad for each in parameters])
            dist.all_reduce(gradient, group=data)
            split = gradient.split([each.numel() for each in parameters])
            for each, part in zip(parameters, split, strict=True):
                each.grad.copy_(part.view_as(each) / options.replicas)
        optimizer.step()
        optimizer.zero_grad()
        if losses:
            print(f"step {step} loss {sum(each.item() for each in losses) / len(losses)!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
