"""What a job of RailX wants: rows and columns, a number of nodes, or its parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, model_validator

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.layout import Shape
from lightrig.harness.systems.railx.planning.parallelism import NAMES, Demand
from lightrig.harness.systems.railx.planning.topologies import Kind
from lightrig.harness.systems.railx.planning.workload import Model, Parallelism, volumes

Topology: TypeAlias = Literal["auto", "hyperx", "single-link", "torus", "dragonfly"]

KINDS: Mapping[Topology, tuple[Kind, ...]] = {
    "auto": ("all-to-all", "single-link", "ring"),
    "hyperx": ("all-to-all",),
    "single-link": ("single-link",),
    "torus": ("ring",),
    "dragonfly": ("all-to-all", "single-link"),
}

_STATIC = "static"
_Degree = Annotated[int, Field(ge=1, le=4096)]
_Size = Annotated[int, Field(ge=1, le=10**12)]
_Amount = Annotated[float, Field(ge=0, le=1e24, allow_inf_nan=False)]


class Degrees(Shape):
    """Degrees of parallelism; their product is the number of chips."""

    tp: Annotated[int, Field(ge=1, le=65_536, description="On the mesh: all chips of a node")]
    cp: _Degree = 1
    ep: _Degree = 1
    dp: Annotated[
        int, Field(ge=1, le=4096, description="De, of expert layers: attention has ep x dp")
    ] = 1
    pp: _Degree = 1


class PerDimension(Shape):
    """A value for each logical dimension of the rails."""

    cp: _Amount = 0.0
    ep: _Amount = 0.0
    dp: _Amount = 0.0
    pp: _Amount = 0.0


class ModelSizes(Shape):
    """Sizes of a model, by the letters of the paper's Table 4."""

    batch: Annotated[int, Field(ge=1, le=10**12, description="B, sequences of a micro batch")]
    micro_batches: Annotated[int, Field(ge=1, le=10**12, description="N_B")]
    sequence: Annotated[int, Field(ge=1, le=10**12, description="S, tokens")]
    hidden: Annotated[int, Field(ge=1, le=10**12, description="H")]
    layers: Annotated[int, Field(ge=1, le=10**12, description="L")]
    vocabulary: Annotated[int, Field(ge=1, le=10**12, description="V")]
    heads: Annotated[int, Field(ge=1, le=10**12, description="h_A")]
    kv_heads: Annotated[int, Field(ge=1, le=10**12, description="h_KV")]
    intermediate: Annotated[int, Field(ge=1, le=10**12, description="I")]
    top_k: _Size = 1
    element_bytes: Annotated[int, Field(ge=1, le=16, description="Bytes of an element")] = 2

    def volumes(self, degrees: Degrees) -> dict[str, float]:
        """Return the bytes that a chip sends in an iteration, by logical dimension (Table 4).

        All of what data parallelism of several layers sends is taken for DP's, although the
        groups of attention layers span CP and EP too.
        """
        sizes = self.model_dump(exclude={"element_bytes"})
        ranks = Parallelism(degrees.tp, degrees.cp, degrees.ep, degrees.dp, degrees.pp)
        found = dict.fromkeys(NAMES, 0.0)
        names = {"context": "cp", "expert": "ep", "data": "dp", "pipeline": "pp"}
        for kind, volume in volumes(Model(**sizes), ranks).items():
            if name := names.get(kind.partition("-")[0]):
                found[name] += volume.elements * volume.times * self.element_bytes
        return found


_ALTERNATIVES = (("columns", "rows"), ("nodes",), ("parallelism",))
_OF_PARALLELISM = ("volumes", "model", "overlap_ms")


def _one_of(stated: tuple[str, ...]) -> dict[str, Any]:
    """Return the JSON Schema of a shape that is stated by these fields."""
    absent = [name for each in _ALTERNATIVES for name in each if name not in stated]
    fixed: dict[str, Any] = {}
    if "parallelism" in absent:
        absent += _OF_PARALLELISM
        fixed = {"even": {"const": True}, "phase": {"const": _STATIC}}
    properties = {
        **{name: {"not": {"type": "null"}} for name in stated},
        **{name: {"type": "null"} for name in absent},
        **fixed,
    }
    return {"required": [*stated], "properties": properties}


_ONE_STATEMENT: dict[str, Any] = {"oneOf": [_one_of(stated) for stated in _ALTERNATIVES]}
"""What `GridShape` refuses beyond its fields, for its JSON Schema."""


