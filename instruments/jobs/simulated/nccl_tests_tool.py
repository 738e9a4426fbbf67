"""`all_reduce_perf` and its like on a simulated server: the times are the flow model's."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lightrig.instruments.jobs.flows.bandwidth import Collective
from lightrig.instruments.jobs.flows.of_testbed import RanksError
from lightrig.instruments.jobs.flows.routing import NoRouteError
from lightrig.instruments.jobs.simulated import nccl_tests_format as nccl
from lightrig.instruments.jobs.simulated.fabric_traffic import FabricTraffic
from lightrig.instruments.jobs.simulated.host_launchers import Launch
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome

PROGRAMS: dict[str, Collective] = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "sendrecv_perf": "send_receive",
}
"""The tests that a server has."""

START_UP = 2_400_000_000
"""Time of a test until its ranks connect to each other, in ns; a guess."""

_CHECKED = 20_000_000
"""Time to check the results of one size, in ns; a guess."""

_MOST = 10_000
"""Greatest number of iterations, GPUs or sizes of one test."""

_LARGEST = 1 << 40
_RETRIES = 7
_TIMEOUT = 20
_HUNG = 24 * 3_600_000_000_000

_VALUES = {
    "-b": "least",
    "--minbytes": "least",
    "-e": "most",
    "--maxbytes": "most",
    "-i": "step_bytes",
    "--stepbytes": "step_bytes",
    "-f": "factor",
    "--stepfactor": "factor",
    "-n": "iterations",
    "--iters": "iterations",
    "-w": "warm_up",
    "--warmup_iters": "warm_up",
    "-c": "check",
    "--check": "check",
    "-g": "gpus",
    "--ngpus": "gpus",
    "-d": "type",
    "--datatype": "type",
    "-J": "json_path",
    "-I": "per_iteration",
}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class _UsageError(Exception):
    """Raised for an argument that the test does not accept."""


def run(traffic: FabricTraffic, host: str, launch: Launch, files: dict[str, str]) -> ProgramOutcome:
    """Run a test, `START_UP` after it was begun on `host`; -J writes to `files`."""
    try:
        asked = _arguments(launch.argv)
        hosts = launch.hosts or (host,)
        devices = _devices(traffic, hosts, asked.gpus)
    except _UsageError as error:
        return ProgramOutcome("", f"{error}\nUSAGE: {launch.argv[0]}\n", 1)
    ranks = [device.host for device in devices]
    collective = PROGRAMS[launch.argv[0].rpartition("/")[2]]
    done = nccl.Finished(asked, devices, started="2026-01-01 00:00:00")
    took = 0
    try:
        for size, count in asked.sizes(len(ranks)):
            out_of_place, in_place = (
                traffic.collective_times(collective, ranks, size, asked.iterations)
                for _ in range(2)
            )
            row = nccl.Timed(size, count, out_of_place, in_place, traffic.wrong_values)
            done.rows.append(row)
            took += sum(out_of_place) + sum(in_place) + _CHECKED
            took += 2 * asked.warm_up * out_of_place[0]
    except NoRouteError as error:
        return _broken(launch, nccl.head(asked, devices), error)
    except RanksError as error:
        return ProgramOutcome(
            "", f"{host}: Test CUDA failure common.cu 'invalid device ordinal': {error}\n", 2
        )
    if not asked.json_path:
        return ProgramOutcome(launch.printed(nccl.text(done)), took=took)
    path = _unused(asked.json_path, files)
    files[path] = nccl.as_json(done)
    note = f"# Writing JSON output to {path}\n"
    return ProgramOutcome(launch.printed(note + nccl.text(done)), took=took)


def _broken(launch: Launch, head: str, error: NoRouteError) -> ProgramOutcome:
    """Return the outcome of a test whose ranks cannot reach each other.

    RDMA gives up after its retries, 4.096 us x 2^timeout each; TCP waits for good. The words
    are guesses.
    """
    environment = launch.environment
    if environment.get("NCCL_NET") == "Socket" or environment.get("NCCL_IB_DISABLE") == "1":
        return ProgramOutcome(launch.printed(head), took=_HUNG)
    timeout = _limited(environment, "NCCL_IB_TIMEOUT", _TIMEOUT, 31)
    retries = _limited(environment, "NCCL_IB_RETRY_CNT", _RETRIES, 7)
    took = round(4096 * 2**timeout * max(retries, 1))
    here = error.source.partition(".")[0]
    complaint = (
        f"{here}: NCCL WARN NET/IB: Got completion with status 12 (IBV_WC_RETRY_EXC_ERR)\n"
        f"{here}: Test NCCL failure common.cu 'remote process exited or "
        "there was a network error'\n"
    )
    if launch.launcher == "mpirun":
        complaint += "mpirun detected that one or more processes exited with non-zero status\n"
    return ProgramOutcome(launch.printed(head), complaint, 3, took)


def _limited(environment: Mapping[str, str], name: str, usual: int, most: int) -> int:
    """Return a variable's number, limited to the width of its field in a packet."""
    text = environment.get(name, "")
    return min(int(text), most) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else usual


def _devices(traffic: FabricTraffic, hosts: Sequence[str], gpus: int) -> list[nccl.Device]:
    devices: list[nccl.Device] = []
    placed: dict[str, int] = {}
    for process, host in enumerate(hosts):
        server = traffic.server(host)
        if server is None:
            raise _UsageError(f"ssh: Could not resolve hostname {host}: Name or service not known")
        model = traffic.testbed.servers[server].gpus.model or "none"
        for _ in range(gpus):
            index = placed.get(server, 0)
            placed[server] = index + 1
            devices.append(nccl.Device(len(devices), server, 4242 + process, index, model))
    return devices


def _arguments(argv: Sequence[str]) -> nccl.Arguments:
    given: dict[str, Any] = {}
    tokens = list(argv[1:])
    while tokens:
        option = tokens.pop(0)
        if option not in _VALUES or not tokens:
            raise _UsageError(f"{argv[0]}: invalid option -- '{option.lstrip('-')}'")
        name, value = _VALUES[option], tokens.pop(0)
        try:
            if name in ("type", "json_path"):
                given[name] = value
            elif name == "per_iteration":
                given[name] = value != "0"
            else:
                given[name] = _bytes(value)
        except ValueError as error:
            raise _UsageError(f"invalid size specified for '{name}'") from error
    asked = nccl.Arguments(argv[0], tuple(argv), **given)
    if asked.least > asked.most or asked.most > _LARGEST:
        raise _UsageError("invalid sizes for 'minbytes' and 'maxbytes'")
    if not (0 < asked.iterations <= _MOST and 0 < asked.gpus <= _MOST and asked.warm_up <= _MOST):
        raise _UsageError("invalid number of iterations or GPUs")
    if asked.type not in nccl.TYPE_BYTES:
        raise _UsageError(f"invalid datatype {asked.type}")
    steps = (asked.most - asked.least) // max(asked.step_bytes, 1)
    if asked.factor == 1 or (not asked.factor and steps > _MOST):
        raise _UsageError("more sizes than anybody waits for")
    return asked


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text, re.IGNORECASE | re.ASCII)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2].upper()]


def _unused(path: str, files: dict[str, str]) -> str:
    """Return `path`, or the first numbered variant of it that does not exist."""
    if path not in files:
        return path
    return next(f"{path}.{n}" for n in range(1, len(files) + 2) if f"{path}.{n}" not in files)
