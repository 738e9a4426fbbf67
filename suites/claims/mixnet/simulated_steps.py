"""Simulated steps of MixNet and of networks beside it (Fig. 12, 14, 25 to 28).

A step has one micro-batch, since how many the paper's iterations have is not printed, so stages of
the pipeline work one after another. Eight GPUs are a simulated rank: one server, whose experts
are one as well, so that TP 4 and EP 8 are TP 8 and EP 4. All networks carry the same all-to-alls:
loads of experts are drawn with the spread of the one token matrix that the authors' simulator has.
A fat tree gives each server its eight NICs whole; the static circuits are TopoOpt's at best: six
for each server, planned from the mean of all layers, and two NICs for all else. Times of an A100
at 40 % of its FLOPS, a guess.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt

from lightrig.harness.claims.computed import Computed, over_draws
from lightrig.harness.claims.figures.curves import Curve
from lightrig.harness.systems.mixnet.planning.costs import (
    PRICES,
    fat_tree_cost,
    mixnet_cost,
)
from lightrig.harness.systems.mixnet.planning.simulated_fabric import Regions
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.fabrics import Rates
from lightrig.harness.workloads.graph import Device, Group, Node, Workload
from lightrig.harness.workloads.networks import DedicatedLinks
from lightrig.harness.workloads.simulator import Simulator
from lightrig.harness.workloads.transformer import workload
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism

GPUS = 8
OPTICAL, PACKET = 6, 2
"""NICs of a server (§7.1)."""
RATES = (100, 200, 400, 800)
SWITCHING = 25_000_000
"""A change before a layer's first all-to-all, in ns (§7.1)."""
SEQUENCE = 4096
SPREAD = 0.83
"""Standard deviation of the logarithm of experts' loads, of the token matrix of the simulator."""
SCATTER = 0.15
"""The same of a server's loads over those of all, of that matrix."""
DRAWS = 4
A100 = Device(0.4 * 156e3, 2039.0)
"""312 TFLOPS at 40 %, in multiplications with their additions a ns."""
NVSWITCH = 450.0
"""Bytes a ns of a GPU within its server, in each direction: 900 GB/s in both (§7.1)."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A model with its degrees (Table 1, Appendix D.1); sizes are public."""

    model: Model
    tensor: int
    pipeline: int
    expert: int = 8

    @property
    def shared(self) -> int:
        """How many ranks of experts a server has."""
        return GPUS // self.tensor


MODELS = {
    "Mixtral 8x7B": Trained(Model(32, 4096, 14_336, 32_000, 32, 8, True, 8, 2), 4, 4),
    "Mixtral 8x22B": Trained(Model(56, 6144, 16_384, 32_000, 48, 8, True, 8, 2), 8, 8),
}


