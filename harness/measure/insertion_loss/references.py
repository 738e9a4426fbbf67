"""References: from a file beside the testbed or, in simulation, from a simulated person.

Those of a simulated lab are taken anew in each run, from its seed, and stored nowhere that
hardware would look; those in a file hold for hardware alone.
"""

import datetime
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeAlias

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.insertion_loss.chains import (
    SOURCE_NM,
    NothingToMeasureError,
    chains,
    monitored_ports,
)
from lightrig.harness.measure.insertion_loss.matrix import measure_check_standard
from lightrig.harness.measure.insertion_loss.observers import prepare_meter
from lightrig.harness.measure.insertion_loss.readings import checked_first, cyclic_shifts
from lightrig.harness.statistics.uncertainty import pooled
from lightrig.instruments.clock import wall_time
from lightrig.instruments.core.capabilities import LightSource, PowerMeter, Restorable
from lightrig.testbeds import LightrigError, Port
from lightrig.testbeds.plans import circuit_subject
from lightrig.testbeds.references import (
    METER_DB,
    References,
    ReferenceSet,
    load_references,
    references_path,
)

Plug: TypeAlias = Callable[[Port, Port], Callable[[], None]]
"""Leads the fiber of a source's channel to a meter's; what it returns undoes that."""

Cap: TypeAlias = Callable[[str], None]
"""Request capped inputs on the named meter until it has taken its dark offset."""

READINGS = 16
CONNECTOR_DB = 0.02
"""Default repeatability of a connector, in dB (k = 1), assumed."""

VALID_DAYS = 30
"""Default validity of a reference, in days; its file may state another date."""


def with_checks(fabric: Fabric, found: Sequence[ReferenceSet]) -> list[ReferenceSet]:
    """Return references by meters with the losses of the check standards by them.

    All fibers are in their places again. A loss is noted where both of its references are of one
    set. `fabric` puts back what was found. Raises what `measure_losses` does.
    """
    checks: dict[str, dict[str, float]] = {}
    try:
        measurable = chains(fabric.bench, References(tuple(found)))
    except NothingToMeasureError:
        return [*found]
    for chain in measurable:
        if chain.method != "meter":
            continue
        for circuit, db in measure_check_standard(fabric, chain).items():
            first, second = (plane.of for plane in chain.ends(*circuit))
            if first is not None and first is second:
                checks.setdefault(first.name, {})[circuit_subject(chain.switch, circuit)] = db
    return [replace(one, checks={**one.checks, **checks.get(one.name, {})}) for one in found]


class NoReferenceError(LightrigError):
    """A reference cannot be taken."""


def references_of(bench: Bench) -> References:
    """Return the references valid for `bench`; empty where none has been taken.

    Raises `TestbedError` for a file that is wrong, `NoReferenceError` for one of a simulated lab.
    """
    if bench.world is not None and bench.simulated >= set(bench.switches):
        return simulated_references(bench)
    path = references_path(bench.testbed.path)
    found = load_references(path) if path.exists() else References()
    if found.simulated:
        raise NoReferenceError(
            f"{path} says that its references are simulated: they hold for no hardware; take "
            f"others with `lightrig reference {bench.testbed.path}`"
        )
    return found


def simulated_references(bench: Bench) -> References:
    """Return the references of the simulated lab of `bench` without faults."""
    world, testbed = bench.world, bench.testbed
    assert world is not None
    book = world.references
    launches: dict[Port, float] = {}
    offsets: dict[Port, float] = {}
    checks: dict[str, float] = {}
    for name in sorted(bench.switches):
        ingress, egress = testbed.cabling.cabled_ports(name)
        monitored = monitored_ports(bench.switches[name], ingress | egress)
        offsets |= {Port(name, str(n)): book.offset(name, n) for n in sorted(monitored)}
        for n in sorted(ingress):
            if (dbm := book.launch(name, n)) is not None:
                launches[Port(name, str(n))] = dbm
        leaving = sorted(egress & monitored)
        settings = cyclic_shifts(sorted(ingress), leaving) if ingress and leaving else []
        settings = checked_first(settings, testbed.switches[name])
        for circuit in (c for setting in settings[:1] for c in setting):
            observed = circuit.ingress in monitored
            checks[f"{name} {circuit}"] = book.check(name, circuit, observed=observed)
    today = wall_time().date()
    serials = tuple(f"{one.model}, serial {one.serial}" for one in bench.identities.values())
    found = [
        ReferenceSet(
            name=f"by-hand-{nm:g}",
            taken=today,
            expires=expiry(today),
            wavelength_nm=nm,
            instruments=serials,
            each_db=book.uncertainty_db,
            launches=launches,
            offsets=offsets,
            checks=checks,
            polarization_db=testbed.simulation.references.polarization_db,
            wavelength_db=testbed.simulation.references.wavelength_db,
        )
        for nm in sorted({SOURCE_NM, *(t.wavelength_nm for t in testbed.transceivers.values())})
        if launches or offsets
    ]

    def plug(source: Port, sink: Port) -> Callable[[], None]:
        return world.replug(source, sink, book.plugged(source, sink))

    if can_take(bench):
        found += take_references(bench, plug, connector_db=book.uncertainty_db)
        fabric = Fabric(bench)
        try:
            found = with_checks(fabric, found)
        finally:
            fabric.restore()
    return References(tuple(found), simulated=True)


