"""How far apart 512 serial switches complete that are actuated at once, each taking 8 ms.

The switches are simulated in a process of their own, one pseudo-terminal each; the drivers and
their commands are those that a laboratory uses. Limit: the last one has completed 20 ms after
the first one at the latest could have, that is, 28 ms after the first command.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.world.world import World
from lightrig.instruments.switches.osw_ascii import OswAscii
from lightrig.testbeds import Circuit, load

SWITCHES = 512
ROUNDS = 20
SWITCHING_NS = 8_000_000
LIMIT_NS = 20_000_000

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
    command = [sys.executable, "-m", "benchmarks.acos_actuation", "serve", str(switches)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        devices = json.loads(served.stdout.readline())
        late = sorted(actuate(devices))
        served.stdin.close()
    median, last = late[len(late) // 2], late[-1]
    print(
        f"{switches} serial switches, {len(late)} rounds: the last one completes "
        f"{median / 1e6:.1f} ms (median; greatest {last / 1e6:.1f} ms) after 8 ms from the first "
        f"command, {median / LIMIT_NS:.2f} of the limit of {LIMIT_NS / 1e6:g} ms"
    )
    if median > LIMIT_NS:
        raise SystemExit(1)


def actuate(devices: list[str], rounds: int = ROUNDS) -> list[int]:
    """Move all switches to and fro; return by how much each round takes longer than one switch."""
    clock = SystemClock()
    drivers = [
        OswAscii(f"s{n}", Endpoint("serial", resource=device), clock)
        for n, device in enumerate(devices)
    ]
    for driver in drivers:
        driver.circuits()  # opens the line
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


def serve(switches: int) -> None:
    """Simulate the switches until stdin ends; print their devices first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "testbed.yaml"
        path.write_text(TESTBED.format(last=switches - 1), encoding="utf-8")
        world = World(load(path), SystemClock(), 1)
        print(json.dumps([each.resource for each in world.services.values()]), flush=True)
        sys.stdin.read()
        world.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