def job_of(model: Model, trained: Trained, data: int, pipeline: int, tokens: int) -> Workload:
    """Return the step on `data` servers a stage."""
    parallel = Parallelism(data, GPUS, pipeline, trained.expert // trained.shared)
    return workload(model, parallel, tokens, A100, element_bytes=2)


@cache
def _workload(name: str, servers: int, micro_batch: int) -> Workload:
    one = MODELS[name]
    data = servers // one.pipeline
    return job_of(one.model, one, data, one.pipeline, data * one.shared * micro_batch * SEQUENCE)


def network(
    shared: int, rate: float, optical: int | Sequence[int], packet: float, draw: int
) -> Regions:
    """Return the network of servers with so many NICs and ranks of experts; rate: in Gbit/s.

    The load of a server is the sum of its experts', which spreads less.
    """
    rates = Rates(rate / 8, NVSWITCH, Timing(1000, 0, 4800, 4, 0))
    spread, scatter = SPREAD / sqrt(shared), SCATTER / sqrt(shared)
    return Regions(rates, rate / 8, optical, packet, spread, draw=draw, scatter=scatter)


@dataclass(frozen=True, slots=True)
class Compared:
    """A network by a server's NICs on circuits and on packets, and how its circuits are used."""

    mode: str
    optical: int
    packet: float


NETWORKS = {
    "MixNet": Compared("block", OPTICAL, PACKET),
    "Fat-tree, Rail-optimized": Compared("static", 0, GPUS),
    "static circuits": Compared("static", OPTICAL, PACKET),
}


@cache
def step_time(
    name: str,
    kind: Compared,
    draw: int,
    servers: int = 128,
    rate: int = 400,
    micro_batch: int = 8,
    switching: int = SWITCHING,
) -> int:
    """Return the nanoseconds of a model's step on a network; rate: of a link, in Gbit/s."""
    fabric = network(MODELS[name].shared, rate, kind.optical, kind.packet, draw)
    return fabric.simulate(_workload(name, servers, micro_batch), kind.mode, switching).step


def _curve(
    name: str,
    found: Mapping[float, Sequence[float]] | Mapping[str, Sequence[float]],
    mean: str = "",
) -> Curve:
    """Return the mean over draws by x and where one more would be; `mean`: name of its mean."""
    values = [over_draws(each) for each in found.values()]
    numbers: dict[str, Computed] = {}
    if mean:
        means = [sum(each) / len(each) for each in zip(*found.values(), strict=True)]
        numbers[mean] = over_draws(means)
    return Curve(
        name,
        tuple(found),  # type: ignore[arg-type]
        tuple(one.value for one in values),
        tuple(one.lower for one in values),
        tuple(one.upper for one in values),
        min(one.n for one in values),
        numbers,
    )


def steps_by_rate(
    model: str, micro_batch: int = 8, rates: Sequence[int] = RATES
) -> Sequence[Curve]:
    """Return the iteration time in ns of each network by link rate in bit/s (Fig. 25)."""
    return [
        _curve(
            name,
            {
                rate * 1e9: [
                    step_time(model, kind, draw, rate=rate, micro_batch=micro_batch)
                    for draw in range(DRAWS)
                ]
                for rate in rates
            },
        )
        for name, kind in NETWORKS.items()
    ]


def ratios_by_rate(
    model: str, micro_batch: int = 8, suffix: str = "", rates: Sequence[int] = RATES
) -> Sequence[Curve]:
    """Return iteration times over MixNet's by link rate in bit/s, with their mean (Fig. 12, 25)."""
    curves = []
    for name, kind in NETWORKS.items():
        if name == "MixNet":
            continue
        found: dict[float, list[float]] = {}
        for rate in rates:
            found[rate * 1e9] = [
                step_time(model, kind, draw, rate=rate, micro_batch=micro_batch)
                / step_time(model, NETWORKS["MixNet"], draw, rate=rate, micro_batch=micro_batch)
                for draw in range(DRAWS)
            ]
        curves.append(_curve(name + suffix, found, "mean"))
    return curves


SIZES = (128, 256, 512, 1024, 2048, 4096)
_SIZE_DRAWS = 3


def _throughputs(sizes: Sequence[int]) -> Mapping[str, Mapping[int, list[float]]]:
    """Return tokens a second of Mixtral 8x7B at 400 Gbit/s, by network and servers."""
    one = MODELS["Mixtral 8x7B"]
    found: dict[str, dict[int, list[float]]] = {}
    for name in ("MixNet", "Fat-tree, Rail-optimized"):
        found[name] = {}
        for servers in sizes:
            tokens = servers * one.shared // one.pipeline * 8 * SEQUENCE
            found[name][servers] = [
                tokens / step_time("Mixtral 8x7B", NETWORKS[name], draw, servers=servers) * 1e9
                for draw in range(_SIZE_DRAWS)
            ]
            _workload.cache_clear()  # the largest takes a gigabyte
    return found


def throughput_by_size(sizes: Sequence[int] = SIZES) -> Sequence[Curve]:
    """Return tokens a second by GPUs (Fig. 26a)."""
    return [
        _curve(name, {float(servers * GPUS): each for servers, each in found.items()})
        for name, found in _throughputs(sizes).items()
    ]


def efficiency_by_size(sizes: Sequence[int] = SIZES) -> Sequence[Curve]:
    """Return MixNet's tokens a second and dollar over a fat tree's, by GPUs (Fig. 26b)."""
    prices = PRICES[400]
    dearer = fat_tree_cost(prices) / mixnet_cost(prices)
    mixnet, tree = _throughputs(sizes).values()
    return [
        _curve(
            "MixNet over Fat-tree",
            {
                float(servers * GPUS): [
                    a / b * dearer for a, b in zip(mixnet[servers], tree[servers], strict=True)
                ]
                for servers in sizes
            },
            "mean",
        )
    ]


def packet_links(optical: int) -> float:
    """Return the NICs on packets that cost as much as two do, less what `optical` cost beyond six.

    At 100 Gbit/s, in NICs of that rate; a slower one costs in proportion.
    """
    prices = PRICES[100]
    circuit = prices.nic + prices.transceiver + prices.optical_port
    return PACKET + (OPTICAL - optical) * circuit / fat_tree_cost(prices, 1)


def steps_by_degree(degrees: Sequence[int] = range(1, GPUS)) -> Sequence[Curve]:
    """Return the iteration time of Mixtral 8x22B over that with six circuits, by degree (Fig. 27).

    Costs are equal: what a server has on packets is of `packet_links`.
    """
    model = "Mixtral 8x22B"
    found: dict[float, list[float]] = {}
    for optical in degrees:
        kind = Compared("block", optical, packet_links(optical))
        found[float(optical)] = [
            step_time(model, kind, draw, rate=100)
            / step_time(model, NETWORKS["MixNet"], draw, rate=100)
            for draw in range(DRAWS)
        ]
    curve = _curve("MixNet", found)
    ends = zip(found[float(degrees[0])], found[float(degrees[-1])], strict=True)
    return [replace(curve, numbers={"last over first": over_draws([b / a for a, b in ends])})]


_LATENCIES = tuple(10.0**power for power in range(3, 11))


def steps_by_latency(latencies: Sequence[float] = _LATENCIES) -> Sequence[Curve]:
    """Return the iteration time of Mixtral 8x22B over that at 1 us, by latency in ns (Fig. 28)."""
    model = "Mixtral 8x22B"
    curves = []
    for name, mode in (("blocks", "block"), ("is predicted", "predict")):
        kind = Compared(mode, OPTICAL, PACKET)
        found: dict[float, list[float]] = {}
        for latency in latencies:
            found[latency] = [
                step_time(model, kind, draw, switching=int(latency))
                / step_time(model, NETWORKS["MixNet"], draw, switching=1000)
                for draw in range(DRAWS)
            ]
        curves.append(_curve(f"simulated, first exchange {name}", found))
    return curves


class _OneFailed:
    """A network of which one server and its region are another's."""

    def __init__(self, whole: DedicatedLinks, failed: DedicatedLinks, rank: int) -> None:
        self._whole, self._failed, self._rank = whole, failed, rank

    @property
    def changes(self) -> int:
        """How often circuits were changed."""
        return self._whole.changes + self._failed.changes

    def collective(self, group: Group, node: Node) -> int:
        """Return the nanoseconds of a collective within a server."""
        return self._whole.collective(group, node)

    def begin_collective(
        self, simulator: Simulator, group: Group, node: Node, end: Callable[[], None]
    ) -> None:
        """Begin on the network that the members have."""
        network = self._failed if self._rank in group.members else self._whole
        network.begin_collective(simulator, group, node, end)

    def begin_message(
        self, simulator: Simulator, source: int, target: int, amount: int, end: Callable[[], None]
    ) -> None:
        """Send on the network that both ends have."""
        network = self._failed if self._rank in {source, target} else self._whole
        network.begin_message(simulator, source, target, amount, end)


FAILURES = {
    "an NIC on packets": (OPTICAL, PACKET - 1),
    "an NIC on circuits": (OPTICAL - 1, PACKET),
    "a GPU": (OPTICAL, PACKET),
    "a server": (0, PACKET),
}
"""NICs that the server at the failure still has, or that which replaces it."""
_REMOTE = "tp over NICs"


def _with_failure(failure: str, draw: int) -> int:
    """Return the step of Mixtral 8x22B where one server, or one GPU of it, has failed."""
    model, rate = "Mixtral 8x22B", 400
    job = _workload(model, 128, 8)
    optical, packet = FAILURES[failure]
    sound = network(1, rate, OPTICAL, PACKET, draw)
    region = (optical, *[OPTICAL] * (MODELS[model].expert - 1))
    broken = replace(sound, optical=region, packet=packet)
    if failure == "a GPU":
        tensor = job.groups[0]["tp"]
        remote = {**job.groups[0], "tp": Group(_REMOTE, tensor.members, tensor.size)}
        job = replace(job, groups=(remote, *job.groups[1:]))
    whole, failed = (one.network(job, "block", SWITCHING) for one in (sound, broken))
    whole.bandwidths[_REMOTE] = sound.link
    return Simulator(job, _OneFailed(whole, failed, 0)).run().step


def failures(names: Sequence[str]) -> Sequence[Curve]:
    """Return by which part a step of Mixtral 8x22B is longer, by what has failed (Fig. 14)."""
    found = {
        name: [
            _with_failure(name, draw) / step_time("Mixtral 8x22B", NETWORKS["MixNet"], draw) - 1
            for draw in range(DRAWS)
        ]
        for name in names
    }
    return [_curve("Mixtral 8x22B", found)]
