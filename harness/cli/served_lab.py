"""The laboratory that `lightrig serve` offers: simulated instruments and servers, in real time."""

import shutil
from collections.abc import Callable, Mapping

from lightrig.harness.bench.bench import close_newest_first
from lightrig.harness.bench.simulation import kernel_lab
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.namespaces.sshd import NamespaceSshd, sshd_program
from lightrig.instruments.simulated.hosts.host_shell import shell_obstacle
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.simulated.namespaces.fiber_plant import CarrierListener
from lightrig.instruments.simulated.protocols.listeners import Service
from lightrig.testbeds import LightrigError, ServerSpec, Testbed


class ServedLab:
    """Simulated instruments of a testbed on loopback, and its namespaces behind SSH.

    `logins` are credentials by name; one is drawn for all others. Instruments and servers listen on
    consecutive ports from `first_port` on, in the order switches,
    instruments, servers; 0 is any free port. Behind them come the other wires of switches that
    have several. Servers whose ports have an interface here are joined by those, and not served.
    `carrier_changed` is called after each change of a carrier.

    Attributes:
        world: the simulated lab.
        services: address and credentials by name, on the wire that the file names.
        further_wires: the same for the other wires of a switch.
        interfaces_pid: a process in the network that interfaces of the testbed have been moved to;
            None where it names none.
        lacking: what this machine lacks, and what the lab cannot do without it, one a line.

    Raises:
        OSError: a port is taken.
        LightrigError: a model has no simulated device, or this machine no namespaces or no sshd.
    """

    def __init__(
        self,
        testbed: Testbed,
        seed: int,
        first_port: int,
        logins: Mapping[str, tuple[str, str]] | None = None,
        carrier_changed: CarrierListener | None = None,
    ) -> None:
        self._carrier_changed = carrier_changed
        self._closers: list[Callable[[], None]] = []
        try:
            self._open(testbed, seed, first_port, logins or {})
        except BaseException:
            self.close()
            raise

    @property
    def failure(self) -> LightrigError | None:
        """The error that ended the simulation; None so far."""
        return self.world.failure

    def close(self) -> None:
        """End all services, and the namespaces."""
        closers, self._closers = self._closers, []
        close_newest_first(closers)

    def _open(
        self,
        testbed: Testbed,
        seed: int,
        first_port: int,
        logins: Mapping[str, tuple[str, str]],
    ) -> None:
        clock = SystemClock()
        self._closers.append(clock.close)
        obstacle = shell_obstacle()
        self.lacking = []
        self.interfaces_pid: int | None = None
        namespaces = [s for s in testbed.servers.values() if s.is_local_namespace]
        elsewhere = servers_elsewhere(testbed)
        pids: dict[str, int] = {}
        links = None
        if namespaces:
            sshd_program()  # before anything is made
            if shutil.which("ethtool") is None:
                self.lacking.append("ethtool: ports of namespaces cannot be examined")
        if in_kernel := [*namespaces, *elsewhere]:
            pids, links = kernel_lab(testbed, in_kernel, self._closers)
            if elsewhere:
                self.interfaces_pid = links.plant_pid
        if obstacle and len(in_kernel) < len(testbed.servers):
            self.lacking.append(f"simulated servers have no shell: {obstacle}")
        self.world = world = SimulatedLab(
            testbed,
            clock,
            seed,
            links,
            first_port=first_port,
            logins=logins,
            stated_identities=True,
            with_shells=obstacle is None,
            elsewhere=[server.name for server in elsewhere],
            carrier_changed=self._carrier_changed,
        )
        self._closers.append(world.close)
        self.services = dict(world.services)
        for name, pid in pids.items():
            port = first_port + len(self.services) if first_port else 0
            login = logins.get(name, world.login)
            sshd = NamespaceSshd(pid, name, login, port)
            self._closers.append(sshd.close)
            self.services[name] = Service("ssh", *sshd.address, login, sshd.known_hosts_line())
        after = first_port + len(self.services) if first_port else 0
        self.further_wires = world.serve_further_wires(after)


def servers_elsewhere(testbed: Testbed) -> list[ServerSpec]:
    """Return the servers that exist, and are joined by interfaces of this machine."""
    servers = testbed.servers.values()
    return [s for s in servers if s.has_interfaces and not s.is_local_namespace]
