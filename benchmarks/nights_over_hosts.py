"""A night of four simulated testbeds on one, two and four hosts, with one worker killed.

Each host is a network namespace on a bridge, with a Dask worker that `lightrig night` starts in it.
On two and four hosts the first worker that begins a testbed is killed with SIGKILL. The rows of
all nights must be the same, bit by bit. Needs root, for namespaces. LIGHTRIG_SAMPLES is the number
of events a test, 20 by default; the machine has as many processors as it says, so that time is
bounded by them and not by the number of hosts.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from benchmarks.figures import figure
from lightrig.harness.night.keys import make_keys
from lightrig.testbeds.lab_hosts import load_hosts

HOSTS = tuple(map(int, os.environ.get("LIGHTRIG_HOSTS", "1,2,4").split(",")))
TESTBEDS = 4
TIMEOUT_S = 1500
_README = Path(__file__).parents[1] / "README.md"
_SUITE = Path(__file__).parents[1] / "suites" / "test_reconfiguration.py"
_BRIDGE = "lrnight"
_NETWORK = "198.18.77"


def main() -> None:
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}; simulated")
    expected: list[object] | None = None
    alone = 0.0
    for hosts in HOSTS:
        with tempfile.TemporaryDirectory() as folder, network(hosts):
            took, killed, document = night(Path(folder), hosts, kill=hosts > 1)
            rows = stored_rows(Path(folder, "results"))
        expected, alone = expected or rows, alone or took
        begun = sum(one["attempts"] for one in document["testbeds"])
        states = {one["state"] for one in document["testbeds"]}
        for one in document["testbeds"]:
            if one["reason"]:
                print(f"    {one['testbed']}, {one['state']}: {one['reason']}")
        same = "the same bit by bit" if rows == expected else "NOT THE SAME"
        lost = f"worker of {killed} killed" if killed else "no worker killed"
        figure(
            f"night of {TESTBEDS} testbeds, hosts: {hosts}, {lost}",
            f"{took:.0f} s",
            f"n 1; {begun} begun, {', '.join(states)}; {len(rows):,} rows, {same}",
            peer=f"{took / alone:.2f} of one host",
        )


def night(
    folder: Path, hosts: int, *, kill: bool
) -> tuple[float, str, dict[str, list[dict[str, int]]]]:
    """Run a night on so many hosts; return its seconds, the host killed, and its report."""
    lab = describe(folder, hosts)
    begun = time.perf_counter()
    command = "from lightrig.harness.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "night", str(lab), "--json"],
        env={**os.environ, "LIGHTRIG_STATE": str(folder / "state")},
        stdout=subprocess.PIPE,
    )
    killed = kill_first(process) if kill else ""
    output, _ = process.communicate(timeout=TIMEOUT_S)
    return time.perf_counter() - begun, killed, json.loads(output)


def describe(folder: Path, hosts: int) -> Path:
    """Write the testbed of the README four times, and the file of the night."""
    text = re.search(r"```yaml\n(# yaml-language-server.*?)```", _README.read_text(), re.DOTALL)
    assert text is not None
    files = []
    for number in range(TESTBEDS):
        files.append(f"bench{number}.yaml")
        content = text[1].replace("name: mine", f"name: bench{number}")
        (folder / files[-1]).write_text(content)
    document = {
        "results": "results",
        "suites": [str(_SUITE)],
        "scheduler": f"tls://{_NETWORK}.254:0",
        "keys": "keys",
        "wait": "10 min",
        "pytest": [
            *("--instruments", "simulated", "--seed", "1", "-k", "between"),
            *("--samples", os.environ.get("LIGHTRIG_SAMPLES", "20")),
        ],
        "hosts": {
            f"host{n}": {
                "testbeds": files,
                "start": f"ip netns exec {_BRIDGE}{n} {{command}}",
                "address": f"tls://{_NETWORK}.{n + 1}",
            }
            for n in range(hosts)
        },
    }
    lab = folder / "lab.yaml"
    lab.write_text(json.dumps(document))  # JSON is YAML
    list(make_keys(load_hosts(lab)))
    return lab


def kill_first(night_process: "subprocess.Popen[bytes]") -> str:
    """Kill the first worker that measures, by its process id; return its host."""
    while night_process.poll() is None:
        for worker in _children(night_process.pid):
            if _children(worker):  # pytest has been started
                arguments = Path(f"/proc/{worker}/cmdline").read_bytes().decode().split("\0")
                time.sleep(1)  # amid what it measures, which takes some seconds
                os.kill(worker, signal.SIGKILL)
                return arguments[arguments.index("--worker") + 1]
        time.sleep(0.2)
    return ""


def _children(process: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        found += [int(word) for word in path.read_text().split()]
    return found


def stored_rows(results: Path) -> list[object]:
    """Return all rows but the names of their runs, in the order of testbeds and of measuring."""
    query = (
        f"SELECT * EXCLUDE (run, night, file_row_number) FROM read_parquet('{results}/rows/*/*/*."
        "parquet', hive_partitioning = true, file_row_number = true) "
        "ORDER BY testbed, file_row_number"
    )
    return list(duckdb.sql(query).fetchall())


@contextmanager
def network(hosts: int) -> Iterator[None]:
    """A namespace a host, all on one bridge that this machine has an address on."""
    names = [f"{_BRIDGE}{n}" for n in range(hosts)]
    try:
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("address", "add", f"{_NETWORK}.254/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        for number, name in enumerate(names):
            _ip("netns", "add", name)
            _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"{name}a", "master", _BRIDGE, "up")
            _ip("-n", name, "address", "add", f"{_NETWORK}.{number + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", _BRIDGE], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


if __name__ == "__main__":
    main()
