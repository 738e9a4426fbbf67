"""One change of circuits by hand, watched and recorded: from the command to the last carrier."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.cli.terminal import err
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.port_counters import PortCounters
from lightrig.harness.measure.reconfiguration import IncompleteError, measure_reconfiguration
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.notebook.lab import TEST
from lightrig.harness.recorded_test import RecordedTest
from lightrig.harness.run import ObservedRun
from lightrig.testbeds import Plan
from lightrig.testbeds.intervals import interval


@dataclass(frozen=True)
class WatchedChange:
    """What was seen of a change.

    Attributes:
        run: the run by hand that has its rows.
        event: its stages; None where light or a link did not come.
        problem: what did not come; empty where all did.
    """

    run: str
    event: Reconfiguration | None
    problem: str = ""

    @property
    def stages(self) -> list[dict[str, Any]]:
        """Subject, stage and bounds after the command, in ns, in the order of events."""
        if self.event is None:
            return []
        found = [
            {
                "subject": seen.subject,
                "stage": seen.stage,
                "value": point,
                "lower": after.earliest,
                "upper": after.latest,
                "unit": "ns",
            }
            for seen, after, point in zip(
                self.event.seen, self.event.seen_after, self.event.points_after(), strict=True
            )
        ]
        return sorted(found, key=lambda each: (each["value"], each["subject"]))

    @property
    def lines(self) -> list[str]:
        """The stages as a person reads them, and what did not come."""
        rows = []
        for each in self.stages:
            written = interval(each["lower"], each["upper"], each["unit"], each["value"])
            rows.append((each["subject"], each["stage"], f"{written.value}, {written.ends}"))
        width = max((len(subject) for subject, *_ in rows), default=0)
        lines = [f"{subject:<{width}}  {stage:<16}  {time}" for subject, stage, time in rows]
        return [*lines, *([self.problem] if self.problem else []), f"run {self.run}, by hand"]


def watch_change(
    bench: Bench, fabric: Fabric, plan: Plan, command: str, results: Path
) -> WatchedChange:
    """Make a change, and record its stages in a run by hand.

    Raises what `measure_reconfiguration` raises, but no `IncompleteError`: the change is made then.
    """
    testbed = bench.testbed
    run = ObservedRun(
        results,
        {
            "by_hand": True,
            "seed": 0,
            "instruments": "hardware",
            "command": command,
            "testbeds": {testbed.name: str(testbed.path)},
            "testbed_order": [testbed.name],
        },
        zone=testbed.timezone,
    )
    run.notes = (lambda _, sentence: err.print(sentence, soft_wrap=True, markup=False),)
    recorded = RecordedTest(run, bench, TEST, {}, _ignore, PortCounters(bench), name=TEST)
    event, problem = None, ""
    try:
        event = measure_reconfiguration(fabric, LinkObservation(bench), recorded.recording, plan)
    except IncompleteError as error:
        problem = str(error)
    finally:
        try:
            recorded.end()
        finally:
            if recorded.measured:
                run.close({"exit": 0, "tests": 0})
            else:
                run.discard()
    return WatchedChange(run.name, event, problem)


def _ignore(_: str) -> None:
    """Take no note of limits that one event does not decide."""
