"""Jobs of each library in namespaces: right results, and bugs of the library that are planted."""

from collections.abc import Iterator

import pytest
from real_time import until

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.jobs.bench.jobs import Jobs, JobSetting, Library
from lightrig.harness.jobs.measure.survival_map import quiet_observation
from lightrig.harness.measure.bring_up import bring_up
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.programs.checked_rounds import COLLECTIVES
from lightrig.instruments.jobs.traffic.mpi import NoMpiError, mpiexec
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.program import Program
from lightrig.testbeds import load

WORKERS: dict[Library, str] = {"tcp": "RingWorker", "gloo": "Worker", "mpich": "MpiWorker"}
RANKS = ("lightrig-ring", "lightrig-gloo", "lightrig-mpi")
STALE = """
_right = {worker}.communicate
def _stale(self, collective, block):
    result, before = _right(self, collective, block), getattr(self, "_last", None)
    self._last, self._count = result, getattr(self, "_count", 0) + 1
    return before if self._count % 5 == 0 and self.rank == 1 else result
{worker}.communicate = _stale
"""
FLIPPED = """
_right = {worker}.communicate
def _flipped(self, collective, block):
    result, self._count = bytearray(_right(self, collective, block)), getattr(self, "_count", 0) + 1
    if self._count % 5 == 0 and self.rank == 2:
        result[4 * 617 + 1] ^= 1
    return bytes(result)
{worker}.communicate = _flipped
"""


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    if (reason := kernel.available()) is not None:
        pytest.skip(reason)
    bench = bind(load("testbeds/namespaces.yaml"), "simulated", 3)
    fabric, links = Fabric(bench), quiet_observation(bench)
    bring_up(fabric, links, fabric.plans["ring"])
    links.pause()
    yield bench
    fabric.restore()
    bench.close()


@pytest.mark.long
@pytest.mark.parametrize("bug", ["", STALE, FLIPPED], ids=["right", "stale buffer", "flipped"])
@pytest.mark.parametrize("library", WORKERS)
def test_wrong_results_of_each_job_are_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, library: Library, bug: str
) -> None:
    if library == "gloo":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if library == "mpich":
        try:
            mpiexec()
        except NoMpiError as error:
            pytest.skip(str(error))
    sources = Program.sources

    def with_bug(program: Program) -> list[tuple[str, str]]:
        *first, (name, text) = sources(program)
        planted = bug.format(worker=WORKERS[library])
        return [*first, (name, text + planted * (program.name in RANKS))]

    monkeypatch.setattr(Program, "sources", with_bug)
    Program.packed.cache_clear()
    jobs = Jobs(bench, library, JobSetting())
    try:
        for collective in COLLECTIVES:
            job = jobs.start(bench.testbed.plans["ring"], collective)  # type: ignore[arg-type]
            until(lambda job=job: job.state().exchanges >= 15, SystemClock())  # type: ignore[misc]
            state = job.stop()
            assert not state.error
            assert (state.wrong > 0) == bool(bug), collective
    finally:
        Program.packed.cache_clear()
        jobs.close()
