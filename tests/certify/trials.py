"""Certifications of simulated switches: healthy ones, and those with a defect of `defects.yaml`."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from switch_defects import DEFECTS, ERROR_RATIOS, introduce, operator

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.subject import Outcome, Trial

KNOWN = requirements()
POLATIS = KNOWN.profiles["polatis"]
NUMBERS = [each.number for each in KNOWN.requirements]
# These watch light for most of the time that all clauses take.
WITHOUT_TIMES = [number for number in NUMBERS if number not in {"5.1", "5.2", "5.4", "5.5"}]
EVERYTHING = Trial(permitted=frozenset({"harmless", "interrupting", "destructive"}), hours=0.002)
NEED_INSTRUMENTS = {"5.6", "5.7", "5.8", "6.1", "6.2", "6.3", "6.4"}
NEED_AN_OPERATOR = {"4.4", "4.5"}
# Of a Polatis over one wire, without operator: it has no restart, no notifications, and states no
# factory losses.
UNTRIED = {"1.4", "1.5", "4.1", "4.2", "5.3"} | NEED_INSTRUMENTS | NEED_AN_OPERATOR
# SONiC has no monitors, no reset, and says nothing of its light; over SSH no notifications.
UNTRIED_OF_SONIC = {
    "1.4",
    "1.5",
    "3.1",
    "3.2",
    "3.4",
    "4.3",
    "5.1",
    "5.2",
    "5.3",
    "5.4",
    "5.5",
    "5.9",
}
UNTRIED_OF_SONIC |= NEED_INSTRUMENTS | NEED_AN_OPERATOR
# One of each kind of change that clauses make.
OF_CIRCUITS = [
    "1.2",
    "2.1",
    "2.2",
    "2.6",
    "2.7",
    "2.8",
    "3.1",
    "3.2",
    "4.1",
    "4.2",
    "4.3",
    "4.4",
    "4.5",
]
Simulated = Callable[..., Bench]


def certification_of(bench: Bench, trial: Trial = EVERYTHING) -> Certification:
    """Return a certification by the default profile of the switch's model."""
    profile = KNOWN.profile_of(bench.testbed.switches["ocs"].model)
    return Certification(Fabric(bench), "ocs", KNOWN.profiles[profile], trial)


def outcomes(certification: Certification, numbers: Iterable[str] = NUMBERS) -> dict[str, Outcome]:
    return {number: certification.outcome(number) for number in numbers}


def with_a_defect(simulated: Simulated, patch: pytest.MonkeyPatch, defect: str) -> Certification:
    bench = simulated(introduce(defect, patch))
    if (ratio := ERROR_RATIOS.get(defect)) is not None:
        assert bench.world is not None
        for port in bench.world.roster.values():
            port.spec = replace(port.spec, ber=ratio)
    hours = 0.02 if "2.10" in DEFECTS[defect]["required"] else EVERYTHING.hours
    return certification_of(bench, replace(EVERYTHING, ask=operator(defect, patch), hours=hours))


# `slow now and then` is timed as these are; `polarized light path` has the others' instruments.
SLOW_TO_TRY = {"slow settling", "slow to distant ports", "loose mirrors", "lost after many changes"}
SLOW_TO_TRY |= {"leaking light", "colored light path", "late notification", "errors after a move"}


def marked(defects: Iterable[str]) -> list[Any]:
    """Return parameters of defects, those that take long marked so."""
    return [pytest.param(d, marks=[pytest.mark.long] * (d in SLOW_TO_TRY)) for d in defects]


def fail_required(simulated: Simulated, patch: pytest.MonkeyPatch, defect: str) -> None:
    """Try the clauses alone that a defect must fail."""
    required = DEFECTS[defect]["required"]
    found = outcomes(with_a_defect(simulated, patch, defect), required)
    assert {each.verdict for each in found.values()} == {"fail"}, found