def can_take(bench: Bench) -> bool:
    """Whether light sources and a meter are cabled that references can be taken with."""
    return bool(_cabled(bench, "light_source", sinks=False) and _cabled(bench, "power_meter"))


def take_references(
    bench: Bench,
    plug: Plug,
    cap: Cap | None = None,
    *,
    connector_db: float = CONNECTOR_DB,
    meter_db: float = METER_DB,
) -> list[ReferenceSet]:
    """Lead each source to each meter, and note what arrives: one set a meter.

    One cord: the fiber of a source is taken out of the switch and plugged into the meter. What
    the meter's first channel shows of a source is its launch, and what another channel shows
    more of the first source is that channel's, so that the meter's own calibration is in no
    loss between references of one meter. Light that is needed is switched on, and is as it was
    found afterwards.

    cap: called before a meter's dark offset is taken; None leaves that as it is.
    connector_db: by how much a connector differs each time it is plugged (k = 1). Three
    connections are in a loss between two references, hence half again as much in each.
    meter_db: how wrong a meter's first channel is (k = 1): it is in no loss between two
    references of one meter, and in those between references of two.

    Raises:
        NoReferenceError: there is no source or no meter.
        InstrumentError: an instrument refused or failed.
    """
    if not can_take(bench):
        raise NoReferenceError(
            f"testbed {bench.testbed.name} has no light source and power meter with fibers, so "
            "there is nothing to take a reference with"
        )
    sources = _cabled(bench, "light_source", sinks=False)
    by_meter: dict[str, list[Port]] = {}
    for sink in _cabled(bench, "power_meter"):
        by_meter.setdefault(sink.owner, []).append(sink)
    if cap is not None:
        for name, sinks in by_meter.items():
            cap(name)
            meter: PowerMeter = bench.instruments[name]  # type: ignore[assignment]
            meter.zero([int(sink.name) for sink in sinks])
    with ExitStack() as stack:
        for source in sources:
            laser: LightSource = bench.instruments[source.owner]  # type: ignore[assignment]
            channel = int(source.name)
            if isinstance(laser, Restorable):
                stack.callback(laser.snapshot([channel]))
            laser.set_wavelength(channel, SOURCE_NM)
            laser.set_emission(channel, on=True)
        found = [
            _at_meter(bench, name, sources, sinks, plug, connector_db)
            for name, sinks in by_meter.items()
        ]
    zeroed = None if cap is None else wall_time().date()
    return [replace(each, common_db=meter_db, zeroed=zeroed) for each in found]


def _at_meter(
    bench: Bench,
    name: str,
    sources: list[Port],
    sinks: list[Port],
    plug: Plug,
    connector_db: float,
) -> ReferenceSet:
    meter: PowerMeter = bench.instruments[name]  # type: ignore[assignment]
    put_back = prepare_meter(meter, [int(sink.name) for sink in sinks], SOURCE_NM)
    pairs = [(source, sinks[0]) for source in sources] + [(sources[0], s) for s in sinks[1:]]
    readings: dict[tuple[Port, Port], list[float]] = {}
    with ExitStack() as stack:
        stack.callback(put_back)
        for source, sink in pairs:
            undo = plug(source, sink)
            try:
                readings[source, sink] = read_meter(bench, meter, int(sink.name))
            finally:
                undo()
    level = {pair: math.fsum(found) / len(found) for pair, found in readings.items()}
    noise = pooled(readings.values(), "noise").standard
    base = level[sources[0], sinks[0]]
    today, identity = wall_time().date(), bench.identities[name]
    return ReferenceSet(
        name=f"{name}-{SOURCE_NM:g}",
        taken=today,
        expires=expiry(today),
        wavelength_nm=SOURCE_NM,
        instruments=(f"{identity.model}, serial {identity.serial}",),
        each_db=math.sqrt(1.5 * (connector_db**2 + noise**2 / READINGS)),
        launches={source: level[source, sinks[0]] for source in sources},
        offsets={sink: level[sources[0], sink] - base for sink in sinks},
        base=(sources[0], sinks[0]),
    )


def read_meter(bench: Bench, meter: PowerMeter, channel: int) -> list[float]:
    """`READINGS` of one channel in dBm, no two of which share a window."""
    found: list[float] = []
    window = 0
    while len(found) < READINGS:
        bench.clock.sleep(window)
        reading = meter.power([channel])
        window = reading.window
        found.append(reading.dbm[channel])
    return found


def _cabled(bench: Bench, kind: str, *, sinks: bool = True) -> list[Port]:
    """The channels of instruments of one kind that fibers lead to, or lead from."""
    testbed = bench.testbed
    ends = [fiber.sink if sinks else fiber.source for fiber in testbed.fibers]
    return [
        port
        for port in ends
        if (spec := testbed.instruments.get(port.owner)) is not None and spec.kind == kind
    ]


def expiry(today: datetime.date) -> datetime.date:
    """Default expiry date of a reference taken `today`."""
    return today + datetime.timedelta(days=VALID_DAYS)
