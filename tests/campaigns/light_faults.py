"""Faults by light under jobs of a library: outcomes, and the longest cut that is survived.

`LIGHT_LIBRARIES` (default `tcp gloo mpich`; `openmpi` stands in `LIGHT_OPENMPI`) are run one after
the other in namespaces, each with its settings of `SETTINGS`, `LIGHT_FAULTS` (default 67) faults a
setting, or only that with the number `LIGHT_SETTING`. Of these at most `STAIRS` are cuts whose
durations a Bayesian staircase chooses, and at most `UP_AND_DOWN` cuts whose durations go up after
one that was survived and down after one that was not (Dixon and Mood 1948, "A method for obtaining
and analyzing sensitivity data", J. Am. Stat. Assoc. 43); the others are `KINDS` in turn. A wrong
result, an error of the harness, a switch that is not as the plan says after a fault, and processes
that are left after a setting break the promise.
"""

import contextlib
import itertools
import math
import os
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.jobs.bench.jobs import JobCollective, Jobs, JobSetting, Library
from lightrig.harness.jobs.measure.light_faults import Fault, FaultKind, draw_faults, parse_fault
from lightrig.harness.jobs.measure.survival_map import FaultRun, quiet_observation
from lightrig.harness.jobs.statistics.staircase import Staircase
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import LightrigError, load
from tests.campaigns import records

S = 1_000_000_000
COUNT = int(os.environ.get("LIGHT_FAULTS", "67"))
SETTINGS: dict[Library, tuple[JobSetting, ...]] = {
    "tcp": (JobSetting(), JobSetting(user_timeout=3 * S), JobSetting(retries=5)),
    "gloo": (JobSetting(), JobSetting(timeout=5 * S), JobSetting(retries=5)),
    "mpich": (JobSetting(), JobSetting(timeout=5 * S), JobSetting(retries=5)),
    "openmpi": (JobSetting(), JobSetting(retries=5), JobSetting(detector=S)),
    "nccl": (JobSetting(), JobSetting(timeout=5 * S), JobSetting(retries=5)),
}
JOBS: tuple[JobCollective, ...] = get_args(JobCollective)
ENVIRONMENT = Path(os.environ.get("LIGHT_OPENMPI", ".extras/openmpi"))
LEAST, MOST = S // 10, 30 * S
STAIRS, UP_AND_DOWN, STEP = 18, 12, 0.15
"""Faults of either staircase; the step of the second one in decades, from 2 s on."""
KINDS = tuple(
    map(
        parse_fault,
        ("cut:300ms", "cut:1s,one-way", "flap:400ms,number=4", "swap:1s", "dim:2s,loss=2%",
         "cut:2s", "swap:3s", "cut:4s,one-way", "flap:1s,duty=0.3,number=4",
         "cut:1s,return=500ms", "restart:1s", "plan:1s,to=crossed"),
    )
)  # fmt: skip


def level_up_and_down(done: Sequence[Mapping[str, Any]]) -> float:
    """Return the next duration of the second staircase, in s."""
    level = 2.0
    for each in done:
        level *= 10 ** (STEP if each["went_on"] else -STEP)
        level = min(max(level, LEAST / S), MOST / S)
    return level


