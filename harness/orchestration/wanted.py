"""The wanted state of a fabric, as a document that a restart continues from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
from lightrig.harness.orchestration.layout import Layout
from lightrig.instruments.clock import wall_time

_MOST_EVENTS = 1000
"""Events that the history keeps."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Jobs with their nodes, and the parts that must not be used.

    Attributes:
        jobs: in the order in which they came.
        reported: nodes that a request called failed. drained: nodes that get no new group.
        silent, dark: reasons by switch, and by node, that have failed by themselves.
        history: events, oldest first. epoch: of the last one.
    """

    jobs: tuple[Job, ...] = ()
    reported: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    silent: Mapping[str, str] = field(default_factory=dict)
    dark: Mapping[str, str] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    epoch: int = 0

    def noting(self, *events: str, **details: object) -> Wanted:
        """Return this with events of now in the history, each with `details` in JSON."""
        if not events:
            return self
        now = wall_time().isoformat(timespec="milliseconds")
        noted = [
            {"epoch": self.epoch + number, "time": now, "event": event, **details}
            for number, event in enumerate(events, 1)
        ]
        history = (*self.history, *noted)[-_MOST_EVENTS:]
        return replace(self, history=history, epoch=self.epoch + len(events))

    def seeing(self, silent: Mapping[str, str], dark: Mapping[str, str]) -> Wanted:
        """Return this with the parts that have failed now, and what has changed as events."""
        events = []
        for what, before, after in (
            ("switch", self.silent, silent),
            ("light of", self.dark, dark),
        ):
            fell, back = after.keys() - before.keys(), before.keys() - after.keys()
            events += [f"{what} {name} failed: {after[name]}" for name in sorted(fell)]
            events += [f"{what} {name} is back" for name in sorted(back)]
        if not events:
            return self  # also where a reason has another wording by now
        return replace(self, silent=dict(silent), dark=dict(dark)).noting(*events)

    def unusable(self, layout: Layout) -> dict[str, str]:
        """Return the reasons by node that can carry no group."""
        cut = {
            node: f"{switch}: {self.silent[switch]}"
            for node, switch in layout.cut_off(self.silent.keys()).items()
        }
        return {**self.dark, **cut, **dict.fromkeys(sorted(self.reported), "reported")}

    def placed(self, layout: Layout, homeless: Collection[str] = ()) -> Wanted:
        """Keep the groups whose nodes work, and place what is missing, by priority.

        A layout may move groups of a job that misses some, where there is room for all then.
        Nothing is placed for a job while one of a greater priority waits, of those that are not
        `homeless`: jobs for which no place is found even on an empty fabric.
        """
        unusable = frozenset(self.unusable(layout))
        left = {job.name: job.without(unusable) for job in self.jobs}
        taken = frozenset(node for job, _ in left.values() for node in job.nodes)
        free = frozenset(layout.nodes) - unusable - self.drained - taken
        waiting: int | None = None
        placed: dict[str, Job] = {}
        for job, lost in sorted(left.values(), key=lambda each: -each[0].priority):
            found = job
            if waiting is None or job.priority >= waiting:
                found = self._place(layout, job, free, lost)
                # A gang starts as a whole; one that runs goes on with what it still has.
                if job.gang and found.missing and job.missing == len(job.groups):
                    found = job
                # A job that was moved has left its nodes to those behind it.
                free = (free | job.nodes) - found.nodes - self.drained
                if found.missing and job.name not in homeless:
                    waiting = job.priority
            placed[job.name] = found
        events: list[str] = []
        jobs = []
        for before in self.jobs:
            after = placed[before.name]
            pairs = [*zip(before.groups, after.groups, strict=True)]
            if changed := [str(number) for number, (old, new) in enumerate(pairs) if old != new]:
                working = left[before.name][0].groups
                moved = (
                    n
                    for n, (old, new) in enumerate(pairs)
                    if working[n] and old and (new is None or old.nodes != new.nodes)
                )
                events.append(
                    f"job {before.name}: groups {', '.join(changed)} change, "
                    f"{after.missing} of {len(after.groups)} wait"
                )
                after = replace(after, epoch=self.epoch + len(events), moved=tuple(moved))
            jobs.append(after)
        return replace(self, jobs=tuple(jobs)).noting(*events) if events else self

    def passing(self, before: Wanted, switches_of: Callable[[Job], Collection[str]]) -> Wanted:
        """Return this with a new epoch for each job that a switch was lost to, or is back for.

        before: what was wanted before. switches_of: those that a job has circuits of. A job whose
        groups have changed since has a new epoch already.
        """
        fell = self.silent.keys() - before.silent.keys()
        back = before.silent.keys() - self.silent.keys()
        events: list[str] = []
        epochs: dict[str, int] = {}
        for job in self.jobs if fell or back else ():
            if job.epoch <= before.epoch:
                names = frozenset(switches_of(job))
                pairs = (("goes on without", names & fell), ("may use again", names & back))
                lines = [f"{what} {', '.join(sorted(each))}" for what, each in pairs if each]
                if lines:
                    events.append(f"job {job.name} {' and '.join(lines)}")
                    epochs[job.name] = self.epoch + len(events)
        if not events:
            return self
        jobs = (replace(job, epoch=epochs.get(job.name, job.epoch)) for job in self.jobs)
        return replace(self, jobs=tuple(jobs)).noting(*events)

    def has_room(self, layout: Layout, homeless: Collection[str] = ()) -> bool:
        """Whether a job misses a group that its own and the free nodes would hold, placed anew.

        So it is while a doubt keeps what is missing from being placed, and where all groups of a
        job moved would make room for some that it misses, but not for all.
        """
        if self.placed(layout, homeless) is not self:
            return True
        taken = frozenset(node for job in self.jobs for node in job.nodes)
        free = frozenset(layout.nodes) - frozenset(self.unusable(layout)) - self.drained - taken
        waiting = (job for job in self.jobs if job.missing and job.name not in homeless)
        highest = max((job.priority for job in waiting), default=0)
        for job in self.jobs:
            as_whole = job.gang and job.missing == len(job.groups)
            if job.missing and job.priority == highest and not as_whole:
                nodes = frozenset(layout.nodes) if job.within is None else job.within
                allowed = nodes - self.drained
                stay = (g if g and not allowed.issuperset(g.nodes) else None for g in job.groups)
                bare = replace(job, groups=tuple(stay))
                again = self._place(layout, bare, free | (job.nodes - bare.nodes), {})
                if again.missing < job.missing:
                    return True
        return False

    def _place(
        self, layout: Layout, job: Job, free: frozenset[str], lost: Mapping[int, Group]
    ) -> Job:
        """Return a job with more groups; drained nodes are in none that is new."""
        within = job.within
        if self.drained:
            within = (frozenset(layout.nodes) if within is None else within) - self.drained
        asked = job if within is job.within else replace(job, within=within)
        usable = free if within is None else free & within
        found = layout.place(asked, usable, lost, self.silent.keys())
        return job if found is asked else replace(found, within=job.within)

    def document(self, layout: Layout) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "nodes": list(layout.nodes),
            "epoch": self.epoch,
            "reported": sorted(self.reported),
            "drained": sorted(self.drained),
            "silent": dict(self.silent),
            "dark": dict(self.dark),
            "jobs": [job.document() for job in self.jobs],
            "history": list(self.history),
        }

    @classmethod
    def of_document(
        cls, document: Mapping[str, Any], layout: Layout, switches: Collection[str]
    ) -> Wanted:
        """Return the state that a `document` has, which may be anything.

        Raises `OrchestrationError`, and errors of Python for what is no such document.
        """
        if document["nodes"] != list(layout.nodes):
            raise OrchestrationError("it is that of other nodes")
        jobs = tuple(map(Job.of_document, document["jobs"]))
        wanted = cls(
            jobs,
            known(document["reported"], layout),
            known(document["drained"], layout),
            dict(document["silent"]),
            dict(document["dark"]),
            tuple(document["history"]),
            int(document["epoch"]),
        )
        known(wanted.dark, layout)
        if strange := sorted(wanted.silent.keys() - set(switches)):
            raise OrchestrationError(f"found switch {strange[0]!r}, which there is not")
        taken = [node for job in jobs for group in job.groups if group for node in group.nodes]
        known(taken, layout)
        if len(set(taken)) != len(taken) or len({job.name for job in jobs}) != len(jobs):
            raise OrchestrationError("a node is in two groups, or two jobs have one name")
        complete = []
        for job in jobs:
            known(job.within or (), layout)
            shape = layout.shape.model_validate(job.shape).model_dump(mode="json")
            if layout.groups_of(shape) != len(job.groups):
                raise OrchestrationError(f"job {job.name} has {len(job.groups)} groups")
            layout.circuits(job)
            complete.append(replace(job, shape=shape))  # with fields that an older one had not
        return replace(wanted, jobs=tuple(complete))


def known(nodes: Iterable[str], layout: Layout) -> frozenset[str]:
    """Return `nodes`; raises `OrchestrationError` for one that there is not."""
    found = frozenset(nodes)
    if unknown := sorted(found - set(layout.nodes)):
        some = ", ".join(layout.nodes[:3])
        raise OrchestrationError(
            f"found node {unknown[0]!r}, expected one of {len(layout.nodes)}: {some} ..."
        )
    return found
