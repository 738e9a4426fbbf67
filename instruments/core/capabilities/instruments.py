"""Capabilities that instruments of every kind may have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lightrig.instruments.clock import Span


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity that an instrument reports."""

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
    """An instrument with an identity."""

    @property
    def name(self) -> str:
        """Name in the testbed."""

    def identity(self) -> Identity:
        """Query the identity."""

    def wire(self) -> Sequence[str]:
        """Return the last lines that went over its wire, oldest first, secrets masked."""

    def close(self) -> None:
        """End every session with it."""


@runtime_checkable
class HasErrorQueue(Protocol):
    """An instrument with an error queue."""

    def read_errors(self) -> Sequence[str]:
        """Return the entries of the error queue, oldest first, and empty it."""


@runtime_checkable
class TakesCommands(Protocol):
    """An instrument to which a single command can be sent as a person types it."""

    def ask(self, command: str) -> str:
        """Send `command`, whatever it does; return the text of the reply, empty if it has none."""


@runtime_checkable
class Restorable(Protocol):
    """An instrument whose settings can be saved and restored."""

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Read the settings of `channels`; calling the result restores them."""


@runtime_checkable
class HasSettings(Restorable, Protocol):
    """An instrument whose settings are plain values, so that another process can restore them.

    Attributes:
        on_setting: called with the name of a setting and its value before it is set, if stated.
        setting_units: unit of each kind of setting that has one, such as dBm of `power`.
    """

    on_setting: Callable[[str, float], None] | None

    @property
    def setting_units(self) -> Mapping[str, str]:
        """See above."""

    def read_settings(self, channels: Sequence[int]) -> Mapping[str, float]:
        """Return the settings of `channels` by name; True and False are on and off."""

    def restore_settings(self, settings: Mapping[str, float]) -> None:
        """Set what differs from `settings`: first off what is to be off, last on what is on."""

    def same_setting(self, name: str, first: float, second: float) -> bool:
        """Whether two values of a setting are the same within its resolution."""


@runtime_checkable
class SetsLight(Protocol):
    """An instrument with settings on which light depends."""

    def raises_light(
        self, present: Mapping[str, float], wanted: Mapping[str, float]
    ) -> frozenset[str]:
        """Return the settings that switch light on or raise it, from `present` to `wanted`."""


@runtime_checkable
class HasLightLevel(Protocol):
    """An instrument whose settings tell how much light leaves it."""

    def light_level(self, settings: Mapping[str, float], channel: int) -> float | None:
        """Return the light that leaves `channel` with `settings`.

        Of a source it is a power in dBm, of what passes light on a ratio in dB, at most 0; -inf
        where it is dark. None where the settings do not tell.
        """


class Operation(Protocol):
    """A command that was sent; its completion can be waited for."""

    @property
    def sent(self) -> Span:
        """Between which stamps the command was written."""

    def done(self) -> Span:
        """Wait until the instrument has acknowledged; return between which stamps it did."""


class ClimateChamber(Identified, Protocol):
    """A chamber at a set temperature."""

    def set_temperature(self, celsius: float) -> None:
        """Go to `celsius`; return at once. Raises `DeniedError` out of range."""

    def temperature(self) -> float:
        """Return the temperature in degrees Celsius."""
