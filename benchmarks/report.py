"""The report of 5,000 tests with 20 log lines each and 50 plots, beside pytest-html's own.

Limits: 10 MB, built in 1.5 times the bare run of pytest, ready in Chromium within 2 s. The
plots are drawn from rows in our report; pytest-html alone gets them finished. The variants take
turns; the ratio to the bare run is taken round by round, since other work on the machine meets the
runs of one round alike, and its median counts. `python -m benchmarks.report 3` makes three rounds.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.figures import beside_limit
from lightrig.harness.report.figures import Distribution, distribution_plot

TESTS, LINES, PLOTS = 5_000, 20, 50
ROUNDS = 5
MOST_BYTES, MOST_TIMES, MOST_SECONDS = 10_000_000, 1.5, 2.0

SUITE = f"""
import logging, os, pathlib, types
import pytest

log = logging.getLogger("bench")

@pytest.mark.parametrize("number", range({TESTS}))
def test_many(number, request):
    for line in range({LINES}):
        log.info("event %d: circuit %d of test %d is up after %.3f ms",
                 line, line * 7 % 16, number, 41 + number * 13 % 997 / 1000)
    if number % {TESTS // PLOTS} == 0:
        plot(request, number)

def plot(request, number):
    if os.environ["PLOTS"] == "rows":
        from lightrig.harness.plugin.keys import RUN
        from lightrig.harness.record import Row
        bench = types.SimpleNamespace(
            testbed=types.SimpleNamespace(name="small"), participants=lambda: ("ocs: a switch",),
            simulated=True, clock=types.SimpleNamespace(virtual=True))
        record = request.config.stash[RUN].recorder(bench, request.node.nodeid, {{}})
        middle = 41_000_000 + 1000 * number
        record([Row("ocs", f"plot.q{{number:04}}", middle + d, middle + d - 5000, middle + d + 5000,
                    "ns", d, {{"event": d}}) for d in (k * k * 37 % 900_000 for k in range(300))])
    elif os.environ["PLOTS"] == "finished":
        from pytest_html import extras
        drawn = pathlib.Path(__file__).with_name("plot.svg").read_text()
        request.getfixturevalue("extras").append(extras.html(drawn))
"""
TESTBED = """\
name: small
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {ports: 2, netdev: "ens{p}", rate: 100G, transceiver: lr4}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_many.py").write_text(SUITE)
        (folder / "pytest.ini").write_text("[pytest]\nlog_level = INFO\n")
        (folder / "small.yaml").write_text(TESTBED)
        (folder / "plot.svg").write_text(_plot())
        html = folder / "theirs.html"
        variants: dict[str, tuple[str, list[str]]] = {
            "bare": ("none", ["-p", "no:html", "-p", "no:metadata"]),
            "pytest-html": ("finished", [f"--html={html}", "--self-contained-html"]),
            "lightrig": (
                "rows",
                ["--testbed=small.yaml", "--instruments=simulated", "--results=results"],
            ),
        }
        wall: dict[str, list[float]] = {variant: [] for variant in variants}
        cpu: dict[str, list[float]] = {variant: [] for variant in variants}
        rounds = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else ROUNDS
        for _ in range(rounds):
            for variant, (plots, options) in variants.items():
                seconds, used = _run(folder, plots, options)
                wall[variant].append(seconds)
                cpu[variant].append(used)
        ours = sorted((folder / "results" / "runs").glob("*/report.html"))[-1]
        pages = {"pytest-html": html, "lightrig": ours}
        beside_limit("the page of a run", ours.stat().st_size / 1e6, MOST_BYTES / 1e6, "MB")
        by_processor = [a / b for a, b in zip(cpu["lightrig"], cpu["bare"], strict=True)]
        for what, each in (("wall", wall), ("processor", cpu)):
            ratios = [
                ours / bare for ours, bare in zip(each["lightrig"], each["bare"], strict=True)
            ]
            beside_limit(
                f"of the bare run's time ({what})",
                statistics.median(ratios),
                MOST_TIMES,
                spread=f"{min(ratios):.2f} to {max(ratios):.2f}, n {rounds}",
                processor=statistics.median(by_processor),
            )
        ready = _ready(pages)
        for variant in variants:
            page = pages.get(variant)
            size = f"{page.stat().st_size / 1e6:.2f} MB" if page else "no page"
            opened = f"ready in {ready[variant]:.2f} s" if variant in ready else ""
            print(
                f"{variant:<12} {min(wall[variant]):.2f} s of wall, {min(cpu[variant]):.2f} s CPU "
                f"(least of {rounds}), {size}, {opened}"
            )
        if "lightrig" in ready:
            beside_limit("ready in Chromium", ready["lightrig"], MOST_SECONDS, "s")


def _run(folder: Path, plots: str, options: list[str]) -> tuple[float, float]:
    """Seconds of wall and of processor that one run takes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    # As with `make`, Python may keep what it has compiled: that is no cost of a run.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PLOTS"] = plots
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _plot() -> str:
    values = np.arange(300.0) ** 2 * 37 % 900_000 + 41e6
    return distribution_plot([Distribution(0, values - 5000, values + 5000)], None, "a plot")


def _ready(pages: dict[str, Path]) -> dict[str, float]:
    """Seconds from asking for each page until it has drawn its tests; median of three."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        print("no chromium on this machine: nothing is opened")
        return {}
    seen = (
        "document.documentElement.dataset.ready || document.querySelector('#results-table tbody')"
    )
    drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    found = {}
    with sync_playwright() as playwright:
        arguments = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        for variant, path in pages.items():
            times = []
            for _ in range(3):
                page = browser.new_page()
                start = time.perf_counter()
                page.goto(path.resolve().as_uri())
                page.wait_for_function(f"!!({seen})", timeout=60_000)
                page.evaluate(drawn)
                times.append(time.perf_counter() - start)
                page.close()
            found[variant] = statistics.median(times)
        browser.close()
    return found


if __name__ == "__main__":
    main()
