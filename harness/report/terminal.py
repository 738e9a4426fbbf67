"""The few figures that a person wants to see before opening the report."""

from collections.abc import Iterator

from harness.report.estimates import estimate
from harness.report.frames import RunFrame, TestbedFrame
from harness.report.stages import ordered
from harness.statistics import Quantile
from testbeds import format_duration

_SHOWN = ("acknowledged", "light_back", "carrier_up", "first_datagram")


def lines(run: RunFrame) -> Iterator[str]:
    """One line a test that reconfigured: the medians of the stages that matter most, of how many.

    Other quantities were told of while they were measured.
    """
    for frame in run.testbeds:
        if not any(test.stages() for test in frame.tests):
            continue
        yield f"{frame.name}{' (simulated)' if frame.simulated else ''}, medians after the command"
        yield from _tests(frame)


def _tests(frame: TestbedFrame) -> Iterator[str]:
    tests = [test for test in frame.tests if test.stages()]
    width = max(len(test.label) for test in tests)
    for test in tests:
        figures = []
        for stage in ordered(_SHOWN):
            found = estimate(test, f"reconfiguration.{stage}")
            if found is not None and isinstance(found.median, Quantile):
                figures.append(f"{stage} {format_duration(found.median.value)}")
        shown = ", ".join(figures) or "not enough data"
        yield f"  {test.label:<{width}}  {shown} (n = {test.events})"
