"""The labs of the campaign of kills: shipped testbeds, served by one long-lived process.

    python -m tests.campaigns.suite_kills_lab FOLDER NAME ...

Questions and answers are lines of JSON: ["draw", lab, seed] makes random circuits where a switch
takes any, and sets random attenuations (["draw", lab, seed, true]: between cabled ports and between
others, but not from one of these to the other, which no run moves); ["circuits", lab] and
["truth", lab] answer what is there.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightrig.harness.bench import bind_only
from lightrig.harness.cli.served_lab import ServedLab
from lightrig.instruments.core.capabilities import HasSettings
from lightrig.testbeds import Circuit, Testbed, load
from lightrig.testbeds.readdressing import readdressed

ROOT = Path(__file__).parents[2]
LOGIN = "LIGHTRIG_SERVED"
MATRIX_SWITCHES = ("polatis",)
"""Models that take any circuit; positions of the others are left as they start."""

_FAST = {"bring_up": "{mean: 50 ms, sd: 5 ms}", "resume": "{mean: 5 ms, sd: 1 ms}"}
"""Links come up fast, so that two seconds of real time reach every part of a test."""


class Served:
    """One testbed, served in real time."""

    def __init__(self, name: str, folder: Path, login: tuple[str, str]) -> None:
        shutil.copytree(ROOT / "testbeds", folder / "testbeds")
        file = folder / "testbeds" / f"{name}.yaml"
        text = file.read_text()
        for key, value in _FAST.items():
            text = re.sub(rf"\b{key}:(\s*)\{{[^{{}}]*\}}", rf"{key}:\1{value}", text)
        file.write_text(text)
        testbed = load(file)
        parts = [*testbed.optical_switches, *testbed.instruments, *testbed.servers]
        self._lab = ServedLab(testbed, 1, 0, dict.fromkeys(parts, login))
        self._matrices = self._lab.world.matrices
        known = folder / "known_hosts"
        services = self._lab.services.values()
        known.write_text("".join(f"{s.known_hosts}\n" for s in services if s.known_hosts))
        addresses = {part: service.address for part, service in self._lab.services.items()}
        target = folder / "served.yaml"
        target.write_text(
            readdressed(file, addresses, login=f"env:{LOGIN}", known_hosts=known, target=target)
        )
        self._testbed: Testbed = load(target)
        self._state = folder / "state of the observer"

    def draw(self, seed: int, apart: bool = False) -> dict[str, Any]:
        """Make random circuits and attenuations; return the truth."""
        dice = random.Random(f"draw {seed}")
        for name, spec in self._testbed.optical_switches.items():
            if spec.model not in MATRIX_SWITCHES or dice.random() < 0.2:
                continue
            matrix = self._matrices[name]
            matrix.disconnect(list(matrix.egress_of))
            most = min(len(spec.ingress_ports), len(spec.egress_ports))
            several = dice.randint(0, most)
            ingress = dice.sample(list(spec.ingress_ports), several)
            egress = dice.sample(list(spec.egress_ports), several)
            drawn = list(map(Circuit, ingress, egress))
            if apart:
                ours, theirs = self._testbed.cabling.cabled_ports(name)
                drawn = [c for c in drawn if (c.ingress in ours) == (c.egress in theirs)]
            matrix.connect(drawn)
        with self._instruments("attenuator") as instruments:
            for instrument in instruments.values():
                instrument.set_attenuation(1, float(dice.randint(0, 12)))
        return self.truth()

    def circuits(self) -> dict[str, list[list[int]]]:
        """Return the circuits of all switches, from the ground truth."""
        return {
            name: sorted([int(i), int(e)] for i, e in matrix.egress_of.items())
            for name, matrix in self._matrices.items()
        }

    def truth(self) -> dict[str, Any]:
        """Return circuits and, over the wire, all settings that runs restore."""
        with self._instruments() as instruments:
            settings = {
                name: dict(
                    each.read_settings(range(1, self._testbed.instruments[name].channels + 1))
                )
                for name, each in instruments.items()
                if isinstance(each, HasSettings)
            }
        return {"circuits": self.circuits(), "settings": settings}

    @contextmanager
    def _instruments(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        kinds = self._testbed.instruments
        names = {name for name, spec in kinds.items() if kind in (None, spec.kind)}
        if not names:
            yield {}
            return
        os.environ["LIGHTRIG_STATE"] = str(self._state)
        bench = bind_only(self._testbed, names, "a comparison")
        try:
            yield dict(bench.instruments)
        finally:
            bench.close()

    def close(self) -> None:
        """End the services."""
        self._lab.close()


@contextmanager
def served(folder: Path, names: list[str]) -> Iterator[tuple[Callable[..., Any], str]]:
    """Serve testbeds by a process of their own; yields the way to ask it, and the login."""
    login = "bench:campaign"
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder), *names],
        cwd=ROOT,
        env={**os.environ, LOGIN: login},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(*question: object) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the served lab has ended at {question}")
        return json.loads(line)

    try:
        ask("ready")
        yield ask, login
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def main() -> None:
    """Serve until the input ends."""
    root, names = Path(sys.argv[1]), sys.argv[2:]
    user, _, password = os.environ[LOGIN].partition(":")
    labs = {}
    for name in names:
        (root / name).mkdir()
        labs[name] = Served(name, root / name, (user, password))
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        if what == "ready":
            answer: Any = True
        else:
            lab = labs[arguments[0]]
            answer = {"draw": lab.draw, "truth": lab.truth, "circuits": lab.circuits}[what](
                *arguments[1:]
            )
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for lab in labs.values():
        lab.close()


if __name__ == "__main__":
    main()
