"""Certification of one switch: clauses in order, each from the circuits that were found."""

import functools
import traceback
from collections.abc import Callable
from pathlib import Path

from lightrig.harness.bench import Fabric
from lightrig.harness.certify.clauses import CLAUSES
from lightrig.harness.certify.configuration import Configuration
from lightrig.harness.certify.requirements import Profile, Requirement, requirements
from lightrig.harness.certify.subject import DecidedError, Outcome, Subject, Trial, listed
from lightrig.instruments.core.errors import CANNOT, DeniedError, NotDoneError, NotThereError
from lightrig.testbeds import LightrigError


class Certification:
    """The outcomes of clauses on the switch `name`, each tried once, after those it depends on.

    Args:
        renew: returns a fabric as at the beginning, whose instruments are simulated in this
            process: a clause's values then do not depend on which were tried before.
        known: outcomes by number from an earlier process.
        begin: called with the number of a clause before it is tried.
        keep: writes the traceback of a fault of Lightrig in a clause, by its number; returns
            where it stands, empty for nowhere.

    Attributes:
        not_restored: why the switch is not as it was found; empty where it is. Labels and blocks
            count as found before the first clause.
    """

    def __init__(
        self,
        fabric: Fabric,
        name: str,
        profile: Profile,
        trial: Trial = Trial(),  # noqa: B008 -- frozen
        *,
        renew: Callable[[], Fabric] | None = None,
        known: dict[str, Outcome] | None = None,
        begin: Callable[[str], None] = lambda number: None,
        keep: Callable[[str, str], str] = lambda number, text: "",
    ) -> None:
        self.subject = Subject(fabric, name, profile, trial)
        self.not_restored = ""
        self._keep = keep
        self._found: Configuration | None = None
        self._renew = renew
        self._begin = begin
        self._outcomes = dict(known or {})
        self._requirements = {each.number: each for each in requirements().requirements}

    def outcome(self, number: str) -> Outcome:
        """Return the outcome of a clause; it is tried where it was not yet."""
        if number not in self._outcomes:
            self._outcomes[number] = self._try(self._requirements[number])
        return self._outcomes[number]

    def _try(self, requirement: Requirement) -> Outcome:
        for number in requirement.depends_on:
            if self.outcome(number).verdict != "pass":
                return Outcome("not tested", f"depends on {number}, which did not pass")
        if self.not_restored:
            return Outcome("not tested", "the switch is not as it was found")
        subject, number = self.subject, requirement.number
        tried = False
        try:
            if requirement.effect != "harmless" and (why := self._forbidden(requirement.effect)):
                return Outcome("not tested", f"not permitted: {why}")
            self._begin(number)
            tried = True
            if self._renew is not None:
                fabric = self._renew()
                subject = Subject(fabric, subject.name, subject.profile, subject.trial)
                self.subject = subject
            subject.fabric.restore()  # what an earlier test of a session has left
            subject.fabric.save_initial_state()
            subject.note_strange()
            if self._found is None:
                self._found = Configuration.found(subject.switch, self._cabled())
            return CLAUSES[requirement.code](subject, requirement)
        except DecidedError as decided:
            return decided.outcome
        except (DeniedError, NotDoneError) as error:
            reason = _reason(error)
            unable = isinstance(error, DeniedError) and error.code == CANNOT
            return Outcome("not tested" if unable else "fail", reason)
        except NotThereError as error:
            return Outcome("not tested", _reason(error))
        except LightrigError as error:
            return Outcome("inconclusive", _reason(error))
        except Exception as error:  # a fault of a clause must not cost the sheet
            stated = f"this clause ended with {self._unforeseen(error, number)}"
            return Outcome("inconclusive", stated)
        finally:
            if tried:
                self._end(number)

    def _end(self, number: str) -> None:
        """Give back what a clause has changed, each part whatever becomes of the others."""
        for step in (self.subject.remove_strange, self.subject.fabric.restore, self._give_back):
            try:
                step()
            except LightrigError as error:
                self.not_restored = self.not_restored or str(error)
            except Exception as error:
                stated = f"ended with {self._unforeseen(error, number)}"
                self.not_restored = self.not_restored or stated

    def _cabled(self) -> set[int]:
        ingress, egress = self.subject.fabric.testbed.cabling.cabled_ports(self.subject.name)
        return {*ingress, *egress}

    def _give_back(self) -> None:
        if self._found is not None:
            self._found.give_back(self.subject.switch)

    def _forbidden(self, effect: str) -> str:
        """Return why clauses that can disturb others are not run; empty where they are."""
        if effect not in self.subject.trial.permitted:
            return f"{effect} (--allow {effect})"
        bench = self.subject.fabric.bench
        if self.subject.name in bench.external and bench.lease is None:
            return f"{effect}, and the switch is not leased"
        return self._foreign

    def _unforeseen(self, error: Exception, number: str) -> str:
        """Return an error that is none of the lab, with the line that raised it."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        stored = self._keep(number, "".join(traceback.format_exception(error)))
        whole = f" (whole in {stored})" if stored else ""
        stated = f"{type(error).__name__}: {error} at {place}{whole}"
        return f"{stated}, a fault of Lightrig; please report it"

    @functools.cached_property
    def _foreign(self) -> str:
        """The circuits of others on the switch, as the reason not to interrupt it."""
        subject = self.subject
        ingress, egress = subject.fabric.testbed.cabling.cabled_ports(subject.name)
        foreign = {
            c
            for c in subject.switch.circuits()
            if not (c.ingress in ingress and c.egress in egress)
        }
        return f"{listed(foreign)} of others would be interrupted" if foreign else ""


def _reason(error: LightrigError) -> str:
    """Return an error in one line, without the wire's last frames."""
    whole = str(error).partition("last on the wire")[0]
    return "; ".join(" ".join(line.split()) for line in whole.strip().splitlines())
