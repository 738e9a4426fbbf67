"""Run every target of the Makefile that runs tests, and print a table of how each has ended.

    python -m tests.everything [TARGET ...]

Without a TARGET all of them, but for those that look for what no run has tried before. What one
prints goes to build/everything/TARGET.log. The status is 1 if one has failed.
"""

import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path("build/everything")
EXPLORING = {"fuzz", "mistakes", "mutants"}
WITH_ARGUMENTS = {"test-named"}


@dataclass
class Ended:
    """Outcome of a target; counts are None where it ran no test."""

    target: str
    status: int
    seconds: float
    passed: int | None = None
    failed: int | None = None
    skipped: Counter[str] = field(default_factory=Counter)


def targets_with_tests(makefile: str) -> list[str]:
    """Return the targets whose recipe runs pytest, or the bugs that tests are to notice."""
    rules = re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    runs = re.compile(r"pytest |\$\(TORCH\)|(?:plant|generate)\.py")
    # Where pages are written by a test, nothing is tried.
    return [
        target
        for target, recipe in rules
        if runs.search(recipe) and "LIGHTRIG_WRITE_DOCS" not in recipe
    ]


def run(target: str) -> Ended:
    """Run a target; raise nothing for one that fails."""
    junit, log = RESULTS / f"{target}.xml", RESULTS / f"{target}.log"
    junit.unlink(missing_ok=True)
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            ["make", target, f"JUNIT={junit}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    ended = Ended(target, done.returncode, time.monotonic() - begun)
    if junit.exists():
        count(ET.parse(junit), ended)
    return ended


def count(results: "ET.ElementTree[ET.Element]", ended: Ended) -> None:
    """Add the tests of a JUnit file to `ended`; an inconclusive test counts as skipped."""
    suites = list(results.iter("testsuite"))

    def total(name: str) -> int:
        return sum(int(suite.get(name, "0")) for suite in suites)

    for skipped in results.iter("skipped"):
        kind = "inconclusive: " if skipped.get("type") == "lightrig.inconclusive" else ""
        ended.skipped[f"{kind}{skipped.get('message', '').splitlines()[0]}"] += 1
    ended.failed = total("failures") + total("errors")
    ended.passed = total("tests") - ended.failed - total("skipped")


def table(all_ended: Sequence[Ended]) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{'what':22}{'passed':>8}{'failed':>8}{'skipped':>9}{'time':>10}"]
    for each in all_ended:
        name = f"{each.target:22}"
        minutes, seconds = divmod(round(each.seconds), 60)
        spent = f"{minutes} min {seconds:02} s"
        if each.passed is None:
            lines.append(f"{name}{'no test has run':>25}{spent:>13}")
        else:
            counts = f"{each.passed:8,}{each.failed:8,}{each.skipped.total():9,}"
            lines.append(f"{name}{counts}{spent:>13}")
        lines += [f"    {times:5,} skipped: {why}" for why, times in each.skipped.most_common()]
        if each.status:
            lines.append(f"    status {each.status}: see {RESULTS / each.target}.log")
    return lines


def main(arguments: Sequence[str], show: Callable[[str], None] = print) -> int:
    """Run the targets `arguments`, or all; return the exit status."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    every = [
        each for each in targets_with_tests(makefile) if each not in EXPLORING | WITH_ARGUMENTS
    ]
    RESULTS.mkdir(parents=True, exist_ok=True)
    all_ended: list[Ended] = []
    for target in arguments or every:
        show(f"make {target}")
        all_ended.append(run(target))
    show("")
    for line in table(all_ended):
        show(line)
    return int(any(each.status for each in all_ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda line: print(line, flush=True)))
