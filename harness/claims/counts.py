"""Checked claims counted by the origin of the value beside them and by verdict."""

from collections import Counter
from collections.abc import Iterator, Sequence

from lightrig.harness.claims.checking import CheckedClaim
from lightrig.harness.claims.verdicts import CAN_AGREE, KIND_TEXTS, MEASURED


def counts_by_kind(checked: Sequence[CheckedClaim]) -> Iterator[str]:
    """Yield a line for each kind of value with its verdicts, and one for claims without a value.

    Arithmetic and constants of the paper come last, as what they are: no evidence.
    """
    for kind, meaning in KIND_TEXTS.items():
        verdicts = Counter(one.verdict for one in checked if one.kind == kind and one.counted)
        if verdicts:
            yield f"{meaning}: {_listed(verdicts)}"
    if without := Counter(one.verdict for one in checked if one.kind is None):
        yield f"no value: {_listed(without)}"
    if outside := Counter(one.verdict for one in checked if not one.counted):
        yield f"outside the count, {KIND_TEXTS['printed']}: {_listed(outside)}"


def measured_sentence(checked: Sequence[CheckedClaim]) -> str:
    """Return how many claims that count have a value, agree, and were measured here."""
    counted = [one for one in checked if one.counted]
    valued = [one for one in counted if one.kind is not None]
    measured = [one for one in valued if one.kind in MEASURED]
    return (
        f"Of {len(counted):,} claims {len(valued):,} have a value here and {_agreeing(valued):,} "
        f"agree; {len(measured):,} were measured here and {_agreeing(measured):,} agree."
    )


def _agreeing(claims: Sequence[CheckedClaim]) -> int:
    return sum(one.outcome == "agrees" and one.kind in CAN_AGREE for one in claims)


def _listed(verdicts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
