"""Opening a testbed: which part is hardware, which is simulated.

The choice is made per optical domain, all instruments that fibers connect: light from a real laser
does not reach a simulated meter.
"""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from lightrig.harness.bench.assembly import Assembly, Clocks, open_server, spec_of
from lightrig.harness.bench.bench import Bench, close_newest_first
from lightrig.harness.bench.credentials import look_up
from lightrig.harness.modes import Mode
from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import Identified, Identity
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import WrongIdentityError
from lightrig.instruments.core.registry import Spec, open_instrument
from lightrig.instruments.wire.tcp import is_placeholder
from lightrig.testbeds import LightrigError, ServerSpec, Testbed


class LabUnavailableError(LightrigError):
    """Hardware is required, and some of it did not answer as described."""


@dataclass(frozen=True, slots=True)
class _Absent:
    name: str
    address: str
    why: str
    after: float

    def __str__(self) -> str:
        return f"{self.name} at {self.address}, after {self.after:.2f} s: {self.why}"


def bind(testbed: Testbed, mode: Mode, seed: int = 0) -> Bench:
    """Open every instrument of `testbed`, on hardware or in a simulated world.

    `auto` uses the hardware of each optical domain all of whose members answer, and simulates the
    others; `hardware` requires all of them; `simulated` contacts nothing outside this machine.

    Raises:
        LabUnavailableError: in `hardware` mode, naming every instrument that did not answer, its
            address and the elapsed time.
        UnsupportedHostError: the testbed needs namespaces and this machine has none.
    """
    opened: dict[str, Identified] = {}
    identities: dict[str, Identity] = {}
    absent: list[_Absent] = []
    notes: list[str] = []
    real: set[str] = set()
    clock: Clock = SystemClock()
    clocks: Clocks = {}
    if mode != "simulated":
        for domain in _domains(testbed):
            found, missing = _open_domain(testbed, domain, clock, clocks)
            absent += missing
            if missing:
                for instrument, _ in found.values():
                    instrument.close()
                notes.append(f"{', '.join(sorted(domain))} simulated, since {missing[0]}")
                continue
            real |= domain
            for name, (instrument, identity) in found.items():
                opened[name], identities[name] = instrument, identity
    if mode == "hardware" and absent:
        for instrument in opened.values():
            instrument.close()
        raise _unavailable(testbed, absent, len(_names(testbed)))
    absentees = [name for name in _names(testbed) if name not in real]
    namespaces = any(s.is_local_namespace for s in testbed.servers.values())
    closers: list[Callable[[], None]] = []
    if not real and not namespaces:
        clock.close()
        clock = VirtualClock()
        closers += [_pin_cpu(), _freeze_gc()]
    assembly = Assembly(testbed, clock, opened, identities, closers)
    world = None
    if absentees:
        # A run on hardware loads no simulation.
        from lightrig.harness.bench.simulation import simulate  # noqa: PLC0415

        try:
            world = simulate(assembly, absentees, seed)
        except BaseException:
            close_newest_first(assembly.closers)
            raise
    simulated = {name for name, identity in assembly.identities.items() if identity.simulated}
    if world is not None:  # some protocols have no identity that could say so
        simulated |= world.services.keys()
    return Bench(
        testbed,
        clock,
        {name: assembly.switches[name] for name in testbed.optical_switches},
        {name: assembly.servers[name] for name in testbed.servers},
        {name: assembly.instruments[name] for name in testbed.instruments},
        {name: assembly.identities[name] for name in _names(testbed)},
        frozenset(simulated),
        frozenset(real),
        tuple(notes),
        world,
        assembly.closers,
    )


def bind_switches(testbed: Testbed) -> Bench:
    """Open only the optical switches of `testbed`, on hardware; circuits need nothing else.

    Raises `LabUnavailableError` for every switch that did not answer as described.
    """
    clock = SystemClock()
    names = set(testbed.optical_switches)
    found, absent = _open_domain(testbed, names, clock, {})
    if absent:
        for instrument, _ in found.values():
            instrument.close()
        clock.close()
        raise _unavailable(testbed, absent, len(names))
    assembly = Assembly(
        testbed,
        clock,
        {name: instrument for name, (instrument, _) in found.items()},
        {name: identity for name, (_, identity) in found.items()},
        [],
    )
    simulated = frozenset(name for name, each in assembly.identities.items() if each.simulated)
    return Bench(
        *(testbed, clock, assembly.switches, {}, {}, assembly.identities, simulated),
        external=frozenset(names),
        _closers=assembly.closers,
    )


