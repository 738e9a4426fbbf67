"""Processor time of `lightrig plan`, and of reading the file, at 256 and at 4,096 GPUs.

Each file is written by its system's generator, with two plans. What grows faster than linearly
shows as more time a GPU in the large file than in the small one, which is the peer. The start of
the program, measured with `--help`, is taken off. LIGHTRIG_REPETITIONS is the number of runs.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import beside_limit, figure

REPETITIONS = int(os.environ.get("LIGHTRIG_REPETITIONS", "3"))
SMALL, LARGE = 256, 4096
LIMIT = 1.5
SYSTEMS = {
    "railx": {
        SMALL: ["--columns", "8", "--rows", "8"],
        LARGE: ["--columns", "32", "--rows", "32"],
    },
    "infinitehbd": {SMALL: ["--nodes", "64"], LARGE: ["--nodes", "1024"]},
}


def main() -> None:
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}; nothing is sent")
    start = statistics.median(processor_s("plan", "--help") for _ in range(REPETITIONS))
    with tempfile.TemporaryDirectory() as folder:
        for system, sizes in SYSTEMS.items():
            each: dict[int, float] = {}
            for gpus, options in sizes.items():
                file = Path(folder, f"{system}-{gpus}.yaml")
                processor_s("generate", system, *options, "--output", str(file))
                lines = len(file.read_text().splitlines())
                for command in ("check", "plan"):
                    taken = sorted(processor_s(command, str(file)) for _ in range(REPETITIONS))
                    each[gpus] = (statistics.median(taken) - start) / gpus * 1e3
                    # The start may hide the time of few GPUs, of which no ratio is made.
                    if gpus == LARGE and command == "plan" and each[SMALL] > 0:
                        beside_limit(
                            f"{system}, {gpus:,} GPUs, of the {SMALL} GPUs' time a GPU",
                            each[gpus] / each[SMALL],
                            LIMIT,
                        )
                    figure(
                        f"lightrig {command}, {system}, {gpus:,} GPUs, {lines:,} lines",
                        f"{statistics.median(taken):.2f} s of processor",
                        f"{taken[0]:.2f} to {taken[-1]:.2f} s, n {REPETITIONS}; "
                        f"{each[gpus]:.2f} ms a GPU beyond the start's {start:.2f} s",
                    )


def processor_s(*arguments: str) -> float:
    """Return the seconds of processor time of one command of the program; raises if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = [sys.executable, "-c", "from lightrig.harness.cli import main; main()"]
    subprocess.run([*program, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
