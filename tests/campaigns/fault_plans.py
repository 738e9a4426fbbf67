"""Random fault plans against changes of plan: every fault ends in a typed error, or in nothing.

Of `FAULT_PLANS` (default 500) labs, each simulated with a seed of its own, plans are applied
twelve times while one to three faults come and go: of the wire (late, silent, cut, garbled,
repeated, ...), a switch that restarts and forgets its circuits, a person who makes a circuit by
hand. Judged against the ground truth: a change that was reported as made and was not is a wrong
verdict; circuits that are not as found at the end, without the run saying so, are a lab left
changed. The faults end then, and a second restore must succeed. Time is virtual; a plan that takes
more than `LIMIT_S` of real time is a hang. Every plan is a line of the campaign's file
(`tests.campaigns.records`), behind which a campaign that was ended goes on.
"""

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightrig.harness.bench import Bench, Fabric, bind, simulation
from lightrig.harness.bench.restoring import NotRestoredError
from lightrig.harness.bench.saved_state import SavedStates
from lightrig.instruments.simulated.faults.wire_faults import WIRE_FAULTS, FaultInjector
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.wire.netconf import NetconfSession
from lightrig.testbeds import Circuit, LightrigError, Plan, load
from tests.campaigns.records import faults_by_outcome, log, reported, total_of

LAB = """
name: lab
switches:
  ocs: {model: polatis, address: "WIRE://ocs.invalid", login: env:X, size: 8x8}
servers:
  server[0-3]:
    address: ssh://{name}.invalid
    nics: {nic0: {netdev: e0, rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers:
  - server[0-3].nic0 <-> ocs
"""
WIRES = ("tl1", "scpi", "netconf", "restconf")
RESTART, BY_HAND = "switch restarts", "circuit by hand"
KINDS = (*(kind for kind in WIRE_FAULTS if kind != "none"), RESTART, BY_HAND)
CHANGES = 12
LIMIT_S = 120
HELLO_S = 0.5
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Event:
    """A fault that begins so many ns into the run, and lasts so long."""

    kind: str
    after: int
    lasting: int


class Lab:
    """A simulated switch with faults."""

    def __init__(self, folder: Path, wire: str, seed: int) -> None:
        path = folder / f"{wire}.yaml"
        path.write_text(LAB.replace("WIRE", wire))
        made: dict[str, Any] = {}

        def world(testbed: Any, clock: Any, *rest: Any) -> SimulatedLab:
            made["faults"] = FaultInjector(clock)
            made["world"] = SimulatedLab(testbed, clock, *rest, wire_faults=made["faults"])
            return made["world"]

        # The hello of NETCONF is awaited in real time: many attempts would look like a hang.
        NetconfSession.usual_connect = HELLO_S
        original, simulation.SimulatedLab = simulation.SimulatedLab, world  # type: ignore[assignment, misc]
        try:
            self.bench: Bench = bind(load(path), "simulated", seed)
        finally:
            simulation.SimulatedLab = original  # type: ignore[misc]
        self.faults: FaultInjector = made["faults"]
        self.matrix = made["world"].matrices["ocs"]

    @property
    def circuits(self) -> frozenset[Circuit]:
        """The circuits that there are."""
        return frozenset(Circuit(*pair) for pair in self.matrix.egress_of.items())

    def schedule(self, event: Event, dice: random.Random) -> None:
        """Plan a fault."""
        clock = self.bench.clock
        clock.schedule(clock.now() + event.after, "fault", lambda: self._begin(event, dice))

    def _begin(self, event: Event, dice: random.Random) -> None:
        clock = self.bench.clock
        if event.kind == BY_HAND:
            self.matrix.connect([Circuit(dice.randint(1, 4), dice.randint(9, 12))])
            return
        if event.kind == RESTART:
            self.matrix.disconnect(list(self.matrix.egress_of))
        self.faults.fault = "resets" if event.kind == RESTART else event.kind  # type: ignore[assignment]
        clock.schedule(clock.now() + event.lasting, "fault", self.faults.stop)


def drawn(dice: random.Random) -> list[Event]:
    """Draw one to three faults."""
    return [
        Event(
            dice.choice(KINDS),
            int(dice.uniform(0, 3) * SECOND),
            int(dice.choice([0.1, 1.0, 10.0, 60.0, 600.0]) * SECOND),
        )
        for _ in range(dice.choice([1, 1, 1, 2, 3]))
    ]


def matching(dice: random.Random) -> frozenset[Circuit]:
    """Draw circuits between the lab's own ports."""
    ingress, egress = dice.sample(range(1, 5), dice.randint(1, 4)), dice.sample(range(9, 13), 4)
    return frozenset(map(Circuit, ingress, egress))


def play(folder: Path, number: int) -> tuple[list[Event], Counter[str]]:
    """Play one fault plan; returns its faults and what has happened."""
    dice = random.Random(number)
    events = drawn(dice)
    found: Counter[str] = Counter()
    lab = Lab(folder, WIRES[number % len(WIRES)], number)
    began = time.monotonic()
    try:
        initial = matching(dice)
        lab.matrix.connect(initial)
        lab.bench.clock.sleep(SECOND)
        states = SavedStates(folder / str(number))
        fabric = Fabric(lab.bench, states)
        fabric.save_initial_state()
        for event in events:
            lab.schedule(event, dice)
        for _ in range(CHANGES):
            wanted = matching(dice)
            try:
                fabric.apply(Plan("drawn", {"ocs": wanted}))
                found["applied"] += 1
                intruded = any(event.kind in {BY_HAND, RESTART} for event in events)
                found["WRONG VERDICT"] += lab.circuits != wanted and not intruded
            except LightrigError:
                found["typed errors"] += 1
            lab.bench.clock.sleep(int(dice.uniform(0, 0.5) * SECOND))
        try:
            fabric.restore(keep_trying=120 * SECOND)
            found["restored at once"] += 1
            found["LEFT CHANGED"] += lab.circuits != initial
        except NotRestoredError:
            found["said NOT as found"] += 1
            found["LEFT CHANGED"] += not states.read_all()[0]
            lab.bench.clock.sleep(700 * SECOND)
            lab.faults.stop()
            fabric.restore(force=True, keep_trying=300 * SECOND)
            found["restored later"] += 1
            found["LEFT CHANGED"] += lab.circuits != initial
    finally:
        lab.bench.close()
    found["HANG"] += time.monotonic() - began > LIMIT_S
    return events, found


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of fault by outcome, and whether all plans ended well."""
    broken = sorted(name for name, n in total_of(done).items() if n and name.split()[0].isupper())
    # In capitals only in part: it is what a run under faults has to say.
    outcomes = ("applied", "typed errors", "restored at once", "said NOT as found")
    printed = faults_by_outcome(done, "plans", (*outcomes, "restored later"), broken)
    return printed, not broken


def main(report: Callable[[str], object] = print) -> bool:
    """Play all plans and print a table of fault by outcome; returns whether all ended well."""
    count = int(os.environ.get("FAULT_PLANS", "500"))
    with (
        tempfile.TemporaryDirectory(prefix="lightrig-faults-") as folder,
        log("fault_plans") as lines,
    ):
        for number in range(len(lines.done), count):
            try:
                events, found = play(Path(folder), number)
            except Exception as error:
                found, events = Counter({f"UNTYPED {type(error).__name__}: {error}": 1}), []
                report(f"plan {number}: {type(error).__name__}: {error}")
            faults = sorted({event.kind for event in events})
            lines.add({"number": number, "faults": faults, "found": found})
        return reported(*table(lines.done), report)
