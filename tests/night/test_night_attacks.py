"""Strangers at a night's listeners: another host, and another account of the same host.

A night runs in a network namespace, which a second namespace reaches over a link. The attacks are
tried on an unprotected Dask worker first, where they succeed.
"""

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.accounts import BEN

from lightrig.harness.night.keys import make_keys
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds.lab_hosts import load_hosts

ROOT = Path(__file__).parents[2]
README = re.search(
    r"```yaml\n(# yaml-language-server.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
)
ATTACKER = Path(__file__).with_name("dask_attacker.py")
LIGHTRIG = [sys.executable, "-c", "from lightrig.harness.cli import main; main()"]
NIGHT, STRANGER = "198.18.88.1", "198.18.88.2"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def network():
    """Two namespaces on one link: the process id of each one's holder."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    reason = kernel.available()
    if reason is not None:
        pytest.skip(reason)
    if os.geteuid() != 0:
        pytest.skip("only root with setpriv can become another account")
    with kernel.Namespaces(["night", "stranger"]) as spaces:
        night, stranger = spaces.pid("night"), spaces.pid("stranger")
        link = ["link", "add", "lan", "type", "veth", "peer", "name", "lan", "netns", str(stranger)]
        run_in(night, "ip", *link)
        for pid, address in ((night, NIGHT), (stranger, STRANGER)):
            run_in(pid, "ip", "address", "add", f"{address}/24", "dev", "lan")
            run_in(pid, "ip", "link", "set", "lan", "up")
            run_in(pid, "ip", "link", "set", "lo", "up")
        yield night, stranger


def run_in(pid, *argv, env=None):
    command = kernel.enter_command(pid, argv)
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


def listeners(pid):
    """Return address and port of each TCP listener in a namespace."""
    lines = run_in(pid, "ss", "-Hltn").splitlines()
    return sorted({(line.split()[3].rpartition(":")[0], int(line.split()[3].rpartition(":")[2]))
                   for line in lines})  # fmt: skip


def attack(pid, host, ports, account=0):
    """Return what a stranger in a namespace, as `account`, gets at each port of `host`."""
    dropped = ["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups"]
    argv = [*dropped, sys.executable, str(ATTACKER), host, *map(str, ports)]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    return json.loads(run_in(pid, *argv, env=env))


def ran_or_read(found):
    """Return where code ran, or a page was shown."""
    return {
        (port, attempt): result
        for port, attempts in found.items()
        for attempt, result in attempts.items()
        if result.startswith("ran") or result == "200"
    }


@pytest.fixture
def begun(tmp_path, network):
    """Start a night of a lab in its namespace; return its process once its test runs."""
    (tmp_path / "a.yaml").write_text(README[1].replace("name: mine", "name: a"))
    (tmp_path / "test_suite.py").write_text(
        f"""
import pathlib
def test_of_a_testbed(testbed):
    pathlib.Path({str(tmp_path / "begun")!r}).touch()
    open({str(tmp_path / "go")!r}).read()
"""
    )
    os.mkfifo(tmp_path / "go")

    @contextlib.contextmanager
    def started(**document):
        document |= {"suites": ["test_suite.py"], "pytest": ["--instruments", "simulated"]}
        lab = tmp_path / "lab.yaml"
        lab.write_text(json.dumps(document))
        if "keys" in document:
            list(make_keys(load_hosts(lab)))
        (tmp_path / "begun").unlink(missing_ok=True)
        night = subprocess.Popen(
            kernel.enter_command(network[0], [*LIGHTRIG, "night", str(lab), "--json"]),
            stdout=subprocess.PIPE,
            env={**os.environ, "LIGHTRIG_STATE": str(tmp_path / "state")},
        )
        try:
            while not (tmp_path / "begun").exists():
                assert night.poll() is None, "the night ended before its test began"
                time.sleep(0.05)
            yield night
            (tmp_path / "go").write_text("")
            document = json.loads(night.communicate(timeout=120)[0])
            assert [one["state"] for one in document["testbeds"]] == ["measured"]
        finally:
            if night.poll() is None:
                night.terminate()
                night.wait()
            night.stdout.close()

    return started


def processes_of(pid):
    """Return a process and all that it started, by their process ids."""
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            found += processes_of(int(child))
    return found


def test_the_attacks_succeed_on_an_unprotected_worker(network, tmp_path):
    night, stranger = network
    program = f"""
import distributed, sys, time
if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True,
        host={NIGHT!r}, protocol="tcp", dashboard_address=":0",
        worker_dashboard_address=":0") as cluster:
        print("up", flush=True)
        sys.stdin.read()
"""
    (tmp_path / "plain.py").write_text(program)
    command = kernel.enter_command(night, [sys.executable, str(tmp_path / "plain.py")])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as plain:
        try:
            assert plain.stdout.readline() == b"up\n"
            ports = [port for address, port in listeners(night) if address != "127.0.0.1"]
            succeeded = ran_or_read(attack(stranger, NIGHT, ports))
            of_an_account = ran_or_read(attack(night, NIGHT, ports, BEN))
        finally:
            plain.stdin.close()
            plain.wait()
    for found in (succeeded, of_an_account):
        assert {"ran as 0", "200"} == set(found.values())
        assert {attempt.rpartition(" ")[2] for _, attempt in found} >= {"run", "run_function"}


def test_no_stranger_runs_code_in_a_night_on_loopback(network, begun):
    night, stranger = network
    with begun(hosts={"one": {"testbeds": ["a.yaml"], "start": "{command}"}}) as process:
        found = listeners(night)
        assert {address for address, _ in found} == {"127.0.0.1"}
        ports = [port for _, port in found]
        assert len(ports) == 2  # scheduler and worker
        assert ran_or_read(attack(stranger, NIGHT, ports)) == {}
        assert ran_or_read(attack(night, "127.0.0.1", ports, BEN)) == {}
        for pid in processes_of(process.pid):
            assert b"PRIVATE KEY" not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert b"PRIVATE KEY" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_no_stranger_runs_code_in_a_night_over_hosts(network, begun, tmp_path):
    night, stranger = network
    one = {"testbeds": ["a.yaml"], "start": "{command}", "address": f"tls://{NIGHT}:0"}
    with begun(hosts={"one": one}, keys="keys", scheduler=f"tls://{NIGHT}:0"):
        found = listeners(night)
        assert {address for address, _ in found} == {NIGHT}
        ports = [port for _, port in found]
        assert len(ports) == 2  # scheduler and worker
        assert ran_or_read(attack(stranger, NIGHT, ports)) == {}
        assert ran_or_read(attack(night, NIGHT, ports, BEN)) == {}
    for file in (tmp_path / "keys").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_another_account_cannot_have_a_worker_overwrite_files(
    network, begun, tmp_path, monkeypatch
):
    # Dask's folder of scratch files has a fixed name in the folder of temporary files.
    temporary, victim = tmp_path / "tmp", tmp_path / "victim"
    victim.write_text("of root")
    planted = temporary / "dask-scratch-space"
    planted.mkdir(parents=True)
    for lock in ("global.lock", "purge.lock"):
        (planted / lock).symlink_to(victim)
    os.chown(planted, BEN, BEN)
    monkeypatch.setenv("TMPDIR", str(temporary))
    with begun(hosts={"one": {"testbeds": ["a.yaml"], "start": "{command}"}}):
        assert victim.read_text() == "of root"
    assert victim.read_text() == "of root"
