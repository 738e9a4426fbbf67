"""The commands that `lightrig serve` prints pass RDMA between its own servers."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import preloaded
import pytest

from lightrig.instruments.simulated.hosts.host_shell import shell_obstacle

LAB = """
name: lab
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 16x16}}
servers:
  server[0-2]:
    address: "ssh://bench@{name}.invalid"
    nics: {nic0: {netdev: ens1f0, rdma: mlx5_0, rate: 100G, transceiver: lr4}}
transceivers: {lr4: {pmd: 100GBASE-LR4}}
fibers: ["server[0-2].nic0 <-> ocs"]
plans: {one: ["server0.nic0 <-> server1.nic0"], other: ["server2.nic0 <-> server0.nic0"]}
"""


def test_rdma_passes_in_each_plan_over_ssh(tmp_path: Path) -> None:
    """Of two servers each, of three that all are at 127.0.0.1."""
    if reason := shell_obstacle():
        pytest.skip(reason)
    (tmp_path / "lab.yaml").write_text(LAB)
    serve = ["lightrig", "serve", "lab.yaml", "--port", "0", "--write", "served.yaml"]
    environment = {**os.environ, "LIGHTRIG_STATE": str(tmp_path)}
    with preloaded.Process(serve, cwd=tmp_path, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if exported := re.match(r"export (\w+)=(.*)", line):
                environment[exported[1]] = exported[2]
            if line.startswith("pytest "):
                break
        ended = preloaded.run(
            [*shlex.split(line), "-k", "test_rdma and test_each_link", "-p", "no:cacheprovider"],
            cwd=tmp_path,
            env=environment,
        )
        process.kill()
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout
