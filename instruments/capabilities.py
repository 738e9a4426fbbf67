"""What a thing on the bench can do: protocols, no code.

Measurements and the bench know these and never a driver. Power is in dBm, time in
integer nanoseconds of the bench's clock unless a name says otherwise.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from instruments.clock import Span
from testbeds import Circuit


@dataclass(frozen=True, slots=True)
class Identity:
    """Who answered: what an instrument says of itself."""

    manufacturer: str
    model: str
    serial: str
    firmware: str

    @property
    def simulated(self) -> bool:
        """Whether the instrument declares itself simulated, by a serial starting with SIM."""
        return self.serial.upper().startswith("SIM")

    def __str__(self) -> str:
        return f"{self.manufacturer} {self.model}, serial {self.serial}, firmware {self.firmware}"


class Identified(Protocol):
    """Anything that can say what it is."""

    @property
    def name(self) -> str:
        """Its name in the testbed."""

    def identity(self) -> Identity:
        """Ask it who it is."""

    def wire(self) -> Sequence[str]:
        """The last lines that went over its wire, oldest first, secrets masked."""

    def close(self) -> None:
        """End every session with it."""


@runtime_checkable
class Troubled(Protocol):
    """An instrument that keeps a list of what went wrong."""

    def troubles(self) -> Sequence[str]:
        """What stands in its error queue, oldest first; asking takes it out."""


@runtime_checkable
class Restorable(Protocol):
    """An instrument whose settings can be read, and put back later."""

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Read what is set at `channels`; calling what it returns puts that back."""


class Operation(Protocol):
    """A command that was sent and whose end can be waited for."""

    @property
    def sent(self) -> Span:
        """Between which stamps the command was written."""

    def done(self) -> Span:
        """Wait until the instrument has acknowledged; when that was."""


@dataclass(frozen=True, slots=True)
class PowerReading:
    """One reading of optical power at several ports, all in one sample.

    Attributes:
        asked: when the reading was requested; it was not taken before.
        answered: when the answer was there; it was not taken after.
        window: over how many ns before the sample the instrument averages.
        dbm: power by port.
    """

    asked: int
    answered: int
    window: int
    dbm: Mapping[int, float]


class OpticalSwitch(Identified, Protocol):
    """A switch of light from ingress ports to egress ports."""

    def circuits(self) -> frozenset[Circuit]:
        """Every circuit that the switch reports now."""

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Start taking down `remove` and making `add`, in as few commands as the switch can.

        Returns at once; `Operation.done` raises what the switch objects to.
        """


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a module says of itself: degrees Celsius, and W of its switching core and in all."""

    temperature_c: float
    core_w: float
    total_w: float


@runtime_checkable
class ModuleTelemetry(Protocol):
    """A switch made of modules that say how warm they are and what they draw."""

    @property
    def name(self) -> str:
        """Its name in the testbed."""

    @property
    def modules(self) -> int:
        """How many; they are numbered from 1, as their ingress ports are."""

    def telemetry(self, module: int) -> Telemetry:
        """What a module says of itself now."""


@runtime_checkable
class PowerMonitor(Protocol):
    """Optical power at the ports of a switch, or at the channels of a meter."""

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Power at `ports`, averaged over the instrument's own window."""


class PowerMeter(Identified, PowerMonitor, Protocol):
    """A bench meter: `power` reads its channels, numbered from 1."""

    def prepare(
        self, channels: Sequence[int], *, wavelength_nm: float, averaging: int | None = None
    ) -> None:
        """Set what the detectors are corrected for, and over how many ns a reading averages.

        None leaves the averaging as it is. Raises `DeniedError` for what the meter cannot do.
        """

    def zero(self, channels: Sequence[int]) -> None:
        """Take the dark offset of `channels`; their inputs must be dark."""


@dataclass(frozen=True, slots=True)
class PowerLog:
    """Optical power at one channel, sampled without a gap.

    Attributes:
        start: between which stamps the first sample began, on the bench's clock.
        period: from the beginning of one sample to the next, in ns; a sample averages over it.
        milliwatt: the samples in mW, shape (n,).
    """

    start: Span
    period: int
    milliwatt: npt.NDArray[np.float64]