def _unavailable(testbed: Testbed, absent: list[_Absent], asked: int) -> LabUnavailableError:
    return LabUnavailableError(
        f"{len(absent)} of {asked} instruments of {testbed.path} did not answer as described:\n  "
        + "\n  ".join(map(str, absent))
    )


def _names(testbed: Testbed) -> list[str]:
    return [*testbed.optical_switches, *testbed.servers, *testbed.instruments]


def _domains(testbed: Testbed) -> list[set[str]]:
    domain = {name: {name} for name in _names(testbed)}
    for fiber in testbed.fibers:
        if {fiber.source.owner, fiber.sink.owner} <= domain.keys():
            joined = domain[fiber.source.owner] | domain[fiber.sink.owner]
            domain.update(dict.fromkeys(joined, joined))
    return sorted({id(names): names for names in domain.values()}.values(), key=min)


def _pin_cpu() -> Callable[[], None]:
    """Pin this thread, and those that it starts, to one CPU; return a function that undoes it.

    In virtual time one thread runs at a time and mostly wakes the next one: waking it on another
    CPU costs a third of a reconfiguration's real time. Parallel processes choose different CPUs.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(allowed)[os.getpid() % len(allowed)]})
    return lambda: os.sched_setaffinity(0, allowed)


def _freeze_gc() -> Callable[[], None]:
    """Exclude all present objects from garbage collection; return a function that undoes it.

    Traversing the objects of all loaded libraries takes a tenth of a simulated night. Garbage of
    this moment stays until the bench is closed: finding it would be one more such traversal.
    """
    gc.freeze()
    return gc.unfreeze


# ---------------------------------------------------------------------------- hardware


def _open_domain(
    testbed: Testbed, domain: set[str], clock: Clock, clocks: Clocks
) -> tuple[dict[str, tuple[Identified, Identity]], list[_Absent]]:
    """Open all members in parallel; return those that answered, and those that did not."""
    names = [name for name in _names(testbed) if name in domain]
    outcomes = clock.parallel(*(partial(_open_one, testbed, name, clock, clocks) for name in names))
    found = {
        name: outcome
        for name, outcome in zip(names, outcomes, strict=True)
        if not isinstance(outcome, _Absent)
    }
    return found, [outcome for outcome in outcomes if isinstance(outcome, _Absent)]


def _open_one(
    testbed: Testbed, name: str, clock: Clock, clocks: Clocks
) -> tuple[Identified, Identity] | _Absent:
    spec = spec_of(testbed, name)
    address = spec.address or "no address"
    start = clock.now()
    instrument: Identified | None = None
    try:
        placeholder = is_placeholder(Endpoint.parse(address, None).host)
        # A placeholder is never contacted: do not require credentials for it.
        login = look_up(spec.login) if spec.login and not placeholder else None
        endpoint = replace(Endpoint.parse(address, login), known_hosts=testbed.known_hosts)
        if not isinstance(spec, ServerSpec):
            instrument = open_instrument(spec, endpoint, clock)
        elif endpoint.scheme == "netns":
            return _Absent(name, address, "a namespace is cabled to no hardware", 0.0)
        else:
            instrument = open_server(spec, endpoint, clock, clocks)
        identity = instrument.identity()
        _check_identity(spec, identity)
    except LightrigError as error:
        if instrument is not None:
            instrument.close()
        why = str(error).splitlines()[0].removeprefix(f"{name} ")
        return _Absent(name, address, why, (clock.now() - start) / 1e9)
    return instrument, identity


def _check_identity(spec: Spec | ServerSpec, found: Identity) -> None:
    if isinstance(spec, ServerSpec):
        return
    for what in ("model", "serial", "firmware"):
        expected = getattr(spec.identity, what)
        if expected is not None and expected != getattr(found, what):
            raise WrongIdentityError(
                spec.name,
                f"is not the expected one: {what} {getattr(found, what)!r}, expected {expected!r}",
            )
