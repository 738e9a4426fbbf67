"""Cycle simulation of packets in a network of chips: throughput and latency under load.

Modelled: virtual cut-through with credits, input buffers of 16 flits for each link and virtual
channel, packets of four flits, links of k flits a cycle with 1 or 10 cycles of delay (RailX,
section 6.1.2, table 5), routes by tables (Algorithm 1) or chosen on the way (`adaptive_network`). A
packet takes a link whole: it starts when the next buffer has room for all of it and its last flit
will have come in time.

Left out, as the paper's text is silent on it or omits it: router pipelines (an ideal router
forwards in the cycle of arrival), switch allocation beyond one grant a link and cycle (every
virtual channel of an input can send at once, round robin at each link), flits of several packets
interleaved on one link, protocols above packets. A chip's source queue is divided over injectors,
so that a waiting packet blocks few others; the sink takes all.

`run` gives the same result to the last packet with numpy as with numba, which is some ten times
faster and optional (`pip install lightrig[flits]`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.systems.railx.planning.physical import RailxError
from lightrig.suites.claims.railx.compiling import compiled
from lightrig.suites.claims.railx.flit_network import (
    PACKET_FLITS,
    Adaptive,
    FlitNetwork,
    Int64s,
)
from lightrig.suites.claims.railx.flit_steps import (
    NEVER,
    State,
    advance_loops,
    advance_numpy,
)

Engine: TypeAlias = Literal["auto", "numpy", "numba", "loops"]
CONFIDENCE = 0.95
_CHUNK = 250


@dataclass(frozen=True, slots=True)
class Load:
    """Uniform random traffic, and how long it is simulated; defaults are the paper's.

    Attributes:
        rate: flits offered a cycle and chip, from 0 to `PACKET_FLITS`.
        warm_up: cycles before the measurement.
        cycles: cycles of the measurement.
        batches: parts of equal length whose spread gives the interval.
        buffer: flits of an input buffer of one channel.
        injectors: source queues of a chip.
        queue: packets in each; more are refused and counted.
        credit_delay: whether a credit takes as long as a flit; else it comes back at once.
        bubble: whether a packet enters a ring only where two packets fit.
        seed: of the traffic.
    """

    rate: float
    warm_up: int = 5_000
    cycles: int = 10_000
    batches: int = 10
    buffer: int = 16
    injectors: int = 8
    queue: int = 16
    credit_delay: bool = True
    bubble: bool = False
    seed: int = 1


class Outcome(NamedTuple):
    """Results of one simulation.

    Attributes:
        offered: flits a cycle and chip that the traffic asked for, as drawn.
        throughput: flits a cycle and chip that arrived.
        lower: lower end of its 95 % interval, Student's t over the batches.
        upper: upper end.
        latency: mean cycles from generation to the last flit, of packets that arrived.
        packets: number of packets that arrived in the measurement.
        refused: share of generated packets that found their source queue full.
        in_flight: packets in buffers and queues at the end.
        stalled: cycles at the end without any movement while packets wait; many are a deadlock.
    """

    offered: float
    throughput: float
    lower: float
    upper: float
    latency: float
    packets: int
    refused: float
    in_flight: int
    stalled: int


class Point(NamedTuple):
    """A simulated point of 2D-HyperX with m = 4, n = 2, 1,296 chips, and default `Load`.

    rate: offered flits a cycle and chip. bound: what the most loaded link allows.
    """

    credit_delay: bool
    multiple: int
    rate: float
    bound: float
    outcome: Outcome


def stored_points() -> list[Point]:
    """Return the points that `benchmarks.railx.store` simulated; a run takes minutes."""
    text = files(__package__).joinpath("flit_points.json").read_text(encoding="utf-8")
    return [
        Point(delayed, multiple, rate, bound, Outcome(*outcome))
        for delayed, multiple, rate, bound, outcome in json.loads(text)
    ]


def run(
    network: FlitNetwork, load: Load, engine: Engine = "auto", to: Int64s | None = None
) -> Outcome:
    """Simulate `load` on `network`; `engine` changes the time it takes, never the result.

    to: the chip to which each chip sends; None: to any other one at random.
    """
    if not 0 <= load.rate <= PACKET_FLITS or load.cycles % load.batches:
        raise RailxError(
            f"found rate {load.rate} and {load.cycles} cycles in {load.batches} batches; expected "
            f"a rate from 0 to {PACKET_FLITS} and batches of equal length"
        )
    advance = _engine(engine)
    state = _empty(network, load)
    draw = np.random.default_rng(load.seed)
    total = load.warm_up + load.cycles
    batch = load.cycles // load.batches
    generated = 0
    for begin in range(0, total, _CHUNK):
        end = min(begin + _CHUNK, total)
        cycles, sources, sinks = _arrivals(draw, network.senders, load.rate, begin, end)
        if to is not None:
            sinks = to[sources]
        generated += int((cycles >= load.warm_up).sum())
        advance(state, begin, end, cycles, sources, sinks, load.warm_up, batch)
    return _outcome(network, load, state, generated)


def _engine(engine: Engine) -> Any:
    if engine == "auto":
        engine = "numba" if find_spec("numba") else "numpy"
    if engine == "numba":
        return compiled(advance_loops)
    return advance_numpy if engine == "numpy" else advance_loops


def _arrivals(
    draw: np.random.Generator, chips: int, rate: float, begin: int, end: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Draw the packets of some cycles: cycle, source and another chip as sink."""
    drawn = draw.random((end - begin, chips)) < rate / PACKET_FLITS
    cycles, sources = np.nonzero(drawn)
    sinks = (sources + 1 + draw.integers(0, max(chips - 1, 1), sources.size)) % chips
    return cycles + begin, sources, sinks


