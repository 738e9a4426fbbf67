"""Labels and blocks of a switch, as they are found and given back; the fabric saves circuits."""

import contextlib
from collections.abc import Collection, Mapping

from pydantic import BaseModel, ConfigDict

from lightrig.instruments.core.capabilities import BlocksPorts, HasPortLabels, OpticalSwitch
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import LightrigError

SAVED, UNSAVED = "lightrig saved", "lightrig unsaved"
"""Labels around a saved configuration."""


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
        # Denied: not over this wire, or not on this unit.
        if isinstance(switch, HasPortLabels):
            with contextlib.suppress(DeniedError):
                stated = switch.labels()
                labels = {port: stated.get(port, "") for port in ports}
        if isinstance(switch, BlocksPorts):
            with contextlib.suppress(DeniedError):
                is_open = switch.shutters(sorted(ports))
        return cls(labels=labels, open=dict(is_open))

    @classmethod
    def found(cls, switch: OpticalSwitch, ports: Collection[int]) -> "Configuration":
        """Read it before the first clause: a label that a killed certification has left is none."""
        present = cls.of(switch, ports)
        labels = {p: "" if is_mark(p, text) else text for p, text in present.labels.items()}
        return present.model_copy(update={"labels": labels})

    def give_back(self, switch: OpticalSwitch) -> None:
        """Set what differs from it, all of it whatever is refused; raises the first error."""
        present = Configuration.of(switch, {*self.labels, *self.open})
        errors: list[LightrigError] = []
        for port, label in self.labels.items():
            if present.labels.get(port) != label and isinstance(switch, HasPortLabels):
                try:
                    switch.set_label(port, label)
                except LightrigError as error:
                    errors.append(error)
        for port, is_open in self.open.items():
            if present.open.get(port) != is_open and isinstance(switch, BlocksPorts):
                try:
                    switch.set_shutters([port], is_open=is_open)
                except LightrigError as error:
                    errors.append(error)
        if errors:
            raise errors[0]


def mark(port: int) -> str:
    """Return the label that clauses give to a port."""
    return f"lightrig {port}"


def is_mark(port: int, label: str) -> bool:
    """Whether a clause has given this label."""
    return label in (mark(port), SAVED, UNSAVED)
