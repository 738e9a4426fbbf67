"""A testbed that is open in a notebook or a script.

Its attributes are the fixtures of tests by name, so that the lines of a test and of a cell are the
same. What was found is restored when it is closed, when the interpreter ends, and after a time
without a call.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, SupportsFloat

from markupsafe import Markup

from lightrig.harness.bench import bind
from lightrig.harness.bench.named_values import owner_of
from lightrig.harness.bench.nic_settings import NIC_SETTINGS
from lightrig.harness.bench.opened_bench import (
    OpenBench,
    instruments_of,
    physical_ports,
    put_back,
)
from lightrig.harness.bench.varied_settings import (
    fixed_setting,
    set_meanwhile,
    varied_setting,
)
from lightrig.harness.measure.bound import NAMES, bound, parts_of
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.port_counters import PortCounters
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.sampling import Events
from lightrig.harness.measure.setting_trials import (
    MOST_BLOCKS,
    CalledFunction,
    TrialResult,
    measure_trial,
    subject_of,
)
from lightrig.harness.modes import SAMPLES, Mode
from lightrig.harness.notebook.guard import Guard
from lightrig.harness.notebook.matrix import CircuitMatrix
from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.recorded_test import RecordedTest, opening_notes
from lightrig.harness.run import ObservedRun
from lightrig.harness.signals import uninterrupted
from lightrig.harness.statistics.trials import Scale
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.instruments.clock import wall_time
from lightrig.instruments.core.capabilities import ModuleTelemetry
from lightrig.testbeds import LightrigError, Limit, Testbed, load, plan_pairs
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.out_of_service import with_exceptions
from lightrig.testbeds.quantities import QuantityError, format_duration, parse_duration

TEST = "by hand"
"""Name of the test in the rows of a notebook."""

KINDS = (
    "power_meter",
    "light_source",
    "attenuator",
    "bit_error_tester",
    "oscilloscope",
    "polarization_controller",
    "climate_chamber",
)
"""Kinds of instruments that are named by their kind: the first of the testbed file."""

_TIME = "%H:%M:%S UTC"
_open: dict[Path, Lab] = {}
"""The labs that this process has open, by the testbed's file."""


class LabClosedError(LightrigError):
    """Raised by calls into a lab that was closed."""


class LabOpenError(LightrigError):
    """Raised where this process has the same testbed file open, in another way."""


class FileChangedWarning(UserWarning):
    """The testbed file has changed since the lab was opened."""


def open_lab(
    file: str | Path,
    instruments: Mode = "hardware",
    *,
    seed: int = 0,
    idle: str | None = "30 min",
    results: str | Path = "results",
    notify: Callable[[str], None] = print,
) -> Lab:
    """Open the testbed of a file; all of its instruments are connected, identified and leased.

    A second call for the same file, as when a cell is run again, returns the lab that is open.

    Args:
        file: the testbed file.
        instruments: "hardware" requires all of them to answer, "simulated" contacts none and has a
            virtual clock, "auto" simulates optical domains that do not answer in full.
        seed: of a simulated world.
        idle: after this time without a call the lab is restored and its instruments are free for
            others; None for never.
        results: folder of runs. What is measured is a run there, by hand: it belongs to no night,
            is in no trend, card or metric, and `last` does not name it.
        notify: takes sentences for the person.

    Raises:
        LabUnavailableError: an instrument did not answer as described.
        LeaseConflictError: another process uses an instrument; names who, since when, what for.
        LabOpenError: this process has it open with other arguments, or the file has changed since.
        StateConflictError: an instrument is not as a killed run left it.
        TestbedError, ExceptionsError, OSError: the file, or that of its exceptions, is wrong or
            cannot be read.
        QuantityError: `idle` is no time.
        RecordError: the folder of runs cannot be written.
    """
    path = Path(file).resolve()
    asked = (instruments, seed, idle, str(results))
    if (present := _open.get(path)) is not None:
        present.check_same(asked)
        notify(f"{path.name} is open in this process since {present.since}: this is that lab")
        return present
    idle_ns = None if idle is None else parse_duration(idle)
    if idle_ns is not None and idle_ns <= 0:
        raise QuantityError(f"idle: found {idle!r}, expected a time above 0, e.g. '30 min'")
    testbed = with_exceptions(load(file, quantities=names_in_files()))
    lab = Lab(testbed, asked, idle_ns, notify)
    _open[path] = lab
    return lab