class PendingLog(Protocol):
    """A log that was begun."""

    def result(self) -> PowerLog:
        """Wait until the log is full and read it."""


@runtime_checkable
class FastLog(Protocol):
    """A meter that samples faster than it can be asked."""

    def log(self, channel: int, *, samples: int, period: int) -> PendingLog:
        """Begin to take `samples` samples of `period` ns each; returns when the meter has begun.

        Raises `DeniedError` for a number or a period that the meter cannot do.
        """


class LightSource(Identified, Protocol):
    """A source of light; its channels are numbered from 1."""

    def set_wavelength(self, channel: int, nanometre: float) -> None:
        """Tune; raises `DeniedError` outside the source's range."""

    def set_power(self, channel: int, dbm: float) -> None:
        """Set the launched power; raises `DeniedError` outside the source's range."""

    def set_emission(self, channel: int, *, on: bool) -> None:
        """Switch the light on or off."""

    def emission(self, channel: int) -> bool:
        """Whether it is on."""


class Attenuator(Identified, Protocol):
    """A variable attenuator; its channels are numbered from 1."""

    def set_attenuation(self, channel: int, decibel: float) -> None:
        """Attenuate by `decibel` and wait until that is so; raises `DeniedError` out of range."""

    def attenuation(self, channel: int) -> float:
        """What is set, in dB."""

    def set_shutter(self, channel: int, *, is_open: bool) -> None:
        """Open the shutter or close it."""


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """What was counted while a gate was open.

    Attributes:
        began: between which stamps the gate opened.
        ended: between which stamps it closed.
        bits: how many bits were compared.
        errors: how many of them were wrong.
        sync_lost: whether the pattern was not followed all the time; the counts bound nothing then.
        clock_lost: whether the signal's clock, or the link, was lost.
        void: why the counts bound nothing, where it is neither of these: counters began anew.
    """

    began: Span
    ended: Span
    bits: int
    errors: int
    sync_lost: bool
    clock_lost: bool
    void: str | None = None


class PendingCount(Protocol):
    """A gate that is open."""

    def result(self) -> ErrorCount:
        """Wait until the gate has closed and read the counts."""

    def now(self) -> ErrorCount:
        """The counts so far; the gate stays open."""

    def stop(self) -> ErrorCount:
        """Close the gate at once and read the counts."""


class BitErrorTester(Identified, Protocol):
    """A pattern generator and an error detector; its channels are numbered from 1."""

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect `pattern` (`PRBS7`, `PRBS13Q`, `PRBS31`, ...) at a bit rate.

        Raises `DeniedError` for what the tester cannot do.
        """

    def align(self, channel: int) -> None:
        """Find threshold and phase; raises `NotDoneError` if the tester finds none."""

    def count(self, channel: int, *, duration: int) -> PendingCount:
        """Open the gate for `duration` ns; returns when the tester has begun."""


class ErrorCounter(Protocol):
    """Counts wrong bits among those that it receives: a tester's channel, a NIC port."""

    @property
    def name(self) -> str:
        """What counts, for people: `ber.1`, `server0.nic0.p0`."""

    @property
    def bits_per_second(self) -> float:
        """How many bits it compares; of symbols, how many symbols."""

    @property
    def slack(self) -> int:
        """For how many ns of a gate bits may be missing that were not lost: stale counters."""

    def count(self, *, duration: int) -> PendingCount:
        """Open the gate for `duration` ns; returns when it is open."""


FecSide = Literal["before", "after"]
"""Whether errors are counted before forward error correction, or those that it leaves."""


@runtime_checkable
class PortErrorCounters(Protocol):
    """A server whose NIC ports count wrong bits."""

    def port_errors(self, port: str, netdev: str, fec: FecSide, rate_bps: float) -> ErrorCounter:
        """What the port's own counters say: wrong bits before FEC, wrong symbols after it.

        port: its name for people. rate_bps: bits a second that it receives.
        """

    def firmware_errors(
        self, port: str, device: str, fec: FecSide, rate_bps: float
    ) -> ErrorCounter:
        """What the NIC's firmware says: wrong bits before FEC, and those that it leaves.

        device: the port's RDMA device.
        """

    def pattern_errors(
        self, port: str, device: str, pattern: str, rate_bps: float
    ) -> AbstractContextManager[ErrorCounter]:
        """Send and check a test pattern for as long as the context lasts; the link is down then.

        device: the port's RDMA device.
        """


