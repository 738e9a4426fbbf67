"""Job files for batch systems: one element of a job array a testbed, on the host that reaches it.

Each element runs `lightrig night FILE --testbed NAME --night NIGHT`, which stores its outcome
beside the results; a last job collects them. No scheduler of Lightrig takes part.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from lightrig.testbeds.lab_hosts import LabHosts

Batch: TypeAlias = Literal["slurm", "kubernetes"]
BATCHES: tuple[Batch, ...] = get_args(Batch)

_IMAGE = "lightrig:latest"


def placed(lab: LabHosts, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the testbeds of each host by name, each on one host: the least occupied that has it.

    Testbeds that the fewest hosts reach are placed first. names: of the testbeds, by file.
    """
    found: dict[str, list[str]] = {host.name: [] for host in lab.hosts}
    reach = {
        file: [host.name for host in lab.hosts if file in host.testbeds] for file in lab.testbeds
    }
    for file in sorted(lab.testbeds, key=lambda file: len(reach[file])):
        host = min(reach[file], key=lambda name: len(found[name]))
        found[host].append(names[file])
    return {host: testbeds for host, testbeds in found.items() if testbeds}


def slurm(lab: LabHosts, names: Mapping[str, str], zone: str | None) -> str:
    """Return a shell script that submits an array for each host, and a job that collects.

    The names of hosts are those of Slurm's nodes. zone: whose date the night has; None for that of
    the machine on which the script runs.
    """
    command = f"lightrig night {shlex.quote(str(lab.path))}"
    lines = [
        "#!/bin/sh",
        "# Submit a night to Slurm: sh THIS_FILE",
        "set -eu",
        f"night=$({'' if zone is None else f'TZ={zone} '}date +%Y%m%d-%H%M%S)-slurm",
        'jobs=""',
    ]
    for host, testbeds in placed(lab, names).items():
        at = lab.host(host)
        together = at.parallel if at else 1
        choice = " ".join(map(shlex.quote, testbeds))
        inner = (
            f"set -- {choice}; shift $SLURM_ARRAY_TASK_ID; "
            f'exec {command} --testbed "$1" --night "$NIGHT"'
        )
        lines.append(
            f"job=$(NIGHT=$night sbatch --parsable --export=ALL,NIGHT --job-name=lightrig "
            f"--requeue --nodelist={shlex.quote(host)} "
            f"--array=0-{len(testbeds) - 1}%{together} --wrap={shlex.quote(inner)})"
        )
        lines.append('jobs="$jobs:${job%%;*}"')
    collect = f'{command} --collect "$NIGHT"'
    lines.append(
        "NIGHT=$night sbatch --parsable --export=ALL,NIGHT --job-name=lightrig-collect "
        f'"--dependency=afterany$jobs" --wrap={shlex.quote(collect)}'
    )
    lines.append('echo "night $night"')
    return "\n".join(lines) + "\n"


def kubernetes(lab: LabHosts, names: Mapping[str, str], night: str) -> str:
    """Return an indexed Job for each host, as a List of kubectl: `kubectl create -f FILE`.

    The names of hosts are those of nodes. A pod that is lost is begun again as often as `attempts`
    allows. The results must be a URL or a folder that every pod mounts; the night is collected by
    `lightrig night FILE --collect NIGHT` once the jobs have ended.
    """
    items = []
    for host, testbeds in placed(lab, names).items():
        at = lab.host(host)
        script = (
            f'set -- {" ".join(map(shlex.quote, testbeds))}; shift "$JOB_COMPLETION_INDEX"; '
            f"exec lightrig night {shlex.quote(str(lab.path))} "
            f'--testbed "$1" --night {shlex.quote(night)}'
        )
        items.append(_job(host, len(testbeds), at.parallel if at else 1, lab.attempts, script))
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2) + "\n"


def _job(host: str, count: int, together: int, attempts: int, script: str) -> object:
    container: dict[str, str | Sequence[str]] = {
        "name": "lightrig",
        "image": _IMAGE,
        "command": ["/bin/sh", "-c", script],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"lightrig-{host}-"},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": together,
            "backoffLimitPerIndex": attempts - 1,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"kubernetes.io/hostname": host},
                    "containers": [container],
                }
            },
        },
    }
