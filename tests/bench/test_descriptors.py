"""A bench raises the limit of open files of its process, or says how many are missing."""

import subprocess
import sys
from pathlib import Path

TESTBED = """
name: hall
switches:
  ocs[0-39]: {model: polatis, address: "tl1://{name}.invalid", size: 8x8}
servers:
  server0: {address: "ssh://server0.invalid", nics: {nic0: {
    netdev: ens1, rate: 100G, transceiver: lr4}}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm},
        receive: {min: -10 dBm, max: 4 dBm}}
fibers: [server0.nic0 <-> ocs0]
plans: {dark: {circuits: {ocs0: []}}}
"""

PROGRAM = """
import resource, sys, threading
from pathlib import Path
from lightrig.harness.bench import bind
from lightrig.testbeds import load

resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, sys.argv[1:])))
threads = threading.active_count()
bench = bind(load(Path("hall.yaml")), "simulated")
assert all(switch.circuits() == frozenset() for switch in bench.switches.values())
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], threading.active_count() - threads)
bench.close()
"""


def bound(folder: Path, soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    """Bind a hall of 40 switches and a server, in a process with these limits of open files."""
    (folder / "hall.yaml").write_text(TESTBED)
    program = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)


def test_the_soft_limit_is_raised_and_switches_take_no_thread_each(tmp_path: Path) -> None:
    ended = bound(tmp_path, 100, 4000)
    assert ended.returncode == 0, ended.stderr
    limit, threads = map(int, ended.stdout.split())
    assert 41 * 3 < limit < 4000
    # The server has three; five more are those of the clock, the wires, and the devices.
    assert threads <= 3 + 5


def test_a_limit_that_cannot_be_raised_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    ended = bound(tmp_path, 100, 200)
    assert ended.returncode == 1
    sentence = ended.stderr.splitlines()[-1]
    assert "41 switches, servers and instruments need up to 2" in sentence
    assert "this process may have 200, " in sentence
    assert "ulimit -n 2" in sentence
