"""Why a job waits, for its scheduler; and for which jobs no place is found at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from lightrig.harness.orchestration.jobs import ImpossibleError, Job
from lightrig.harness.orchestration.layout import Layout, ProvesImpossible
from lightrig.harness.orchestration.wanted import Wanted

Code: TypeAlias = Literal[
    "doubt", "priority", "not-found", "switch-silent", "groups-stay", "nodes-missing"
]
"""Why a job waits.

doubt: nothing is placed while many parts fell silent at once. priority: a job of a greater one
waits. not-found: the search finds no place on the nodes that it may have, even if all were free
and worked; others are not held back for it. switch-silent: there is a place once switches answer.
groups-stay: there is room, and the groups that it has do not move for it. nodes-missing: nodes of
those that it may have failed, are drained or are in other jobs.
"""

Reason: TypeAlias = Mapping[str, str]
"""`code` and `detail`."""

_MOST_LISTED = 8


def refuse_impossible(layout: Layout, job: Job) -> None:
    """Raise `ImpossibleError` for a job that is proved to have no place on its nodes."""
    if isinstance(layout, ProvesImpossible):
        why = layout.impossible(_bare(job), _allowed(layout, job))
        if why is not None:
            raise ImpossibleError(f"job {job.name} is impossible: {why}")


class Waiting:
    """The jobs that wait, for one fabric; what was found once is kept."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._found: dict[str, tuple[Any, bool]] = {}
        self._known: tuple[tuple[Job, ...], tuple[Any, ...], dict[str, Reason]] | None = None

    def homeless(self, wanted: Wanted) -> frozenset[str]:
        """Return the jobs with missing groups for which an empty fabric has no place either.

        By the layout's search: for another one there may be a place.
        """
        names = {job.name for job in wanted.jobs}
        self._found = {name: each for name, each in self._found.items() if name in names}
        return frozenset(
            job.name for job in wanted.jobs if job.missing and not self._finds_on_empty(job)
        )

    def reasons(self, wanted: Wanted, doubt: str | None, *, has_room: bool) -> Mapping[str, Reason]:
        """Return why each job waits that misses a group.

        has_room: whether one misses a group although there is room; see `Wanted.has_room`.
        """
        state = (wanted.reported, wanted.drained, wanted.silent, wanted.dark, doubt, has_room)
        # Events make another `wanted` of the same jobs.
        if self._known is None or self._known[0] is not wanted.jobs or self._known[1] != state:
            found: dict[str, Reason] = {
                job.name: {"code": code, "detail": detail}
                for job in wanted.jobs
                if job.missing
                for code, detail in [self._reason(job, wanted, doubt, has_room=has_room)]
            }
            self._known = wanted.jobs, state, found
            return found
        return self._known[2]

    def _reason(
        self, job: Job, wanted: Wanted, doubt: str | None, *, has_room: bool
    ) -> tuple[Code, str]:
        layout = self._layout
        allowed = _allowed(layout, job)
        if not self._finds_on_empty(job):
            return "not-found", (
                f"no place was found for it on the {len(allowed)} nodes that it may have, all of "
                "them free and working; others are not held back for it"
            )
        if doubt:
            return "doubt", doubt
        before = [
            each
            for each in wanted.jobs
            if each.missing and each.priority > job.priority and self._finds_on_empty(each)
        ]
        if before:
            first = max(before, key=lambda each: each.priority)
            return "priority", f"job {first.name} of priority {first.priority} waits"
        unusable = wanted.unusable(layout)
        owners = {
            node: each.name for each in wanted.jobs if each.name != job.name for node in each.nodes
        }
        free = allowed - unusable.keys() - wanted.drained - owners.keys() | job.nodes
        silent = wanted.silent.keys()
        dead = sorted(silent - set(layout.cut_off(silent).values()))
        if dead and self._finds(job, free, ()) and not self._finds(job, free, silent):
            why = "; ".join(f"{name}: {wanted.silent[name]}" for name in dead[:_MOST_LISTED])
            return "switch-silent", f"there is a place for it once switches answer: {why}"
        if has_room and job.nodes and self._finds(job, free, silent):
            return "groups-stay", "there is room, and the groups that it has stay where they are"
        return "nodes-missing", (
            f"{len(free)} of the {len(allowed)} nodes that it may have are free and work; "
            + ("; ".join(_missing(allowed - free, unusable, wanted.drained, owners)) or "too few")
        )

    def _finds_on_empty(self, job: Job) -> bool:
        asked = (job.shape, job.within)
        known = self._found.get(job.name)
        if known is None or known[0] != asked:
            found = self._finds(job, _allowed(self._layout, job), ())
            known = self._found[job.name] = asked, found
        return known[1]

    def _finds(self, job: Job, nodes: frozenset[str], silent: Collection[str]) -> bool:
        """Whether all of a job has a place on nodes that are free, by the layout's search."""
        return not self._layout.place(_bare(job), nodes, {}, silent).missing


def _bare(job: Job) -> Job:
    return replace(job, groups=(None,) * len(job.groups), moved=())


def _allowed(layout: Layout, job: Job) -> frozenset[str]:
    return frozenset(layout.nodes) if job.within is None else job.within


def _missing(
    nodes: Collection[str],
    unusable: Mapping[str, str],
    drained: Collection[str],
    owners: Mapping[str, str],
) -> Iterator[str]:
    """Yield what keeps nodes from a job, each with some of them."""
    failed = sorted(set(nodes) & unusable.keys())
    withheld = sorted(set(nodes) & set(drained) - unusable.keys())
    taken = sorted({owners[node] for node in nodes if node in owners})
    for what, names in (
        ("failed", [f"{node} ({unusable[node]})" for node in failed]),
        ("drained", withheld),
        ("in jobs", taken),
    ):
        if names:
            more = len(names) - _MOST_LISTED
            listed = ", ".join(names[:_MOST_LISTED])
            yield f"{what}: {listed}" + (f" and {more} more" if more > 0 else "")
