"""Upper bound of the windows in a training step (Opus Eq. 5)."""

from lightrig.harness.systems.opus.planning.operations import OpusError


def window_count(
    stages: int,
    layers: int,
    microbatches: int,
    *,
    mixed_with_fsdp: bool = True,
    mixed_with_pipeline: bool = True,
    two_symmetric: bool = True,
) -> int:
    """An upper bound of the windows in a step with FSDP, CP and EP (Opus Eq. 5, Fig. 5).

    stages, layers, microbatches: of the pipeline, of the model, of a global batch.
    mixed_with_fsdp, mixed_with_pipeline: a job has CP or EP beside them. two_symmetric: it has
    both CP and EP; that term is by far the greatest. Raises `OpusError` for layers that the
    stages do not share evenly.
    """
    if min(stages, layers, microbatches) < 1 or layers % stages:
        raise OpusError(f"{layers} layers cannot be shared by {stages} stages evenly")
    blocks = 2 * layers // stages - 1
    count = 4 * (stages - 1) + 4
    if mixed_with_fsdp:
        count += blocks
    if mixed_with_pipeline:
        count += 4 * microbatches
    if two_symmetric:
        count += 2 * microbatches * blocks
    return count