class Lab:
    """An open testbed; see `open_lab`.

    Attributes by name are the fixtures of tests: `bench`, `fabric`, `switches`, `servers`, `links`,
    `nic_ports`, `modules`, `testbed`, `measure`; `samples` and `events` of a test that judges no
    limit; `plan` and `transition`, the first of the testbed file; an instrument by its kind, such
    as `power_meter`; and all measurements, such as `measure_reconfiguration`. `events` can be gone
    through again and again.

    Attributes:
        since: when it was opened.
    """

    def __init__(
        self,
        testbed: Testbed,
        asked: tuple[Mode, int, str | None, str],
        idle: int | None,
        notify: Callable[[str], None],
    ) -> None:
        mode, seed, _, results = asked
        self._asked = asked
        self._notify = notify
        self._closed = ""
        self._unrestored = ""
        self._process = os.getpid()
        self._ending = threading.RLock()
        self._over = threading.Event()
        self._names: dict[str, Any] = {}
        self._borrowed = contextlib.ExitStack()
        self._recorded: RecordedTest | None = None
        self._stamp = _stamp(testbed.path)
        self._file_noted = False
        self.since = f"{wall_time():{_TIME}}"
        self._testbed = testbed
        self._run = ObservedRun(
            Path(results),
            {
                "by_hand": True,
                "seed": seed,
                "instruments": mode,
                "command": f"open_lab({str(testbed.path)!r}, {mode!r})",
                "testbeds": {testbed.name: str(testbed.path)},
                "testbed_order": [testbed.name],
            },
            zone=testbed.timezone,
        )
        self._run.notes = (lambda _, sentence: notify(sentence),)
        self._run.judges = (self._judged,)
        self._guard = Guard(self._check)
        try:
            bench = bind(testbed, mode, seed, f"a notebook, run {self._run.name}")
            self._opened = OpenBench(bench)
        except BaseException:
            self._run.discard()
            raise
        try:
            by_hand = self._opened.save_settings()
            for note in (*by_hand, *opening_notes(bench, self._run.folder)):
                self._run.note(testbed.name, note, in_report=True)
        except BaseException:
            self._opened.close()
            self._run.discard()
            raise
        if bench.clock.virtual:
            notify(
                f"{testbed.name} is simulated, and its clock is virtual: waiting takes no time, "
                "and no value says anything of a device"
            )
        atexit.register(self._at_exit)
        if idle is not None and bench.external:
            watch = partial(self._watch, idle)
            threading.Thread(target=watch, name="idle lab", daemon=True).start()

    # -------------------------------------------------------------------------- attributes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._names:
            with self._guard.call():
                self._names[name] = self._made(name)
        return self._names[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_PARTS, *NAMES, *self._kinds()})

    def _kinds(self) -> list[str]:
        return [kind for kind in KINDS if instruments_of(self._testbed, kind)]

    def _made(self, name: str) -> Any:
        """Return what a name stands for, wrapped; raises `AttributeError`."""
        if name in _PARTS:
            try:
                return _PARTS[name](self)
            except (IndexError, StopIteration):
                lacks = "plan" if name == "plan" else "two plans"
                raise AttributeError(f"testbed {self._testbed.name} has no {lacks}") from None
        if name in NAMES:
            parts = (self._bare(part) for part in parts_of(name))
            return self._guard.function(bound(name, *parts))
        if name in KINDS:
            for instrument in instruments_of(self._testbed, name)[:1]:
                borrowed = put_back(self._opened.bench, instrument)
                return self._guard.wrapped(self._borrowed.enter_context(borrowed))
            raise AttributeError(f"testbed {self._testbed.name} has no {name.replace('_', ' ')}")
        raise AttributeError(
            f"a lab has no {name!r}{did_you_mean(name, dir(self))}; fixtures of conftests, packs "
            "and parameters are those of pytest"
        )

    def _bare(self, part: str) -> Any:
        """Return a part that measurements take, without wrapping."""
        bench = self._opened.bench
        if part == "bench":
            return bench
        if part == "clock":
            return bench.clock
        if part == "fabric":
            return self._opened.saved_fabric()
        if part == "measure":
            return self._recording()
        assert part == "links"
        return self._links()

    def _links(self) -> LinkObservation:
        if "links of the bench" not in self._names:
            self._names["links of the bench"] = LinkObservation(self._opened.bench)
        links: LinkObservation = self._names["links of the bench"]
        return links

    def _recording(self) -> Recording:
        if self._recorded is None:
            bench = self._opened.bench
            self._recorded = RecordedTest(
                self._run, bench, TEST, {}, self._notify, PortCounters(bench), name=TEST
            )
        return self._recorded.recording

    def _modules(self) -> list[Any]:
        switches = self._opened.bench.switches.items()
        found = [name for name, each in switches if isinstance(each, ModuleTelemetry)]
        return [self.bench.switches[name] for name in found]

    def _samples(self) -> int:
        """Return the number of events of a test that judges no limit, by the quick profile."""
        return SAMPLES["quick"]["virtual" if self._opened.bench.clock.virtual else "system"]

    def _events(self) -> Events:
        clock = self._opened.bench.clock
        return Events(self._recording(), [], self._samples(), clock.now, real=not clock.virtual)

    def _bench(self) -> Any:
        bench = self._opened.bench
        members: dict[str, Mapping[str, Any]] = {
            kind: {name: self._guard.wrapped(each) for name, each in getattr(bench, kind).items()}
            for kind in ("switches", "servers", "instruments")
        }
        return self._guard.wrapped(bench, members)

    def circuits(self, switch: str = "") -> CircuitMatrix:
        """Return the circuits of a switch now, which a notebook shows as a matrix.

        switch: its name; may be left out where there is one. Raises `KeyError` for none.
        """
        bench = self._opened.bench
        with self._guard.call():
            name = switch or next(iter(bench.switches))
            found = bench.switches[name].circuits()
        return CircuitMatrix.of(name, found, bench.testbed)

    def trial(
        self,
        vary: str,
        values: Sequence[str],
        measure: str | Callable[[], SupportsFloat],
        *,
        at: str = "",
        matters: str = "",
        hold: Mapping[str, str] | None = None,
        most_blocks: int = MOST_BLOCKS,
        settle: str = "0 s",
        seed: int = 0,
        scale: Scale = "ratio",
        unit: str = "1",
    ) -> TrialResult:
        """Vary a setting of the bench in random blocks; return what it changes, with intervals.

        The setting, and those of `hold`, are put back at the end, whatever ends the trial.

        Args:
            vary: a setting by its name, such as "voa.1.attenuation".
            values: two or more, with units; the others are compared with the first.
            measure: "optical_power" at a port or channel, a duration of changes between the first
                two plans, such as "reconfiguration.carrier_up", "relock" (from light to carrier,
                the longest of all ports) or a stage of it such as "relock.phy", or a function that
                returns a number.
            at: port or channel that is measured.
            matters: the smallest effect that matters, by default "2%", or "0.1dB" of a power.
            hold: other settings that are set for the trial, by name, with their values.
            most_blocks: that are allowed.
            settle: time between a change of the setting and a measurement.
            seed: of the orders.
            scale: whether values of a function are compared by their "ratio" or "difference".
            unit: of what a function returns.

        Raises:
            SubjectError: a name or a value fits nothing of the bench.
            UnknownQuantityError, QuantityError: there is no such quantity or time.
            TrialTooLongError: the effect that matters needs more than `most_blocks`.
            InstrumentError: an instrument refused or failed.
        """
        with self._guard.call():
            bench = self._opened.bench
            recording = self._recording()
            pause = parse_duration(settle)
            subject = (
                subject_of(measure, at, self._bare("fabric"), self._links, recording)
                if isinstance(measure, str)
                else CalledFunction(measure, getattr(measure, "__name__", "value"), unit, scale)
            )
            names = (vary, *(hold or ()))
            if any(name.rpartition(".")[2] in NIC_SETTINGS for name in names):
                subject.prepare()  # a link that is down does not tell its speed
            setting = varied_setting(bench, vary, values)
            more = [fixed_setting(bench, name, text) for name, text in (hold or {}).items()]
            if any(owner_of(each.name) in bench.switches for each in (setting, *more)):
                self._opened.save_shutters()
            with set_meanwhile(more):
                return measure_trial(
                    bench,
                    recording,
                    setting,
                    subject,
                    matters=matters,
                    most_blocks=most_blocks,
                    settle=pause,
                    seed=seed,
                    at=at,
                )

    # ------------------------------------------------------------------------------ the end

    def close(self) -> None:
        """Restore what was found, free the instruments, and end the run; again: nothing.

        Raises `NotRestoredError` where something is not as it was found: the saved state stays, and
        `lightrig restore` restores it.
        """
        self._close("by lab.close()")

    def _close(self, why: str) -> None:
        with uninterrupted(), self._ending:
            if self._closed:
                return
            self._guard.close()
            self._closed = f"{why} at {wall_time():{_TIME}}"
            self._over.set()
            atexit.unregister(self._at_exit)
            _open.pop(Path(self._testbed.path).resolve(), None)
            problems: list[LightrigError] = []
            try:
                self._borrowed.close()
            except LightrigError as error:
                problems.append(error)
            try:
                if self._recorded is not None:
                    self._recorded.end()
            except LightrigError as error:
                problems.append(error)
            unrestored = self._opened.restore(self._notify)
            self._opened.close()
            problems += unrestored
            self._end_run(unrestored)
            self._unrestored = "\n".join(map(str, unrestored))
        for problem in problems[1:]:
            self._notify(str(problem))
        if problems:
            raise problems[0]

    def _end_run(self, problems: list[LightrigError]) -> None:
        if self._recorded is None or not self._recorded.measured:
            self._run.discard()
            return
        summary: dict[str, Any] = {"exit": 0, "tests": 0}
        if problems:
            summary["not_restored"] = [str(problem) for problem in problems]
        if self._run.report_notes:
            summary["notes"] = self._run.report_notes
        self._run.close(summary)

    def _at_exit(self) -> None:
        """Restore as the interpreter ends; what is not restored is shown."""
        if os.getpid() != self._process:
            return  # a fork of it, whose lab this is not
        try:
            self._close("as the interpreter ended")
        except LightrigError as error:
            self._notify(str(error))

    def _watch(self, idle: int) -> None:
        """Close the lab once no call has run for `idle` ns."""
        while not self._over.is_set():
            left = self._guard.close_if_idle(idle)
            if left:
                self._over.wait(min(left, _LOOK) / 1e9)
                continue
            with contextlib.suppress(LightrigError):  # the next call tells of it
                self._close(f"after {format_duration(idle)} without a call,")
            return

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------ inside

    def check_same(self, asked: tuple[Mode, int, str | None, str]) -> None:
        """Raise `LabOpenError` where a second opening asks for anything else."""
        why = ""
        if asked != self._asked:
            why = f"with other arguments, {self._asked}"
        elif _stamp(self._testbed.path) != self._stamp:
            why = "and the file has changed since"
        if why:
            raise LabOpenError(
                f"{self._testbed.path} is open in this process since {self.since}, {why}\n"
                "  try       lab.close(), then open it again"
            )

    def _check(self) -> None:
        """Raise where no call may begin: the lab is closed, or its lease is lost."""
        if self._closed:
            how = self._unrestored or "what was found was restored"
            raise LabClosedError(
                f"the lab of {self._testbed.path} was closed {self._closed}: {how}; its "
                "instruments are free for others\n"
                "  try       lab = open_lab(...) again, then the cell that binds names of it"
            )
        self._opened.bench.check_lease()
        if not self._file_noted and _stamp(self._testbed.path) != self._stamp:
            self._file_noted = True
            warnings.warn(
                f"{self._testbed.path} has changed since {self.since}, when it was opened: what is "
                "open is as it was; lab.close() and open it again",
                FileChangedWarning,
                stacklevel=2,
            )

    def _judged(self, _test: str, limit: Limit, verdict: Verdict) -> None:
        self._notify(f"{limit}: {verdict.outcome}: {verdict.reason}")

    def __repr__(self) -> str:
        return self._sentence()

    def _repr_html_(self) -> str:
        return Markup("<p>{}</p>").format(self._sentence())

    def _sentence(self) -> str:
        if self._closed:
            return f"lab {self._testbed.name}, closed {self._closed}"
        bench = self._opened.bench
        clock = "; its clock is virtual" if bench.clock.virtual else ""
        simulated = f"; simulated: {', '.join(sorted(bench.simulated))}" if bench.simulated else ""
        return f"lab {self._testbed.name}, open since {self.since}{simulated}{clock}"


