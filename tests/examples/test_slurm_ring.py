"""The example for Slurm under slurmctld and slurmd: a job's circuits, its ring, its withdrawal.

The daemons are this test's own, with a folder and ports of loopback of its own; the machine's are
not touched. Switches are simulated and served.
"""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unused_ports import unused_ports

from examples.slurm.topology import leaves_by_place, leaves_by_switch, topology
from lightrig.harness.systems.railx.generator import render
from lightrig.testbeds import Testbed, load
from tests.campaigns import sequences
from tests.campaigns.wire_sequences import LOGIN, Process, ServedRoom, served

PROGRAM = Path(__file__).parents[2] / "examples" / "slurm" / "ring_of_job.py"
NEEDED = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol", "squeue", "scancel")
SYSTEM_PATH = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
LIMIT_S = 60.0
SQUARE = '{"columns": 2, "rows": 2}'


class Grid(sequences.Grid):
    """RailX: four columns, two rows."""

    def testbed(self, root: Path) -> Testbed:
        return hall(root)


def hall(root: Path) -> Testbed:
    (root / "hall.yaml").write_text(render(4, 2, mesh=3, ports=1))
    return load(root / "hall.yaml")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.2)


class Slurm:
    """A cluster on loopback: munged, slurmctld and a slurmd for each node of a testbed."""

    def __init__(self, folder: Path, testbed: Testbed, api: Path, stack: contextlib.ExitStack):
        self.folder, self._stack = folder, stack
        conf = folder / "slurm.conf"
        self._environment = {**os.environ, "PATH": SYSTEM_PATH, "SLURM_CONF": str(conf)}
        script = folder / "ring_of_job"
        script.write_text(
            f"#!/bin/sh\nexport SLURM_CONF={conf} LIGHTRIG_SOCKET={api} LIGHTRIG_WAIT=30\n"
            f"exec {sys.executable} {PROGRAM}\n"
        )
        script.chmod(0o755)
        nodes, user = tuple(testbed.servers), getpass.getuser()
        port, *ports = unused_ports(1 + len(nodes))
        settings = {
            "ClusterName": "lightrig",
            "SlurmctldHost": f"{socket.gethostname()}(127.0.0.1)",
            "SlurmctldPort": port,
            "SlurmUser": user,
            "SlurmdUser": user,
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/munge.socket",
            "StateSaveLocation": f"{folder}/state",
            "SlurmdSpoolDir": f"{folder}/%n",
            "SlurmctldPidFile": f"{folder}/slurmctld.pid",
            "SlurmdPidFile": f"{folder}/%n.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "SlurmdParameters": "config_overrides",
            "SelectType": "select/linear",
            "SchedulerParameters": "sched_interval=2",
            "TopologyPlugin": "topology/tree",
            "PrologSlurmctld": script,
            "EpilogSlurmctld": script,
            "TaskProlog": script,
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        # Debian's slurmd refuses two nodes of one host name, and takes ports instead.
        lines += [
            f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={each} CPUs=1"
            for node, each in zip(nodes, ports, strict=True)
        ]
        lines.append("PartitionName=all Nodes=ALL Default=YES State=UP")
        conf.write_text("\n".join(lines) + "\n")
        leaves = leaves_by_switch(testbed, r"xocs(\d+)-")
        (folder / "topology.conf").write_text("\n".join(topology(leaves)) + "\n")
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        files = ("socket", "key-file", "pid-file", "log-file", "seed-file")
        suffixes = ("socket", "key", "pid", "log", "seed")
        self._begin(
            "munged",
            *("--foreground", "--force", "--num-threads=2"),
            *(f"--{name}={folder}/munge.{end}" for name, end in zip(files, suffixes, strict=True)),
        )
        wait_for((folder / "munge.socket").is_socket, "munged")
        self._begin("slurmctld", "-D", "-f", str(conf))
        wait_for(lambda: "UP" in self.run("scontrol", "ping"), "slurmctld")
        for node in nodes:
            self._begin("slurmd", "-D", "-f", str(conf), "-N", node)
        idle = ["idle"] * len(nodes)
        wait_for(lambda: self.run("sinfo", "-Nho", "%T").split() == idle, "slurmd")

    def run(self, *words: str) -> str:
        """Return what a command of Slurm prints, errors included."""
        done = subprocess.run(
            words,
            cwd=self.folder,  # for the output of batch jobs
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.stdout

    def shown(self, job: str) -> str:
        """Return what scontrol shows of a job."""
        return self.run("scontrol", "show", "job", job)

    def _begin(self, *words: str) -> None:
        """Begin a daemon, which ends with the cluster."""
        log = self._stack.enter_context((self.folder / f"{words[0]}.txt").open("a"))
        process = subprocess.Popen(words, env=self._environment, stdout=log, stderr=log)
        self._stack.callback(process.wait, LIMIT_S)
        self._stack.callback(process.terminate)


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Slurm, ServedRoom, Process]]:
    """Yield the cluster, the switches with what they hold, and the service."""
    if not all(shutil.which(program, path=SYSTEM_PATH) for program in NEEDED):
        pytest.skip("Slurm is not installed")
    for name in ("LIGHTRIG_STATE", LOGIN):
        monkeypatch.setenv(name, "")  # restored afterwards
    with contextlib.ExitStack() as stack:
        room, file = stack.enter_context(served(Grid(), tmp_path))
        service = Process("railx", file, tmp_path)
        stack.callback(service.close)
        (tmp_path / "slurm").mkdir()
        yield Slurm(tmp_path / "slurm", room.testbed, tmp_path / "api.socket", stack), room, service


