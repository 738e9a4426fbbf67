"""The quantities that have a section of their own, by family: one line a section."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from harness.report import (
    bit_errors,
    bypass,
    insertion_loss,
    modules,
    path_changes,
    traffic,
    training,
)
from harness.report.estimates import Estimate
from harness.report.frames import TestbedFrame
from testbeds import Limit

Found: TypeAlias = Mapping[str, list[Estimate]]


class OwnSection(NamedTuple):
    """A section of the report.

    Attributes:
        families: the quantities that it shows, by the word before the first dot.
        estimates: what it says of each quantity, with verdicts.
        section: the section itself, empty where nothing of it was measured.
    """

    families: frozenset[str]
    estimates: Callable[[TestbedFrame, Mapping[str, Limit]], Found]
    section: Callable[[TestbedFrame, Found], str]


OWN: tuple[OwnSection, ...] = (
    OwnSection(insertion_loss.FAMILIES, insertion_loss.loss_estimates, insertion_loss.loss_section),
    OwnSection(bit_errors.FAMILIES, bit_errors.bit_error_estimates, bit_errors.bit_error_section),
    OwnSection(
        path_changes.FAMILIES,
        path_changes.path_change_estimates,
        path_changes.path_change_section,
    ),
    OwnSection(modules.FAMILIES, modules.module_estimates, modules.module_section),
    OwnSection(traffic.COLLECTIVE, traffic.collective_estimates, traffic.collective_section),
    OwnSection(training.FAMILIES, training.training_estimates, training.training_section),
    OwnSection(traffic.RECOVERY, traffic.recovery_estimates, traffic.recovery_section),
    OwnSection(bypass.FAMILIES, bypass.bypass_estimates, bypass.bypass_section),
)
"""In the order of the page."""

FAMILIES = frozenset[str]().union(*(own.families for own in OWN))
