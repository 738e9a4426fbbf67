"""Pairs of a testbed's plans, between which a test alternates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lightrig.testbeds.model import Testbed
from lightrig.testbeds.plans import Plan, move_counts, partial_move


@dataclass(frozen=True)
class PlanPair:
    """Two plans of one testbed."""

    before: Plan
    after: Plan

    def __str__(self) -> str:
        return f"{self.before.name}-{self.after.name}"

    def counts(self) -> tuple[int, ...]:
        """Numbers of circuits that can be moved at once: whole independent components."""
        return self._counts

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        return tuple(count for count in move_counts(self.before, self.after) if count > 0)

    def link_counts(self, testbed: Testbed) -> tuple[int, ...]:
        """Return those of `counts` after which no link has only one direction."""
        whole = []
        for count in self.counts():
            plan = partial_move(self.before, self.after, count)
            if 2 * len(testbed.links(plan)) == len(plan):
                whole.append(count)
        return tuple(whole)


def plan_pairs(testbed: Testbed) -> list[PlanPair]:
    """Return each plan of the file with the next one, and the last with the first."""
    plans = list(testbed.plans.values())
    following = [*plans[1:], plans[0]] if len(plans) > 2 else plans[1:]
    return [PlanPair(*pair) for pair in zip(plans, following, strict=False)]
