"""Reconfigurations among namespaces whose observers are disturbed: every interval holds the truth.

It ends after `DISTURBANCES` reconfigurations (default 1000), or after fifteen minutes if that comes
first. `DISTURBANCES_SEED` draws the plans and the pauses.

The harness and the probes are stopped at random moments (SIGSTOP) for up to 250 ms and 60 ms, as on
a starved machine. Each probe has a clock of its own, which is slewed by 200 to 5,000 ppm a third of
the time, and takes requests and gives replies late by up to 20 ms, each drawn by itself. Carriers,
datagrams and light are compared with the moments at which the kernel switched its links.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.closure import is_closure, unclosed
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.outage import measure_outage
from lightrig.harness.measure.reconfiguration import IncompleteError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.core.errors import NoReplyError
from lightrig.instruments.servers.host.offset import ClockDriftWarning
from lightrig.instruments.servers.host.program import Program
from lightrig.testbeds import load

SECONDS = 900

DISTURBED_CLOCK = """
import os, random, time, uuid

_draws = random.Random(os.getpid())  # each probe its own
_PERIOD, _LASTING = 3_000_000_000, 1_000_000_000
_AHEAD = _draws.randrange(-_PERIOD, _PERIOD)
_PPM = _draws.choice((-1, 1)) * _draws.choice((200, 500, 1000, 5000))


def now():
    real = time.monotonic_ns()
    whole, part = divmod(real + _AHEAD, _PERIOD)
    return real + _AHEAD + (whole * _LASTING + min(part, _LASTING)) * _PPM // 1_000_000


def late():
    if _draws.random() < 0.3:
        time.sleep(0.02 * _draws.random())


def slewed():
    return now() - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def boot_id():
    return str(uuid.uuid4())
"""
LATE = "from lightrig.instruments.servers.programs.server_clock import late\n"
DISTURBANCES = {
    "probe": (
        (
            "            self._take(line, now())\n",
            "            late()\n            self._take(line, now())\n",
        ),
        ("import uuid\n", "import uuid\n" + LATE),
    ),
    "replies": (
        ("            self._out.write(", "            late()\n            self._out.write("),
        ("import threading\n", "import threading\n" + LATE),
    ),
}
"""Lines of modules of the probe that are replaced; its clock is replaced whole."""

SOURCES = Program.sources

STOPPER = """
import os, random, signal, sys, time
harness, draws = int(sys.argv[1]), random.Random(sys.argv[2])


def family():
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
                with open(f"/proc/{entry}/cmdline") as line:
                    parents[int(entry)] = parent, line.read()
            except OSError:
                continue
    for pid, (parent, line) in parents.items():
        while parent in parents and parent != harness:
            parent = parents[parent][0]
        words = line.split("\\0")
        probe = "python" in words[0] and "lightrig-probe" in words
        if parent == harness and pid != os.getpid() and probe:
            yield pid


signal.signal(signal.SIGINT, lambda *_: sys.exit())
while os.getppid() == harness:
    time.sleep(draws.expovariate(2.0))
    probes = list(family())
    stopped, longest = harness, 0.25
    if probes and draws.random() < 0.6:
        stopped, longest = draws.choice(probes), 0.06
    try:
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(0.005 + longest * draws.random())
    except ProcessLookupError:
        continue
    finally:
        try:
            os.kill(stopped, signal.SIGCONT)
        except ProcessLookupError:
            pass
    print(stopped == harness, flush=True)
"""


def disturbed(self: Program) -> list[tuple[str, str]]:
    """Return the modules of a program; those of the probe disturbed."""
    modules = SOURCES(self)
    return [disturb(*module) for module in modules] if self.modules[-1] == "probe" else modules


def disturb(module: str, source: str) -> tuple[str, str]:
    """Return a module's name and its source with the disturbances."""
    name = module.rpartition(".")[2]
    if name == "server_clock":
        return module, DISTURBED_CLOCK
    for usual, instead in DISTURBANCES.get(name, ()):
        assert source.count(usual) == 1, usual
        source = source.replace(usual, instead)
    return module, source


@contextlib.contextmanager
def stops(seed: int) -> Iterator[Counter[str]]:
    """Stop this process and its probes at random moments; counts of both when the context ends."""
    found: Counter[str] = Counter()
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPER, str(os.getpid()), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
        found.update(printed.split())


def main() -> bool:
    """Disturb and compare; returns whether every interval holds the truth."""
    count = int(os.environ.get("DISTURBANCES", "1000"))
    seed = int(os.environ.get("DISTURBANCES_SEED", "1"))
    Program.sources = disturbed  # type: ignore[method-assign]
    warnings.simplefilter("ignore", ClockDriftWarning)
    testbed = load(Path(__file__).parents[2] / "testbeds" / "namespaces.yaml")
    bench = bind(testbed, "simulated", seed=seed)
    rows: list[Row] = []
    recording = Recording(rows.extend, testbed.limits)
    done = incomplete = 0
    ended = ""
    draws = random.Random(seed)
    try:
        fabric, links = Fabric(bench), LinkObservation(bench)
        names = list(testbed.plans)
        bring_up(fabric, links, testbed.plans[names[0]])
        began, present = time.monotonic(), names[0]
        with stops(seed) as stopped:
            while done < count and time.monotonic() - began < SECONDS:
                done += 1
                present = draws.choice([name for name in names if name != present])
                try:
                    measure_outage(fabric, links, recording, testbed.plans[present])
                except IncompleteError:
                    incomplete += 1
                except NoReplyError as error:  # a machine so busy that a probe did not run for 20 s
                    ended = f", ended by: {str(error).splitlines()[0]}"
                    break
        seconds = time.monotonic() - began
        fabric.restore()
    finally:
        bench.close()
    wrong = list(unclosed(rows))
    closures = [row for row in rows if is_closure(row.quantity)]
    intervals = sum(int(row.conditions["n"]) for row in closures)
    stops_of = f"{stopped['True']} stops of the harness and {stopped['False']} of probes"
    print(f"{done} reconfigurations in {seconds:.0f} s, {stops_of}{ended}")
    print(f"{incomplete} in which a monitor did not see the darkness: recorded, not judged")
    by_name: Counter[str] = Counter()
    for row in closures:
        by_name[row.quantity] += int(row.conditions["n"])
    for name, number in sorted(by_name.items()):
        print(f"  {name:<32} {number:>7,} intervals")
    print(f"{intervals:,} intervals compared with the truth, {len(wrong)} closures miss it")
    for sentence in wrong[:20]:
        print(f"  {sentence}")
    return not wrong
