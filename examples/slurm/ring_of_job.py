#!/usr/bin/env python3
"""Give each job of Slurm its ring: circuits before it starts, the order of its nodes for its tasks.

One program for three lines of slurm.conf, which Slurm calls without arguments:

    PrologSlurmctld=/etc/slurm/ring_of_job   # submits the job with the nodes that Slurm allocated
    EpilogSlurmctld=/etc/slurm/ring_of_job   # withdraws it
    TaskProlog=/etc/slurm/ring_of_job        # sets LIGHTRIG_RING and LIGHTRIG_RANK

A job that wants circuits states its shape as its comment; others start as before:

    srun --nodes 4 --switches 1 --comment '{"columns": 4, "rows": 1}' ./train

The service, `lightrig orchestrate SYSTEM FILE --socket PATH`, runs on the controller's host under
the account of slurmctld (SlurmUser); its nodes have the names of Slurm's. `LIGHTRIG_SOCKET` names
the socket (/run/lightrig.socket). A prolog of slurmctld has an empty environment, so that another
place is set in a script of two lines that slurm.conf names instead. Needs Python alone; tried with
Slurm 22.05. Environment of the scripts: slurm.conf(5), "Prolog and Epilog Scripts".
"""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from typing import Any

SOCKET = os.environ.get("LIGHTRIG_SOCKET", "/run/lightrig.socket")
WAIT_S = float(os.environ.get("LIGHTRIG_WAIT", "60"))
"""Time for the circuits of a job to be set, 60 s at most."""

PREFIX = "slurm-"
"""Begins the names of jobs of Slurm in the service."""

MARK = "lightrig: "
"""Begins the AdminComment of a job: its ring, or why it has none."""


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


class RefusedError(Exception):
    """A request that the service does not carry out, such as one of an impossible shape."""


def ask(method: str, path: str, request: Any = None) -> Any:
    """Return the answer of the service; raises `RefusedError`, and OSError without a service."""
    connection = _Connection("lightrig", timeout=2 * WAIT_S)
    try:
        connection.request(method, path, None if request is None else json.dumps(request))
        answered = connection.getresponse()
        answer = json.loads(answered.read())
    finally:
        connection.close()
    if answered.status != http.client.OK:
        raise RefusedError(answer["detail"])  # RFC 9457
    return answer


def command(*words: str) -> str:
    """Return what a command of Slurm prints."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def sweep(job: str) -> None:
    """Withdraw a job that was started before, and jobs that Slurm no longer has.

    The service may not have run when these ended. It is asked first: what it has by then, Slurm has
    too, unless it has ended.
    """
    present = [each for each in ask("GET", "/v1/jobs")["jobs"] if each.startswith(PREFIX)]
    active = {PREFIX + number for number in command("squeue", "-ho", "%A").split()} - {job}
    for each in present:
        if each not in active:
            ask("DELETE", f"/v1/jobs/{each}")


def start(job: str, shape: dict[str, Any], nodes: list[str]) -> str:
    """Submit a job on nodes and return its rings, once their circuits are set.

    Raises `RefusedError`, also where nothing can be placed now, and OSError.
    """
    sweep(job)
    gang = {"do": "submit", "job": job, "shape": shape, "gang": True, "nodes": nodes}
    status = ask("POST", "/v1/requests", gang)
    if status["jobs"][job]["missing"]:
        faulty = {node: why for node, why in status["faulty"].items() if node in nodes}
        for node, why in faulty.items():  # Slurm chooses others next
            state = ("State=DRAIN", f"Reason={MARK}{why}")
            command("scontrol", "update", f"NodeName={node}", *state)
        why = status["jobs"][job]["reason"]["detail"]
        raise RefusedError(f"no {json.dumps(shape)} can be made of {','.join(nodes)}: {why}")
    found = ask("GET", f"/v1/jobs/{job}?wait={WAIT_S}")
    if not found["ready"]:
        raise RefusedError(f"circuits are not set after {WAIT_S:g} s")
    return ";".join(",".join(group["nodes"]) for group in found["groups"])


def prolog(number: str, job: str, shape: dict[str, Any]) -> int:
    """Start a job's ring; where it has none, say why to srun and in AdminComment, and fail."""
    nodes = command("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    try:
        note, failed = f"ring {start(job, shape, nodes)}", False
    except (RefusedError, OSError) as error:
        note, failed = f"no ring: {error}", True
        command("scontrol", "notify", number, MARK + note)
    command("scontrol", "update", f"JobId={number}", f"AdminComment={MARK}{note}")
    return int(failed)  # srun and salloc end; a batch job is queued again


def epilog(job: str) -> int:
    """Withdraw a job, if it is there: its prolog may have failed."""
    if job in ask("GET", "/v1/jobs")["jobs"]:
        ask("DELETE", f"/v1/jobs/{job}")
    return 0


def task_prolog(number: str) -> int:
    """Print what a task's environment gets: its ring and the rank of its node on it."""
    shown = command("scontrol", "show", "job", number)
    found = re.search(rf"^ *AdminComment={MARK}ring (\S+)", shown, re.M)
    for ring in found[1].split(";") if found else ():
        nodes = ring.split(",")
        if (node := os.environ["SLURMD_NODENAME"]) in nodes:
            print(f"export LIGHTRIG_RING={ring}")
            print(f"export LIGHTRIG_RANK={nodes.index(node)}")
    return 0


def main() -> int:
    """Do what Slurm calls this for; return 0, or 1 for a job that must not start."""
    context, number = os.environ["SLURM_SCRIPT_CONTEXT"], os.environ["SLURM_JOB_ID"]
    if context == "prolog_task":
        return task_prolog(number)
    try:
        shape = json.loads(os.environ.get("SLURM_JOB_COMMENT", ""))
    except ValueError:
        return 0
    if not isinstance(shape, dict):
        return 0
    job = PREFIX + number
    return epilog(job) if context == "epilog_slurmctld" else prolog(number, job, shape)


if __name__ == "__main__":
    sys.exit(main())
