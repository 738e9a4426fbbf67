"""Fixtures of jobs: collectives, RDMA and streams between the servers, and what faults do to them.

Loaded with every testbed; what a test needs is imported when it needs it.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

from lightrig.harness.signals import uninterrupted

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.jobs.bench.collectives import Collectives
    from lightrig.harness.jobs.bench.jobs import JobCollective, JobSetting, Library
    from lightrig.harness.jobs.bench.rdma import RdmaOverCircuits
    from lightrig.harness.jobs.measure.collectives.sweep import Sweep
    from lightrig.harness.jobs.measure.rdma_recovery import RdmaRecovery
    from lightrig.harness.jobs.measure.recovery import Recovery
    from lightrig.harness.jobs.measure.survival import Survival
    from lightrig.harness.jobs.measure.survival_map import LongestFault
    from lightrig.harness.jobs.statistics.shared_limits import SharedLimits
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.recording import Recording
    from lightrig.instruments.jobs.core.loads import Flow
    from lightrig.testbeds import Link, Plan, Testbed


def pytest_lightrig_unavailable(fixture: str, testbed: Testbed) -> str | None:
    """Return why a testbed has no RDMA, no datagrams, or no servers that run collectives."""
    if fixture == "measure_concurrent_datagrams":
        from lightrig.harness.jobs.bench.loads import without_datagram_load

        return without_datagram_load(testbed) or None
    if fixture == "rdma":
        from lightrig.harness.jobs.bench.rdma import without_rdma

        return without_rdma(testbed) or None
    return _without_collectives(testbed) or None if fixture == "collectives" else None


def _without_collectives(testbed: Testbed) -> str:
    servers = testbed.servers.values()
    if testbed.only_namespaces or (len(servers) > 1 and all(s.gpus.count for s in servers)):
        return ""
    return "no two servers with GPUs, and no namespaces"


class Closable(Protocol):
    """Something that changes servers while it is open."""

    def close(self) -> None:
        """Restore the servers."""


C = TypeVar("C", bound=Closable)


def open_or_skip(open_runner: Callable[[], C]) -> Iterator[C]:
    """Open a runner of collectives for a fixture; skip where the host has no program for it.

    Closing it is not interrupted.
    """
    from lightrig.harness.jobs.bench.collectives import NoCollectivesError
    from lightrig.instruments.jobs.traffic.gloo import NoPyTorchError

    try:
        opened = open_runner()
    except NoCollectivesError as error:
        pytest.skip("; ".join(" ".join(line.split()) for line in str(error).splitlines()))
    except NoPyTorchError:
        pytest.skip("PyTorch is not installed")
    yield opened
    with uninterrupted():
        opened.close()


@pytest.fixture(scope="session")
def collectives(bench: Bench) -> Iterator[Collectives]:
    """Runner of collectives on the testbed's servers, whose state is restored afterwards."""
    from lightrig.harness.jobs.bench.collectives import open_collectives

    yield from open_or_skip(partial(open_collectives, bench))


@pytest.fixture(scope="session")
def rdma(bench: Bench) -> RdmaOverCircuits:
    """Asks both ends of a link for its RDMA; a testbed without any is not asked."""
    from lightrig.harness.jobs.bench.rdma import RdmaOverCircuits, without_rdma

    if why := without_rdma(bench.testbed):
        pytest.skip(f"testbed {bench.testbed.name}: {why}")
    return RdmaOverCircuits(bench)


@pytest.fixture
def measure_collective(
    fabric: Fabric, links: LinkObservation, measure: Recording
) -> Callable[..., Sweep]:
    """`measure_collective(runner, call, plan)`: run and record one collective of many sizes."""
    from lightrig.harness.jobs.measure.collectives.sweep import measure_collective

    return partial(measure_collective, fabric, links, measure)


@pytest.fixture
def measure_recovery(
    fabric: Fabric, links: LinkObservation, measure: Recording
) -> Callable[..., Recovery]:
    """`measure_recovery(traffic, ranks, plans, route, size=...)`: change plans under traffic."""
    from lightrig.harness.jobs.measure.recovery import measure_recovery

    return partial(measure_recovery, fabric, links, measure)


@pytest.fixture
def _settings_of_rdma(bench: Bench) -> Iterator[None]:
    """Set what RDMA needs of ARP on the servers, and restore it after the test."""
    from lightrig.harness.jobs.bench.arp_settings import ports_reply_for_themselves

    with contextlib.ExitStack() as stack:
        stack.enter_context(ports_reply_for_themselves(bench))
        yield
        with uninterrupted():
            stack.close()


