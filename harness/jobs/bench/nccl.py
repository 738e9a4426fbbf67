"""Collectives among the GPUs of a bench, by nccl-tests."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from urllib.parse import urlsplit

from lightrig.harness.bench.bench import Bench
from lightrig.harness.jobs.planning.rings import BrokenRingError, ring_order
from lightrig.instruments.jobs.flows.bandwidth import Collective
from lightrig.instruments.jobs.flows.of_testbed import fabric_links, joined_servers, network_of
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.traffic.launchers import Launcher, Mpirun
from lightrig.instruments.jobs.traffic.nccl_runner import NcclTests
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Plan, Port, Testbed

SCRATCH = "lightrig-nccl-tests.json"
"""File of nccl-tests with the times of single operations, in the home folder of the login."""

CARRIER_TIMEOUT = 60_000_000_000
"""Time allowed for a port on a packet switch to come up, in ns."""

NAMED_PAIRS = 6
"""Pairs of servers without a link that a reason names; a large fabric has thousands."""

_PERIOD = 1_000_000_000


class NoCarrierError(LightrigError):
    """A port on a packet switch did not come up."""


class NoGpusError(LightrigError):
    """The servers of a bench cannot run nccl-tests."""


def without_gpus(testbed: Testbed) -> str:
    """Return why nccl-tests cannot run on a testbed's servers; empty if it can."""
    servers = testbed.servers.values()
    if lacking := [spec.name for spec in servers if not spec.gpus.count]:
        return f"{', '.join(lacking)} have no GPUs"
    if unreachable := [spec.name for spec in servers if urlsplit(spec.address).scheme != "ssh"]:
        return f"{', '.join(unreachable)} are not reached over SSH"
    return "" if servers else "there are no servers"


def ring_of(testbed: Testbed, plan: Plan) -> tuple[str, ...]:
    """Return the servers in the order of a ring of `plan`.

    Of several rings it is the first; without a ring, if packet switches join all servers, the
    order of the file. Raises `BrokenRingError` otherwise.
    """
    names = tuple(testbed.servers)
    links = testbed.links(plan)
    groups = joined_servers(testbed, links)
    try:
        if len(groups) > 1 and set(names) == {name for group in groups for name in group}:
            rings = [ring_order(group, links) for group in groups]  # every group must be a ring
            return rings[0]
        return ring_order(names, links)
    except BrokenRingError:
        if next(_apart(testbed, plan, names), ""):
            raise
        return names


def obstacle(testbed: Testbed, collective: Collective, plan: Plan) -> str:
    """Return why a collective cannot run on `plan`; empty if it can.

    Every collective needs a ring, an all-to-all links between all servers of it.
    """
    try:
        servers = ring_of(testbed, plan)
    except BrokenRingError as error:
        return str(error)
    if collective != "all_to_all":
        return ""
    apart = list(islice(_apart(testbed, plan, servers), NAMED_PAIRS + 1))
    if not apart:
        return ""
    if len(apart) > NAMED_PAIRS:
        apart[-1] = "others"
    return f"no link joins {', '.join(apart)}, and the servers do not forward for each other"


def _apart(testbed: Testbed, plan: Plan, servers: Sequence[str]) -> Iterator[str]:
    """Yield the pairs of `servers` without a path in `plan`."""
    router = Router(network_of(testbed, fabric_links(testbed, plan)))
    for a, b in combinations(servers, 2):
        if not router.reaches(a, b):
            yield f"{a} and {b}"


class NcclOverCircuits:
    """nccl-tests on servers that do not forward: a rank reaches only servers joined by a circuit.

    Args:
        bench: its servers must resolve each other's host names of the testbed file.
        launcher: starts the ranks; mpirun by default.
        environment: variables for all ranks, such as NCCL_IB_HCA.
        folder: folder of the tests on every server; empty if they are on the path.
        per_operation: whether to record the time of every operation, from version 2.17.

    Raises:
        NoGpusError: a server has no GPU, or is not reached over SSH.
    """

    def __init__(
        self,
        bench: Bench,
        launcher: Launcher | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        folder: str = "",
        per_operation: bool = True,
    ) -> None:
        if why := without_gpus(bench.testbed):
            raise NoGpusError(f"nccl-tests cannot run on {bench.testbed.name}: {why}")
        servers = bench.testbed.servers.values()
        self._testbed = bench.testbed
        self._clock = bench.clock
        self._servers = {n: s for n, s in bench.servers.items() if isinstance(s, LinuxServer)}
        self._runner = NcclTests(
            {name: server.commands for name, server in self._servers.items()},
            {spec.name: urlsplit(spec.address).hostname or spec.name for spec in servers},
            launcher or Mpirun(),
            environment=environment or {},
            folder=folder,
            scratch=SCRATCH if per_operation else None,
            simulated=not bench.simulated.isdisjoint(bench.servers),
        )

    @property
    def runner(self) -> NcclTests:
        """The runner of nccl-tests."""
        return self._runner

    @property
    def traffic(self) -> None:
        """None: nccl-tests cannot run until stopped."""

    @property
    def largest(self) -> int:
        """A size in bytes at which the link rate dominates the cost of each operation."""
        return 1 << 28

    def ranks(self, plan: Plan) -> tuple[str, ...]:
        """Return a server per rank, one rank per GPU, in the order of `ring_of` the plan."""
        servers, ring = self._testbed.servers, ring_of(self._testbed, plan)
        return tuple(name for name in ring for _ in range(servers[name].gpus.count))

    def route(self, plan: Plan) -> None:
        """Wait for the carriers of ports that `plan` connects to packet switches.

        Raises `NoCarrierError` if one has no carrier within `CARRIER_TIMEOUT`.
        """
        down = [
            port
            for link in fabric_links(self._testbed, plan)
            for port, peer in ((link.a, link.b), (link.b, link.a))
            if peer.owner in self._testbed.switches
        ]
        deadline = self._clock.now() + CARRIER_TIMEOUT
        while down := [port for port in down if not self._has_carrier(port)]:
            if self._clock.now() >= deadline:
                raise NoCarrierError(
                    f"{', '.join(map(str, down))}: no carrier from a packet switch within "
                    f"{CARRIER_TIMEOUT / 1e9:g} s of plan {plan.name}"
                )
            self._clock.sleep(_PERIOD)

    def _has_carrier(self, port: Port) -> bool:
        netdev = self._testbed.nic_port(port).netdev
        return self._servers[port.owner].nic.device(netdev).value.carrier

    def close(self) -> None:
        """Do nothing: nothing was changed on the servers."""
