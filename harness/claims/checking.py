"""Published claims, checked against the results of this harness."""

from dataclasses import dataclass, replace

from lightrig.harness.claims.answering_rows import AnsweringRows, kind_of, one_an_event
from lightrig.harness.claims.computed import computed_by
from lightrig.harness.claims.published import Claim, ClaimContext, Published
from lightrig.harness.claims.tested import TestOutcomes, outcomes_of
from lightrig.harness.claims.verdicts import (
    ClaimOutcome,
    Estimate,
    Kind,
    compare,
    estimate,
    tolerance_of,
    verdict_text,
)
from lightrig.harness.record import Results
from lightrig.harness.statistics.quantiles import NotEnough
from lightrig.testbeds import LightrigError


class ClaimError(LightrigError):
    """A claim and the rows that answer it are incompatible."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """A related value of ours in `unit`, without a verdict; None where nothing was measured.

    simulated: whether anything simulated took part.
    """

    context: ClaimContext
    ours: Estimate | NotEnough | None
    unit: str
    simulated: bool
    night: str | None


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """A claim, the value beside it, and the verdict.

    value: None where there is none yet. kind: its origin. night: of its rows, or the day on which
    its tests ran. rests_on: the assumptions of a computed value, and the cases of a tested one.
    related: other values of ours, without a verdict.
    """

    claim: Claim
    value: Estimate | NotEnough | None
    kind: Kind | None
    night: str | None
    outcome: ClaimOutcome
    reason: str
    rests_on: str | None = None
    related: tuple[ClaimResult, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the value was computed without random draws and without bounds."""
        if self.claim.ours is not None or not isinstance(self.value, Estimate):
            return False
        return self.value.n == 1 and self.value.lower == self.value.upper

    @property
    def simulated(self) -> bool:
        """Whether the value was measured with anything simulated."""
        return self.kind in {"namespaces", "closure"}

    @property
    def verdict(self) -> str:
        """The outcome in the words of its kind; a difference from a known erratum as such."""
        if self.outcome == "differs" and self.claim.erratum is not None:
            return "known erratum"
        return verdict_text(self.kind, self.outcome)

    @property
    def counted(self) -> bool:
        """Whether the claim counts: arithmetic, constants and repeated values do not."""
        return self.kind != "printed" and self.claim.same_as is None

    @property
    def contradicts(self) -> bool:
        """Whether the value differs from the figure, and no stated reason accounts for it."""
        return self.outcome == "differs" and not (self.claim.erratum or self.claim.difference)


def check_claims(published: Published, results: Results) -> list[CheckedClaim]:
    """Compare each claim with the last night that measured its quantity.

    Nights of hardware take precedence; where there is none, a simulated night gives closure. A
    claim that is a matter of arithmetic is computed now. Raises `RecordError` for results that
    cannot be read, and `ClaimError`.
    """
    rows = AnsweringRows(results, published.testbed)
    elsewhere = {
        name: AnsweringRows(results, name)
        for name in {context.testbed for claim in published.claims for context in claim.related}
    }
    outcomes = outcomes_of(published)
    checked = {
        claim.name: _answer(published.system, claim, rows, outcomes)
        for claim in published.claims
        if claim.same_as is None
    }
    for claim in published.claims:
        if claim.same_as is not None:
            checked[claim.name] = _repeated(claim, checked[claim.same_as])
    return [
        replace(
            checked[claim.name],
            related=tuple(_related(each, elsewhere[each.testbed]) for each in claim.related),
        )
        for claim in published.claims
    ]


def _answer(
    system: str, claim: Claim, rows: AnsweringRows, outcomes: "TestOutcomes"
) -> CheckedClaim:
    if claim.tested:
        return _test(claim, outcomes)
    return _check(claim, rows) if claim.computed is None else _compute(system, claim)


def _repeated(claim: Claim, one: CheckedClaim) -> CheckedClaim:
    """Return a claim that another one's value answers: shown with it, and counted once."""
    figure = replace(one.claim.figure, printed=claim.figure.printed)
    reason = f"The value of {one.claim.name}, which counts once. {one.reason}"
    return replace(one, claim=replace(claim, figure=figure), reason=reason)


