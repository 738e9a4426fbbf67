"""Two simulated servers behind real SSH, their ports joined by light that a test switches."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lightrig.instruments.clock import Clock
from lightrig.instruments.servers.host.commands import Commands
from lightrig.instruments.servers.ports.nic import NicTools
from lightrig.instruments.simulated.hosts.host_ports import HostPort, PortLight, SimulatedPort
from lightrig.instruments.simulated.hosts.host_tools import HostSoftware, HostTools
from lightrig.instruments.simulated.protocols.ssh_server import Program, SshServer
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.links import NicLinks
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.testbeds import Delay, Port, PowerRange, SimulatedNic, TransceiverSpec

MS = 1_000_000
SECOND = 1000 * MS
LOGIN = ("bench", "drawn-for-this-test")
LR4 = TransceiverSpec(
    name="qsfp-100g-lr4",
    wavelength_nm=1310.0,
    launch=PowerRange(-4.3, 4.5),
    receive=PowerRange(-10.6, 4.5),
    damage_dbm=5.5,
)
FAST = SimulatedNic(
    loss_detection=Delay(MS),
    bring_up=Delay(20 * MS),
    carrier=Delay(MS),
    resume=Delay(MS),
)


class Pair:
    """Servers `server0` and `server1`, one port each: `ens1f0`, `mlx5_0`."""

    def __init__(
        self,
        clock: Clock,
        *,
        rate_bps: int = 100 * 10**9,
        ber: float = 1e-9,
        nic: SimulatedNic = FAST,
        **software: object,
    ) -> None:
        self.clock = clock
        self.chance = Chance(7)
        self.links = NicLinks(nic, clock, self.chance, GroundTruth())
        self.received_mw = 0.5
        self.lit = False
        here, there = Port("server0", "nic0"), Port("server1", "nic0")
        self.ports = {here: there, there: here}
        light = PortLight(
            lambda port: self.received_mw if self.lit else 0.0,
            lambda port: 1.0,
            lambda port: self.ports[port] if self.lit else None,
        )
        roster: dict[Port, SimulatedPort] = {}
        self.hosts = [
            HostTools(
                port.owner,
                [HostPort(port, "ens1f0", "mlx5_0", rate_bps, LR4, ber)],
                self.links,
                light,
                clock,
                self.chance,
                roster,
                delay=Delay(MS // 10),
                software=HostSoftware(**software),  # type: ignore[arg-type]
            )
            for port in self.ports
        ]

    def light(self, *, on: bool) -> None:
        self.lit = on
        for port, peer in self.ports.items():
            self.links.hears(port, peer if on else None, self.clock.now())


def no_probe(write: object) -> Program:
    raise AssertionError("no probe is asked for here")


@contextlib.contextmanager
def served(pair: Pair, folder: Path) -> Iterator[list[Commands]]:
    """The two servers behind SSH, and what runs commands on them."""
    clock = pair.clock
    with contextlib.ExitStack() as stack:
        peers = []
        for host, name in zip(pair.hosts, ("server0", "server1"), strict=True):
            peers.append(SshServer(name, clock, LOGIN, no_probe, host.run))
            stack.callback(peers[-1].close)
        known_hosts = folder / "known_hosts"
        known_hosts.write_text("".join(f"{peer.known_hosts_line()}\n" for peer in peers))
        commands = []
        for peer in peers:
            shell = SshShell(
                peer.name,
                peer.address[0],
                clock,
                port=peer.address[1],
                login=SshLogin(*LOGIN, known_hosts),
            )
            stack.callback(shell.close)
            commands.append(Commands(peer.name, shell, clock))
        yield commands


def tools(commands: list[Commands]) -> list[NicTools]:
    return [NicTools(each) for each in commands]