@pytest.fixture
def measure_rdma(
    fabric: Fabric, measure: Recording, _settings_of_rdma: None
) -> Callable[..., None]:
    """`measure_rdma(ends, link, plan)`: latency and bandwidth of RDMA over one link."""
    from lightrig.harness.jobs.measure.rdma import measure_rdma

    return partial(measure_rdma, fabric, measure)


@pytest.fixture
def measure_rdma_recovery(
    fabric: Fabric, measure: Recording, _settings_of_rdma: None
) -> Callable[..., RdmaRecovery]:
    """`measure_rdma_recovery(ends, link, plan)`: apply a plan; time until RDMA runs over `link`."""
    from lightrig.harness.jobs.measure.rdma_recovery import measure_rdma_recovery

    return partial(measure_rdma_recovery, fabric, measure)


@pytest.fixture
def measure_concurrent_datagrams(
    bench: Bench, fabric: Fabric, links: LinkObservation, measure: Recording
) -> Callable[[Plan], SharedLimits[Flow]]:
    """`measure_concurrent_datagrams(plan)`: datagrams both ways on each link, alone and at once.

    Skips where servers are simulated.
    """
    from lightrig.harness.jobs.bench.loads import open_datagram_load
    from lightrig.harness.jobs.measure.concurrent_load import measure_concurrent_load

    if simulated := sorted(bench.simulated & bench.testbed.servers.keys()):
        pytest.skip(f"simulated servers send no load of datagrams: {', '.join(simulated)}")

    def measured(plan: Plan) -> SharedLimits[Flow]:
        with contextlib.closing(open_datagram_load(bench, plan)) as load:
            return measure_concurrent_load(fabric, links, measure, load, plan, "datagrams")

    return measured


@pytest.fixture
def measure_concurrent_rdma(
    bench: Bench,
    fabric: Fabric,
    links: LinkObservation,
    measure: Recording,
    rdma: RdmaOverCircuits,
    _settings_of_rdma: None,
) -> Callable[[Plan], SharedLimits[Flow]]:
    """`measure_concurrent_rdma(plan)`: RDMA both ways on each link, alone and at once."""
    from lightrig.harness.jobs.bench.loads import RdmaLoad
    from lightrig.harness.jobs.measure.concurrent_load import measure_concurrent_load

    def measured(plan: Plan) -> SharedLimits[Flow]:
        return measure_concurrent_load(fabric, links, measure, RdmaLoad(bench, rdma), plan, "rdma")

    return measured


@pytest.fixture
def measure_survival(
    bench: Bench, fabric: Fabric, links: LinkObservation, measure: Recording
) -> Callable[..., Survival]:
    """`measure_survival(plan, link, cut=NS)`: cut the light of `link` under a TCP stream on it."""
    from lightrig.harness.jobs.bench.streams import open_stream
    from lightrig.harness.jobs.measure.survival import measure_survival

    def measured(plan: Plan, link: Link, *, cut: int, user_timeout: int = 0) -> Survival:
        stream = open_stream(bench, link, user_timeout=user_timeout)
        try:
            return measure_survival(fabric, links, measure, stream, plan, link, cut=cut)
        finally:
            stream.close()

    return measured


@pytest.fixture
def measure_longest_cut(
    pytestconfig: pytest.Config,
    bench: Bench,
    fabric: Fabric,
    links: LinkObservation,
    measure: Recording,
) -> Callable[..., LongestFault]:
    """`measure_longest_cut(plan, library=, collective=, setting=, number=)`: up to 30 s each."""
    from lightrig.harness.jobs.bench.jobs import Jobs, JobSetting
    from lightrig.harness.jobs.measure.light_faults import LONGEST, FaultKind, draw_faults
    from lightrig.harness.jobs.measure.survival import survival_rows
    from lightrig.harness.jobs.measure.survival_map import FaultRun, LongestFault

    def measured(
        plan: Plan,
        *,
        library: Library = "tcp",
        collective: JobCollective = "all_reduce",
        setting: JobSetting | None = None,
        number: int = 12,
        least: int = 100_000_000,
        most: int = LONGEST,
    ) -> LongestFault:
        setting = setting or JobSetting()
        jobs, search = Jobs(bench, library, setting), LongestFault(least, most)
        about = {"job": f"{collective} over {library}", "setting": str(setting)}
        seed = pytestconfig.getoption("seed")
        try:
            run = FaultRun(fabric, links, jobs, plan, collective)
            places = draw_faults([FaultKind("cut", most)], bench.testbed.links(plan), number, seed)
            for fault in search.faults(places):
                found = run.under(fault)
                search.found(found)
                measure.record(survival_rows(found, measure.next_event()), about)
        finally:
            jobs.close()
        measure.record([search.row(about["job"], bench.clock.now())], about)
        return search

    return measured
