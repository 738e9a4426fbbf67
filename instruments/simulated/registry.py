"""Simulated devices: their interface, their context, and how they are found by model.

Lightrig's are found by file name, those of third parties by entry point (docs/drivers.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, cast, runtime_checkable

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.models import module_name, simulated_models
from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.protocols.scpi_device import ScpiDevice
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.instruments.simulated.world.ambient import Ambient
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import Channels
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import (
    Identity,
    InstrumentSpec,
    LightrigError,
    SimulatedReceiver,
    SwitchSpec,
)

Spec: TypeAlias = SwitchSpec | InstrumentSpec


class NoSimulatedDeviceError(LightrigError):
    """Raised for an instrument of a model, or on a wire, that has no simulated device."""


@dataclass(frozen=True, slots=True)
class DeviceContext:
    """Context of a simulated device: the parts of its world that it may use.

    Attributes:
        spec: the instrument in the testbed's file.
        clock: the time in which the device does everything.
        chance: streams of random draws, by name.
        truth: the ground truth, in which it notes what it does.
        login: user and password that it accepts.
        serial: its serial number, which marks it as simulated.
        matrix: mirrors of a switch; None for an instrument.
        light: light at an instrument's channels; none reaches those of a switch.
        ambient: temperature around it.
        stated: model and firmware that it reports; None for those of its class.
        receiver: kind of the receivers of a bit error tester.
    """

    spec: Spec
    clock: Clock
    chance: Chance
    truth: GroundTruth
    login: tuple[str, str]
    serial: str
    matrix: Matrix | None
    light: Channels
    ambient: Ambient = field(default_factory=Ambient)
    stated: Identity = Identity()  # noqa: RUF009 -- frozen
    receiver: SimulatedReceiver = SimulatedReceiver()  # noqa: RUF009 -- frozen

    def acknowledge(self, after: int = 0) -> None:
        """Note that a change of circuits is acknowledged, `after` ns from now."""
        at = self.clock.now() + after
        self.truth.note(self.spec.name, "acknowledged", up=True, at=Span(at, at))


class SimulatedDevice(Protocol):
    """One simulated instrument, for any number of sessions on any of its wires."""

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the session factory of each wire scheme: `tl1`, `scpi`, `serial`, ..."""


@runtime_checkable
class CommandDevice(Protocol):
    """A simulated device that is controlled by commands over SSH."""

    def run_command(self, argv: Sequence[str]) -> ProgramOutcome:
        """Run a command to its end; called in the clock's time, so it must not wait."""


class DeviceFactory(Protocol):
    """The object that an entry point of the group names."""

    def __call__(self, context: DeviceContext) -> SimulatedDevice:
        """Make the device."""


def simulated_device(context: DeviceContext) -> SimulatedDevice:
    """Return the simulated device of a spec's model; raise `NoSimulatedDeviceError`."""
    registered = simulated_models()
    spec = context.spec
    if spec.model not in registered:
        raise NoSimulatedDeviceError(
            f"{spec.name}: no simulated device for model {spec.model!r}; "
            f"there are: {', '.join(registered)}\n"
            f"  try       `--instruments hardware`, or add instruments/simulated/devices/"
            f"simulated_{module_name(spec.model)}.py (docs/drivers.md)"
        )
    device = cast(DeviceFactory, registered[spec.model].load())(context)
    if isinstance(device, ScpiDevice):
        device.identity = _restated(device.identity, context.stated)
    return device


def _restated(identity: str, stated: Identity) -> str:
    """Return the reply to `*IDN?` with the stated model and firmware."""
    maker, model, serial, firmware = identity.split(",")
    space = " " if model.startswith(" ") else ""
    model = model if stated.model is None else space + stated.model
    firmware = firmware if stated.firmware is None else space + stated.firmware
    return ",".join((maker, model, serial, firmware))
