"""The simulated part of a bench: one world, and drivers that are connected to its devices.

This is the only module of the bench that imports the simulation, and it is imported only when a
testbed needs it: a run on hardware loads no simulation module.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from lightrig.harness.bench.assembly import (
    Assembly,
    Clocks,
    UnsupportedHostError,
    open_namespace,
    open_server,
    spec_of,
)
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.registry import open_instrument
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks, KernelPort
from lightrig.instruments.simulated.protocols.listeners import Service
from lightrig.instruments.temporary_folders import TemporaryFolder
from lightrig.testbeds import ServerSpec, Testbed

FIBER_PLANT = "plant"
"""Name of the namespace between the servers, which holds the fibers as bridges and veth pairs."""


def simulate(assembly: Assembly, names: list[str], seed: int) -> SimulatedLab | None:
    """Create one world for all instruments in `names` and open their drivers.

    Raises `UnsupportedHostError` if the testbed needs namespaces and this machine has none.
    """
    if not names:
        return None
    testbed, clock = assembly.testbed, assembly.clock
    namespaces = [s for s in testbed.servers.values() if s.is_local_namespace]
    pids, links = kernel_lab(testbed, namespaces, assembly.closers) if namespaces else ({}, None)
    world = SimulatedLab(testbed, clock, seed, links)
    assembly.closers.append(world.close)
    folder = TemporaryFolder()
    assembly.closers.append(folder.cleanup)
    clocks: Clocks = {}
    for name in names:
        spec = spec_of(testbed, name)
        if name in pids:
            assert isinstance(spec, ServerSpec)
            assembly.add(name, open_namespace(spec, pids[name], clock, clocks))
            continue
        endpoint = endpoint_of(world.services[name], Path(folder.name))
        if isinstance(spec, ServerSpec):
            assembly.add(name, open_server(spec, endpoint, clock, clocks))
        else:
            assembly.add(name, open_instrument(spec, endpoint, clock))
    return world


def kernel_lab(
    testbed: Testbed, specs: Sequence[ServerSpec], closers: list[Callable[[], None]]
) -> tuple[dict[str, int], KernelLinks]:
    """Make the servers `specs` as namespaces, and the links between them.

    Of those behind interfaces that exist the interfaces are joined. Returns a process in each
    namespace of a server, and the links, which are dark. What ends them is added to `closers`.
    Raises `UnsupportedHostError` if this machine has no namespaces.
    """
    if reason := kernel.available():
        raise UnsupportedHostError(f"{testbed.path} needs network namespaces: {reason}")
    made = [spec.name for spec in specs if spec.is_local_namespace]
    namespaces = kernel.Namespaces([FIBER_PLANT, *made])
    closers.append(namespaces.close)
    pids = {name: namespaces.pid(name) for name in made}
    ports = [
        KernelPort(
            spec.name,
            pids.get(spec.name),
            port.netdev,
            port.ip or "",
            nic.rate_bps,
            None if spec.name in pids else port.interface,
        )
        for spec in specs
        for nic in spec.nics.values()
        for port in nic.ports
        if spec.name in pids or port.interface
    ]
    switches = [s.name for s in testbed.switches.values() if s.kind == "packet"]
    links = KernelLinks(namespaces.pid(FIBER_PLANT), ports, switches)
    closers.append(links.close)
    return pids, links


def endpoint_of(service: Service, folder: Path) -> Endpoint:
    """Return the endpoint of a simulated device; what it has to show is written in `folder`.

    A file for each service: a client reads, and checks, all host keys of its file.
    """

    def written(name: str, text: str) -> Path | None:
        if not text:
            return None
        file = folder / f"{name}{service.port}"
        file.write_text(f"{text}\n")
        return file

    return Endpoint(
        service.scheme,
        service.host,
        service.port or None,
        service.login,
        known_hosts=written("known_hosts", service.known_hosts),
        certificates=written("certificates", service.certificate),
        resource=service.resource,
        ssh_config=Path(os.devnull),
    )
