"""What a test, or a person in a notebook, records on an open bench: rows, notes, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from lightrig.harness.bench import Bench
from lightrig.harness.bench.kernel_messages import FAMILY, LOST, TOTAL
from lightrig.harness.components import Components
from lightrig.harness.doctor import examine_by_reading
from lightrig.harness.doctor.expired import expired_exceptions
from lightrig.harness.findings import Finding
from lightrig.harness.host_limits import host_limits
from lightrig.harness.measure.closure import unclosed
from lightrig.harness.measure.port_counters import PortCounters
from lightrig.harness.measure.recording import Recording, SimulatedRecording
from lightrig.harness.port_differences import (
    fec_differences,
    kernels,
    port_differences,
    read_encodings,
    read_ports,
)
from lightrig.harness.record import Context, RecordError, Row, Scalar
from lightrig.harness.record.attempts import ATTEMPT
from lightrig.harness.record.earlier_nights import values_before
from lightrig.harness.record.row import RowError
from lightrig.harness.record.run_folder import (
    load_findings,
    load_ports,
    store_findings,
    store_ports,
)
from lightrig.harness.statistics.verdicts import Verdict
from lightrig.instruments.servers.ports.port_settings import PortSettings
from lightrig.testbeds import Limit, Port
from lightrig.testbeds.out_of_service import plan_sentences


class OpenRun(Protocol):
    """A run that goes on, as this process knows it."""

    folder: Path
    night: str

    def recorder(
        self, bench: Bench, test: str, conditions: Mapping[str, Scalar]
    ) -> Callable[[Sequence[Row]], None]:
        """Return what takes rows of a test."""

    def judged(self, test: str, limit: Limit, verdict: Verdict) -> None:
        """Show a verdict."""

    def note(self, testbed: str, sentence: str, *, in_report: bool = False) -> None:
        """Show a sentence."""


class RecordedTest:
    """The recording of one test, and what it counts at the servers' ports meanwhile.

    Args:
        run: takes the rows.
        bench: where it measures.
        test: its node id.
        conditions: of all its rows, such as its parameters.
        undecided: is called with limits that its samples do not decide.
        counters: of the bench's NIC ports.
        name: of the test in sentences.

    Attributes:
        recording: takes rows, judges them, takes notes.
        found: what its measurements found wrong.
    """

    def __init__(
        self,
        run: OpenRun,
        bench: Bench,
        test: str,
        conditions: Mapping[str, Any],
        undecided: Callable[[str], None],
        counters: PortCounters,
        *,
        name: str,
    ) -> None:
        self._run, self._bench, self._test = run, bench, test
        self._conditions = dict(conditions)
        self._counters = counters
        self._stored = False
        self.found: list[Finding] = []
        # Nothing sets events aside on hardware.
        kind = Recording if bench.world is None else SimulatedRecording
        self.recording = kind(
            self._store_on(bench, {}),
            bench.testbed.limits,
            store_on=self._store_on,
            judged=partial(run.judged, test),
            undecided=undecided,
            note=partial(run.note, bench.testbed.name),
            before=self._before,
            found=self._add_findings,
            test=name,
        )
        self.recording.whole = bench.testbed.name
        self.recording.coverage = bench.coverage
        counters.begin()
        self._logged = bench.kernel.counts()

    @property
    def measured(self) -> bool:
        """Whether it has begun an event, or recorded a row."""
        return self._stored or bool(self.recording.events)

    def end(self) -> None:
        """Record what it shows as a whole."""
        try:
            if self.measured:
                self._counters.record(self.recording)
                self._record_kernel_messages()
        finally:
            self.recording.end(self._bench.clock.now())

    def _record_kernel_messages(self) -> None:
        """Record how many lines the kernels of servers have logged; simulated ones have none."""
        if not self._bench.simulated.isdisjoint(self._bench.servers):
            return
        kernel = self._bench.kernel
        kernel.read()
        at = self._bench.clock.now()
        counts = kernel.counts() - self._logged
        rows = []
        for log in kernel.logs.keys() - kernel.unreadable.keys():
            found = {kind: count for (where, kind), count in counts.items() if where == log}
            seen = {TOTAL: sum(found.values()) - found.get(LOST, 0), **found}
            rows += [
                Row(log, f"{FAMILY}.{kind}", count, count, count, "1", at)
                for kind, count in seen.items()
            ]
        if rows:
            self.recording.record(rows, {"event": self.recording.next_event()})

    def _add_findings(self, findings: Iterable[Finding]) -> None:
        self.found.extend(findings)

    def _store_on(
        self, given: Bench | None, more: Mapping[str, Any]
    ) -> Callable[[Sequence[Row]], None]:
        bench = given or self._bench
        record = self._run.recorder(bench, self._test, {**self._conditions, **more})

        def recorded(rows: Sequence[Row]) -> None:
            if any(ATTEMPT in row.conditions for row in rows):
                raise RowError(f"the condition {ATTEMPT!r} is the test's own; name it otherwise")
            self._stored = True
            record(rows)
            self.found.extend(unclosed(rows))

        return recorded

    def _before(self, quantity: str, more: Mapping[str, Any]) -> Sequence[Mapping[str, float]]:
        simulated = bool(self._bench.simulated)
        conditions = {**self._conditions, **more}
        context = Context(self._bench.testbed.name, self._test, (), simulated, conditions)
        try:
            return values_before(self._run.folder, self._run.night, context, quantity)
        except RecordError as error:
            sentence = f"earlier nights are not compared: {error}"
            self.recording.note_once("nights before", sentence)
            return ()


def opening_notes(bench: Bench, folder: Path, *, by_reading: bool = False) -> list[str]:
    """Store what the servers' ports are set to in a run's folder; return what a reader must know.

    Those are the gates of the testbed, the choice between hardware and simulation, and what is
    wrong: by what the ports differ and, `by_reading`, all that the doctor finds at once, which is
    stored too. Raises `RecordError`.
    """
    name = bench.testbed.name
    expired = [] if by_reading else expired_exceptions(bench.testbed)
    if by_reading:
        checks, ports = examine_by_reading(bench)
        found = [check.finding for check in checks.problems if check.finding is not None]
    else:
        ports = read_ports(bench)
        found = port_differences(bench.testbed, ports, kernels(bench)) if ports else []
        found += host_limits(bench.testbed, ports) if ports else []
    if by_reading or expired:
        store_findings(folder, name, [finding.document() for finding in (*found, *expired)])
    if ports:
        _store_ports(bench, folder, ports)
    return [
        *bench.testbed.notes,
        *bench.notes,
        *plan_sentences(bench.testbed),
        *(finding.evidence for finding in (*expired, *found)),
    ]


def closing_notes(bench: Bench, folder: Path) -> list[str]:
    """Add to what a night has stored of its ports the FEC of links that are up now.

    While no circuits are made, as where a night begins, a port tells only which it could use.
    Returns what is wrong and was not before. Raises `RecordError`.
    """
    name = bench.testbed.name
    stored = load_ports(folder, name)
    ports: dict[str, dict[str, Any]] = stored.get("ports", {})
    of_testbed = {str(spec.port): spec.port for spec in bench.testbed.nic_ports}
    encodings = {of_testbed[port]: one["fec"] for port, one in ports.items() if port in of_testbed}
    read = read_encodings(bench, {port for port, fec in encodings.items() if fec is None})
    if not read:
        return []
    for port, fec in read.items():
        ports[str(port)]["fec"] = fec
    store_ports(folder, name, stored)
    of_links = {port: fec for port, fec in (encodings | read).items() if fec is not None}
    known = [Finding.of_document(one) for one in load_findings(folder, name) or ()]
    components = Components(bench.testbed)
    new = [
        one.located(components)
        for one in fec_differences(bench.testbed, of_links)
        if str(one) not in map(str, known)
    ]
    store_findings(folder, name, [one.document() for one in (*known, *new)])
    return [one.evidence for one in new]


def _store_ports(bench: Bench, folder: Path, ports: Mapping[Port, PortSettings]) -> None:
    document = {
        "kernels": kernels(bench),
        "ports": {str(port): settings.document() for port, settings in ports.items()},
    }
    store_ports(folder, bench.testbed.name, document)
