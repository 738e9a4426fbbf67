"""Selection by hosts: which circuits of their own switches the hosts of a job may choose between.

Where a system lets hosts select the topology of each collective by themselves, its layout says what
they may select, and the controller hands that to their agents, once a job or after a failure. From
then on processes of the job ask the agent of their host, and the controller takes no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel, ConfigDict

from lightrig.harness.orchestration.jobs import Job


class Choice(BaseModel):
    """One topology of one NIC.

    circuits: of the switches at the NIC's ports. ports: those of them with a link, once the
    neighbours have chosen the same.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    circuits: dict[str, list[tuple[int, int]]]
    ports: list[str]


Choices: TypeAlias = dict[str, dict[str, Choice]]
"""Of a host: by NIC and topology."""


@runtime_checkable
class ChoosingLayout(Protocol):
    """A layout whose hosts select topologies."""

    def choices(self, job: Job) -> Mapping[str, Choices]:
        """Return what the nodes of a job may choose."""


@runtime_checkable
class TakesChoices(Protocol):
    """Switches whose agents are told what they may choose."""

    def let_choose(self, choices: Mapping[str, Choices]) -> None:
        """Tell now, and with each probe and order from now on, what each host may choose."""
