"""`lightrig survive` under a flap, beside the packets that a rank's server received meanwhile."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from lightrig.instruments.namespaces import namespaces as kernel

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
CAPTURE = """
import socket, struct, sys, time
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
packets.bind((sys.argv[1], 0))
while True:
    try:
        block, (_, _, kind, *_) = packets.recvfrom(2048)
    except OSError:  # that the device is down is said once
        continue
    length, = struct.unpack_from("!H", block, 16)
    head = 14 + (block[14] & 15) * 4
    data = length - (block[14] & 15) * 4 - (block[head + 12] >> 4) * 4
    if kind == socket.PACKET_HOST and block[23] == socket.IPPROTO_TCP and data > 0:
        print(time.monotonic_ns(), flush=True)
"""


def holder(address: str, root: int) -> int | None:
    """Return a process below `root` whose network namespace has an address."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for pid in parents:
        above = pid
        while above > 1 and above != root:
            above = parents.get(above, 0)
        if above != root:
            continue
        try:
            table = Path(f"/proc/{pid}/net/fib_trie").read_text()
        except OSError:
            continue
        if re.search(rf"\b{re.escape(address)}\n\s+/32 host LOCAL", table):
            return pid
    return None


@pytest.fixture
def captures() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_flaps_stall_is_the_silence_of_its_packets(
    captures: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Three cuts of 0.6 s in 1.5 s each, of the first link: data of server0 stop at server1.

    A round of the ring stands still from its last packet before a cut until the first one after
    it; what is reported counts from the end of a round to that of the next one.
    """
    if (reason := kernel.available()) is not None:
        pytest.skip(reason)
    command = [*LIGHTRIG, "survive", "testbeds/namespaces.yaml", "--instruments", "simulated"]
    command += ["--json", "--fault", "flap:1500ms,duty=0.4,number=3", "--seed", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as survive:
        while (pid := holder("192.0.2.3", survive.pid)) is None:
            assert survive.poll() is None
        capture = [sys.executable, "-c", CAPTURE]
        for device in ("fabric0", "fabric1"):
            argv = kernel.enter_command(pid, [*capture, device])
            with (tmp_path / device).open("w") as file:
                captures.append(subprocess.Popen(argv, stdout=file, text=True))
        assert survive.stdout is not None
        document = json.loads(survive.stdout.read())
    (found,) = document["faults"]
    assert (found["outcome"], found["wrong"]) == ("stalled, then went on", 0)
    times = sorted(
        int(at)
        for device in ("fabric0", "fabric1")
        for at in (tmp_path / device).read_text().split()
    )
    silences = sorted(b - a for a, b in pairwise(times))[-3:]
    # Rounds take milliseconds, and each cut is longer by far.
    assert silences[0] > 500_000_000
    assert found["stalls_ns"] == pytest.approx(sum(silences), rel=0.15)
    assert found["stall_ns"] == pytest.approx(silences[-1], rel=0.15)
