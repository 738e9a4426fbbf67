"""Steps of training of a transformer as graphs, by model and parallelism.

Source of the rules: the symbolic tensor graph of ASTRA-sim, as results of it show them
(tests/workloads/test_archived_steps.py): an operation is a multiplication with its addition, and
the time of a kernel that of the slower of its operations and its result.
"""

from __future__ import annotations

from lightrig.harness.workloads.graph import Device, Group, Workload, WorkloadError
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism
from lightrig.harness.workloads.transformer_stage import Stage


def workload(
    model: Model,
    parallel: Parallelism,
    tokens: int,
    device: Device,
    *,
    element_bytes: int = 1,
    fold_data: bool = False,
) -> Workload:
    """Return a step of a batch of `tokens`.

    fold_data: data-parallel ranks are one simulated rank, right where all links are their own.
    Raises `WorkloadError` where the degrees do not divide.
    """
    share = parallel.replicas * parallel.micro_batches * parallel.tensor
    if tokens % share:
        raise WorkloadError(
            f"{tokens:,} tokens are not divisible by {share} (DP, CP, micro-batches, TP)"
        )
    if parallel.pipeline > model.layers:
        raise WorkloadError(f"{model.layers} layers are too few for {parallel.pipeline} stages")
    stages = range(parallel.pipeline)
    graphs = tuple(
        Stage(
            model,
            parallel,
            tokens // parallel.replicas // parallel.micro_batches,
            device,
            stage,
            element_bytes,
            1 if fold_data else parallel.replicas,
        ).graph()
        for stage in stages
    )
    simulated = 1 if fold_data else parallel.replicas
    groups, graph_of, stage_of = [], [], []
    for stage in stages:
        members = tuple(range(stage * simulated, (stage + 1) * simulated))
        for place, rank in enumerate(members):
            first = rank - place % parallel.expert
            experts = (rank,) if fold_data else tuple(range(first, first + parallel.expert))
            same = (rank,) if fold_data else members[place % parallel.expert :: parallel.expert]
            first = rank - place % parallel.context
            shared = (rank,) if fold_data else tuple(range(first, first + parallel.context))
            groups.append(
                {
                    "dp": Group("dp", members, parallel.replicas),
                    "tp": Group("tp", (rank,), parallel.tensor),
                    "ep": Group("ep", experts, parallel.expert),
                    "edp": Group("dp", same, parallel.replicas // parallel.expert),
                    "cp": Group("cp", shared, parallel.context),
                }
            )
            graph_of.append(stage)
            stage_of.append(stage)
    folded = {"TP": parallel.tensor}
    if fold_data:
        folded |= {"DP": parallel.data, "CP": parallel.context}
    return Workload(
        graphs,
        tuple(graph_of),
        tuple(groups),
        {name: size for name, size in folded.items() if size > 1},
        tuple(stage_of),
    )