def turning_points(done: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the durations without carrier between a cut that was survived and one that was not."""
    return [
        (one["dark_s"] * two["dark_s"]) ** 0.5
        for one, two in itertools.pairwise(done)
        if one["went_on"] != two["went_on"]
    ]


def planned(done: Sequence[Mapping[str, Any]]) -> tuple[str, FaultKind]:
    """Return the next fault of a setting, and which plan it belongs to."""
    earlier = defaultdict[str, list[Mapping[str, Any]]](list)
    for each in done:
        if "dark_s" in each:
            earlier[each["plan"]].append(each)
    bayesian, steps = earlier["bayesian"], earlier["up-and-down"]
    stairs = staircase(bayesian)
    if len(bayesian) < STAIRS and not math.isinf(stairs.threshold().lower):
        level, plan = stairs.next_level(), "bayesian"
    elif len(steps) < UP_AND_DOWN and not survived_the_longest(steps):
        level, plan = level_up_and_down(steps), "up-and-down"
    else:
        return "kinds", KINDS[len(earlier["kinds"]) % len(KINDS)]
    return plan, FaultKind("cut", round(level * S))


def survived_the_longest(done: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last cut was as long as any, and survived."""
    return bool(done) and done[-1]["went_on"] and done[-1]["dark_s"] >= MOST / S


def staircase(done: Sequence[Mapping[str, Any]]) -> Staircase:
    """Return the first staircase after what was done."""
    stairs = Staircase(LEAST / S, MOST / S)
    for each in done:
        stairs.answered(each["dark_s"], failed=not each["went_on"])
    return stairs


def one_fault(run: FaultRun, fault: Fault) -> dict[str, Any]:
    """Make a fault; return what became of the job, and of the lab."""
    began = time.monotonic()
    try:
        found = run.under(fault)
    except LightrigError as error:
        return {"outcome": "harness", "went_on": False, "error": " ".join(str(error).split())[:300]}
    fabric = run.fabric
    return {
        "outcome": found.outcome,
        "went_on": found.went_on,
        "dark_s": found.duration / 1e9,
        "stall_s": found.stall / 1e9,
        "exchanges": found.exchanges,
        "wrong": found.wrong,
        "error": found.error,
        "groups": found.groups,
        "moments_s": {
            name: round((at.latest - found.began) / 1e9, 4) for name, at in found.moments.items()
        },
        "took_s": round(time.monotonic() - began, 1),
        "restored": not fabric.prepare(run.plan, check_budget=False).moved,
    }


def setting_of(bench: Bench, log: records.Log, library: Library, setting: JobSetting) -> None:
    """Make the faults of a setting that have not been made yet."""
    name = f"{library}, {setting}"
    done = [each for each in log.done if each["setting"] == name]
    plan = bench.testbed.plans["ring"]
    links_of_plans = {each: bench.testbed.links(each) for each in bench.testbed.plans}
    seed = sum(map(ord, name))
    jobs = None
    fabric, links = Fabric(bench), quiet_observation(bench)
    try:
        while len(done) < COUNT:
            if jobs is None:
                jobs = Jobs(bench, library, setting, ENVIRONMENT)
            which, what = planned(done)
            job = JOBS[len(done) % len(JOBS)] if which == "kinds" else JOBS[0]
            (fault,) = draw_faults(
                [what], links_of_plans[plan.name], 1, seed + len(done), links_of_plans
            )
            found = one_fault(FaultRun(fabric, links, jobs, plan, job), fault)
            load_now = round(os.getloadavg()[0], 1)
            about = {"setting": name, "plan": which, "job": job, "fault": fault.line()}
            found = {**about, **found, "load": load_now}
            log.add(found)
            done.append(found)
            if found["outcome"] == "harness":
                jobs.close()
                jobs = None
    finally:
        if jobs is not None:
            jobs.close()
        links.pause()
        fabric.restore()


def children() -> list[int]:
    """Return the processes that this one has started and that still run."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


def table(done: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines of what was done, and whether nothing broke the promise."""
    printed, good = [], True
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for each in done:
        groups.setdefault(each["setting"], []).append(each)
    for name, found in groups.items():
        outcomes = Counter(each["outcome"] for each in found)
        wrong = sum(each.get("wrong", 0) for each in found)
        left = sum(not each.get("restored", False) for each in found)
        good &= not wrong and not left
        shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        stairs = [each for each in found if each["plan"] == "bayesian" and "dark_s" in each]
        steps = [each for each in found if each["plan"] == "up-and-down" and "dark_s" in each]
        loads = [each["load"] for each in found]
        printed += [
            f"{name}: {len(found)} faults, load {min(loads)} to {max(loads)}",
            f"  {shown}; {wrong} wrong results of "
            f"{sum(each.get('exchanges', 0) for each in found):,}; {left} not restored",
            f"  longest cut, Bayesian ({len(stairs)}): {longest(stairs)}",
            f"  longest cut, up and down ({len(steps)}): {longest_up_and_down(steps)}",
        ]
    return printed, good


def longest(done: Sequence[Mapping[str, Any]]) -> str:
    """Return the threshold of the first staircase as text."""
    found = staircase(done).threshold()
    if math.isinf(found.value):
        return f"at least {min(found.lower, MOST / S):.1f} s"
    upper = min(found.upper, MOST / S)
    return f"{found.value:.2f} s (95 % interval {found.lower:.2f} to {upper:.2f} s)"


def longest_up_and_down(done: Sequence[Mapping[str, Any]]) -> str:
    """Return the threshold of the second one: the mean of its turning points."""
    turns = turning_points(done)
    if not turns:
        if not done:
            return "none"
        ends = [each["dark_s"] for each in done]
        return f"at least {max(ends):.1f} s" if done[-1]["went_on"] else f"below {min(ends):.2f} s"
    middle = statistics.geometric_mean(turns)
    return f"{middle:.2f} s ({len(turns)} turning points, {min(turns):.2f} to {max(turns):.2f} s)"


def main() -> bool:
    """Run what has not been run; print the table; return whether nothing broke the promise."""
    if (why := kernel.available()) is not None:
        print(f"not run: {why}")
        return True
    libraries: Iterator[str] = iter(os.environ.get("LIGHT_LIBRARIES", "tcp gloo mpich").split())
    left: list[int] = []
    place = os.environ.get("LIGHT_SETTING")
    chosen = slice(None) if place is None else slice(int(place), int(place) + 1)
    name = os.environ.get("LIGHT_LOG", "light_faults")
    with records.log(name) as log:
        for library in libraries:
            settings = SETTINGS[library]  # type: ignore[index]  # or a KeyError with its name
            for setting in settings[chosen]:
                before = set(children())
                bench = bind(load("testbeds/namespaces.yaml"), "simulated", 1)
                try:
                    setting_of(bench, log, library, setting)  # type: ignore[arg-type]  # as above
                finally:
                    bench.close()
                left += set(children()) - before
        printed, good = table(log.done)
    print("\n".join(printed))
    print(f"{len(left)} processes left", file=sys.stderr)
    return good and not left