class GridShape(Shape):
    """Rows and columns of nodes, a number of nodes, or parallelism.

    Rows and columns need not be neighbours: a circuit switch joins any.
    """

    model_config = ConfigDict(json_schema_extra=_ONE_STATEMENT)

    columns: Annotated[
        int | None,
        Field(ge=0, le=4096, description="Nodes in a row; 0 with rows 0: all that work"),
    ] = None
    rows: Annotated[int | None, Field(ge=0, le=4096, description="Nodes in a column")] = None
    nodes: Annotated[
        int | None,
        Field(ge=2, le=16_777_216, description="A number of nodes alone, in place of both"),
    ] = None
    parallelism: Annotated[
        Degrees | None, Field(description="Degrees of parallelism, in place of both")
    ] = None
    volumes: Annotated[
        PerDimension | None, Field(description="Bytes that a chip sends in an iteration")
    ] = None
    model: Annotated[ModelSizes | None, Field(description="In place of volumes")] = None
    overlap_ms: Annotated[
        PerDimension | None, Field(description="Computation that communication can overlap with")
    ] = None
    even: Annotated[
        bool, Field(description="Each chip row and column gives a dimension as many rails")
    ] = True
    phase: Annotated[
        Literal["static", "cp", "ep", "dp", "pp"],
        Field(description="static: rails are divided; else this dimension has all it shares"),
    ] = "static"
    topology: Annotated[
        Topology,
        Field(description="auto: the first that is possible; of parallelism, that of EP"),
    ] = "auto"

    CHANGEABLE: ClassVar[frozenset[str]] = frozenset({"phase", "volumes", "model", "overlap_ms"})

    @model_validator(mode="after")
    def _one_statement(self) -> GridShape:
        stated = [
            self.columns is not None or self.rows is not None,
            self.nodes is not None,
            self.parallelism is not None,
        ]
        if sum(stated) != 1 or (self.columns is None) != (self.rows is None):
            raise ValueError("expected one of columns with rows, nodes, and parallelism")
        beside = [self.volumes, self.model, self.overlap_ms]
        if self.parallelism is None and (any(beside) or self.phase != _STATIC or not self.even):
            raise ValueError(
                "volumes, model, overlap_ms, even and phase belong to a job that states parallelism"
            )
        return self

    def basis(self) -> dict[str, object]:
        """Return what the rails of a running job are divided by, as JSON has it."""
        return self.model_dump(mode="json", include={*self.CHANGEABLE})

    def demands(self, chips: int | None, *, has_rates: bool) -> dict[str, Demand]:
        """Return what each logical dimension wants of the rails of a node of `chips`.

        Raises `OrchestrationError` for what contradicts the fabric or itself.
        """
        degrees = self.parallelism
        assert degrees is not None, "the shape states no parallelism"
        if chips is not None and degrees.tp != chips:
            raise OrchestrationError(
                f"found tp {degrees.tp}, expected {chips}: TP is on the mesh of a node's chips"
            )
        sizes = {name: getattr(degrees, name) for name in NAMES}
        split = [name for name in NAMES if sizes[name] > 1]
        if self.topology == "dragonfly":
            raise OrchestrationError("a dragonfly is stated by columns and rows")
        if self.phase != _STATIC and self.phase not in split:
            raise OrchestrationError(
                f"found phase {self.phase} of degree 1, expected static or one of "
                f"{', '.join(split) or 'no dimension'}"
            )
        if (self.volumes is None) == (self.model is None):
            raise OrchestrationError(
                "expected one of volumes and model, by which rails are divided (equation 11)"
            )
        if self.overlap_ms and not has_rates:
            raise OrchestrationError("found overlap_ms, and NIC ports of more than one rate")
        sent = self.model.volumes(degrees) if self.model else self._stated(self.volumes)
        if silent := [name for name in split if not sent[name]]:
            raise OrchestrationError(f"found no volume of {', '.join(silent)}, of a degree above 1")
        overlap = self._stated(self.overlap_ms)
        return {
            name: Demand(
                name,
                sizes[name],
                KINDS[self.topology] if name == "ep" else ("ring",),
                sent[name] * (chips or degrees.tp),
                overlap[name] * 1e6,
            )
            for name in NAMES
        }

    @staticmethod
    def _stated(found: PerDimension | None) -> dict[str, float]:
        return {name: getattr(found, name) if found else 0.0 for name in NAMES}
