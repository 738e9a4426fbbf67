"""Switches, monitors, sources and attenuators of light. Power is in dBm."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities.instruments import Identified, Operation
from lightrig.testbeds import Circuit

if TYPE_CHECKING:  # `lightrig check` imports drivers, and must not wait for numpy
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class PowerReading:
    """One reading of optical power at several ports, all in one sample.

    Attributes:
        asked: when the reading was requested; it was not taken before.
        answered: when the reply was received; it was not taken after.
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
        """Return every circuit that the switch reports now."""

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, in as few commands as the switch can.

        Returns at once; `Operation.done` raises `DeniedError` where the switch refuses.
        """


@runtime_checkable
class CommandsInTurn(Protocol):
    """A switch of which one change may be several commands, each carried out after another."""

    def commands(self, remove: Collection[Circuit], add: Collection[Circuit]) -> int:
        """Return how many commands it takes to take down `remove` and make `add`."""


@dataclass(frozen=True, slots=True)
class FactoryLoss:
    """Insertion loss of one circuit as the maker of the switch measured it.

    Attributes:
        loss_db: the insertion loss, in dB.
        accuracy_db: its stated accuracy, ± dB.
        frequency_thz: optical frequency of that measurement, in THz.
        temperature_c: temperature of the switch during it, in degrees Celsius.
    """

    loss_db: float
    accuracy_db: float
    frequency_thz: float
    temperature_c: float


@runtime_checkable
class FactoryCalibrated(Protocol):
    """A switch that stores the insertion losses that its maker measured."""

    def factory_losses(self) -> Mapping[Circuit, FactoryLoss]:
        """Return the factory loss of each circuit; raises `DeniedError` where none is stored."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Telemetry of a module: temperature in degrees Celsius, power of its core and in all in W."""

    temperature_c: float
    core_w: float
    total_w: float


@runtime_checkable
class ModuleTelemetry(Protocol):
    """A switch made of modules that report temperature and power."""

    @property
    def name(self) -> str:
        """Name in the testbed."""

    @property
    def modules(self) -> int:
        """Number of modules; they are numbered from 1, as their ingress ports are."""

    def telemetry(self, module: int) -> Telemetry:
        """Return the telemetry of a module."""


@runtime_checkable
class PowerMonitor(Protocol):
    """Optical power at the ports of a switch, or at the channels of a meter."""

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the power at `ports`, averaged over the instrument's window."""


class PowerMeter(Identified, PowerMonitor, Protocol):
    """A bench meter: `power` reads its channels, numbered from 1."""

    def prepare(
        self, channels: Sequence[int], *, wavelength_nm: float, averaging: int | None = None
    ) -> None:
        """Set the wavelength correction and the averaging time of readings, in ns.

        None leaves the averaging as it is. Raises `DeniedError` outside the meter's range.
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
    milliwatt: "npt.NDArray[np.float64]"


class PendingLog(Protocol):
    """A log that was begun."""

    def result(self) -> PowerLog:
        """Wait until the log is full and read it."""


@runtime_checkable
class FastLog(Protocol):
    """A meter that samples faster than it can be queried."""

    def log(self, channel: int, *, samples: int, period: int) -> PendingLog:
        """Begin to take `samples` samples of `period` ns each; return when the meter has begun.

        Raises `DeniedError` for a number or a period that the meter cannot do.
        """


class PendingLogs(Protocol):
    """Logs that were begun together."""

    def result(self) -> Mapping[int, PowerLog]:
        """Wait until the logs are full and read them, by channel."""


@runtime_checkable
class SimultaneousLogs(Protocol):
    """A meter whose channels are logged in one trigger."""

    name: str

    def log_together(self, channels: Sequence[int], *, samples: int, period: int) -> PendingLogs:
        """Begin logs of `channels` whose samples are simultaneous; see `FastLog`."""


@runtime_checkable
class Preloading(Protocol):
    """A switch that takes circuits in advance and switches to them by a trigger."""

    def preload(self, circuits: Collection[Circuit]) -> None:
        """Preload `circuits`; raises `DeniedError` for what cannot be."""

    def trigger(self) -> Operation:
        """Begin to switch to the preloaded circuits; raises `DeniedError` where there are none."""


@runtime_checkable
class LightSource(Identified, Protocol):
    """A source of light; its channels are numbered from 1."""

    def set_wavelength(self, channel: int, nanometre: float) -> None:
        """Tune; raises `DeniedError` outside the source's range."""

    def set_power(self, channel: int, dbm: float) -> None:
        """Set the launched power; raises `DeniedError` outside the source's range."""

    def set_emission(self, channel: int, *, on: bool) -> None:
        """Switch the light on or off."""

    def emission(self, channel: int) -> bool:
        """Return whether the light is on."""


class PolarizationController(Identified, Protocol):
    """A controller of the polarization of the light that passes its channels, numbered from 1."""

    def set_polarization(self, channel: int, stokes: tuple[float, float, float]) -> None:
        """Let light leave with the normalized Stokes parameters s1, s2, s3, and wait for it.

        The fiber behind the controller turns all states alike: their differences are kept.
        """


class Attenuator(Identified, Protocol):
    """A variable attenuator; its channels are numbered from 1."""

    def set_attenuation(self, channel: int, decibel: float) -> None:
        """Attenuate by `decibel` and wait for it; raises `DeniedError` out of range."""

    def attenuation(self, channel: int) -> float:
        """Return the attenuation that is set, in dB."""

    def set_shutter(self, channel: int, *, is_open: bool) -> None:
        """Open or close the shutter."""
