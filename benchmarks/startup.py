"""Start-up time of commands, as a ratio to Python that does nothing, side by side.

Every round starts each program once, so that the load of the machine meets all of them; the
least of the rounds is what a program takes when nothing else runs. `pytest --version` is a
known program of the same Python. Limits are those that the project sets itself.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import beside_limit

ROUNDS = 15
ROOT = Path(__file__).parent.parent
LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
BARE = "python -c pass"
PROGRAMS: dict[str, tuple[Sequence[str], float | None]] = {
    BARE: ((sys.executable, "-c", "pass"), None),
    "pytest --version": ((sys.executable, "-m", "pytest", "--version"), None),
    "lightrig --help": ((*LIGHTRIG, "--help"), 3.7),
    "lightrig check testbeds/opus.yaml": ((*LIGHTRIG, "check", "testbeds/opus.yaml"), 10.0),
}
"""The arguments of each program, and the most that it may take of bare Python's time."""


def main() -> None:
    # Compiled modules are kept between starts, as they are at a desk.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    walls: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    cpus: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for arguments, _ in PROGRAMS.values():
        _start(arguments, environment)
    for _ in range(ROUNDS):
        for name, (arguments, _) in PROGRAMS.items():
            wall, cpu = _start(arguments, environment)
            walls[name].append(wall)
            cpus[name].append(cpu)
    print(f"{ROUNDS} starts each, in turn; ms, and as a ratio to `{BARE}`")
    print(f"{'':<36}{'wall least':>12}{'median':>9}{'ratio':>8}{'CPU least':>12}{'ratio':>8}")
    bare_wall, bare_cpu = min(walls[BARE]), min(cpus[BARE])
    for name, (_, most) in PROGRAMS.items():
        wall, cpu = min(walls[name]), min(cpus[name])
        print(
            f"{name:<36}{wall * 1e3:>12.0f}{statistics.median(walls[name]) * 1e3:>9.0f}"
            f"{wall / bare_wall:>8.1f}{cpu * 1e3:>12.0f}{cpu / bare_cpu:>8.1f}"
        )
        if most is not None:
            beside_limit(
                f"{name}, of bare Python's time", wall / bare_wall, most,
                spread=f"least of {ROUNDS}; median {statistics.median(walls[name]):.3f} s",
                peer=f"{wall:.3f} s beside {bare_wall:.3f} s", processor=cpu / bare_cpu,
            )  # fmt: skip


def _start(arguments: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return the wall time and the CPU time of one run, in s."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(arguments, stdout=subprocess.DEVNULL, env=environment, cwd=ROOT, check=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, cpu


if __name__ == "__main__":
    main()
