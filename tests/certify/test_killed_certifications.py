"""A certification over a wire that is killed at any moment: all is given back by the next one."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import preloaded
import pytest
from certify_labs import lab
from unused_ports import unused_ports

from lightrig.harness.bench import bind
from lightrig.testbeds import Circuit, load

NUMBERS = ("1.1", "1.2", "1.3", "3.2", "3.3")
LIMITED = f"""
from lightrig.harness.certify.requirements import requirements
profiles = requirements().profiles
changes = {{"required": {NUMBERS}, "optional": ()}}
profiles["polatis"] = profiles["polatis"].model_copy(update=changes)
"""
CERTIFY = LIMITED + "from lightrig.harness.cli import main; main()"
# Clauses that ask nothing: what a killed run has left is all that there is to do.
GO_ON = f"""{LIMITED}
from lightrig.harness.certify import certification
from lightrig.harness.certify.subject import Outcome
certification.CLAUSES = dict.fromkeys(certification.CLAUSES, lambda *_: Outcome("pass", "none"))
from lightrig.harness.cli import main; main()
"""
LONGEST_S = 12.0
"""About how long the clauses take together."""

LABELS = {3: "rack 4", 12: "spare"}
BLOCKED = 13
MADE = frozenset({Circuit(2, 11), Circuit(6, 14)})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("served")
    source, file = folder / "lab.yaml", folder / "served.yaml"
    source.write_text(lab())
    command = ["lightrig", "serve", source, "--port", unused_ports(8)[0], "--write", file]
    pipe = subprocess.PIPE
    with preloaded.Process([*command, "--json"], stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said, process.communicate()[1]
            ocs = next(each for each in json.loads(said) if each["name"] == "ocs")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("LIGHTRIG_SERVED", f"{ocs['user']}:{ocs['password']}")
                yield file
        finally:
            process.kill()


def state(file: Path) -> tuple[dict[int, str], list[int], frozenset[Circuit]]:
    bench = bind(load(file), "hardware", optional=("server0",))
    try:
        switch: Any = bench.switches["ocs"]
        labels = {port: text for port, text in switch.labels().items() if text}
        passing = switch.shutters(range(1, 21))
        return labels, [port for port in passing if not passing[port]], switch.circuits()
    finally:
        bench.close()


def program(text: str, file: Path, *further: str) -> list[str]:
    options = ("--instruments", "hardware", "--yes", "--out", str(file.parent / "sheets"))
    return [sys.executable, "-c", text, "certify", str(file), "ocs", *options, *further]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_all_is_given_back_after_kills_at_five_random_moments(served: Path, seed: int) -> None:
    bench = bind(load(served), "hardware", optional=("server0",))
    try:
        switch: Any = bench.switches["ocs"]
        for port, text in LABELS.items():
            switch.set_label(port, text)
        switch.set_shutters([BLOCKED], is_open=False)
        switch.change([], MADE - switch.circuits()).done()
    finally:
        bench.close()
    found, draws = (LABELS, [BLOCKED], MADE), random.Random(seed)
    progress = served.parent / "sheets" / "ocs.progress.json"
    for resumes in (True, False, True, True, False):
        process = subprocess.Popen(
            program(CERTIFY, served), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None and not (progress.exists() and progress.stat().st_size):
            time.sleep(0.01)
        assert process.poll() is None, process.communicate()[1]
        time.sleep(draws.uniform(0, LONGEST_S))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # Without --resume too: its own marks are not what it finds.
        further = ("--resume",) if resumes else ()
        done = subprocess.run(
            program(GO_ON, served, *further), capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr
        assert state(served) == found, done.stderr
