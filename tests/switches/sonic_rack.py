"""A rack with one simulated SONiC switch, bound or as a testbed file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lightrig.harness.bench import Bench, bind
from lightrig.testbeds import load

N = 24
"""Ports on each side."""


def rack(folder: Path, options: str = "", scheme: str = "gnmi") -> Path:
    path = folder / "rack.yaml"
    path.write_text(
        f'name: rack\nswitches: {{ocs: {{model: sonic-ocs, address: "{scheme}://ocs.invalid", '
        f"size: {N}x{N}, options: {{{options}}}}}}}\n"
    )
    return path


@contextlib.contextmanager
def bench(folder: Path, options: str = "") -> Iterator[Bench]:
    bound = bind(load(rack(folder, options)), "simulated", seed=4)
    try:
        yield bound
    finally:
        bound.close()
