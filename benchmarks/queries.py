"""Cost of a query through a session of Lightrig, beside a raw socket and three alternatives.

Every layer asks the same server, in turns of a few hundred questions, so that whatever else the
machine does meets all of them alike; where the system allows it, they come before that. The
server has one processor and whoever asks the other. The limit is 1.3 times the raw socket, with
the trace on. Then how long an instrument that has died goes unnoticed, and at what cost.

LIGHTRIG_PEERS names the Python of another environment for layers that this one lacks.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.query_layers import FAULTS, LAYERS, LONG, SHORT

LIMIT = 1.3
TURNS = 200
_HERE = Path(__file__).parent


class Layer:
    """A process that asks through one layer of software."""

    def __init__(self, python: str, name: str, port: int, processor: int) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, str(_HERE / "query_layers.py"), "ask", name, str(port), str(processor)],
            env={**os.environ, "PYTHONPATH": str(_HERE.parent)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.why_not = self._line() or "did not start"

    def tell(self, *words: object) -> dict[str, Any]:
        """Have it ask; what it found out."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(("ready", "not installed", "{")):
                return line.strip()
        return ""


@contextmanager
def layers() -> Iterator[dict[str, Layer]]:
    """Those that can be had, ready to ask."""
    asking, answering = sorted(os.sched_getaffinity(0))[:2]
    server = subprocess.Popen(
        [sys.executable, str(_HERE / "query_layers.py"), "serve", str(answering)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    port = int(server.stdout.readline())
    found: dict[str, Layer] = {}
    for name in LAYERS:
        for python in filter(None, (sys.executable, os.environ.get("LIGHTRIG_PEERS"))):
            layer = Layer(python, name, port, asking)
            if layer.why_not == "ready":
                found[name] = layer
                break
            layer.close()
        else:
            print(f"  {name} left out: {layer.why_not}")
    yield found
    for layer in found.values():
        layer.close()
    server.communicate()


def cost(found: dict[str, Layer], command: str, count: int) -> None:
    """Print a table of what one question costs in each layer, in `TURNS` turns of `count`."""
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in found}
    for _ in range(TURNS):
        for name, layer in found.items():
            turns[name].append(layer.tell("time", command, count))
    raw = [turn["wall_us"] for turn in turns["raw socket"]]
    print(f"  {'':<20}{'us':>8}{'least':>8}{'CPU us':>8}{'x raw':>8}{'of least':>9}")
    for name, each in turns.items():
        wall = [turn["wall_us"] for turn in each]
        cpu = min(turn["cpu_us"] for turn in each)
        ratio = statistics.median(ours / theirs for ours, theirs in zip(wall, raw, strict=True))
        print(
            f"  {name:<20}{statistics.median(wall):8.1f}{min(wall):8.1f}{cpu:8.1f}"
            f"{ratio:8.2f}{min(wall) / min(raw):9.2f}"
        )


def faults(found: dict[str, Layer]) -> None:
    """Print how long each layer takes to notice that an instrument has died."""
    for fault in FAULTS:
        for name, layer in found.items():
            one = layer.tell("fault", fault)
            print(
                f"  {fault:<9}{name:<12}{one['wall_ms']:9.2f} ms {one['cpu_ms']:9.2f} ms CPU  "
                f"{one['said'][:55]}"
            )


def main() -> None:
    with layers() as found:
        text = {name: layer for name, layer in found.items() if "TL1" not in name}
        print(f"One query; the limit of lightrig is {LIMIT} times the raw socket")
        cost(found, SHORT, 50)
        print("An answer of 100,000 bytes")
        cost(text, LONG, 5)
        print("An instrument that dies; every layer waits 2 s")
        faults({name: layer for name, layer in text.items() if "recorded" not in name})


if __name__ == "__main__":
    main()
