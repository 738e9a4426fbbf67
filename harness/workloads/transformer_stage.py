"""The graph of a stage of a transformer's pipeline: layers, embeddings, gradients and messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lightrig.harness.workloads.graph import Device, Graph, GraphBuilder, Kind, Node, Pattern
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism

Key = tuple[str | int, ...]
Adder = Callable[..., Any]
_GATHER, _SCATTER, _REDUCE = Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE
_EXCHANGE = Pattern.ALL_TO_ALL
_EXPERTS = ("up.", "gate.", "down.")
"""How the names of nodes of experts' matrices begin."""


class Stage:
    """The graph of a stage of the pipeline.

    tokens: of a micro-batch of a replica. stage: its place in the pipeline. stride: how many
    simulated ranks a stage has.
    """

    def __init__(
        self,
        model: Model,
        parallel: Parallelism,
        tokens: int,
        device: Device,
        stage: int,
        element_bytes: int,
        stride: int,
    ) -> None:
        self._model, self._parallel, self._stage = model, parallel, stage
        self._tokens, self._device, self._bytes = tokens, device, element_bytes
        self._stride = stride
        self._part = tokens * model.width // parallel.tensor
        self._builder = GraphBuilder(f"stage {stage}")
        each, more = divmod(model.layers, parallel.pipeline)
        self._layers = range(each + (stage < more))
        self._first, self._last = stage == 0, stage == parallel.pipeline - 1
        self._micro = 0
        self._phase: str | None = None
        self._after: tuple[Key, ...] = ()
        self._gradients: dict[int, list[Key]] = {layer: [] for layer in self._layers}
        self._reduced: dict[int, list[Key]] = {layer: [] for layer in self._layers}

    def graph(self) -> Graph:
        """Return the graph: layers, reductions of gradients, embeddings, sends and receives."""
        if self._parallel.micro_batches == 1:
            for layer in self._layers:
                self._layer(layer)
                self._reduction(layer)
            self._embedding()
        else:
            self._tasks()
            for layer in reversed(self._layers):
                self._reduction(layer)
        self._updates()
        for micro in range(self._parallel.micro_batches):
            self._micro = micro
            self._neighbours()
        return self._builder.build()

    def _tasks(self) -> None:
        """Add passes in the order of the schedule, each after the one before."""
        parallel = self._parallel
        count = parallel.micro_batches
        warm = (
            count if parallel.schedule == "gpipe" else min(count, parallel.pipeline - self._stage)
        )
        order = [("forward", micro) for micro in range(warm)]
        for micro in range(count):
            order.append(("backward", micro))
            if warm + micro < count:
                order.append(("forward", warm + micro))
        for self._phase, self._micro in order:
            layers = self._layers if self._phase == "forward" else reversed(self._layers)
            if self._phase == "backward":
                self._embedding()
            elif self._first:
                product = (
                    self._tokens // parallel.tensor * self._model.width * self._model.vocabulary
                )
                needs = [*self._after, *self._whole("input")]
                self._compute(("input", self._micro, "y"), needs, product, self._part)
            for layer in layers:
                self._layer(layer)
            if self._phase == "forward":
                self._embedding()
                end = self._output() if not self._last else ("output", self._micro, "y")
            else:
                end = (self._micro, 0, "norm1.dx")
            self._after = (end,)
        self._phase = None

    def _input(self) -> Key:
        """Return what the first layer takes."""
        return ("input", self._micro, "y") if self._first else ("receive", self._micro, "forward")

    def _output(self) -> Key:
        """Return what the last layer gives."""
        return (self._micro, self._layers[-1], "residual2")

    def _gradient(self) -> Key:
        """Return the gradient that the last layer takes."""
        return ("output", self._micro, "dx") if self._last else ("receive", self._micro, "backward")

    def _compute(self, key: Key, needs: Sequence[Key], operations: int, written: int) -> None:
        time = self._device.nanoseconds(operations, written * self._bytes)
        node = Node(
            Kind.COMPUTE,
            (),
            nanoseconds=time,
            name=str(key[-1]),
            operations=operations,
            written=written * self._bytes,
        )
        self._builder.add(key, needs, node)

    def _collective(
        self, key: Key, needs: Sequence[Key], group: str, pattern: Pattern, elements: int
    ) -> None:
        node = Node(
            Kind.COLLECTIVE, (), 0, pattern, elements * self._bytes, group, name=str(key[-1])
        )
        self._builder.add(key, needs, node)

    def _layer(self, layer: int) -> None:
        """Add a layer's nodes in the archive's order, or those of one pass alone."""
        micro, model, t = self._micro, self._model, self._parallel.tensor
        a, tokens, d, kv = (
            self._part,
            self._tokens,
            model.width,
            self._part * model.kv_heads // model.heads,
        )
        packed = d + 2 * model.kv_width
        wanted = self._phase

        def key(name: str) -> Key:
            return (micro, layer, name)

        def compute(
            phase: str, name: str, needs: Sequence[str | Key], operations: int, written: int
        ) -> None:
            if wanted in {None, phase}:
                self._compute(key(name), _keys(key, needs), operations, written)

        def collective(
            phase: str,
            name: str,
            needs: Sequence[str | Key],
            pattern: Pattern,
            size: int,
            group: str = "tp",
        ) -> None:
            if wanted in {None, phase}:
                self._collective(key(name), _keys(key, needs), group, pattern, size)

        below: Key = self._input() if layer == 0 else (micro, layer - 1, "residual2")
        above: Key = (
            self._gradient() if layer == self._layers[-1] else (micro, layer + 1, "norm1.dx")
        )
        first = self._after if layer == 0 else ()
        last = self._after if layer == self._layers[-1] else ()
        projected, output = tokens * d * packed // t, tokens * d * d // t
        self._gathers(collective, layer)
        compute("forward", "norm1.y", [below, *first], 5 * a, a)
        compute("backward", "norm1.sum", ["qkv.scatter", "norm2.dx"], a, a)
        compute("backward", "norm1.dx", ["norm1.sum"], 5 * a, a)
        needs = ["qkv.gather", *self._gathered("forward", "dp")]
        compute("forward", "qkv", needs, projected, a + 2 * kv)
        collective("forward", "qkv.gather", ["norm1.y"], _GATHER, a)
        for name, size in (("q", a), ("k", kv), ("v", kv)):
            compute("forward", name, ["qkv"], size, size)
        keys_values = self._context(collective, kv)
        compute("forward", "o", ["attention"], output, tokens * d)
        collective("forward", "o.scatter", ["o"], _SCATTER, tokens * d)
        collective("backward", "o.gather", ["norm2.dx"], _GATHER, a)
        compute("backward", "attention.dy", ["o.gather"], output, a)
        compute("backward", "o.dw", ["o.gather", "attention"], output, d * d // t)
        grouped = model.kv_heads != model.heads
        dk, dv = ("dk.kv", "dv.kv") if grouped else ("dk", "dv")
        given = ["dkv.scatter"] if self._parallel.context > 1 else [dk, dv]
        compute("backward", "dkv", given, 2 * kv, 2 * kv)
        compute("backward", "dqkv", ["dq", "dkv"], a + 2 * kv, a + 2 * kv)
        compute("backward", "qkv.dw", ["dqkv", "qkv.regather"], projected, d * packed // t)
        collective("backward", "qkv.regather", ["norm1.y"], _GATHER, a)
        compute("backward", "qkv.dx", ["dqkv"], projected, tokens * d)
        collective("backward", "qkv.scatter", ["qkv.dx"], _SCATTER, tokens * d)
        compute("forward", "attention", ["q", *keys_values], 3 * a, a)
        given = ["attention.dy"] + ["kv.regather"] * (self._parallel.context > 1)
        compute("backward", "dq", given, 6 * a, a)
        for name in ("dk", "dv"):
            compute("backward", name, given, 6 * a, a)
            if grouped:
                compute("backward", f"{name}.kv", [name], kv, kv)
        compute("forward", "residual1", [below, "o.scatter"], a, a)
        compute("forward", "norm2.y", ["residual1"], 5 * a, a)
        compute("backward", "norm2.sum", ["ffn.dx.scatter", above], a, a)
        compute("backward", "norm2.dx", ["norm2.sum"], 5 * a, a)
        self._feed_forward(compute, collective, above, last)
        compute("forward", "residual2", ["residual1", "ffn.scatter"], a, a)
        if wanted != "forward":
            gradients = ["qkv.dw", "o.dw", "gate.dw", "down.dw"] + ["up.dw"] * model.gated
            self._gradients[layer] += [key(name) for name in gradients]

    def _parameters(self) -> dict[str, tuple[int, int]]:
        """Return the parameters of a layer that one rank has, and how many ranks have the same.

        By group: those of experts that ranks share are apart from all else.
        """
        model, parallel = self._model, self._parallel
        attention = model.width * (2 * model.width + 2 * model.kv_width)
        ffn = (3 if model.gated else 2) * model.width * model.hidden * model.experts
        if parallel.expert == 1:
            return {"dp": ((attention + ffn) // parallel.tensor, parallel.replicas)}
        experts = ffn // parallel.expert // parallel.tensor
        return {
            "dp": (attention // parallel.tensor, parallel.replicas),
            "edp": (experts, parallel.replicas // parallel.expert),
        }

    def _gathered(self, phase: str, *groups: str) -> list[str]:
        """Return the names of gathers of a layer's parameters for a pass; all without `groups`."""
        if not self._parallel.sharded:
            return []
        found = self._parameters().items()
        return [
            f"weights.{phase}.{group}"
            for group, (_, same) in found
            if same > 1 and group in (groups or (group,))
        ]

    def _gathers(self, collective: Adder, layer: int) -> None:
        """Gather a layer's parameters while the layer before it works, in either direction."""
        micro, parameters = self._micro, self._parameters()
        ahead: list[Key] = [(micro, layer - 1, "norm1.y")] if layer else list(self._after)
        behind: Key = (
            (micro, layer, "residual2")
            if layer == self._layers[-1]
            else (micro, layer + 1, "inside.dx")
        )
        for phase, needs in (("forward", ahead), ("backward", [behind])):
            for name in self._gathered(phase):
                group = name.rpartition(".")[2]
                size, same = parameters[group]
                collective(phase, name, needs, _GATHER, -(-size // same), group)

    def _context(self, collective: Adder, kv: int) -> list[str]:
        """Gather the keys and values of a sequence's other parts; return what attention takes.

        Backward they are gathered again, and their gradients reduced to the ranks that have them.
        """
        context = self._parallel.context
        if context == 1:
            return ["k", "v"]
        grouped = self._model.kv_heads != self._model.heads
        gradients = ["dk.kv", "dv.kv"] if grouped else ["dk", "dv"]
        collective("forward", "kv.gather", ["k", "v"], _GATHER, 2 * kv, "cp")
        collective("backward", "kv.regather", ["o.gather"], _GATHER, 2 * kv, "cp")
        collective("backward", "dkv.scatter", gradients, _SCATTER, 2 * kv * context, "cp")
        return ["kv.gather"]

    def _feed_forward(
        self, compute: Adder, collective: Adder, above: Key, last: tuple[Key, ...]
    ) -> None:
        model, t, a = self._model, self._parallel.tensor, self._part
        d, hidden, gated, moe = model.width, model.hidden, model.gated, model.experts > 1
        tokens = self._tokens * model.active
        inner, product, weight = tokens * hidden // t, tokens * d * hidden // t, d * hidden // t
        weight *= model.experts // self._parallel.expert
        routed = a * model.active
        x, dy, given = "ffn.gather", "ffn.dy.gather", "down"
        collective("forward", x, ["norm2.y"], _GATHER, a)
        weights, back = self._gathered("forward"), self._gathered("backward")
        if moe:
            collective("forward", "dispatch", [x], _EXCHANGE, routed, "ep")
            x = "dispatch"
        if gated:
            compute("forward", "up", [x, *weights], product, inner)
        compute("forward", "gate", [x, *weights], product, inner)
        if gated:
            compute("forward", "activated", ["up", "gate"], inner, inner)
        inside = "activated" if gated else "gate"
        compute("forward", "down", [inside], product, tokens * d)
        if moe:
            collective("forward", "combine", ["down"], _EXCHANGE, routed, "ep")
            given = "combine"
        collective("forward", "ffn.scatter", [given], _SCATTER, self._tokens * d)
        collective("backward", dy, [above, *last], _GATHER, a)
        if moe:
            collective("backward", "combine.dx", [dy], _EXCHANGE, routed, "ep")
            dy = "combine.dx"
        compute("backward", "down.dw", [dy, inside], product, weight)
        compute("backward", "inside.dx", [dy, *back], product, inner)
        if gated:
            compute("backward", "up.dy", ["inside.dx"], inner, inner)
            compute("backward", "gate.dy", ["inside.dx"], inner, inner)
        collective("backward", "ffn.regather", ["norm2.y"], _GATHER, a)
        parts = ("up", "gate") if gated else ("gate",)
        grads = {"up": "up.dy", "gate": "gate.dy" if gated else "inside.dx"}
        for part in parts:
            compute("backward", f"{part}.dw", [grads[part], "ffn.regather"], product, weight)
        for part in parts:
            compute("backward", f"{part}.dx", [grads[part]], product, tokens * d)
        if gated:
            compute("backward", "ffn.dx", ["up.dx", "gate.dx"], tokens * d, tokens * d)
        given = "ffn.dx" if gated else "gate.dx"
        if moe:
            collective("backward", "dispatch.dx", [given], _EXCHANGE, routed, "ep")
            given = "dispatch.dx"
        collective("backward", "ffn.dx.scatter", [given], _SCATTER, self._tokens * d)

    def _reduction(self, layer: int) -> None:
        """Reduce the gradients of a layer over the ranks that have the same parameters."""
        parameters, found = self._parameters(), self._gradients[layer]
        of_experts = [key for key in found if str(key[-1]).startswith(_EXPERTS)]
        if "edp" not in parameters:
            of_experts = []
        parts = {"dp": [key for key in found if key not in of_experts], "edp": of_experts}
        pattern = _SCATTER if self._parallel.sharded else _REDUCE
        for group, (size, same) in parameters.items():
            gradients = parts[group]
            if group == "dp" or same > 1:
                key = ("reduce", layer) if group == "dp" else ("experts", layer)
                self._collective(key, gradients, group, pattern, size)
                gradients = [key]
            self._reduced[layer] += gradients

    def _embedding(self) -> None:
        """Add the embeddings' products: input's on the first stage, output's on the last."""
        model, micro = self._model, self._micro
        matrix, rows = model.width * model.vocabulary, self._tokens // self._parallel.tensor
        forward, backward = self._phase != "backward", self._phase != "forward"
        product = rows * matrix
        needs: list[Key]
        if self._first:
            below = (micro, 0, "norm1.dx")
            if forward and self._phase is None:
                needs = [*self._after, *self._whole("input")]
                self._compute(("input", micro, "y"), needs, product, self._part)
            if backward:
                self._compute(("input", micro, "dw"), [below], product, matrix)
                self._compute(("input", micro, "dx"), [below], product, self._part)
        if self._last:
            if forward:
                needs = [self._output(), *self._whole("output")]
                self._compute(("output", micro, "y"), needs, product, rows * model.vocabulary)
            if backward:
                needs = [("output", micro, "y"), *(self._after if self._phase else ())]
                self._compute(("output", micro, "dw"), needs, product, matrix)
                self._compute(("output", micro, "dx"), needs, product, self._part)

    def _whole(self, name: str) -> list[Key]:
        """Return what gathers an embedding: once a step, as it stays whole until its update."""
        there = self._parallel.sharded and self._parallel.replicas > 1
        return [(name, "weights")] if there else []

    def _updates(self) -> None:
        """Add copies of gradients and updates of weights, then the embeddings' reductions."""
        sharded, replicas = self._parallel.sharded, self._parallel.replicas
        sizes = self._parameters().values()
        size = sum(-(-size // same) if sharded else size for size, same in sizes)
        for layer in self._layers:
            self._compute(("copy", layer), self._reduced[layer], size, size)
        for layer in self._layers:
            self._compute(("update", layer), [("copy", layer)], size, size)
        matrix = self._model.width * self._model.vocabulary
        for name in ("input",) * self._first + ("output",) * self._last:
            weights: list[Key] = [
                (name, micro, "dw") for micro in range(self._parallel.micro_batches)
            ]
            self._compute((name, "copy"), weights, matrix, matrix)
            pattern, part = (_SCATTER, -(-matrix // replicas)) if sharded else (_REDUCE, matrix)
            self._collective((name, "dp"), [(name, "copy")], "dp", pattern, matrix)
            self._collective((name, "tp"), [(name, "dp")], "tp", _REDUCE, part)
            self._compute((name, "update"), [(name, "tp")], part, part)
            if sharded and replicas > 1:
                self._collective((name, "weights"), [], "dp", _GATHER, part)

    def _neighbours(self) -> None:
        """Add sends to and receives from neighbouring stages."""
        micro, amount = self._micro, self._part * self._bytes
        if not self._first:
            self._message(("receive", micro, "forward"), [], Kind.RECEIVE, -1, 2 * micro, amount)
            needs: list[Key] = [(micro, 0, "norm1.dx")]
            self._message(("send", micro, "backward"), needs, Kind.SEND, -1, 2 * micro + 1, amount)
        if not self._last:
            needs = [self._output()]
            self._message(("send", micro, "forward"), needs, Kind.SEND, 1, 2 * micro, amount)
            self._message(
                ("receive", micro, "backward"), [], Kind.RECEIVE, 1, 2 * micro + 1, amount
            )

    def _message(
        self, key: Key, needs: list[Key], kind: Kind, ways: int, tag: int, amount: int
    ) -> None:
        node = Node(kind, (), amount=amount, peer=ways * self._stride, tag=tag, name=str(key[0]))
        self._builder.add(key, needs, node)


def _keys(of: Callable[[str], Key], needs: Sequence[str | Key]) -> list[Key]:
    return [of(need) if isinstance(need, str) else need for need in needs]
