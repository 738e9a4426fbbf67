"""Skew of 512 serial switches that are actuated at once, each taking 8 ms.

The drivers and their commands are those that a laboratory uses, on a pseudo-terminal for each
switch. Limit: the last one has completed 20 ms after the first one at the latest could have, that
is, 28 ms after the first command. It holds for switches that take no processor time, as real ones
do: a loop in a process of its own answers for all of them. The simulated devices of a world, which
move light and keep a ground truth, share two cores with the drivers; their spread is shown beside
it. `chrt -f 10` before the command keeps other work of a busy machine out of the figures.
"""

import gc
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import tty
from collections import deque
from pathlib import Path

from benchmarks.figures import beside_limit
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.switches.osw_ascii import OswAscii
from lightrig.testbeds import Circuit, load

SWITCHES = 512
ROUNDS = 40
SWITCHING_NS = 8_000_000
LIMIT_NS = 20_000_000
LOOK_S = 0.2e-3
"""Time between two looks at the lines of switches that take no processor time."""

TESTBED = """
name: actuation
switches:
  s[0-{last}]: {{model: osw-ascii, address: 'serial:///dev/{{name}}', size: 1x2}}
servers: {{}}
fibers: []
simulation:
  switches:
    s[0-{last}]: {{acknowledge: {{mean: 8 ms}}, settle: {{mean: 7.5 ms}}, dark: {{mean: 0.5 ms}}}}
"""


def main(switches: int = SWITCHES) -> None:
    load_average, *_ = os.getloadavg()
    print(f"{switches} serial switches actuated at once, {ROUNDS} rounds, load {load_average:.1f}")
    for kind, name in NAMES.items():
        spread(kind, name, switches)


def spread(kind: str, name: str, switches: int) -> None:
    """Print by how much a round takes longer than one switch, in the median."""
    command = [sys.executable, "-m", "benchmarks.acos_actuation", kind, str(switches)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        devices = json.loads(served.stdout.readline())
        late = sorted(actuate(devices))
        served.stdin.close()
    median = late[len(late) // 2]
    # Both bounds of a 95 % interval of the median of 40: ranks 14 and 27.
    low, high = late[len(late) * 13 // 40], late[len(late) * 26 // 40]
    beside_limit(
        f"the last of {name} completes beyond 8 ms from the first command",
        median / 1e6,
        LIMIT_NS / 1e6,
        "ms",
        f"{low / 1e6:.1f} to {high / 1e6:.1f} (95 %), all {late[0] / 1e6:.1f} to "
        f"{late[-1] / 1e6:.1f}, n {len(late)}",
    )


def actuate(devices: list[str], rounds: int = ROUNDS) -> list[int]:
    """Move all switches to and fro; return by how much each round takes longer than one switch."""
    clock = SystemClock()
    drivers = [
        OswAscii(f"s{n}", Endpoint("serial", resource=device), clock)
        for n, device in enumerate(devices)
    ]
    for driver in drivers:
        driver.circuits()  # opens the line
    gc.freeze()  # a full collection of all that was imported takes tens of ms
    late = []
    for number in range(rounds):
        wanted = frozenset({Circuit(1, 2 + (number + 1) % 2)})
        moves = [driver.change((), wanted) for driver in drivers]
        done = [move.done().latest for move in moves]
        late.append(max(done) - min(move.sent.earliest for move in moves) - SWITCHING_NS)
    if any(driver.circuits() != wanted for driver in drivers):
        raise SystemExit("a switch did not move")
    for driver in drivers:
        driver.close()
    clock.close()
    return late


def simulate(switches: int) -> None:
    """Simulate the switches in a world until stdin ends; print their devices first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "testbed.yaml"
        path.write_text(TESTBED.format(last=switches - 1), encoding="utf-8")
        world = SimulatedLab(load(path), SystemClock(), 1)
        print(json.dumps([each.resource for each in world.services.values()]), flush=True)
        sys.stdin.read()
        world.close()


def answer(switches: int) -> None:
    """Answer for the switches in one loop until stdin ends; print their devices first.

    A move is acknowledged `SWITCHING_NS` after its command was read, any other query at once.
    """
    pairs = [os.openpty() for _ in range(switches)]
    waiting = select.epoll()
    waiting.register(sys.stdin, select.EPOLLIN)
    for device, client in pairs:
        tty.setraw(client)
        waiting.register(device, select.EPOLLIN)
    position = {device: 1 for device, _ in pairs}
    due: deque[tuple[int, int]] = deque()
    print(json.dumps([os.ttyname(client) for _, client in pairs]), flush=True)
    while True:
        left = (due[0][0] - time.monotonic_ns()) / 1e9 if due else None
        readable = waiting.poll(None if left is None else max(left, 0))
        for device, _ in readable:
            if device == sys.stdin.fileno():
                return
            for command in os.read(device, 1 << 12).split(b">")[:-1]:
                to = command.removeprefix(b"<OSW_OUT_")
                if to == b"?":
                    os.write(device, b"<OSW_OUT_%02d>" % position[device])
                else:
                    position[device] = int(to)
                    due.append((time.monotonic_ns() + SWITCHING_NS, device))
        while due and due[0][0] <= time.monotonic_ns():
            os.write(due.popleft()[1], b"<OSW_OUT_OK>")
        if readable and due:
            # A thread of the kernel carries the bytes of pseudo-terminals, line after line. Waking
            # up for each of them took longer than all the replies.
            time.sleep(LOOK_S)


NAMES = {"answer": "switches that take no processor time", "simulate": "switches of a world"}

if __name__ == "__main__":
    if sys.argv[1:2] == ["simulate"]:
        simulate(int(sys.argv[2]))
    elif sys.argv[1:2] == ["answer"]:
        answer(int(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
