"""An open testbed from its opening to its end: the one place that restores and closes it.

The plugin's fixtures, commands and `lightrig.api.open_lab` use it, so that a lab is left alike by
all of them.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.fabric import Fabric
from lightrig.harness.bench.leftovers import by_hand_notes
from lightrig.harness.bench.light_reach import on_path
from lightrig.harness.bench.restore_order import SavedBench, restore_steps
from lightrig.harness.bench.restoring import Notify, NotRestoredError, RestoreCutError, ignore
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.harness.signals import uninterrupted
from lightrig.instruments.core.capabilities import Restorable
from lightrig.testbeds import LightrigError, Port, Testbed


def instruments_of(testbed: Testbed, kind: str) -> list[str]:
    """Return the names of a testbed's instruments of one kind, in the file's order."""
    return [name for name, spec in testbed.instruments.items() if spec.kind == kind]


def physical_ports(testbed: Testbed) -> list[Port]:
    """Return the NIC ports of servers that are computers, without those that are out of service.

    A namespace's links are the kernel's.
    """
    return [
        spec.port
        for spec in testbed.working_ports
        if not testbed.servers[spec.port.owner].is_namespace
    ]


class OpenBench:
    """A bench, what it was found with, and its fabric.

    Args:
        bench: the open instruments. `close` closes them.

    Attributes:
        settings: what the instruments were found with, once `save_settings` was called.
        fabric: the switches, and what they were found with, once that was saved.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.settings = SavedInstruments(bench)
        self.fabric = Fabric(bench)
        self._unsaved: frozenset[str] = frozenset()

    def save_settings(self) -> list[str]:
        """Save what the instruments are set to; return what a person has set by hand.

        Raises what `InitialStates.save_initial_state` does.
        """
        self.settings.save_initial_state()
        return [] if self.bench.in_process else by_hand_notes(self.bench.testbed)

    def save_shutters(self) -> None:
        """Save the shutters of switches too, which are about to be set.

        Raises what `InitialStates.save_initial_state` does.
        """
        self.settings = SavedInstruments(self.bench, shutters=True)
        self.settings.save_initial_state()

    def saved_fabric(self) -> Fabric:
        """Return the fabric, with the circuits saved of switches that outlive this process.

        Raises what `InitialStates.save_initial_state` does.
        """
        if not self.bench.in_process and not self.fabric.states:
            try:
                self.fabric.save_initial_state()
            except LightrigError:
                self._unsaved = frozenset(self.bench.switches)
                raise
        return self.fabric

    def restore(self, notify: Notify = ignore) -> list[LightrigError]:
        """Restore what was found, uninterrupted; return why something is not as found.

        In the order of `restore_steps`: light is switched on or raised last, and only where the
        switches on its path are as they were found. An error of one step keeps no later one from
        being tried.
        """
        problems: list[LightrigError] = []
        changed = self._unsaved

        def attempt(step: Callable[[], None]) -> LightrigError | None:
            problem = restored_or_why(self.bench.testbed, step)
            problems.extend([] if problem is None else [problem])
            return problem

        def obstacles(name: str) -> list[str]:
            return on_path(self.bench.testbed, name, self.bench.switches, changed)

        with uninterrupted():
            saved = SavedBench(self.settings, self.fabric)
            for step in restore_steps(obstacles, moving=bool(self.fabric.states), notify=notify):
                problem = attempt(partial(step.carry_out, saved))
                if problem is not None and step.kind == "fabric":
                    failed = problem.failures if isinstance(problem, NotRestoredError) else None
                    changed |= frozenset(self.bench.switches if failed is None else failed)
        return problems

    def close(self) -> None:
        """Close all sessions and free the lease; nothing is restored."""
        with uninterrupted():
            self.bench.close()


def restored_or_why(testbed: Testbed, restore: Callable[[], None]) -> LightrigError | None:
    """Restore uninterrupted; return what was not restored.

    `RestoreCutError` where the end of restoring was not reached: by a time limit's exception, which
    is no `Exception`, or a fault of this program.
    """
    with uninterrupted():
        try:
            restore()
        except LightrigError as error:
            return error
        except BaseException as error:
            return RestoreCutError(testbed.path, error)
    return None


@contextlib.contextmanager
def put_back(bench: Bench, name: str) -> Iterator[Any]:
    """Give an instrument of the bench; what is set meanwhile is put back at the end."""
    instrument = bench.instruments[name]
    if not isinstance(instrument, Restorable):
        yield instrument
        return
    restore = instrument.snapshot(range(1, bench.testbed.instruments[name].channels + 1))
    try:
        yield instrument
    finally:
        with uninterrupted():
            restore()
