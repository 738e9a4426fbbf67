"""A training job on separate machines: over `sshd`, without a folder that its servers share."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.systems.opus.measurements.training import losses
from lightrig.harness.systems.opus.runtime.on_fabric import fitting_job
from lightrig.harness.systems.opus.runtime.training import TrainingJob
from lightrig.instruments.jobs.traffic.training import Script
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.sshd import SshdError, sshd_program
from lightrig.suites.claims.opus.auditor import audit
from lightrig.testbeds import load

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
BOX = """
name: pair
system: opus
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 8x8, options: {rerouting: true}}
servers:
  server[0-3]:
    address: netns://{name}
    nics: {nic0: {model: veth, ports: 2, netdev: "fabric{p}", ip: "192.0.2.{k}/24", rate: 100M,
                  transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers:
  - server[0-3].nic0.p[0-1] <-> ocs
"""
SCRIPT = """
import pathlib
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mine = pathlib.Path("/tmp/lightrig-rank")
mine.write_text(str(rank))
dist.barrier()
assert mine.read_text() == str(rank), "another server writes the same file"
data = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
for step in range(4):
    value = torch.full((8,), float(rank + step))
    dist.all_reduce(value, group=data)
    dist.all_reduce(value, group=data)
    other = torch.zeros(8)
    if rank < 2:
        dist.send(value, rank + 2)
    else:
        dist.recv(other, rank - 2)
    whole = value.sum()
    dist.all_reduce(whole)
    print(f"step {step} loss {whole.item() + other.sum().item()!r}")
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The bench of a served lab, whose servers are behind their own `sshd`."""
    if reason := kernel.available():
        pytest.skip(reason)
    try:
        sshd_program()
    except SshdError as error:
        pytest.skip(str(error))
    pytest.importorskip("torch", reason="PyTorch is not installed")
    folder = tmp_path_factory.mktemp("box")
    (folder / "box.yaml").write_text(BOX)
    files = ["serve", str(folder / "box.yaml"), "--write", str(folder / "served.yaml")]
    command = [*LIGHTRIG, *files, "--port", "0", "--json"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        pytest.MonkeyPatch.context() as environment,
    ):
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())[0]
        environment.setenv("LIGHTRIG_SERVED", f"{first['user']}:{first['password']}")
        try:
            bench = bind(load(folder / "served.yaml"), "hardware", 1)
            yield bench
            bench.close()
        finally:
            process.send_signal(signal.SIGINT)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ranks_of_separate_machines_train(served: Bench) -> None:
    """They share no folder, and words are said at phase changes alone."""
    fabric = Fabric(served)
    job = TrainingJob(fabric, fitting_job(served.testbed, "pairs"))
    try:
        script = Script(SCRIPT, "script.py")
        tables, seen = job.profile(script)
        trained = job.train(script, tables, "provisioning")
    finally:
        job.close()
        fabric.restore()
    values = {
        rank: [each.value for each in losses(trained) if each.rank == rank] for rank in range(4)
    }
    assert values == {
        rank: [each.value for each in losses(seen) if each.rank == rank] for rank in range(4)
    }
    assert trained.rails is not None
    assert not audit(trained.rails.journal.events, trained.found, job.on_fabric.cabled_ports())
    # Of the two all-reduces of a phase only the first one asks.
    waited = {
        rank: [done.asked != done.began for done in operations]
        for rank, operations in trained.operations.items()
    }
    assert waited == {rank: [True, False, True] * 4 for rank in range(4)}