def _stamp(path: str | Path) -> tuple[int, int] | None:
    """Return what changes with a file; None where it is not there."""
    try:
        facts = Path(path).stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


_LOOK = 60_000_000_000
"""Longest pause between two looks at the time since the last call, in ns."""

_PARTS: Mapping[str, Callable[[Lab], Any]] = {
    "testbed": lambda lab: lab._testbed,  # noqa: SLF001 - of this module
    "bench": lambda lab: lab._bench(),  # noqa: SLF001
    "fabric": lambda lab: lab._guard.wrapped(lab._bare("fabric")),  # noqa: SLF001
    "links": lambda lab: lab._guard.wrapped(lab._links()),  # noqa: SLF001
    "measure": lambda lab: lab._guard.wrapped(lab._recording()),  # noqa: SLF001
    "switches": lambda lab: lab.bench.switches,
    "servers": lambda lab: lab.bench.servers,
    "modules": lambda lab: lab._modules(),  # noqa: SLF001
    "plan": lambda lab: next(iter(lab._testbed.plans.values())),  # noqa: SLF001
    "transition": lambda lab: plan_pairs(lab._testbed)[0],  # noqa: SLF001
    "samples": lambda lab: lab._samples(),  # noqa: SLF001
    "events": lambda lab: lab._events(),  # noqa: SLF001
    "nic_ports": lambda lab: tuple(physical_ports(lab._testbed)),  # noqa: SLF001
}