def _empty(network: FlitNetwork, load: Load) -> State:
    """Return the state without any packet."""
    slots = load.buffer // PACKET_FLITS
    if slots < 1 or (load.bubble and slots < 2):
        raise RailxError(
            f"a buffer of {load.buffer} flits is too small for {PACKET_FLITS} a packet"
        )
    if load.bubble and network.rings is None:
        raise RailxError("bubble flow control needs a network that names its rings")
    links, channels, chips = network.links, network.channels, network.chips
    buffers = links * channels + chips * load.injectors
    depth = max(slots, load.queue)
    periods = network.periods.ravel()[network.link_port]
    delays = network.delays.ravel()[network.link_port]
    peers = network.peers.ravel()[network.link_port]
    rings = (
        np.full(links, -1) if network.rings is None else network.rings.ravel()[network.link_port]
    )
    adaptive = network.adaptive or Adaptive(
        np.zeros((1, 2), dtype=np.int64), np.zeros((1, 0), dtype=np.int64), 0
    )
    horizon = int((periods + delays).max()) + 2
    at = np.concatenate([np.repeat(peers, channels), np.repeat(np.arange(chips), load.injectors)])
    period_in = np.concatenate(
        [np.repeat(periods, channels), np.ones(chips * load.injectors, dtype=np.int64)]
    )
    return State(
        sink=np.zeros((buffers, depth), dtype=np.int64),
        born=np.zeros((buffers, depth), dtype=np.int64),
        tail=np.zeros((buffers, depth), dtype=np.int64),
        exit=np.full((buffers, depth), -1),
        front=np.zeros(buffers, dtype=np.int64),
        occupied=np.zeros(buffers, dtype=np.int64),
        ready=np.full(buffers, NEVER),
        group=np.zeros(buffers, dtype=np.int64),
        channel=np.zeros(buffers, dtype=np.int64),
        credit=np.full(links * channels, slots),
        returns=np.zeros((horizon, links * channels), dtype=np.int64),
        busy=np.zeros(links, dtype=np.int64),
        last=np.zeros(links, dtype=np.int64),
        at=at,
        enters=np.concatenate(
            [np.repeat(network.enters, channels), np.ones(chips * load.injectors, dtype=bool)]
        ),
        period_in=period_in,
        ring_in=np.concatenate([np.repeat(rings, channels), np.full(chips * load.injectors, -1)]),
        link_ring=rings if load.bubble else np.full(links, -1),
        link_period=periods,
        link_delay=delays,
        credit_delay=delays if load.credit_delay else np.zeros(links, dtype=np.int64),
        first=network.first,
        lanes=network.lanes.ravel(),
        group_period=network.periods.ravel(),
        waiting=np.zeros(network.peers.size, dtype=np.int64),
        place=adaptive.place,
        exits=adaptive.exits,
        port=network.port,
        out_channel=network.channel,
        sizes=np.array(
            [channels, load.injectors, load.queue, network.peers.shape[1], adaptive.columns]
        ),
        turn=np.zeros(chips, dtype=np.int64),
        delivered=np.zeros(load.batches, dtype=np.int64),
        waited=np.zeros(load.batches, dtype=np.int64),
        # Packets refused in the measurement, and the last cycle in which one moved.
        counters=np.zeros(2, dtype=np.int64),
    )


def _outcome(network: FlitNetwork, load: Load, state: State, generated: int) -> Outcome:
    rates = state.delivered * PACKET_FLITS * load.batches / load.cycles / network.senders
    mean, packets = float(rates.mean()), int(state.delivered.sum())
    reach = 0.0
    if load.batches > 1:
        quantile = float(scipy.special.stdtrit(load.batches - 1, (1 + CONFIDENCE) / 2))
        reach = quantile * float(rates.std(ddof=1)) / load.batches**0.5
    refused, moved = (int(value) for value in state.counters)
    in_flight = int(state.occupied.sum())
    last = load.warm_up + load.cycles - 1
    return Outcome(
        offered=generated * PACKET_FLITS / load.cycles / network.senders,
        throughput=mean,
        lower=mean - reach,
        upper=mean + reach,
        latency=float(state.waited.sum()) / packets if packets else float("nan"),
        packets=packets,
        refused=refused / generated if generated else 0.0,
        in_flight=in_flight,
        stalled=last - moved if in_flight else 0,
    )


def saturation(
    network: FlitNetwork, rates: npt.ArrayLike, load: Load, engine: Engine = "auto"
) -> list[Outcome]:
    """Return the outcome at each offered rate: a load-latency curve, and its largest throughput."""
    offered = np.atleast_1d(rates).tolist()
    return [run(network, replace(load, rate=rate), engine) for rate in offered]
