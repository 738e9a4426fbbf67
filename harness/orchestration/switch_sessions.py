"""Sessions with all switches of a fabric, each of its own, so that a dead switch fails alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lightrig.harness.bench import Fabric, bind_only
from lightrig.harness.bench.descriptors import HARDWARE, allow_open_files
from lightrig.harness.bench.lease import LeaseConflictError
from lightrig.harness.measure.light import NO_LIGHT_DBM
from lightrig.harness.orchestration.call_pool import CallPool
from lightrig.harness.orchestration.control import Control
from lightrig.harness.orchestration.wiring import Wiring, wiring_of
from lightrig.instruments.clock import boot_time
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import Circuit, LightrigError, Plan, PlanError, Testbed

ANSWER_TIMEOUT_S = 1.4
"""Longest time for an answer to a probe."""

_STILL_SILENT_S = 0.3
"""Longest time for an answer that the probe before has waited for already, after the last one of
another switch: with a period of 1 s the jobs of a switch that hangs learn it within 3 s."""

PROBED_AT_ONCE = 12
"""An answer takes a millisecond or two, most of it this processor's."""
_NONE_ANSWERS_S = 0.2
"""Time without an answer after which those that wait for their turn are probed nevertheless."""
ORDERED_AT_ONCE = 40
_MOST_OPENED_AT_ONCE = 32
_LONGEST_TURN_S = 30.0
"""How long a session waits for its turn to be opened, behind switches that do not answer."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Answer of a switch to a probe.

    Attributes:
        circuits: on the ports that the testbed cables.
        lit, dark: ingress ports with and without light, of those that the switch monitors.
    """

    circuits: frozenset[Circuit]
    lit: frozenset[int] = frozenset()
    dark: frozenset[int] = frozenset()


Outcomes = Mapping[str, Reading | LightrigError]
"""By switch; the error is of one that did not answer, or took no order."""

_Calls = CallPool["Reading | LightrigError"]


class Switches(Protocol):
    """The switches of a fabric."""

    def probe(self, names: Collection[str]) -> Outcomes:
        """Read switches in parallel; raises nothing, and waits no longer for one than stated.

        A switch is left out whose session is still being opened for the first time.
        """

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        """Bring switches to circuits in parallel, and read them back; raises nothing."""

    def close(self) -> None:
        """Close all sessions; circuits stay as they are."""


class SilentError(LightrigError):
    """A switch has not answered a probe in time."""