class ClimateChamber(Identified, Protocol):
    """A chamber at a set temperature."""

    def set_temperature(self, celsius: float) -> None:
        """Go to `celsius`; returns at once. Raises `DeniedError` out of range."""

    def temperature(self) -> float:
        """What it is now, in degrees Celsius."""


Stage = Literal["firmware", "carrier", "datagram"]
"""How far a NIC port's link has come: locked by the firmware, carrier in the kernel, in use."""


class LinkEvent(NamedTuple):
    """A NIC port's link went up or down.

    Attributes:
        port: the port's netdev on its server.
        stage: which of the link's states changed.
        up: its new state.
        at: when, on the bench's clock.
        source: who observed it: `sysfs`, `netlink` or `udp`.
    """

    port: str
    stage: Stage
    up: bool
    at: Span
    source: str


class Gap(NamedTuple):
    """A NIC port did not receive what was sent between two datagrams.

    Attributes:
        port: the receiving port's netdev on its server.
        last_stream, last_number: the last datagram that arrived: which stream it was of (see
            `Server.streams`), and its number in it.
        last_sent: it had not been sent before, on the bench's clock.
        first_stream, first_number: the first that arrived again.
        lost_sent: the one before that first one, which did not arrive, was not sent before.
        received: when the first one was there.
    """

    port: str
    last_stream: int
    last_number: int
    last_sent: Span
    first_stream: int
    first_number: int
    lost_sent: Span
    received: Span


@dataclass(frozen=True, slots=True)
class Settled:
    """What a server's links did since they were last asked.

    Attributes:
        events: all changes, oldest first.
        missing: netdev and stage of what did not come up in time.
        cross_checks: changes as netlink told them: delayed by the kernel, for comparison only.
        datagrams: by netdev, how many were sent and received since the watch began.
        gaps: what did not arrive, in the order in which something arrived again.
    """

    events: tuple[LinkEvent, ...]
    missing: tuple[tuple[str, Stage], ...]
    cross_checks: tuple[LinkEvent, ...]
    datagrams: Mapping[str, tuple[int, int]]
    gaps: tuple[Gap, ...] = ()


class PendingSettlement(Protocol):
    """A wait for links that was begun."""

    def result(self) -> Settled:
        """Wait for the server's answer."""


@dataclass(frozen=True, slots=True)
class PortWatch:
    """Which of a NIC port's states to observe.

    Attributes:
        netdev: the port's network device on its server.
        rdma: its RDMA device, whose state is the firmware's word, or None.
    """

    netdev: str
    rdma: str | None = None


class Server(Identified, Protocol):
    """A computer whose NIC ports are cabled to the fabric."""

    def watch(
        self, ports: Sequence[PortWatch], *, period: int, datagram_period: int | None
    ) -> frozenset[tuple[str, Stage]]:
        """Observe `ports` from now on, every `period` ns; send datagrams if a period is given.

        Returns netdev and stage of what is up already; datagrams are heard of by their first.
        """

    def settle(
        self, stages: Mapping[str, Sequence[Stage]], *, timeout: int, gaps: bool = False
    ) -> PendingSettlement:
        """Begin to wait until every named netdev has gone through every named stage.

        With no stages the answer comes at once: what happened since the last one. Without `gaps`
        those until then are let go.
        """

    def streams(self) -> Mapping[int, str]:
        """Of the datagrams that this server sends: the netdev of each stream, by its number."""

    def departures(self, netdev: str, numbers: Sequence[int]) -> Sequence[Span | None]:
        """When each of those datagrams from `netdev` had been sent; None where nobody knows."""

    def unwatch(self) -> None:
        """Observe no more, and send no more datagrams."""
