"""A region: the servers whose optical NICs meet at one circuit switch, and what of them works."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from lightrig.testbeds import LightrigError, Link, Port, Testbed


class RegionError(LightrigError, ValueError):
    """A region, or what is asked of it, does not fit what stands in the lab."""


class Gpu(NamedTuple):
    """A GPU: a server's number in its region, and the GPU's place in its server."""

    server: int
    place: int


@dataclass(frozen=True, slots=True)
class OpticalNic:
    """A NIC port on the circuit switch; `numa` is None where nobody said."""

    port: Port
    numa: int | None = None


@dataclass(frozen=True, slots=True)
class RegionServer:
    """One server: working NIC ports on the circuit switch and on the packet switch, and GPUs.

    `ports` and `gpu_count` are what it was built with.
    """

    name: str
    optical: tuple[OpticalNic, ...] = ()
    packet: tuple[Port, ...] = ()
    gpus: tuple[int, ...] = tuple(range(8))
    ports: tuple[Port, ...] = ()
    gpu_count: int = 8


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed components. Of a failed link both NIC ports count: either end may be the cause."""

    servers: frozenset[str] = frozenset()
    nics: frozenset[Port] = frozenset()
    links: frozenset[Link] = frozenset()
    gpus: frozenset[tuple[str, int]] = frozenset()

    @property
    def ports(self) -> frozenset[Port]:
        """The NIC ports that are not to be used."""
        return self.nics | {port for link in self.links for port in (link.a, link.b)}


@dataclass(frozen=True)
class Region:
    """The servers of one expert-parallel group, in the order of a demand's rows."""

    servers: tuple[RegionServer, ...]
    failures: Failures = field(default=Failures(), compare=False)

    @classmethod
    def of(cls, testbed: Testbed, switch: str | None = None) -> "Region":
        """The servers of `testbed` around `switch`, which may be left out where there is one.

        Raises `RegionError` for a switch that is not there, and where several could be meant.
        """
        optical = list(testbed.optical_switches)
        if switch is None and len(optical) != 1:
            raise RegionError(
                f"testbed {testbed.name} has {len(optical)} circuit switches: say one"
            )
        name = switch or optical[0]
        if name not in optical:
            raise RegionError(f"testbed {testbed.name} has no circuit switch {name!r}")
        packet = testbed.switches.keys() - testbed.optical_switches.keys()
        cabling, servers = testbed.cabling, []
        for server in testbed.servers.values():
            lit: list[OpticalNic] = []
            wired: list[Port] = []
            ports = [(nic, spec.port) for nic in server.nics.values() for spec in nic.ports]
            for nic, port in ports:
                ends = cabling.ingress_of(port), cabling.egress_of(port)
                fiber = cabling.fiber_from(port)
                if all(end is not None and end[0] == name for end in ends):
                    lit.append(OpticalNic(port, nic.numa))
                elif fiber is not None and fiber.sink.owner in packet:
                    wired.append(port)
            gpus = tuple(range(server.gpus.count))
            built = tuple(port for _, port in ports)
            servers.append(
                RegionServer(server.name, tuple(lit), tuple(wired), gpus, built, len(gpus))
            )
        return cls(tuple(servers))

    @classmethod
    def whole(cls, testbed: Testbed) -> tuple["Region", dict[int, str]]:
        """All servers of `testbed`, and the circuit switch of each by its number.

        Raises `RegionError` where it has no circuit switch, or a server is on several.
        """
        regions = {name: cls.of(testbed, name) for name in testbed.optical_switches}
        if not regions:
            raise RegionError(f"testbed {testbed.name} has 0 circuit switches, expected one")
        first, servers, switch_of = next(iter(regions)), [], {}
        for number, name in enumerate(testbed.servers):
            on = [each for each, region in regions.items() if region.servers[number].optical]
            if len(on) > 1:
                raise RegionError(f"{name} is on {', '.join(on)}, expected one circuit switch")
            switch_of[number] = on[0] if on else first
            servers.append(regions[switch_of[number]].servers[number])
        return cls(tuple(servers)), switch_of

    def of_servers(self, names: Iterable[str]) -> "Region":
        """The region of these of its servers alone, in this order; raises `RegionError`."""
        known = {server.name: server for server in self.servers}
        names = list(names)
        _known("server", names, known)
        return Region(tuple(known[name] for name in names), self.failures)

    @classmethod
    def uniform(cls, servers: int, optical: int, packet: int = 1, gpus: int = 8) -> "Region":
        """A region that stands nowhere: NICs in turn on two NUMA nodes, the optical ones first."""
        made = []
        for number in range(servers):
            name = f"server{number}"
            ports = tuple(Port(name, f"nic{n}") for n in range(optical + packet))
            lit = tuple(OpticalNic(port, n % 2) for n, port in enumerate(ports[:optical]))
            made.append(RegionServer(name, lit, ports[optical:], tuple(range(gpus)), ports, gpus))
        return cls(tuple(made))

    @property
    def with_ranks(self) -> "Region":
        """The region with a GPU on each server that states none: it has a rank all the same."""
        return replace(
            self,
            servers=tuple(
                server if server.gpu_count else replace(server, gpus=(0,), gpu_count=1)
                for server in self.servers
            ),
        )

    @property
    def degrees(self) -> list[int]:
        """The working optical NIC ports of each server."""
        return [len(server.optical) for server in self.servers]

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each server by its name."""
        return {server.name: number for number, server in enumerate(self.servers)}

    def without(self, failures: Failures) -> "Region":
        """The region that is left; a failed server keeps its number and has nothing more.

        Raises `RegionError` for a failure of something that is not here.
        """
        self._check(failures)
        failed = failures.ports
        left = []
        for server in self.servers:
            dead = server.name in failures.servers
            left.append(
                replace(
                    server,
                    optical=tuple(
                        nic for nic in server.optical if not dead and nic.port not in failed
                    ),
                    packet=tuple(port for port in server.packet if not dead and port not in failed),
                    gpus=tuple(
                        gpu
                        for gpu in server.gpus
                        if not dead and (server.name, gpu) not in failures.gpus
                    ),
                )
            )
        known = self.failures
        return Region(
            tuple(left),
            Failures(
                known.servers | failures.servers,
                known.nics | failures.nics,
                known.links | failures.links,
                known.gpus | failures.gpus,
            ),
        )

    def _check(self, failures: Failures) -> None:
        ports = {port for server in self.servers for port in server.ports}
        _known("server", failures.servers, self.number_of)
        _known("server", (name for name, _ in failures.gpus), self.number_of)
        _known("NIC port", failures.ports, ports)


def _known(what: str, found: Iterable[object], known: Iterable[object]) -> None:
    strangers = set(found) - set(known)
    if strangers:
        named = ", ".join(sorted(map(str, strangers)))
        raise RegionError(f"the region has no {what} {named}")