class FabricSwitches:
    """The switches of a fabric that is open already, and that its owner closes."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._unmonitored: set[str] = set()

    def probe(self, names: Collection[str]) -> Outcomes:
        """See `Switches`."""
        tasks = (
            partial(_attempt, partial(_read, name, self._fabric, self._unmonitored))
            for name in names
        )
        return dict(zip(names, self._fabric.bench.clock.parallel(*tasks), strict=True))

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        """See `Switches`."""
        return {
            name: _attempt(partial(_apply, name, self._fabric, circuits))
            for name, circuits in wanted.items()
        }

    def close(self) -> None:
        """Leave the fabric open."""


class SimulatedSwitches:
    """Switches in this process, without wires or times: they keep what they are told.

    An order with a port twice, or one that is not cabled, is refused.
    """

    def __init__(self, fabric: Testbed | Wiring) -> None:
        self._wiring = wiring_of(fabric)
        self._present = dict.fromkeys(self._wiring.switches, Reading(frozenset()))
        self._checked: set[tuple[frozenset[int], frozenset[Circuit]]] = set()

    def probe(self, names: Collection[str]) -> Outcomes:
        """See `Switches`."""
        return {name: self._present[name] for name in names}

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        """See `Switches`."""
        return {name: _attempt(partial(self._order, name, each)) for name, each in wanted.items()}

    def close(self) -> None:
        """See `Switches`."""

    def _order(self, name: str, circuits: frozenset[Circuit]) -> Reading:
        ports = self._wiring.ingress(name)
        known = ports, circuits
        if known not in self._checked:
            into = {circuit.ingress for circuit in circuits}
            out = {circuit.egress for circuit in circuits}
            if not (len(into) == len(out) == len(circuits)):
                raise PlanError(f"{name}: a port is in two circuits")
            if strange := into - ports:
                raise PlanError(f"{name}: no fiber leads to ingress port {min(strange)}")
            self._checked.add(known)
        self._present[name] = Reading(circuits)
        return self._present[name]


class SwitchSessions:
    """Switches of a testbed on hardware, over wires that are opened when they are needed.

    control: by which this process leads, checked before each change of a switch; None: alone.

    Raises `OpenFilesLimitError`.
    """

    def __init__(self, fabric: Testbed | Wiring, control: Control | None = None) -> None:
        self._control = control
        self._wiring = wiring_of(fabric)
        self._fabrics: dict[str, Fabric] = {}
        self._locks = {name: threading.Lock() for name in self._wiring.switches}
        allow_open_files(len(self._locks), "the service's switches", HARDWARE)
        self._running: dict[str, Future[Reading | LightrigError]] = {}
        self._unmonitored: set[str] = set()
        # A thousand sessions that are opened at once hold up one another until all are late.
        self._turns = threading.BoundedSemaphore(_MOST_OPENED_AT_ONCE)
        self._tried: set[str] = set()
        self._answered = boot_time()
        # Apart, so that no order waits behind probes of switches that hang.
        count = len(self._locks)
        self._probes = _Calls(max(min(count, PROBED_AT_ONCE), 1), _NONE_ANSWERS_S, "probe")
        self._orders = _Calls(max(min(count, ORDERED_AT_ONCE), 1), ANSWER_TIMEOUT_S, "order")

    def probe(self, names: Collection[str]) -> Outcomes:
        """See `Switches`; a switch that is silent still is not asked a second time meanwhile.

        Two thousand switches take longer to ask than one to answer: a switch is silent that has not
        answered within `ANSWER_TIMEOUT_S`, nor within half of that after the last one that has.
        """
        read = partial(_read, unmonitored=self._unmonitored)
        self._answered = boot_time()
        late = {self._running[name] for name in names if name in self._running}
        for name in names:
            if name not in self._running:
                self._running[name] = self._probes.submit(partial(self._attempt, name, read))
        pending = {self._running[name] for name in names}
        began, allowed = self._answered, round(ANSWER_TIMEOUT_S * 1e9)
        again = round(_STILL_SILENT_S * 1e9)
        while pending:
            if pending <= late:
                left = self._answered + again - boot_time()
            else:
                left = max(began + allowed, self._answered + allowed // 2) - boot_time()
            if left <= 0:
                break
            pending = self._probes.wait(pending, left / 1e9, first=bool(late & pending))
        found: dict[str, Reading | LightrigError] = {}
        for name in names:
            if self._running[name].done():
                found[name] = self._running.pop(name).result()
            elif name in self._tried:
                found[name] = SilentError(f"{name} did not answer within {ANSWER_TIMEOUT_S:g} s")
        return found

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        """See `Switches`; a change of circuits may take as long as the answer to a probe."""
        tasks = {
            name: self._orders.submit(partial(self._attempt, name, partial(_apply, circuits=each)))
            for name, each in wanted.items()
        }
        self._orders.wait(tasks.values())
        return {name: task.result() for name, task in tasks.items()}

    def open(self, names: Collection[str]) -> None:
        """Open sessions now; one that does not answer is left to a later probe.

        Raises `LeaseConflictError`, and then has none of them open.
        """
        read = partial(_read, unmonitored=self._unmonitored)
        tasks = [self._probes.submit(partial(self._attempt, name, read)) for name in names]
        self._probes.wait(tasks)
        for outcome in [task.result() for task in tasks]:
            if isinstance(outcome, LeaseConflictError):
                for name in names:
                    self._drop(name)
                raise outcome

    def close(self) -> None:
        """See `Switches`; the answer of a switch that is silent is not waited for."""
        for name, probe in list(self._running.items()):
            if not probe.done():
                self._drop(name)
        self._probes.close()
        self._orders.close()
        for name in list(self._fabrics):
            self._drop(name)

    def _attempt(
        self, name: str, action: Callable[[str, Fabric], Reading]
    ) -> Reading | LightrigError:
        with self._locks[name]:
            try:
                if name not in self._fabrics:
                    with self._turn(name):
                        testbed = self._wiring.testbed_of(name)
                        bench = bind_only(testbed, {name}, "lightrig orchestrate", self._control)
                    self._fabrics[name] = Fabric(bench)
                self._tried.add(name)
                found = action(name, self._fabrics[name])
                self._answered = boot_time()
                return found
            except LightrigError as error:
                self._tried.add(name)
                self._drop(name)
                return error

    @contextlib.contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        """Wait until few others are being opened, the first time: a silent one is tried again."""
        taken = name not in self._tried and self._turns.acquire(timeout=_LONGEST_TURN_S)
        try:
            yield
        finally:
            if taken:
                self._turns.release()

    def _drop(self, name: str) -> None:
        fabric = self._fabrics.pop(name, None)
        if fabric is not None:
            with contextlib.suppress(LightrigError):
                fabric.bench.close()


def _attempt(action: Callable[[], Reading]) -> Reading | LightrigError:
    try:
        return action()
    except LightrigError as error:
        return error


def _read(name: str, fabric: Fabric, unmonitored: set[str]) -> Reading:
    """Read a switch; `unmonitored` keeps what it has denied, so that this is asked once."""
    switch = fabric.bench.switches[name]
    ingress, egress = fabric.testbed.cabling.cabled_ports(name)
    ours = frozenset(c for c in switch.circuits() if c.ingress in ingress and c.egress in egress)
    if not isinstance(switch, PowerMonitor):
        return Reading(ours)
    # Many switches have monitors at their egress ports alone: these show light through circuits.
    by_egress = {circuit.egress: circuit.ingress for circuit in ours}
    for side, ports in (("ingress", {port: port for port in ingress}), ("egress", by_egress)):
        if ports and f"{name} {side}" not in unmonitored:
            try:
                dbm = switch.power(sorted(ports)).dbm
            except DeniedError:
                unmonitored.add(f"{name} {side}")
                continue
            lit = frozenset(ports[port] for port in dbm if dbm[port] >= NO_LIGHT_DBM)
            return Reading(ours, lit, frozenset(ports.values()) - lit)
    return Reading(ours)


def _apply(name: str, fabric: Fabric, circuits: frozenset[Circuit]) -> Reading:
    fabric.apply(Plan(f"order to {name}", {name: circuits}))
    return Reading(circuits)
