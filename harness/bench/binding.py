"""Opening a testbed: which part is hardware, which is simulated.

The choice is made per optical domain, all instruments that fibers connect: light from a real laser
does not reach a simulated meter.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from lightrig.harness.bench.absent_server import AbsentServer
from lightrig.harness.bench.assembly import Assembly, Clocks, open_server, spec_of
from lightrig.harness.bench.bench import Bench, close_newest_first
from lightrig.harness.bench.descriptors import HARDWARE, allow_open_files
from lightrig.harness.bench.labgrid_lease import LabgridPlace
from lightrig.harness.bench.lease import Claimant, Lease, MachineLocks, address_keys, identity_key
from lightrig.harness.bench.saved_state import SavedStates
from lightrig.harness.bench.shared_lease import SharedFolder
from lightrig.harness.garbage import exclude_present
from lightrig.harness.machine_folder import machine_folder
from lightrig.harness.modes import Mode
from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import Identified, Identity
from lightrig.instruments.core.endpoint import AddressError, Endpoint
from lightrig.instruments.core.errors import SshConfigError, WrongIdentityError
from lightrig.instruments.core.registry import Spec, open_instrument
from lightrig.instruments.wire.known_hosts import KnownHosts
from lightrig.instruments.wire.ssh_config import read_settings
from lightrig.instruments.wire.tcp import is_placeholder
from lightrig.testbeds import LightrigError, ServerSpec, Testbed
from lightrig.testbeds.credentials import look_up

_NO_IDENTITY = Identity("", "", "", "")


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


class Service(Claimant, Protocol):
    """Where the processes of a service agree on the one that may use instruments."""

    service: str


def open_lease(
    testbed: Testbed,
    purpose: str,
    service: Service | None = None,
    hold_ns: int = 0,
    *,
    yields: bool = False,
) -> Lease:
    """Return a lease that holds nothing yet, at the places where `testbed` is shared.

    service: that this process belongs to, which is asked as well. hold_ns: for how long it will
    be held, as others are told; 0 where that is not known. yields: see `Lease`.

    Raises `LabFolderError` for a folder that cannot be used.
    """
    machine = MachineLocks(machine_folder())
    claimants: list[Claimant] = [machine]
    if testbed.lab_folder is not None:
        claimants.append(SharedFolder(testbed.lab_folder))
    if testbed.coordinator is not None:
        claimants.append(LabgridPlace(testbed.coordinator, machine))
    if service is None:
        return Lease(claimants, purpose, hold_ns=hold_ns, yields=yields)
    return Lease([*claimants, service], purpose, service.service)


def state_folder(testbed: Testbed) -> Path:
    """Return the folder of the saved states of a testbed."""
    return testbed.lab_folder or machine_folder()


def lease_address(testbed: Testbed, name: str, lease: Lease) -> list[str]:
    """Lease an instrument before it is contacted; returns the keys that are new."""
    spec = spec_of(testbed, name)
    return lease.take(f"{name} ({spec.address or 'no address'})", address_keys(spec))


def lease_identity(testbed: Testbed, name: str, identity: Identity, lease: Lease) -> None:
    """Lease an instrument by the identity that it has reported."""
    spec = spec_of(testbed, name)
    if not isinstance(spec, ServerSpec):  # whose names are no serial numbers
        lease.take(f"{name} ({identity})", {identity_key(identity, spec.address)})


def bind(
    testbed: Testbed,
    mode: Mode,
    seed: int = 0,
    purpose: str = "a measurement",
    hold_ns: int = 0,
    optional: Collection[str] = (),
    on_clock: Callable[[Clock], None] | None = None,
) -> Bench:
    """Open every instrument of `testbed`, on hardware or in a simulated world.

    optional: servers without which hardware is used all the same; one that did not answer raises
    `NotThereError` where it is used, and has no identity. on_clock: called with the clock of the
    bench before anything on it is opened; twice where hardware was looked for and is not used.

    `auto` uses the hardware of each optical domain all of whose members answer, and simulates the
    others; `hardware` requires all of them; `simulated` contacts nothing outside this machine.
    Hardware is leased before it is contacted, by its address, and by its serial number as soon as
    that is known; `purpose` is what others are told who want it meanwhile, and with `hold_ns` for
    how long.

    Raises:
        LeaseConflictError: another process uses an instrument, in any mode but `simulated`.
        LabFolderError: the folder of leases cannot be used.
        LabUnavailableError: in `hardware` mode, naming every instrument that did not answer, its
            address and the elapsed time; in `auto` mode too where an instrument is behind SSH and
            the known host keys cannot be read.
        OpenFilesLimitError: this process may not open as many files as that needs.
        UnsupportedHostError: the testbed needs namespaces and this machine has none.
    """
    allow_open_files(len(_names(testbed)), str(testbed.path))
    opened: dict[str, Identified] = {}
    identities: dict[str, Identity] = {}
    absent: list[_Absent] = []
    notes: list[str] = []
    real: set[str] = set()
    clock: Clock = SystemClock()
    if on_clock is not None:
        on_clock(clock)
    clocks: Clocks = {}
    lease: Lease | None = None
    if mode != "simulated":
        notes += _ssh_notes(testbed, _names(testbed))
        lease = open_lease(testbed, purpose, hold_ns=hold_ns)
        try:
            for domain in _domains(testbed):
                spare = {} if domain <= set(optional) and mode == "auto" else optional
                found, missing = _open_domain(testbed, domain, clock, clocks, lease, spare)
                absent += missing
                if missing:
                    notes.append(f"{', '.join(sorted(domain))} simulated, since {missing[0]}")
                    continue
                real |= domain
                for name, (instrument, identity) in found.items():
                    opened[name] = instrument
                    if isinstance(instrument, AbsentServer):
                        notes.append(f"without {instrument.why}")
                    else:
                        identities[name] = identity
            if mode == "hardware" and absent:
                raise _unavailable(testbed, absent, len(_names(testbed)))
        except BaseException:
            close_newest_first(
                [lease.release, clock.close, *(each.close for each in opened.values())]
            )
            raise
    absentees = [name for name in _names(testbed) if name not in real]
    namespaces = any(s.is_local_namespace for s in testbed.servers.values())
    closers: list[Callable[[], None]] = [lease.release] if lease is not None else []
    if not real and not namespaces:
        clock.close()
        clock = VirtualClock()
        if on_clock is not None:
            on_clock(clock)
        closers += [_pin_cpu(), exclude_present()]
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
        {n: assembly.identities[n] for n in _names(testbed) if n in assembly.identities},
        frozenset(simulated),
        frozenset(real),
        tuple(notes),
        world,
        lease if real else None,
        SavedStates(state_folder(testbed)) if real else None,
        purpose,
        assembly.closers,
    )


def bind_only(
    testbed: Testbed,
    names: set[str],
    purpose: str,
    service: Service | None = None,
    lease: Lease | None = None,
) -> Bench:
    """Open only the instruments and servers in `names`, on hardware, leased as by `open_lease`.

    lease: to take them with instead; the bench releases it.

    Raises `LabUnavailableError` for every one that did not answer as described, and
    `LeaseConflictError`, `LabFolderError` and `OpenFilesLimitError` as `bind` does.
    """
    allow_open_files(len(names), str(testbed.path), HARDWARE)
    _ssh_notes(testbed, names)
    lease = lease or open_lease(testbed, purpose, service)
    clock = SystemClock()
    try:
        found, absent = _open_domain(testbed, names, clock, {}, lease)
        if absent:
            raise _unavailable(testbed, absent, len(names))
    except BaseException:
        close_newest_first([lease.release, clock.close])
        raise
    assembly = Assembly(
        testbed,
        clock,
        {name: instrument for name, (instrument, _) in found.items()},
        {name: identity for name, (_, identity) in found.items()},
        [lease.release],
    )
    simulated = frozenset(name for name, each in assembly.identities.items() if each.simulated)
    return Bench(
        testbed=testbed,
        clock=clock,
        switches=assembly.switches,
        servers=assembly.servers,
        instruments=assembly.instruments,
        identities=assembly.identities,
        simulated=simulated,
        external=frozenset(names),
        lease=lease,
        saved_states=SavedStates(state_folder(testbed)),
        purpose=purpose,
        _closers=assembly.closers,
    )


def _unavailable(testbed: Testbed, absent: list[_Absent], asked: int) -> LabUnavailableError:
    return LabUnavailableError(
        f"{len(absent)} of {asked} instruments of {testbed.path} did not answer as described:\n  "
        + "\n  ".join(map(str, absent))
    )


def _ssh_notes(testbed: Testbed, names: Iterable[str]) -> list[str]:
    """Return a note on known host keys that are left out, where an instrument is behind SSH.

    Raises `LabUnavailableError` where they, or the configuration of SSH's client, cannot be read:
    that says nothing about the lab, which must not be simulated for it.
    """
    for name in names:
        with contextlib.suppress(AddressError):
            endpoint = Endpoint.parse(spec_of(testbed, name).address or "", None)
            if endpoint.scheme in {"ssh", "netconf"} and not is_placeholder(endpoint.host):
                break
    else:
        return []
    try:
        if endpoint.scheme == "ssh":
            read_settings(name, endpoint.host, file=testbed.ssh_config)
        note = KnownHosts(testbed.known_hosts).note
    except SshConfigError as error:
        raise LabUnavailableError(str(error)) from error
    except OSError as error:
        raise LabUnavailableError(
            f"{name} of {testbed.path} was not contacted, since known_hosts cannot be read: {error}"
            "\n  try       mend the file, or name another by `known_hosts:` of the testbed"
        ) from error
    return [note] if note else []


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


# ---------------------------------------------------------------------------- hardware


def _open_domain(
    testbed: Testbed,
    domain: set[str],
    clock: Clock,
    clocks: Clocks,
    lease: Lease,
    optional: Collection[str] = (),
) -> tuple[dict[str, tuple[Identified, Identity]], list[_Absent]]:
    """Lease and open all members; return those that answered, and those that did not.

    Where one did not answer that is not optional, all are closed and free again. Raises
    `LeaseConflictError`.
    """
    names = [name for name in _names(testbed) if name in domain]
    found: dict[str, tuple[Identified, Identity]] = {}
    absent: list[_Absent] = []
    taken: list[str] = []
    try:
        for name in names:
            taken += lease_address(testbed, name, lease)
        tasks = (partial(_open_one, testbed, name, clock, clocks) for name in names)
        for name, outcome in zip(names, clock.parallel(*tasks), strict=True):
            if isinstance(outcome, _Absent) and name in optional:
                found[name] = AbsentServer(name, str(outcome)), _NO_IDENTITY
            elif isinstance(outcome, _Absent):
                absent.append(outcome)
            else:
                found[name] = outcome
        if not absent:
            for name, (instrument, identity) in found.items():
                if isinstance(instrument, AbsentServer):
                    continue
                lease_identity(testbed, name, identity, lease)
    except BaseException:
        for instrument, _ in found.values():
            instrument.close()
        raise
    if absent:
        for instrument, _ in found.values():
            instrument.close()
        lease.give_back(taken)
    return found, absent


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
        endpoint = replace(
            Endpoint.parse(address, login),
            known_hosts=testbed.known_hosts,
            ssh_config=testbed.ssh_config,
        )
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
