"""Which tests there are: spread over testbeds, their plans and counts, from the files alone."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from harness.plugin.keys import TESTBEDS
from testbeds import PlanPair, Port, Testbed, plan_pairs

MOST_COUNTS = 2
"""How many counts of circuits moved at once a test is spread over, besides all of them."""

INSTRUMENTS = ("power_meter", "light_source", "attenuator", "bit_error_tester", "climate_chamber")
"""Fixtures that are one of a testbed's instruments; each has the name of its kind."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spread tests over testbeds, plans, counts and instruments, from the files alone."""
    known = ("testbed", "plan", "transition", "moving", "lent")
    wanted: list[str] = [n for n in known if n in metafunc.fixturenames]
    if "testbed" not in wanted or not _is_ours(metafunc):
        return
    kinds = [kind for kind in INSTRUMENTS if kind in metafunc.fixturenames]
    rows: list[Any] = []
    for testbed in metafunc.config.stash[TESTBEDS]:
        lacking = [kind for kind in kinds if not instruments_of(testbed, kind)]
        if "nic_ports" in metafunc.fixturenames and not physical_ports(testbed):
            lacking.append("physical NIC port")
        lack = _without(testbed, lacking) if lacking else None
        if {"plan", "transition"} & set(wanted):
            lack = lack or _overheard(testbed)
        if lack is not None:
            nothing = [None] * (len(wanted) - 1)
            marks = pytest.mark.skip(reason=lack)
            rows.append(pytest.param(testbed, *nothing, marks=marks, id=testbed.name))
            continue
        rows += [
            pytest.param(*values, id="-".join(_named(values)))
            for values in _spread(testbed, wanted, kinds)
        ]
    if not rows:
        why = pytest.mark.skip(reason="no plan of these testbeds can be moved in parts")
        rows = [pytest.param(*[None] * len(wanted), marks=why, id="none")]
    metafunc.parametrize(tuple(wanted), rows, indirect=True, scope="session")


class Lent(dict[str, str]):
    """The instruments that a test is lent: a name for each kind that it takes.

    telling: the kinds of which the testbed has several; another's name would say nothing.
    """

    telling: list[str]

    def __str__(self) -> str:
        return "-".join(self[kind] for kind in self.telling)


def instruments_of(testbed: Testbed, kind: str) -> list[str]:
    """The names of a testbed's instruments of one kind, in the file's order."""
    return [name for name, spec in testbed.instruments.items() if spec.kind == kind]


def physical_ports(testbed: Testbed) -> list[Port]:
    """The NIC ports of servers that are computers; a namespace's links are the kernel's own."""
    return [
        spec.port
        for spec in testbed.nic_ports
        if not testbed.servers[spec.port.owner].address.startswith("netns://")
    ]


def _is_ours(metafunc: pytest.Metafunc) -> bool:
    """Whether `testbed` is ours, not another project's of that name."""
    definitions = metafunc._arg2fixturedefs.get("testbed", ())  # noqa: SLF001 - no public way
    return any(
        definition.func.__module__ == "harness.plugin.fixtures" for definition in definitions[-1:]
    )


def _spread(testbed: Testbed, wanted: list[str], kinds: list[str]) -> Iterator[tuple[Any, ...]]:
    names = [instruments_of(testbed, kind) for kind in kinds]
    lent = [Lent(zip(kinds, chosen, strict=True)) for chosen in itertools.product(*names)]
    for each in lent:
        each.telling = [kind for kind, known in zip(kinds, names, strict=True) if len(known) > 1]
    for moved in _moves(testbed, wanted):
        for each in lent:
            yield testbed, *moved, *([each] if kinds else [])


def _moves(testbed: Testbed, wanted: list[str]) -> Iterator[tuple[Any, ...]]:
    if "plan" in wanted:
        yield from ((name,) for name in testbed.plans)
        return
    if "transition" not in wanted:
        yield ()
        return
    for pair in plan_pairs(testbed):
        if "moving" not in wanted:
            yield (pair,)
            continue
        for moving in pair.link_counts(testbed)[:-1][:MOST_COUNTS]:
            yield pair, moving


def _named(values: tuple[Any, ...]) -> list[str]:
    testbed, *others = values
    return [testbed.name, *filter(None, map(str, others))]


def _overheard(testbed: Testbed) -> str | None:
    """Why ports cannot be observed by datagrams to whoever is at the other end, if they cannot."""
    switches = testbed.switches.keys() - testbed.optical_switches.keys()
    if switches and len(physical_ports(testbed)) < len(testbed.nic_ports):
        return (
            f"testbed {testbed.name}: every port at {', '.join(sorted(switches))}, a bridge of the "
            "kernel, hears all others' datagrams, a thousand a second each"
        )
    return None


def _without(testbed: Testbed, kinds: list[str]) -> str:
    *others, last = (f"no {kind.replace('_', ' ')}" for kind in kinds)
    return f"testbed {testbed.name} has {', '.join(others)}{' and ' * bool(others)}{last}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each testbed's tests together; skip what it cannot offer before any set-up."""
    testbeds: list[Testbed] = config.stash[TESTBEDS]
    order = {testbed.name: number for number, testbed in enumerate(testbeds)}
    items.sort(key=lambda item: order.get(_testbed_of(item), -1))
    if others := [item for item in items if _is_of_another(item)]:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    for item in items:
        mark = item.get_closest_marker("needs")
        callspec = getattr(item, "callspec", None)
        pair = callspec.params.get("transition") if mark and callspec else None
        if mark is not None and isinstance(pair, PlanPair) and (why := _lacks(pair, **mark.kwargs)):
            item.add_marker(pytest.mark.skip(reason=why))


def _is_of_another(item: pytest.Item) -> bool:
    """Whether an item asks a testbed what is asked of another one only."""
    mark = item.get_closest_marker("of_testbed")
    return mark is not None and _testbed_of(item) not in {*mark.args, ""}


def _testbed_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    testbed = callspec.params.get("testbed") if callspec else None
    return testbed.name if isinstance(testbed, Testbed) else ""


def _lacks(pair: PlanPair, circuits: int) -> str | None:
    if circuits in pair.counts():
        return None
    possible = ", ".join(map(str, pair.counts()))
    return f"{pair} can move {possible} circuits at once, not {circuits}"
