"""Fabrics that `lightrig simulate` runs steps on, by `NAME:key=value,...`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Workload
from lightrig.harness.workloads.networks import (
    DedicatedLinks,
    PhasedLinks,
    SelectedLinks,
    Switching,
)
from lightrig.harness.workloads.shared_links import SharedLinks
from lightrig.harness.workloads.simulator import Simulator, StepTimes
from lightrig.testbeds import LightrigError, Testbed
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.quantities import QuantityError, parse_duration, parse_rate


class FabricError(LightrigError):
    """A fabric is not known by this name, or an option of it is wrong."""


@dataclass(frozen=True, slots=True)
class Bill:
    """US dollars and watts of a network, None where no power is known; `of`: what is priced."""

    dollars: float
    watts: float | None
    of: str


class SimulatedFabric(Protocol):
    """A fabric. Its first mode is the default; all have `packet`: full rates, nothing shared."""

    @property
    def modes(self) -> tuple[str, ...]:
        """How it can be used."""

    def folds(self, mode: str) -> bool:
        """Whether data-parallel ranks do the same at the same times."""

    def changes(self, mode: str) -> bool:
        """Whether circuits change, so that the switching time matters."""

    def assumptions(self, mode: str) -> tuple[str, ...]:
        """Return what else the answer rests on, a sentence each."""

    def scaled(self, factor: float) -> SimulatedFabric:
        """Return the same with other rates out of servers."""

    @property
    def carried(self) -> Mapping[Hashable, float]:
        """Bytes of each shared link in the last step; none where links are not shared."""

    def bill(self, workload: Workload, mode: str) -> Bill | None:
        """Return what the network of a job costs, where the system has published prices."""

    def simulate(self, workload: Workload, mode: str, switching: Switching) -> StepTimes:
        """Return the step."""


class Options:
    """The options of a fabric, each read once; `end` refuses those that nobody has read.

    described: options that a testbed file stands for, where none are given. testbed:
    that file, for what only a system reads of it.
    """

    def __init__(
        self,
        fabric: str,
        given: Mapping[str, str],
        described: Mapping[str, str] | None = None,
        testbed: Testbed | None = None,
    ) -> None:
        self._fabric, self._given = fabric, dict(given)
        self._described = dict(described or {})
        self._known: list[str] = []
        self.testbed = testbed

    def rate(self, key: str, default: str) -> float:
        """Return bytes a nanosecond of a rate such as 400G."""
        try:
            return parse_rate(self._take(key, default)) / 8e9
        except QuantityError as error:
            raise self._wrong(key, str(error)) from None

    def duration(self, key: str, default: str) -> int:
        """Return nanoseconds of a duration such as 500ns."""
        text = self._take(key, default)
        try:
            found = parse_duration(text)
        except QuantityError as error:
            raise self._wrong(key, str(error)) from None
        if found < 0:
            raise self._wrong(key, f"found {text!r}, expected a duration of 0 or more")
        return found

    def number(self, key: str, default: float, least: float = 1.0) -> float:
        """Return a number of at least `least`."""
        text = self._take(key, str(default))
        try:
            found = float(text)
        except ValueError:
            raise self._wrong(key, f"found {text!r}, expected a number") from None
        if not least <= found < float("inf"):
            raise self._wrong(key, f"found {text!r}, expected at least {least:g}")
        return found

    def end(self) -> None:
        """Raise `FabricError` for an option that has not been read."""
        for key in self._given:
            raise FabricError(
                f"{self._fabric}: found the unknown option {key!r}"
                f"{did_you_mean(key, self._known)}; its options are "
                f"{', '.join(sorted(self._known))}"
            )

    def _take(self, key: str, default: str) -> str:
        self._known.append(key)
        return self._given.pop(key, self._described.get(key, default))

    def _wrong(self, key: str, problem: str) -> FabricError:
        return FabricError(f"{self._fabric}: {key}: {problem}")


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes a nanosecond of links out of and within servers, and what messages cost."""

    scale_out: float
    scale_up: float
    timing: Timing

    @classmethod
    def of(cls, options: Options, scale_up: str = "3600G") -> Rates:
        """Read `scale_out`, `scale_up`, `latency`, `endpoint`, `memory`, `splits`, `holding`."""
        return cls(
            options.rate("scale_out", "400G"),
            options.rate("scale_up", scale_up),
            Timing(
                options.duration("latency", "936ns"),
                options.duration("endpoint", "12ns"),
                options.rate("memory", "38400G"),
                int(options.number("splits", 4)),
                options.number("holding", 2, 0),
            ),
        )

    @property
    def bandwidths(self) -> Mapping[str, float]:
        """By kind of link: rings of experts go out of the server as those of data do."""
        out = self.scale_out
        return {"dp": out, "pp": out, "ep": out, "cp": out, "tp": self.scale_up}

    def scaled(self, factor: float) -> Rates:
        """Return other rates out of servers."""
        return replace(self, scale_out=self.scale_out * factor)


