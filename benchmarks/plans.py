"""Processor time of `lightrig plan`, and of reading the file, at 1,024 and at 4,096 GPUs.

Each file is written by its system's generator, with two plans. What grows faster than linearly
shows as more time a GPU in the large file than in the small one, which is the peer. What a command
takes for the least file, of 16 or 20 GPUs, is taken off, since it is nearly all the program's
start; of several runs, LIGHTRIG_REPETITIONS, the least counts. Time that grows with the square
of the GPUs would be four times a GPU's.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import beside_limit, figure

REPETITIONS = int(os.environ.get("LIGHTRIG_REPETITIONS", "5"))
SMALL, LARGE = 1024, 4096
LIMIT = 1.5
SYSTEMS = {
    "railx": {
        16: ["--columns", "2", "--rows", "2"],
        SMALL: ["--columns", "16", "--rows", "16"],
        LARGE: ["--columns", "32", "--rows", "32"],
    },
    "infinitehbd": {
        20: ["--nodes", "5"],
        SMALL: ["--nodes", "256"],
        LARGE: ["--nodes", "1024"],
    },
}
"""Options of the generator by GPUs, the least file first."""


def main() -> None:
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}; nothing is sent")
    with tempfile.TemporaryDirectory() as folder:
        for system, sizes in SYSTEMS.items():
            files = {gpus: Path(folder, f"{system}-{gpus}.yaml") for gpus in sizes}
            for gpus, options in sizes.items():
                processor_s("generate", system, *options, "--output", str(files[gpus]))
            for command in ("check", "plan"):
                compare(system, command, files)


def compare(system: str, command: str, files: dict[int, Path]) -> None:
    """Print the time of a command for files by their GPUs, and a GPU's share in the largest."""
    taken: dict[int, list[float]] = {gpus: [] for gpus in files}
    for _ in range(REPETITIONS):  # in turn, so that other work meets all alike
        for gpus, file in files.items():
            taken[gpus].append(processor_s(command, str(file)))
    few = min(files)
    start = min(taken[few])
    each = {
        gpus: (min(times) - start) / (gpus - few) for gpus, times in taken.items() if gpus > few
    }
    for gpus, share in each.items():
        times = sorted(taken[gpus])
        figure(
            f"lightrig {command}, {system}, {gpus:,} GPUs, "
            f"{len(files[gpus].read_text().splitlines()):,} lines",
            f"{times[0]:.2f} s of processor",
            f"to {times[-1]:.2f} s, n {REPETITIONS}; {share * 1e3:.2f} ms a GPU beyond the "
            f"{start:.2f} s of {few} GPUs",
        )
    if each[SMALL] > 0:  # or the start hides the time of few GPUs
        beside_limit(
            f"{command}, {system}, {LARGE:,} GPUs, of {SMALL:,} GPUs' processor time a GPU",
            each[LARGE] / each[SMALL],
            LIMIT,
            spread=f"least of {REPETITIONS}",
            peer=f"{each[LARGE] * 1e3:.2f} ms beside {each[SMALL] * 1e3:.2f} ms",
            processor=each[LARGE] / each[SMALL],
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
