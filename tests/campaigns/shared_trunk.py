"""Pairs of links that share one limit, named by loads of datagrams, and none where none is shared.

Six namespaces, three links both ways. In `TRUNK_RUNS` runs (default 20) what two of the six
directions send passes one queue of the rate of a single port (`SharedTrunk`), in as many nothing
is shared. The promise: with it the two are named and nothing else, without it nothing is, in each
run; a run that cannot tell counts for neither, and is shown.
"""

import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.jobs.bench.loads import flows_of, open_datagram_load
from lightrig.harness.jobs.measure.concurrent_load import measure_concurrent_load
from lightrig.harness.jobs.statistics.shared_limits import SharedLimits
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.jobs.core.loads import Flow
from lightrig.testbeds import load

RATE = "20mbit"
PLAN = "pairs"
LAB = """\
name: trunk
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, login: env:OCS_LOGIN, size: 8x8}
servers:
  server[0-5]:
    address: netns://{name}
    nics: {nic0: {netdev: fabric0, ip: "192.0.2.{k}/24", rate: 20M, transceiver: optics}}
transceivers:
  optics: {pmd: 100GBASE-LR4}
fibers:
  - server[0-5].nic0 <-> ocs
plans:
  pairs:
    - server[0,2,4].nic0 <-> server[1,3,5].nic0
simulation:
  switches:
    ocs: {acknowledge: {mean: 15 ms}, dark: {mean: 2 ms}, settle: {mean: 10 ms}}
"""


class SharedTrunk:
    """A queue that passes what some ports send, by tc(8), outside of all servers.

    Their ends in the plant hand it to an ifb device of one token bucket, whose rate is that of a
    single port, and get it back from there: so it is a limit that no server and no file knows.
    """

    def __init__(self, sources: list[str]) -> None:
        self._plant = _plant()
        self._sources = sources

    def __enter__(self) -> Self:
        self._in_plant("ip", "link", "add", "trunk", "type", "ifb")
        self._in_plant("ip", "link", "set", "trunk", "up")
        queue = ("rate", RATE, "burst", "32kb", "limit", "160kb")
        self._in_plant("tc", "qdisc", "add", "dev", "trunk", "root", "tbf", *queue)
        for source in self._sources:
            port = f"p{int(source.partition('.')[0].removeprefix('server'))}"
            self._in_plant("tc", "qdisc", "add", "dev", port, "ingress")
            self._in_plant(
                *("tc", "filter", "add", "dev", port, "parent", "ffff:", "protocol", "all"),
                *("u32", "match", "u32", "0", "0"),
                *("action", "mirred", "egress", "redirect", "dev", "trunk"),
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for source in self._sources:
            port = f"p{int(source.partition('.')[0].removeprefix('server'))}"
            self._in_plant("tc", "qdisc", "del", "dev", port, "ingress")
        self._in_plant("ip", "link", "del", "trunk")

    def _in_plant(self, *command: str) -> None:
        entered = ["nsenter", "--net", "--target", str(self._plant), *command]
        subprocess.run(entered, check=True, capture_output=True)


def _plant() -> int:
    """Return the process below this one in whose network the far ends p0, p1, ... are."""
    below, found = [os.getpid()], []
    for pid in below:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                below += map(int, (task / "children").read_text().split())
        devices = Path(f"/proc/{pid}/net/dev")
        with contextlib.suppress(OSError):
            if " p0:" in devices.read_text():
                found.append(pid)
    return found[0]


@contextlib.contextmanager
def trunk_lab(folder: Path) -> Iterator[tuple[Bench, Fabric]]:
    """The lab with its three links up."""
    file = folder / "trunk.yaml"
    file.write_text(LAB)
    os.environ.setdefault("OCS_LOGIN", "bench:secret")
    bench = bind(load(file), "simulated", 3)
    try:
        fabric, links = Fabric(bench), LinkObservation(bench)
        bring_up(fabric, links, fabric.plans[PLAN])
        links.pause()
        yield bench, fabric
        fabric.restore()
    finally:
        bench.close()


def measured(bench: Bench, fabric: Fabric, recording: Recording) -> SharedLimits[Flow]:
    """Run the links of the lab once, as the suite does."""
    plan = fabric.plans[PLAN]
    with contextlib.closing(open_datagram_load(bench, plan)) as load_:
        return measure_concurrent_load(
            fabric, LinkObservation(bench), recording, load_, plan, "datagrams"
        )


def main() -> int:
    """Run the campaign; returns the exit status."""
    runs, seed = int(os.environ.get("TRUNK_RUNS", "20")), int(os.environ.get("TRUNK_SEED", "1"))
    draw = random.Random(seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, trunk_lab(Path(folder)) as (bench, fabric):
        flows = flows_of(bench.testbed, fabric.plans[PLAN])
        for number in range(2 * runs):
            pair = sorted(draw.sample(flows, 2)) if number % 2 else []
            rows: list[Row] = []
            recording = Recording(rows.extend, undecided=lambda text: print(text, file=sys.stderr))
            trunk = SharedTrunk([str(flow.source) for flow in pair])
            with trunk if pair else contextlib.nullcontext():
                found = measured(bench, fabric, recording)
            named = [sorted(one.flows) for one in found.sets]
            right = named == ([pair] if pair else []) and not found.alike
            kind = "shared" if pair else "not shared"
            outcome = "right" if right and not found.undecided else "cannot tell"
            if not right and not (found.undecided and not named and not found.alike):
                outcome = "wrong"
            outcomes[f"{kind}: {outcome}"] += 1
            print(
                f"{number} {kind} {outcome}: {[list(map(str, one)) for one in named]}", flush=True
            )
    print(dict(outcomes))
    return int(any("wrong" in outcome for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