def _test(claim: Claim, outcomes: "TestOutcomes") -> CheckedClaim:
    found = outcomes.of(claim.name)
    if not found:
        return CheckedClaim(claim, None, None, None, "not measured", outcomes.missing(claim.name))
    failed = [one for one in found if not one.holds]
    share = 1 - len(failed) / len(found)
    cases = f"{len(found) - len(failed)} of {len(found)}"
    by_reason: dict[str, list[str]] = {}
    for one in failed:
        by_reason.setdefault(one.reason, []).append(one.label)
    listed = "; ".join(f"{', '.join(labels)}: {why}" for why, labels in by_reason.items())
    outcome: ClaimOutcome = "differs" if failed else "agrees"
    reason = f"{cases} tests hold." + (f" Not {listed}." if failed else "")
    value = Estimate(share, share, share, 1)
    return CheckedClaim(claim, value, "tested", outcomes.day, outcome, reason, f"{cases} tests")


def _related(context: ClaimContext, rows: AnsweringRows) -> ClaimResult:
    found = rows.found(context.lookup)
    if found is None:
        return ClaimResult(context, None, "1", False, None)
    last = found.iloc[-1]
    if context.stated and "n" not in found:
        raise ClaimError(f"{context.lookup.quantity}: its rows state no number of samples")
    if context.stated:
        low, high = float(last["lower"]), float(last["upper"])
        ours: Estimate | NotEnough = Estimate(float(last["value"]), low, high, int(last["n"]))
    else:
        ours = estimate(context.lookup.statistic, *one_an_event(found, context.lookup))
    night = f"{last['night']:%Y-%m-%d}"
    return ClaimResult(context, ours, str(last["unit"]), bool(last["simulated"]), night)


def _compute(system: str, claim: Claim) -> CheckedClaim:
    assert claim.computed is not None
    found = computed_by(system)[claim.computed]()
    ours = Estimate(found.value, found.lower, found.upper, found.n)
    assert claim.basis is not None
    outcome, reason = _compared(claim, claim.basis, ours)
    return CheckedClaim(claim, ours, claim.basis, None, outcome, reason, found.note or None)


def _compared(claim: Claim, kind: Kind, ours: Estimate | NotEnough) -> tuple[ClaimOutcome, str]:
    """Return the verdict by the tolerance of the kind, or by the claim's own with its reason."""
    if claim.undecided is not None and isinstance(ours, Estimate):
        return "cannot tell", claim.undecided
    if claim.tolerance is None:
        return compare(claim.figure, ours, tolerance_of(kind, ours))
    tolerance, why = claim.tolerance
    outcome, reason = compare(claim.figure, ours, tolerance)
    return outcome, f"{reason} {why}"


def _check(claim: Claim, rows: AnsweringRows) -> CheckedClaim:
    found = None if claim.ours is None else rows.found(claim.ours)
    if claim.ours is None or found is None:
        outcome, reason = compare(claim.figure, None)
        if claim.ours is not None:
            testbed = claim.ours.testbed or rows.testbed
            reason = (
                f"{reason} No results of {testbed} have {claim.ours.quantity}; "
                f"`pytest suites --testbed testbeds/{testbed}.yaml` records it, and with "
                "`--instruments simulated` what the file states of it."
            )
        return CheckedClaim(claim, None, None, None, outcome, claim.unmeasured or reason)
    unit = str(found["unit"].iloc[0])
    if unit != claim.figure.unit:
        raise ClaimError(
            f"{claim.name}: the published figure is in {claim.figure.unit}, "
            f"{claim.ours.quantity} was measured in {unit}"
        )
    low, high = one_an_event(found, claim.ours)
    ours = estimate(claim.ours.statistic, low, high)
    night, kind = f"{found['night'].iloc[0]:%Y-%m-%d}", kind_of(found)
    return CheckedClaim(claim, ours, kind, night, *_compared(claim, kind, ours))
