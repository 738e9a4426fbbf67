"""The same suites in process and over SSH against a served lab: outcomes and figures side by side.

`python -m benchmarks.lab_in_a_box [SUITES ...]` runs `pytest SUITES` (default: `suites`) twice on
the testbed `TESTBED` (default: testbeds/namespaces.yaml): with `--instruments simulated`, and with
`--instruments hardware` on what `lightrig serve` serves of it. It prints each test's two outcomes,
and the medians of each quantity on a test's line with their number of samples. `SAMPLES` (default:
20) events are measured by each test. It needs what docs/lab-in-a-box.md says.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from benchmarks.figures import beside_limit
from lightrig.harness.quantities.registry import quantity_of
from lightrig.harness.record import Results

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
PLACES = ("in process", "over SSH")


def run(suites: list[str], testbed: Path, instruments: str, results: Path, env: str = "") -> None:
    """Run the suites; what they found is in `results`."""
    options = ("--testbed", str(testbed), "--instruments", instruments, "--results", str(results))
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *suites, *options, "--samples", _samples(), "--seed", "1"],
        env={**os.environ, "LIGHTRIG_SERVED": env},
        capture_output=True,
        text=True,
        check=False,
    )
    print(ended.stdout.splitlines()[-1] if ended.stdout else ended.stderr, flush=True)


@contextmanager
def served(testbed: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """Serve a testbed: the file that addresses it as hardware, and its login."""
    written = folder / "served.yaml"
    command = [*LIGHTRIG, "serve", str(testbed), "--write", str(written), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                sys.exit("lightrig serve has ended; what it printed is above")
            service = json.loads(line)[0]
            yield written, f"{service['user']}:{service['password']}"
        finally:
            process.terminate()


def outcomes(place: Path) -> dict[str, str]:
    """Return the outcome of each test by its name without the testbed."""
    (facts,) = Results(place).runs()
    return {_name(test.nodeid): test.outcome for test in facts.tests or ()}


def figures(place: Path) -> dict[tuple[str, str], str]:
    """Return median and number of samples of the quantities that a test's line shows."""
    frame = Results(place).frame()
    shown = frame[[quantity_of(n, u).terminal != "hidden" for n, u in _pairs(frame)]]
    return {
        (_name(str(test)), str(name)): _text(float(group.value.median()), str(unit), len(group))
        for (test, name, unit), group in shown.groupby(["test", "quantity", "unit"], sort=False)
    }


def main(suites: list[str] | None = None) -> None:
    """Print both tables."""
    suites = suites or ["suites"]
    testbed = Path(os.environ.get("TESTBED", "testbeds/namespaces.yaml"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = [folder / "in-process", folder / "over-ssh"]
        run(suites, testbed, "simulated", places[0])
        with served(testbed, folder) as (written, login):
            run(suites, written, "hardware", places[1], login)
        ended = [outcomes(place) for place in places]
        measured = [figures(place) for place in places]
    print(f"\n| test | {' | '.join(PLACES)} |\n| --- | --- | --- |")
    tests = list(dict.fromkeys([*ended[0], *ended[1]]))
    for test in tests:
        print(f"| {test} | {' | '.join(each.get(test, 'not run') for each in ended)} |")
    print(f"\n| test | quantity, median (n) | {' | '.join(PLACES)} |\n| --- | --- | --- | --- |")
    for test, quantity in dict.fromkeys([*measured[0], *measured[1]]):
        both = " | ".join(each.get((test, quantity), "-") for each in measured)
        print(f"| {test} | {quantity} | {both} |")
    alike = sum(ended[0].get(test) == ended[1].get(test) for test in tests)
    beside_limit(
        "share of tests that end alike",
        alike / len(tests),
        1,
        spread=f"n {len(tests)}",
        at_least=True,
    )


def _name(nodeid: str) -> str:
    """Return a test's name with its parameters, without file and testbed."""
    name, _, parameters = nodeid.rpartition("::")[2].partition("[")
    left = [each for each in parameters.rstrip("]").split("-") if each not in _TESTBEDS]
    return f"{name}[{'-'.join(left)}]" if left and left != [""] else name


_TESTBEDS = ("namespaces", "served")


def _pairs(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    return zip(map(str, frame.quantity), map(str, frame.unit), strict=True)


def _text(value: float, unit: str, n: int) -> str:
    scale, name = {"ns": (1e6, "ms"), "bit/s": (1e6, "Mbit/s"), "share": (0.01, "%")}.get(
        unit, (1.0, unit)
    )
    return f"{value / scale:.4g} {name}".removesuffix(" 1") + f" ({n})"


def _samples() -> str:
    return os.environ.get("SAMPLES", "20")


if __name__ == "__main__":
    main(sys.argv[1:])
