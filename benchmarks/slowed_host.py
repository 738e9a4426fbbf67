"""A training job beside busy loops on its host: what the answer of `lightrig train` states.

    python -m benchmarks.slowed_host [--steps 24] [--loops 2] [--width 32] [--layers 2]
        [--length 16]

`lightrig train testbeds/rails4.yaml -- examples/train_llama.py` runs twice as a person starts it,
on four namespaces with real packets and a simulated switch: alone, and with as many busy loops as
stated from its start to its end. The model is small, so that two processors have room for all four
ranks: in the example's own size they wait for one another also where nothing else runs. The slowed
answer must name the host as the slow part, and the quiet one must not; its intervals of switch,
light and link must hold the quiet run's values and be at most `WIDER` times as wide; and more than
`SHARE` of what the step grew by must stand under control or computing, where waits for the ranks
that compute longer count as computing. Ends with status 1 where one of these is not so. Below six
minutes on two processors that do nothing else.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightrig.instruments.jobs.traffic.idle import HostLateness

ROOT = Path(__file__).parents[1]
OF_CIRCUITS = ("switch", "light", "link")
OF_PROCESSORS = ("computes", "waits for other ranks", "control")
WIDER, SHARE = 3.0, 0.5
SIZES = {"steps": 24, "width": 32, "layers": 2, "length": 16}
LOOP = [sys.executable, "-c", "while True: pass"]


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Meanwhile run that many loops, each on a processor."""
    running = [subprocess.Popen(LOOP) for _ in range(loops)]
    try:
        yield
    finally:
        for loop in running:
            loop.kill()
            loop.wait()


def answered(options: argparse.Namespace) -> dict[str, Any]:
    """Run the job; return its answer."""
    command = [sys.executable, "-c", "from lightrig.harness.cli import main; main()", "train"]
    command += ["testbeds/rails4.yaml", "--instruments", "simulated", "--json", "--"]
    command += ["examples/train_llama.py"]
    for name in SIZES:
        command += [f"--{name}", str(getattr(options, name))]
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer | {"seconds": time.monotonic() - begun}


def hosts_of(answer: Mapping[str, Any]) -> list[HostLateness]:
    return [HostLateness(**{**each, "servers": tuple(each["servers"])}) for each in answer["hosts"]]


def wrong(quiet: Mapping[str, Any], slowed: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is not as it must be."""
    for name, answer, expected in (("quiet", quiet, False), ("slowed", slowed, True)):
        if any(host.slow for host in hosts_of(answer) if host.servers) != expected:
            yield f"the {name} run's host is {'not ' if expected else ''}named as the slow part"
    for name in OF_CIRCUITS:
        before, then = quiet["shares"][name], slowed["shares"][name]
        if not then["lower"] <= before["value"] <= then["upper"]:
            yield f"the slowed interval of {name} misses the quiet value"
        if then["upper"] - then["lower"] > WIDER * (before["upper"] - before["lower"]):
            yield f"the slowed interval of {name} is more than {WIDER:g} times as wide"
    grew = {
        name: slowed["shares"][name]["value"] - share["value"]
        for name, share in quiet["shares"].items()
    }
    if sum(grew[name] for name in OF_PROCESSORS) <= SHARE * sum(grew.values()):
        yield "what grew stands under other parts than control and computing"


def main(arguments: Sequence[str] = ()) -> int:
    """Print both answers' parts beside each other; return the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.slowed_host")
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--loops", type=int, default=2)
    options = parser.parse_args(arguments)
    quiet = answered(options)
    with busy(options.loops):
        slowed = answered(options)
    print(f"{'ms of a step':<24}{'quiet':>34}{f'beside {options.loops} loops':>34}")
    for name in ("step", *quiet["shares"]):
        cells = []
        for answer in (quiet, slowed):
            of = answer["step"] if name == "step" else answer["shares"][name]
            value, lower, upper = (of[each] / 1e6 for each in ("value", "lower", "upper"))
            cells.append(f"{value:.2f} ({lower:.2f} to {upper:.2f})")
        print(f"{name:<24}{cells[0]:>34}{cells[1]:>34}")
    for name, answer in (("quiet", quiet), ("slowed", slowed)):
        print(f"{name}: {answer['seconds']:.0f} s, {answer['step']['n']} steps")
        for host in hosts_of(answer):
            print(f"  host {host}")
    found = list(wrong(quiet, slowed))
    print("\n".join(f"WRONG: {each}" for each in found) or "as it must be")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
