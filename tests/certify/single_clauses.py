"""Clauses tried one by one, whatever they depend on, with what they ask of the switch noted."""

from collections.abc import Collection
from dataclasses import dataclass, field

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify.clauses import CLAUSES
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.subject import DecidedError, Outcome, Subject, Trial
from lightrig.instruments.core.capabilities import OpticalSwitch
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import Circuit, Plan

KNOWN = requirements()
REQUIREMENTS = {each.code: each for each in KNOWN.requirements}


@dataclass(frozen=True)
class NotedSubject(Subject):
    """A switch on trial; `asked` has the settings and requests of clauses, as lines."""

    asked: list[str] = field(default_factory=list)

    def plan(self, circuits: Collection[Circuit]) -> Plan:
        """Note the setting that is about to be made."""
        self.asked.append(f"set {_listed(circuits)}")
        return super().plan(circuits)

    def note(self, remove: Collection[Circuit], add: Collection[Circuit]) -> frozenset[Circuit]:
        """Note what may be removed and made."""
        self.asked.append(f"may lose {_listed(remove)} and get {_listed(add)}")
        return super().note(remove, add)

    def attempt(
        self,
        circuits: Collection[Circuit],
        remove: Collection[Circuit] = (),
        by: OpticalSwitch | None = None,
    ) -> DeniedError | None:
        """Note the request, and send it."""
        who = "another client asks" if by else "ask"
        parts = [
            f"{sign}{_listed(each)}" for sign, each in (("-", remove), ("+", circuits)) if each
        ]
        self.asked.append(" ".join((who, *parts)))
        return super().attempt(circuits, remove, by)


def subject_of(
    bench: Bench, trial: Trial | None = None, profile: str = "polatis", **limits: object
) -> NotedSubject:
    """Return the lab's switch on trial; `limits` replace those of its profile."""
    changed = KNOWN.profiles[profile].model_copy(update=limits)
    subject = NotedSubject(Fabric(bench), "ocs", changed, trial or Trial())
    subject.fabric.save_initial_state()
    return subject


def clause(subject: Subject, code: str) -> Outcome:
    """Try a clause by itself."""
    try:
        return CLAUSES[code](subject, REQUIREMENTS[code])
    except DecidedError as decided:
        return decided.outcome


def interval(outcome: Outcome) -> tuple[float, float]:
    """Return the interval of an outcome that has one."""
    assert outcome.interval is not None, outcome
    return outcome.interval


def _listed(circuits: Collection[Circuit]) -> str:
    return " ".join(map(str, sorted(circuits))) or "nothing"
