"""Labels and blocks of a switch, as they are found and given back; the fabric saves circuits."""

from collections.abc import Collection, Mapping

from pydantic import BaseModel, ConfigDict

from lightrig.instruments.core.capabilities import BlocksPorts, HasPortLabels, OpticalSwitch
from lightrig.instruments.core.errors import DeniedError


class Configuration(BaseModel):
    """Labels, empty for ports without one, and whether ports are open."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    labels: Mapping[int, str] = {}
    open: Mapping[int, bool] = {}

    @classmethod
    def of(cls, switch: OpticalSwitch, ports: Collection[int]) -> "Configuration":
        """Read it, as far as the driver can."""
        labels: Mapping[int, str] = {}
        is_open: Mapping[int, bool] = {}
        try:
            if isinstance(switch, HasPortLabels):
                stated = switch.labels()
                labels = {port: stated.get(port, "") for port in ports}
            is_open = switch.shutters(sorted(ports)) if isinstance(switch, BlocksPorts) else {}
        except DeniedError:  # not over this wire, or not on this unit
            pass
        return cls(labels=labels, open=dict(is_open))

    def give_back(self, switch: OpticalSwitch) -> None:
        """Set what differs from it; raises `InstrumentError`."""
        present = Configuration.of(switch, {*self.labels, *self.open})
        for port, label in self.labels.items():
            if present.labels.get(port) != label and isinstance(switch, HasPortLabels):
                switch.set_label(port, label)
        for port, is_open in self.open.items():
            if present.open.get(port) != is_open and isinstance(switch, BlocksPorts):
                switch.set_shutters([port], is_open=is_open)
