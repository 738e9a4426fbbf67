"""The shutters of a switch's ports as settings, which are set, saved and restored by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Protocol

from lightrig.instruments.core.capabilities import BlocksPorts, Identified
from lightrig.instruments.core.errors import DeniedError, NotDoneError

SHUTTER = "shutter"
"""The kind of these settings: the one of port 17 is `shutter 17`, True where light passes."""


class ShutteredSwitch(Identified, BlocksPorts, Protocol):
    """A switch whose ports have shutters."""


class PortShutters:
    """The shutters of the ports of a switch that a testbed cables; has `HasSettings`.

    Args:
        switch: the open driver.
        ports: those whose shutters are settings; no other one is read or set.

    Attributes:
        on_setting: called with the name of a setting and its value before it is set, if stated.
    """

    setting_units: Mapping[str, str] = MappingProxyType({})

    def __init__(self, switch: ShutteredSwitch, ports: Sequence[int]) -> None:
        self.on_setting: Callable[[str, float], None] | None = None
        self.ports = tuple(ports)
        self._switch = switch

    @cached_property
    def refusal(self) -> str:
        """Why the switch has no shutters of its ports; empty if it has. It is asked once."""
        try:
            self._switch.shutters(self.ports)
        except DeniedError as error:
            return error.text or error.code
        return ""

    def read_settings(self, channels: Sequence[int]) -> Mapping[str, float]:
        """Return whether the shutter of each port is open, by name; raises `InstrumentError`."""
        if not channels:
            return {}
        found = self._switch.shutters(channels)
        return {f"{SHUTTER} {port}": found[port] for port in channels}

    def restore_settings(self, settings: Mapping[str, float]) -> None:
        """Set what differs from `settings` and read it back: first closed, then opened.

        Raises `InstrumentError`, `NotDoneError` where a shutter is not as it was set, and what
        `on_setting` raises before that one is set.
        """
        wanted = {int(name.removeprefix(f"{SHUTTER} ")): bool(v) for name, v in settings.items()}
        if not_ours := wanted.keys() - set(self.ports):
            raise ValueError(f"ports {sorted(not_ours)} are not the testbed's")
        present = self._switch.shutters(sorted(wanted)) if wanted else {}
        changed = [port for port in sorted(wanted) if present[port] != wanted[port]]
        for port in sorted(changed, key=wanted.__getitem__):
            is_open = wanted[port]
            if self.on_setting is not None:
                self.on_setting(f"{SHUTTER} {port}", is_open)
            self._switch.set_shutters([port], is_open=is_open)
            if self._switch.shutters([port])[port] != is_open:
                state = "open" if is_open else "closed"
                raise NotDoneError(
                    self._switch.name,
                    f"acknowledged that the shutter of port {port} is {state}, but it is not",
                    details=[("try", "its front panel or web page: is the port failed or locked?")],
                    trace=self._switch.wire()[-6:],
                )

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Read the shutters of ports; calling the result restores them."""
        return partial(self.restore_settings, dict(self.read_settings(channels)))

    def same_setting(self, name: str, first: float, second: float) -> bool:
        """Whether two values of a setting are the same."""
        del name
        return bool(first) == bool(second)

    def raises_light(
        self, present: Mapping[str, float], wanted: Mapping[str, float]
    ) -> frozenset[str]:
        """Return the shutters that would be opened, from `present` to `wanted`."""
        return frozenset(name for name, value in wanted.items() if value and not present.get(name))
