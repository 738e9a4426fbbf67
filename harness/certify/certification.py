"""Certification of one switch: clauses in order, each from the circuits that were found."""

from lightrig.harness.bench import Fabric
from lightrig.harness.bench.restoring import NotRestoredError
from lightrig.harness.certify.clauses import CLAUSES, Outcome, Subject
from lightrig.harness.certify.requirements import Profile, Requirement, requirements
from lightrig.instruments.core.errors import CANNOT, DeniedError, NotDoneError
from lightrig.testbeds import LightrigError

PERMITTED = frozenset({"harmless"})
"""Classes of clauses that are run."""


class Certification:
    """The outcomes of clauses on the switch `name`, each tried once, after those it depends on.

    Attributes:
        not_restored: why the switch is not as it was found; empty where it is.
    """

    def __init__(self, fabric: Fabric, name: str, profile: Profile) -> None:
        self.subject = Subject(fabric, name, profile)
        self.not_restored = ""
        self._outcomes: dict[str, Outcome] = {}
        self._known = {each.number: each for each in requirements().requirements}

    def outcome(self, number: str) -> Outcome:
        """Return the outcome of a clause; it is tried where it was not yet."""
        if number not in self._outcomes:
            self._outcomes[number] = self._try(self._known[number])
        return self._outcomes[number]

    def _try(self, requirement: Requirement) -> Outcome:
        for number in requirement.depends_on:
            if self.outcome(number).verdict != "pass":
                return Outcome("not tested", f"depends on {number}, which did not pass")
        if requirement.effect not in PERMITTED:
            return Outcome("not tested", f"not permitted: {requirement.effect}")
        if requirement.code is None:
            return Outcome("not tested", "no method yet")
        if self.not_restored:
            return Outcome("not tested", "the switch is not as it was found")
        fabric = self.subject.fabric
        try:
            fabric.restore()  # what an earlier test of a session has left
            fabric.save_initial_state()
            return CLAUSES[requirement.code](self.subject, requirement)
        except (DeniedError, NotDoneError) as error:
            reason = _reason(error)
            unable = isinstance(error, DeniedError) and error.code == CANNOT
            return Outcome("not tested" if unable else "fail", reason)
        except LightrigError as error:
            return Outcome("inconclusive", _reason(error))
        finally:
            try:
                fabric.restore()
            except NotRestoredError as error:
                self.not_restored = str(error)


def _reason(error: LightrigError) -> str:
    """Return an error in one line, without the wire's last frames."""
    whole = str(error).partition("last on the wire")[0]
    return "; ".join(" ".join(line.split()) for line in whole.strip().splitlines())
