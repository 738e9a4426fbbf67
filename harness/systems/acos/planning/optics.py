"""Low-radix optical switches, the fibers between them, and the light that their states lead on.

A fabric has one transmit and one receive fiber for each lane of each GPU. Every fiber is
switched alone, in one direction: a 1xN at a transmitter diverges, the one at a receiver
converges, and a 2x2 passes two fibers straight (`BAR`) or exchanges them (`CROSS`).
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[Any]
States: TypeAlias = npt.NDArray[np.int8]
Kind: TypeAlias = Literal["1x2", "1x3", "1x4", "2x2"]
KINDS: tuple[Kind, ...] = ("1x2", "1x3", "1x4", "2x2")
BAR, CROSS = 0, 1
DARK = -1


class FabricError(ValueError):
    """A fabric that cannot be wired, or a topology that it cannot take."""


@dataclass(frozen=True, slots=True)
class Array:
    """Equal switches with one purpose, in an array of `shape`.

    Attributes:
        name: unique in its fabric.
        purpose: the adaptation or resilience that they serve, a row of a table of costs.
        dimension: the topology that they belong to, or "all" for selection.
        inputs: ports where light enters, `shape` followed by the number of inputs.
        outputs: ports where light leaves, likewise.
    """

    name: str
    kind: Kind
    purpose: str
    dimension: str
    shape: tuple[int, ...]
    first: int
    inputs: Ints
    outputs: Ints

    @property
    def count(self) -> int:
        """Number of switches."""
        return math.prod(self.shape)

    @property
    def part(self) -> slice:
        """Slice of these switches' states in all states."""
        return slice(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class Trace:
    """Return the end at which the light of every transmit fiber arrives.

    Attributes:
        arrives: receive fiber that each transmit fiber lights, `DARK` where none; GPUs x lanes,
            a receive fiber being numbered gpu * lanes + lane.
        stages: switches that the light crosses, GPUs x lanes x `KINDS`.
    """

    arrives: Ints
    stages: npt.NDArray[np.int8]

    @property
    def gpus(self) -> Ints:
        """GPU that each transmit fiber lights, `DARK` where none; GPUs x lanes."""
        return np.where(self.arrives < 0, DARK, self.arrives // self.arrives.shape[1])

    @property
    def lanes(self) -> Ints:
        """Lane of that GPU, `DARK` where none."""
        return np.where(self.arrives < 0, DARK, self.arrives % self.arrives.shape[1])


@dataclass
class OpticalFabric:
    """Switches and fibers; wired once, then traced for any states.

    Ports are numbered apart by direction: outputs from the transmit fibers on, inputs from the
    receive fibers on.
    """

    gpus: int
    lanes: int
    arrays: dict[str, Array] = field(default_factory=dict)
    _inputs: int = field(init=False)
    _outputs: int = field(init=False)
    _switches: int = field(init=False, default=0)
    _joined: list[tuple[Ints, Ints]] = field(init=False, default_factory=list)
    _sinks: Ints | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._inputs = self._outputs = self.gpus * self.lanes

    @property
    def fibers(self) -> Ints:
        """Transmit fibers as outputs, and receive fibers as inputs; GPUs x lanes."""
        return np.arange(self.gpus * self.lanes, dtype=np.int32).reshape(self.gpus, self.lanes)

    @property
    def switches(self) -> int:
        """Number of switches."""
        return self._switches

    def diverge(
        self, name: str, branches: int, shape: tuple[int, ...], purpose: str, dimension: str
    ) -> Array:
        """Add 1xN switches with one input and `branches` outputs."""
        return self._add(name, _one_by(branches), purpose, dimension, shape, 1, branches)

    def converge(
        self, name: str, branches: int, shape: tuple[int, ...], purpose: str, dimension: str
    ) -> Array:
        """Add 1xN switches with `branches` inputs and one output."""
        return self._add(name, _one_by(branches), purpose, dimension, shape, branches, 1)

    def exchange(
        self, name: str, first: Ints, second: Ints, purpose: str, dimension: str
    ) -> tuple[Ints, Ints]:
        """Lead two arrays of fibers, given by their outputs, through 2x2 switches.

        Returns the outputs that continue `first` and `second` in the bar state.
        """
        made = self._add(name, "2x2", purpose, dimension, first.shape, 2, 2)
        self.join(first, made.inputs[..., 0])
        self.join(second, made.inputs[..., 1])
        return made.outputs[..., 0], made.outputs[..., 1]

    def join(self, outputs: Ints, inputs: Ints) -> None:
        """Lay a fiber from each of `outputs` to the input at the same place."""
        if outputs.shape != inputs.shape:
            raise FabricError(f"{outputs.shape} outputs cannot be joined to {inputs.shape} inputs")
        self._joined.append((outputs.flatten(), inputs.flatten()))
        self._sinks = None

    def rest(self) -> States:
        """All switches in their first state."""
        return np.zeros(self._switches, dtype=np.int8)

    def of(self, states: States, name: str) -> States:
        """View of the states of one array, in its shape; writing to it changes `states`."""
        array = self.arrays[name]
        return states[array.part].reshape(array.shape)

    def counts(self) -> Mapping[tuple[str, str, Kind], int]:
        """Number of switches by purpose, dimension and kind."""
        found: Counter[tuple[str, str, Kind]] = Counter()
        for array in self.arrays.values():
            found[array.purpose, array.dimension, array.kind] += array.count
        return found

    def trace(self, states: States, broken: Ints | None = None) -> Trace:
        """Follow the light of every transmit fiber through switches in `states`.

        broken: numbers of switches that pass nothing on.
        """
        sinks = self.sinks()
        through = self._through(states, broken)
        kind_of = self._kind_of_input()
        ends = self.gpus * self.lanes
        at = sinks[:ends].copy()
        stages = np.zeros((ends, len(KINDS)), dtype=np.int8)
        while (inside := np.flatnonzero(at >= ends)).size:
            entered = at[inside]
            stages[inside, kind_of[entered - ends]] += 1
            left = through[entered - ends]
            at[inside] = np.where(left < 0, DARK, sinks[left])
        shape = self.gpus, self.lanes
        return Trace(at.reshape(shape), stages.reshape(*shape, len(KINDS)))

    def passed(self, states: States, fibers: Ints) -> npt.NDArray[np.bool_]:
        """Whether light of one of `fibers` passes each switch in `states`, and arrives."""
        sinks, through = self.sinks(), self._through(states, None)
        ends = self.gpus * self.lanes
        arrives = self.trace(states).arrives.reshape(-1)
        at = sinks[fibers[arrives[fibers] >= 0]]
        found = np.zeros(self._switches, dtype=bool)
        switch_of = self._switch_of_input()
        while (at := at[at >= ends]).size:
            found[switch_of[at - ends]] = True
            at = sinks[through[at - ends]]
        return found

    def crossed(self, states: States) -> dict[int, list[int]]:
        """Transmit fibers that pass each switch in `states`, by the number of the switch."""
        sinks, through = self.sinks(), self._through(states, None)
        ends = self.gpus * self.lanes
        switch_of = self._switch_of_input()
        found: dict[int, list[int]] = {}
        for fiber in range(ends):
            crossed, at = [], int(sinks[fiber])
            while at >= ends:
                crossed.append(int(switch_of[at - ends]))
                left = int(through[at - ends])
                at = DARK if left < 0 else int(sinks[left])
            if at >= 0:
                for switch in crossed:
                    found.setdefault(switch, []).append(fiber)
        return found

    def _add(
        self,
        name: str,
        kind: Kind,
        purpose: str,
        dimension: str,
        shape: tuple[int, ...],
        ins: int,
        outs: int,
    ) -> Array:
        if name in self.arrays:
            raise FabricError(f"{name} is there twice")
        count = math.prod(shape)
        inputs = np.arange(self._inputs, self._inputs + count * ins, dtype=np.int32)
        outputs = np.arange(self._outputs, self._outputs + count * outs, dtype=np.int32)
        made = Array(
            name,
            kind,
            purpose,
            dimension,
            shape,
            self._switches,
            inputs.reshape(*shape, ins),
            outputs.reshape(*shape, outs),
        )
        self._inputs += count * ins
        self._outputs += count * outs
        self._switches += count
        self.arrays[name] = made
        return made

    def sinks(self) -> Ints:
        """Input where the fiber of each output ends, `DARK` where none is laid."""
        if self._sinks is None:
            sinks = np.full(self._outputs, DARK, dtype=np.int32)
            used = np.zeros(self._inputs, dtype=bool)
            for outputs, inputs in self._joined:
                if (sinks[outputs] != DARK).any() or used[inputs].any():
                    raise FabricError("a port has two fibers")
                sinks[outputs] = inputs
                used[inputs] = True
            self._sinks = sinks
        return self._sinks

    def _through(self, states: States, broken: Ints | None) -> Ints:
        """Output that each input of a switch leads to, `DARK` where none."""
        ends = self.gpus * self.lanes
        through = np.full(self._inputs - ends, DARK, dtype=np.int32)
        for array in self.arrays.values():
            state = states[array.part].astype(np.int64)
            ins = array.inputs.reshape(array.count, -1) - ends
            outs = array.outputs.reshape(array.count, -1)
            limit = max(ins.shape[1], outs.shape[1])
            if state.size and not 0 <= state.min() <= state.max() < limit:
                raise FabricError(f"{array.name}: a state is none of 0..{limit - 1}")
            rows = np.arange(array.count)
            if array.kind == "2x2":
                through[ins[:, 0]] = outs[rows, state]
                through[ins[:, 1]] = outs[rows, 1 - state]
            elif ins.shape[1] == 1:
                through[ins[:, 0]] = outs[rows, state]
            else:
                through[ins[rows, state]] = outs[:, 0]
            if broken is not None:
                dead = broken[(broken >= array.first) & (broken < array.first + array.count)]
                through[ins[dead - array.first]] = DARK
        return through

    def _switch_of_input(self) -> npt.NDArray[np.int32]:
        ends = self.gpus * self.lanes
        found = np.zeros(self._inputs - ends, dtype=np.int32)
        for array in self.arrays.values():
            ins = array.inputs.reshape(array.count, -1)
            found[ins - ends] = array.first + np.arange(array.count)[:, None]
        return found

    def _kind_of_input(self) -> npt.NDArray[np.int8]:
        kinds = np.zeros(self._inputs - self.gpus * self.lanes, dtype=np.int8)
        for array in self.arrays.values():
            kinds[array.inputs.reshape(-1) - self.gpus * self.lanes] = KINDS.index(array.kind)
        return kinds


def _one_by(branches: int) -> Kind:
    kinds: dict[int, Kind] = {2: "1x2", 3: "1x3", 4: "1x4"}
    if branches not in kinds:
        raise FabricError(f"a 1x{branches} switch is none of {', '.join(kinds.values())}")
    return kinds[branches]


@dataclass(frozen=True, slots=True)
class Selection:
    """Topology selection: a 1xN at each transmit and each receive fiber.

    Attributes:
        topologies: their names, in the order of the branches.
        transmit: branches as outputs, GPUs x lanes x topologies. receive: as inputs, likewise.
    """

    topologies: tuple[str, ...]
    transmit: Ints
    receive: Ints


def select(fabric: OpticalFabric, topologies: tuple[str, ...]) -> Selection:
    """Give every fiber of every GPU a 1xN selection switch, N being the number of topologies."""
    shape = fabric.gpus, fabric.lanes
    purpose = "Topology selection"
    out = fabric.diverge("select-transmit", len(topologies), shape, purpose, "all")
    into = fabric.converge("select-receive", len(topologies), shape, purpose, "all")
    fabric.join(fabric.fibers, out.inputs[..., 0])
    fabric.join(into.outputs[..., 0], fabric.fibers)
    return Selection(topologies, out.outputs, into.inputs)


def selected(fabric: OpticalFabric, states: States, choice: Ints) -> States:
    """States with both selection switches of each lane set to `choice`, GPUs x lanes."""
    found = states.copy()
    fabric.of(found, "select-transmit")[...] = choice
    fabric.of(found, "select-receive")[...] = choice
    return found
