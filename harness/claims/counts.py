"""Checked claims counted by the origin of the value beside them and by verdict."""

from collections import Counter
from collections.abc import Iterator, Sequence

from lightrig.harness.claims.checking import CheckedClaim
from lightrig.harness.claims.verdicts import KIND_TEXTS, MEASURED


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
    """Return how many of the claims that count were measured here, in a sentence."""
    counted = [one for one in checked if one.counted]
    measured = [one for one in counted if one.kind in MEASURED]
    agree = sum(one.outcome == "agrees" for one in measured)
    return f"Of {len(counted):,} claims {len(measured):,} were measured here; {agree:,} agree."


def _listed(verdicts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common())
