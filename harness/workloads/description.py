"""A step of training described in a YAML file: model, degrees, batch and device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from lightrig.harness.workloads.graph import Device, Workload, WorkloadError
from lightrig.harness.workloads.transformer import workload
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism
from lightrig.testbeds.base import Part, schema_of
from lightrig.testbeds.parsing import read_as

Count = Annotated[int, Field(ge=1, le=10**9)]
Positive = Annotated[float, Field(ge=1e-9, le=1e12)]


class ModelPart(Part):
    """A transformer; with `experts` each layer has so many, of which `active` do a token."""

    layers: Count
    width: Count
    hidden: Count
    vocabulary: Count
    heads: Count = 1
    kv_heads: Count | None = None
    gated: bool = False
    experts: Count = 1
    active: Count = 1


class ParallelismPart(Part):
    """Degrees of parallelism, and how micro-batches go through stages."""

    data: Count = 1
    tensor: Count = 1
    pipeline: Count = 1
    expert: Count = 1
    context: Count = 1
    sharded: bool = False
    micro_batches: Count = 1
    schedule: Literal["1f1b", "gpipe"] = "1f1b"


class BatchPart(Part):
    """Sequences of a step in all, and tokens of each."""

    sequences: Count
    length: Count


class DevicePart(Part):
    """10^12 multiplications with their additions a second, and GB/s of memory."""

    tera_operations: Positive
    memory_gb_per_s: Positive


class Description(Part):
    """A step of training."""

    name: str
    model: ModelPart
    parallelism: ParallelismPart
    batch: BatchPart
    device: DevicePart
    element_bytes: Count = 1


class Described:
    """A described step, made into a workload with ranks folded or not."""

    def __init__(self, path: Path) -> None:
        """Read a file; raises `TestbedError` with each problem and its place."""
        self._document, _, findings = read_as(Description, path)
        document = self._document
        self.name = document.name
        model, degrees = document.model, document.parallelism
        if model.kv_heads is not None and model.heads % model.kv_heads:
            findings.add(
                ("model", "kv_heads"),
                f"found {model.kv_heads}, expected a divisor of the {model.heads} heads",
            )
        if model.active > model.experts:
            findings.add(
                ("model", "active"),
                f"found {model.active}, expected at most {model.experts} experts",
            )
        ranks = degrees.data * degrees.context
        if document.batch.length % degrees.context:
            findings.add(
                ("parallelism", "context"),
                f"found {degrees.context}, expected a divisor of the {document.batch.length:,} "
                "tokens of a sequence",
            )
        if model.experts % degrees.expert or ranks % degrees.expert:
            findings.add(
                ("parallelism", "expert"),
                f"found {degrees.expert}, expected a divisor of the {model.experts} experts and of "
                f"data x context, {ranks}",
            )
        findings.raise_if_any()
        try:
            self.workload(fold_data=True)
        except WorkloadError as error:
            findings.add(("parallelism",), str(error), of_key=True)
        findings.raise_if_any()

    def workload(self, *, fold_data: bool) -> Workload:
        """Return the step."""
        document = self._document
        given = document.model
        model = Model(
            given.layers,
            given.width,
            given.hidden,
            given.vocabulary,
            given.heads,
            given.heads if given.kv_heads is None else given.kv_heads,
            given.gated,
            given.experts,
            given.active,
        )
        degrees = document.parallelism
        parallel = Parallelism(
            degrees.data,
            degrees.tensor,
            degrees.pipeline,
            degrees.expert,
            degrees.micro_batches,
            degrees.schedule,
            degrees.context,
            degrees.sharded,
        )
        device = Device(document.device.tera_operations * 1e3, document.device.memory_gb_per_s)
        tokens = document.batch.sequences * document.batch.length
        return workload(
            model,
            parallel,
            tokens,
            device,
            element_bytes=document.element_bytes,
            fold_data=fold_data,
        )


def workload_schema() -> dict[str, Any]:
    """Return the JSON Schema of such a file."""
    return schema_of(Description, "Lightrig workload")
