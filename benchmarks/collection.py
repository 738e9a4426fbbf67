"""Collection of 10,000 tests over four testbed files, beside pytest without the plugin.

Both collect 10,000 parametrised functions: with the plugin 2,500 on each of four testbeds, without
it (`-p no:lightrig`) 10,000 of the same. LIGHTRIG_REPETITIONS is the number of runs of each. The
second pair asks for transitions and counts of circuits of `testbeds/rings8.yaml` in many functions;
it has no peer, and shows whether what each function asks is computed again. The third collects the
suites for fabrics of RailX that grow: what collection takes beyond `lightrig check`, against links.
"""

import math
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import beside_limit, figure
from lightrig.testbeds import load

REPETITIONS = int(os.environ.get("LIGHTRIG_REPETITIONS", "5"))
TESTBEDS, FILES, TESTS = 4, 10, 10_000
LIMIT = 1.5
SIDES, SLOPE = (8, 16, 32), 1.15
ROOT = Path(__file__).parents[1]
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""Compiled modules are kept between runs, as they are at a desk."""

TEST = """import pytest

@pytest.mark.parametrize("n", range({count}))
def test_of_a_testbed(testbed, n):
    pass

@pytest.mark.parametrize("n", range({count}))
def test_that_measures(fabric, measure, n):
    pass
"""
MOVING = """
def test_{number}(fabric, transition, moving):
    pass
"""


def main() -> None:
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}")
    readme = re.search(
        r"```yaml\n(# yaml-language-server.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert readme is not None
    with tempfile.TemporaryDirectory() as folder:
        options = []
        for number in range(TESTBEDS):
            file = Path(folder, f"bench{number}.yaml")
            file.write_text(readme[1].replace("name: mine", f"name: bench{number}"))
            options += ["--testbed", str(file)]
        for name, count in (("with", TESTS // TESTBEDS), ("bare", TESTS)):
            Path(folder, name).mkdir()
            for number in range(FILES):
                text = TEST.format(count=count // FILES // 2)
                Path(folder, name, f"test_{name}{number}.py").write_text(text)
        collected_s(TESTS, f"{folder}/with", *options)
        collected_s(TESTS, f"{folder}/bare", "-p", "no:lightrig")
        ours, bare = [], []
        for _ in range(REPETITIONS):  # in turn, so that other work meets both alike
            ours.append(collected_s(TESTS, f"{folder}/with", *options))
            bare.append(collected_s(TESTS, f"{folder}/bare", "-p", "no:lightrig"))
        ratios = sorted(a / b for a, b in zip(ours, bare, strict=True))
        beside_limit(
            f"{TESTS:,} tests of {TESTBEDS} testbeds collected, of bare pytest's processor time",
            statistics.median(ratios),
            LIMIT,
            spread=f"ratios {ratios[0]:.2f} to {ratios[-1]:.2f}, n {REPETITIONS}",
            peer=f"{statistics.median(ours):.2f} s beside bare pytest's "
            f"{statistics.median(bare):.2f} s",
            processor=statistics.median(ratios),
        )
        file = ROOT / "testbeds" / "rings8.yaml"
        for functions in (1, 50):
            text = "".join(MOVING.format(number=number) for number in range(functions))
            Path(folder, f"test_moving{functions}.py").write_text(text)
            taken = [
                collected_s(None, f"{folder}/test_moving{functions}.py", "--testbed", str(file))
                for _ in range(REPETITIONS)
            ]
            figure(
                f"functions of transitions and counts of circuits, rings8, collected: {functions}",
                f"{statistics.median(taken):.2f} s of processor",
                f"{min(taken):.2f} to {max(taken):.2f} s, n {REPETITIONS}",
            )
        growth(folder)


def growth(folder: str) -> None:
    """Print how what collection takes beyond `check` grows with a fabric's links."""
    beyond: dict[int, float] = {}
    for side in SIDES:
        file = Path(folder, f"railx{side}.yaml")
        sizes = ("--columns", str(side), "--rows", str(side))
        file.write_text(lightrig("generate", "railx", *sizes)[0])
        checked = min(lightrig("check", str(file))[1] for _ in range(REPETITIONS))
        collected = min(
            collected_s(None, "suites", "--testbed", str(file)) for _ in range(REPETITIONS)
        )
        testbed = load(file)
        links = max(len(testbed.links(plan)) for plan in testbed.plans)
        beyond[links] = collected - checked
        figure(f"suites of RailX, {links:,} links, collected", f"{collected:.2f} s of processor")
    (few, first), *_, (many, last) = beyond.items()
    slope = math.log(last / first) / math.log(many / few)
    beside_limit(
        "growth of collection beyond check with the links, power", slope, SLOPE,
        spread=f"least of {REPETITIONS}; {first:.2f} s at {few:,} links, {last:.2f} at {many:,}",
    )  # fmt: skip


def lightrig(*arguments: str) -> tuple[str, float]:
    """Return what a command printed, and its processor time in s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = subprocess.run(
        [Path(sys.executable).with_name("lightrig"), *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return command.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def collected_s(count: int | None, *arguments: str) -> float:
    """Return the processor time of collecting, in s; raises if not `count` tests are found."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    options = ("--collect-only", "-q", "-p", "no:cacheprovider")
    pytest = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if count is not None and f"{count} tests collected" not in pytest.stdout:
        raise ValueError(f"found {pytest.stdout[-200:]!r}, expected {count} tests")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
