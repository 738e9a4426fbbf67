"""Which tests there are: spread over testbeds, their plans and counts, from the files alone."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.plugin.keys import TESTBEDS
from testbeds import PlanPair, Testbed, plan_pairs

MOST_COUNTS = 2
"""How many counts of circuits moved at once a test is spread over, besides all of them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spread tests over testbeds, pairs of their plans and counts, from the files alone."""
    wanted: list[str] = [
        n for n in ("testbed", "transition", "moving") if n in metafunc.fixturenames
    ]
    if "testbed" not in wanted or not _is_ours(metafunc):
        return
    rows: list[Any] = [
        pytest.param(*values, id="-".join(map(str, [values[0].name, *values[1:]])))
        for testbed in metafunc.config.stash[TESTBEDS]
        for values in _spread(testbed, wanted)
    ]
    if not rows:
        why = pytest.mark.skip(reason="no plan of these testbeds can be moved in parts")
        rows = [pytest.param(*[None] * len(wanted), marks=why, id="none")]
    metafunc.parametrize(tuple(wanted), rows, indirect=True, scope="session")


def _is_ours(metafunc: pytest.Metafunc) -> bool:
    """Whether `testbed` is ours, not another project's of that name."""
    definitions = metafunc._arg2fixturedefs.get("testbed", ())  # noqa: SLF001 - no public way
    return any(
        definition.func.__module__ == "harness.plugin.fixtures" for definition in definitions[-1:]
    )


def _spread(testbed: Testbed, wanted: list[str]) -> Iterator[tuple[Any, ...]]:
    if "transition" not in wanted:
        yield (testbed,)
        return
    for pair in plan_pairs(testbed):
        if "moving" not in wanted:
            yield testbed, pair
            continue
        for moving in pair.link_counts(testbed)[:-1][:MOST_COUNTS]:
            yield testbed, pair, moving


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each testbed's tests together; skip what it cannot offer before any set-up."""
    testbeds: list[Testbed] = config.stash[TESTBEDS]
    order = {testbed.name: number for number, testbed in enumerate(testbeds)}
    items.sort(key=lambda item: order.get(_testbed_of(item), -1))
    for item in items:
        mark = item.get_closest_marker("needs")
        callspec = getattr(item, "callspec", None)
        pair = callspec.params.get("transition") if mark and callspec else None
        if mark is not None and isinstance(pair, PlanPair) and (why := _lacks(pair, **mark.kwargs)):
            item.add_marker(pytest.mark.skip(reason=why))


def _testbed_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    testbed = callspec.params.get("testbed") if callspec else None
    return testbed.name if isinstance(testbed, Testbed) else ""


def _lacks(pair: PlanPair, circuits: int) -> str | None:
    if circuits in pair.counts():
        return None
    possible = ", ".join(map(str, pair.counts()))
    return f"{pair} can move {possible} circuits at once, not {circuits}"
