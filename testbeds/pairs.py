"""Pairs of a testbed's plans, between which a test moves to and fro."""

from __future__ import annotations

from dataclasses import dataclass

from testbeds.model import Testbed
from testbeds.plans import Plan, move_counts, partial_move


@dataclass(frozen=True, slots=True)
class PlanPair:
    """Two plans of one testbed."""

    before: Plan
    after: Plan

    def __str__(self) -> str:
        return f"{self.before.name}-{self.after.name}"

    def counts(self) -> tuple[int, ...]:
        """How many circuits can be moved at once without parting what must move together."""
        return tuple(count for count in move_counts(self.before, self.after) if count > 0)

    def link_counts(self, testbed: Testbed) -> tuple[int, ...]:
        """Those of `counts` that leave no link with only one of its two directions."""
        whole = []
        for count in self.counts():
            plan = partial_move(self.before, self.after, count)
            if 2 * len(testbed.links(plan)) == len(plan):
                whole.append(count)
        return tuple(whole)


def plan_pairs(testbed: Testbed) -> list[PlanPair]:
    """Each plan of the file with the next, and the last with the first."""
    plans = list(testbed.plans.values())
    following = [*plans[1:], plans[0]] if len(plans) > 2 else plans[1:]
    return [PlanPair(*pair) for pair in zip(plans, following, strict=False)]
