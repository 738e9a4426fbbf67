"""Ingress ports whose light can be taken away, each alone, and the age of readings by that."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from lightrig.harness.certify.subject import Outcome, Subject
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM
from lightrig.instruments.core.capabilities import BlocksPorts, LightSource
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import Port

OLD_NS = 200_000_000
"""Age of readings, in ns, from which on no clause fails by them."""

_LONGEST = 5_000_000_000
_TRIED = 3


class Inputs:
    """Those of some ingress ports that can be made dark alone.

    By the laser before a port; where interrupting clauses are permitted by the transmitter of the
    NIC port before it, whose device loses addresses with it; else by the port's own shutter.
    """

    def __init__(self, subject: Subject, ingress: Collection[int]) -> None:
        self._subject = subject
        bench, cabling = subject.fabric.bench, subject.fabric.testbed.cabling
        self._lasers: dict[int, tuple[LightSource, int]] = {}
        self._devices: dict[int, tuple[LinuxServer, str, str]] = {}
        devices = _devices(subject) if "interrupting" in subject.trial.permitted else {}
        for port in ingress:
            source = cabling.transmitter(subject.name, port)
            if source is None:
                continue
            laser = bench.instruments.get(source.owner)
            server = bench.servers.get(source.owner)
            if isinstance(laser, LightSource):
                self._lasers[port] = laser, int(source.name)
            elif source in devices and isinstance(server, LinuxServer):
                self._devices[port] = server, source.owner, devices[source]
        left = [port for port in ingress if port not in {*self._lasers, *self._devices}]
        self._shutters = self._open_shutters(left)

    @property
    def ports(self) -> frozenset[int]:
        """All that can be made dark."""
        return frozenset((*self._lasers, *self._devices, *self._shutters))

    @property
    def means(self) -> str:
        """What makes them dark, as part of a sentence; empty for nothing."""
        known = {"laser": self._lasers, "transmitter": self._devices, "shutter": self._shutters}
        return " or ".join(name for name, ports in known.items() if ports)

    @contextmanager
    def dark(self, ports: Collection[int]) -> Iterator[None]:
        """Take the light of these ports away meanwhile, where it can be."""
        switch = self._subject.switch
        with ExitStack() as stack:
            for port in sorted(ports):
                if port in self._lasers:
                    laser, channel = self._lasers[port]
                    stack.callback(laser.set_emission, channel, on=True)
                    laser.set_emission(channel, on=False)
                elif port in self._devices:
                    server, name, netdev = self._devices[port]
                    self._subject.trial.before_down(name, netdev)
                    stack.callback(server.nic.set_device, netdev, up=True)
                    server.nic.set_device(netdev, up=False)
            closed = sorted(self._shutters & set(ports))
            if closed and isinstance(switch, BlocksPorts):
                stack.callback(switch.set_shutters, closed, is_open=True)
                switch.set_shutters(closed, is_open=False)
            yield

    def _open_shutters(self, ports: Collection[int]) -> frozenset[int]:
        """Return the ports whose shutter is open, and can be closed as far as the driver says."""
        switch = self._subject.switch
        if not ports or not isinstance(switch, BlocksPorts):
            return frozenset()
        try:
            return frozenset(
                port for port, is_open in switch.shutters(list(ports)).items() if is_open
            )
        except DeniedError:  # not over this wire, or not on this unit
            return frozenset()


def _devices(subject: Subject) -> Mapping[Port, str]:
    """Return the devices of NIC ports that send from one port alone, by that port."""
    known = subject.fabric.testbed.nic_ports
    of_device: dict[tuple[str, str], list[Port]] = {}
    for each in known:
        of_device.setdefault((each.port.owner, each.netdev), []).append(each.port)
    return {ports[0]: netdev for (_, netdev), ports in of_device.items() if len(ports) == 1}


def undecided_if_old(subject: Subject, chain: Chain, found: Outcome) -> Outcome:
    """Return an outcome; one that fails by readings that are old is inconclusive.

    The light of `chain` has to be on.
    """
    if found.verdict != "fail":
        return found
    age, sure = _age(subject, chain)
    if age is None or age < OLD_NS:
        return found
    stated = f"monitors lag by {age / 1e9:.1f} s"
    if not sure:
        stated += ", or light goes so late (nothing makes an input dark beside the switch)"
    return replace(found, verdict="inconclusive", reason=f"{stated}; then {found.reason}")


def _age(subject: Subject, chain: Chain) -> tuple[int | None, bool]:
    """Return how old readings of dark light are at most, in ns, and whether that is sure.

    None where no light came or went. Not sure: it may be the switch that is late, since its
    circuit was removed.
    """
    clock = subject.fabric.bench.clock
    inputs = Inputs(subject, [port for port in subject.ingress if port in chain.ingress])
    for circuit in subject.pairs[:_TRIED]:
        subject.apply([circuit])
        subject.sleep(_LONGEST)
        lit = {port for port, dbm in _egress(chain).items() if dbm > DARK_DBM}
        if not lit:
            continue
        sure = circuit.ingress in inputs.ports
        with ExitStack() as stack:
            began = clock.now()
            if sure:
                stack.enter_context(inputs.dark([circuit.ingress]))
            else:
                subject.apply([])
            while clock.now() < began + _LONGEST:
                seen = _egress(chain)
                if any(seen[port] <= DARK_DBM for port in lit):
                    return clock.now() - began, sure
                subject.sleep(max(each.read().window for each in chain.observers))
    return None, False


def _egress(chain: Chain) -> Mapping[int, float]:
    """Return one reading of all egress ports, in dBm."""
    seen = {port: dbm for each in chain.observers for port, dbm in each.read().dbm.items()}
    return {port: seen[port] for port in chain.egress}