@pytest.mark.long
def test_a_job_of_slurm_has_circuits_when_it_starts_and_none_afterwards(
    cluster: tuple[Slurm, ServedRoom, Process],
) -> None:
    """Outputs of srun, sbatch and scancel, as docs/how-to/orchestrate.md describes them."""
    slurm, room, service = cluster
    task = ("sh", "-c", "echo $SLURMD_NODENAME ${LIGHTRIG_RANK-none} ${LIGHTRIG_RING-none}")
    square = ("--nodes", "4", "--nodelist", "node[1-2]-[0-1]", "--comment", SQUARE)
    ring = "node1-0,node2-0,node1-1,node2-1"  # by rows; Slurm sorts by columns
    assert sorted(slurm.run("srun", *square, *task).splitlines()) == [
        f"node1-0 0 {ring}",
        f"node1-1 2 {ring}",
        f"node2-0 1 {ring}",
        f"node2-1 3 {ring}",
    ]
    wait_for(lambda: not any(room.circuits.values()), "circuits of a job that has ended")
    assert slurm.run("srun", "--nodelist", "node3-1", *task) == "node3-1 none none\n"

    diagonal = ("--nodelist", "node0-0,node1-1", "--comment", '{"columns": 2, "rows": 1}')
    printed = slurm.run("srun", *diagonal, *task)
    assert "lightrig: no ring: job slurm-" in printed
    assert "is impossible: no 2 x 1 nodes in common columns and rows are among the 2" in printed
    assert "PrologSlurmctld failed, job killed" in printed
    assert "none" not in printed
    wide = ("--nodelist", "node0-0", "--comment", '{"columns": 9, "rows": 1}')
    assert "no ring: found 9 x 1 nodes, of 4 x 2;" in slurm.run("srun", *wide, *task)

    service.request({"do": "failed", "nodes": ["node1-0"]})
    line = ("--nodes", "3", "--switches", "1", "--comment", '{"columns": 3, "rows": 1}')
    number = slurm.run("sbatch", "--parsable", *line, "--wrap", "sleep 600").strip()
    wait_for(lambda: "Reason=BeginTime" in slurm.shown(number), "a job that has no ring")
    assert "AdminComment=lightrig: no ring:" in slurm.shown(number)
    assert "failed: node1-0 (reported)" in slurm.shown(number)
    assert slurm.run("sinfo", "-Nhn", "node1-0", "-o", "%T %E") == "drained lightrig: reported\n"
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")  # else after two minutes
    wait_for(lambda: "JobState=RUNNING" in slurm.shown(number), "a job of other nodes")
    assert "AdminComment=lightrig: ring node0-0,node2-0,node3-0" in slurm.shown(number)
    assert {name.split("-")[0] for name, present in room.circuits.items() if present} == {"xocs0"}
    assert list(service.status()["jobs"]) == [f"slurm-{number}"]
    slurm.run("scancel", number)
    wait_for(lambda: not any(room.circuits.values()), "circuits of a job that was cancelled")
    assert service.status()["jobs"] == {}

    # What ended while no service ran is withdrawn before the next job.
    left = {"do": "submit", "job": f"slurm-{number}", "shape": {"columns": 2, "rows": 1}}
    service.request({**left, "nodes": ["node2-0", "node3-0"]})
    service.request({**left, "job": "llm", "nodes": ["node0-1", "node0-0"], "reserve": True})
    assert slurm.run("srun", *square[:3], "node[2-3]-[0-1]", *square[4:], "true") == ""
    wait_for(lambda: list(service.status()["jobs"]) == ["llm"], "jobs that Slurm has not")
    service.close()
    assert "lightrig: no ring: [Errno" in slurm.run("srun", *diagonal, *task)


@pytest.mark.parametrize("size", [3, 4, 9])
def test_leaves_of_consecutive_servers_have_each_server_once(size: int) -> None:
    servers = [f"node{number}" for number in range(8)]
    leaves = leaves_by_place(servers, size)
    assert [node for nodes in leaves.values() for node in nodes] == servers
    assert {len(nodes) for nodes in list(leaves.values())[:-1]} <= {size}


def test_a_leaf_is_a_row_of_the_hall(tmp_path: Path) -> None:
    testbed = hall(tmp_path)
    assert list(topology(leaves_by_switch(testbed, r"xocs(\d+)-"))) == [
        "SwitchName=leaf0 Nodes=node0-0,node1-0,node2-0,node3-0",
        "SwitchName=leaf1 Nodes=node0-1,node1-1,node2-1,node3-1",
        "SwitchName=fabric Switches=leaf0,leaf1",
    ]
    with pytest.raises(ValueError, match="node0-0 is on leafxocs0 and on leafyocs0"):
        leaves_by_switch(testbed, "([xy]ocs0)")
    with pytest.raises(ValueError, match="node0-1 is on no switch that matches xocs0"):
        leaves_by_switch(testbed, "xocs0")