@dataclass(frozen=True, slots=True)
class Selected:
    """Links that are selected for a kind of communication, all of a rank's rate at a time.

    Each rank selects by itself ("selected"), or all together ("phases"). divided: parts of the rate
    for kinds that have links of their own, in modes but these and "packet". exchanges: of a mode,
    the time of an all-to-all of so many over that of an even one through a switch; "phases" have
    none. notes: what else the answer of a mode rests on.
    """

    rates: Rates
    divided: Callable[[Workload], Mapping[str, float]] | None = None
    modes: tuple[str, ...] = ("selected", "packet")
    exchanges: Mapping[str, Callable[[int], float]] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def folds(self, mode: str) -> bool:
        """Ranks select one by one, or wait for all others."""
        return not self.changes(mode)

    def changes(self, mode: str) -> bool:
        """Whether the switching time matters."""
        return mode in {"selected", "phases"}

    def assumptions(self, mode: str) -> tuple[str, ...]:
        """Return how links are used."""
        how = {
            "selected": "a rank's rate out of its server is of one kind of communication at a "
            "time, and each rank selects as it needs; within servers links are always there",
            "phases": "ranks' rates out of their servers are all of one kind of communication at a "
            "time, and change together while nothing runs; within servers links are always there",
            "divided": "links are divided among kinds by their traffic, and never change",
            "packet": "packet switches give each kind of link its full rate at once",
        }
        return (*([how[mode]] if mode in how else []), *self.notes.get(mode, ()))

    def scaled(self, factor: float) -> Selected:
        """Return the same with other rates out of servers."""
        return replace(self, rates=self.rates.scaled(factor))

    @property
    def carried(self) -> Mapping[Hashable, float]:
        """No link is shared."""
        return {}

    def bill(self, workload: Workload, mode: str) -> Bill | None:
        """No prices are published."""
        return None

    def simulate(self, workload: Workload, mode: str, switching: Switching) -> StepTimes:
        """Return the step."""
        bandwidths, timing = dict(self.rates.bandwidths), self.rates.timing
        exchange = self.exchanges.get(mode)
        if mode == "selected":
            network: DedicatedLinks = SelectedLinks(bandwidths, timing, switching, exchange)
        elif mode == "phases":
            network = PhasedLinks(bandwidths, timing, switching)
        else:
            if mode != "packet" and self.divided is not None:
                for kind, part in self.divided(workload).items():
                    bandwidths[kind] *= part
            switched = mode == "packet"
            network = DedicatedLinks(bandwidths, timing, switched=switched, exchange=exchange)
        return Simulator(workload, network).run()


@dataclass(frozen=True, slots=True)
class FatTree:
    """Leaf switches of `leaf` servers each, whose ranks share what goes up: a part of their rates.

    All links above leaves are even, so that what leaves a leaf meets no other limit.
    """

    rates: Rates
    oversubscription: float
    leaf: int
    ranks_a_leaf: bool
    modes: tuple[str, ...] = ("shared", "packet")
    carried: dict[Hashable, float] = field(default_factory=dict)

    def folds(self, mode: str) -> bool:
        """What is shared depends on the place of each rank."""
        return mode == "packet"

    def changes(self, mode: str) -> bool:
        """Packet switches do not change."""
        return False

    def assumptions(self, mode: str) -> tuple[str, ...]:
        """Return how links are shared."""
        if mode == "packet":
            return ("packet switches give each kind of link its full rate at once",)
        return ("shared links are shared max-min fairly, without loss and with even paths",)

    def scaled(self, factor: float) -> FatTree:
        """Return the same with other rates out of servers."""
        return replace(self, rates=self.rates.scaled(factor))

    def bill(self, workload: Workload, mode: str) -> Bill | None:
        """No prices are published."""
        return None

    def simulate(self, workload: Workload, mode: str, switching: Switching) -> StepTimes:
        """Return the step."""
        if mode == "packet":
            network = DedicatedLinks(self.rates.bandwidths, self.rates.timing, switched=True)
            return Simulator(workload, network).run()
        tensor = workload.folded.get("TP", 1)
        size = max(self.leaf // tensor, 1) if self.ranks_a_leaf else self.leaf
        if self.ranks_a_leaf and self.leaf < tensor:
            raise FabricError(
                f"fat-tree: leaf: found {self.leaf}, expected at least a server's {tensor} ranks"
            )
        count, out = len(workload.graph_of), self.rates.scale_out
        capacities: dict[Hashable, float] = {}
        for rank in range(count):
            capacities["out", rank] = capacities["in", rank] = out
        for leaf in range(-(-count // size)):
            capacities["up", leaf] = capacities["down", leaf] = out * size / self.oversubscription

        def route(source: int, target: int) -> Sequence[Hashable]:
            ends = (("out", source), ("in", target))
            first, last = source // size, target // size
            return ends if first == last else (*ends, ("up", first), ("down", last))

        shared = SharedLinks(capacities, route, self.rates.timing, self.rates.bandwidths)
        times = Simulator(workload, shared).run()
        self.carried.clear()
        self.carried.update(shared.carried)
        return times


def fat_tree(options: Options) -> FatTree:
    """Return the fabric of `fat-tree:oversubscription=3,leaf=64`: `leaf` ranks a leaf switch."""
    found = FatTree(
        Rates.of(options),
        options.number("oversubscription", 1),
        int(options.number("leaf", 64)),
        ranks_a_leaf=True,
    )
    options.end()
    return found


def rail_optimised(options: Options) -> FatTree:
    """Return the fabric of `rail-optimised:pod=32`: ranks of one place in `pod` servers a leaf."""
    found = FatTree(
        Rates.of(options),
        options.number("oversubscription", 1),
        int(options.number("pod", 32)),
        ranks_a_leaf=False,
    )
    options.end()
    return found


Maker = Callable[[Options], SimulatedFabric]
GENERIC: Mapping[str, Maker] = {"fat-tree": fat_tree, "rail-optimised": rail_optimised}
"""Fabrics that no published system brings."""


def fabric(text: str, makers: Mapping[str, Maker]) -> SimulatedFabric:
    """Return the fabric of `NAME:key=value,...`; raises `FabricError`."""
    name, _, rest = text.partition(":")
    if name not in makers:
        raise FabricError(
            f"found the unknown fabric {name!r}{did_you_mean(name, makers)}; fabrics are "
            f"{', '.join(sorted(makers))}, each with options as in fat-tree:oversubscription=3, "
            "and testbed files"
        )
    return makers[name](Options(name, options_of(name, rest)))


def options_of(name: str, rest: str) -> dict[str, str]:
    """Return the options of `key=value,...`; raises `FabricError`."""
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise FabricError(f"{name}: found {part!r}, expected key=value")
        if key in given:
            raise FabricError(f"{name}: the option {key!r} is given twice")
        given[key] = value
    return given
