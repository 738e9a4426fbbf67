"""The loop: probe, compare what was seen with what is wanted, place, order; and the journal.

What is wanted, with the nodes of each group, is on disk before the first order for it goes out, in
one file that is replaced as a whole. A service that was killed between any two orders reads it when
it is started again, reads the switches, and sends the orders that are left. An order that comes
twice changes nothing twice, and so does a request.
"""

from __future__ import annotations

import operator
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from lightrig.harness.bench.lab_folder import LabFolderError, UntrustedFileError, opened
from lightrig.harness.bench.lease import LeaseConflictError, LeaseLostError
from lightrig.harness.orchestration.agents import SeesCarriers
from lightrig.harness.orchestration.carriers import LinkLight, LinkPartners, Look
from lightrig.harness.orchestration.control import Control
from lightrig.harness.orchestration.health import Health
from lightrig.harness.orchestration.jobs import (
    ImpossibleError,
    Job,
    JobConflictError,
    OrchestrationError,
    UnknownJobError,
)
from lightrig.harness.orchestration.journal import journal_text, read_journal
from lightrig.harness.orchestration.layout import Layout
from lightrig.harness.orchestration.requests import (
    Drain,
    Failed,
    Repaired,
    Request,
    Status,
    Submit,
    Withdraw,
    parsed,
)
from lightrig.harness.orchestration.selection import Choices, ChoosingLayout, TakesChoices
from lightrig.harness.orchestration.switch_sessions import Reading, Switches
from lightrig.harness.orchestration.waiting import Waiting, refuse_impossible
from lightrig.harness.orchestration.wanted import Wanted, known
from lightrig.harness.orchestration.wiring import Wiring, wiring_of
from lightrig.instruments.clock import boot_time
from lightrig.testbeds import Circuit, LightrigError, Link, Plan, Testbed

Circuits: TypeAlias = Mapping[str, frozenset[Circuit]]
"""By switch."""

_CIRCUITS_OF = operator.attrgetter("circuits")
_REPORT_NS = 60_000_000_000
"""What keeps the loop from its work is reported once in this time."""
_MOST_PORTS = 4
"""Dark ports of a node that are listed."""


class Orchestrator:
    """Keeps the switches of a testbed in what its jobs want.

    `request` and `status` may be called by several threads; `status` waits for no switch.

    Args:
        fabric: with the switches and nodes that `layout` names.
        layout: of the system.
        switches: sessions with all of them, which `close` closes.
        state: the file of what is wanted. Raises `OrchestrationError` where it is that of another
            fabric, or was damaged.
        control: by which this process leads; None where no other one can.

    Attributes:
        alive: whether `run` goes on, or has not begun.
        ended: why it ended, where another process leads.
        hindrance: why its last step could not be carried out; empty if it was.
    """

    def __init__(
        self,
        fabric: Testbed | Wiring,
        layout: Layout,
        switches: Switches,
        state: Path,
        control: Control | None = None,
    ) -> None:
        self.layout, self._control = layout, control
        self._wiring = wiring_of(fabric)
        self._switches, self._state = switches, state
        self._lock = threading.RLock()
        self.wanted = self._load()
        self._present: dict[str, frozenset[Circuit]] = {}
        self._refused: dict[str, str] = {}
        self._missing: frozenset[str] = frozenset()
        self._orders = 0
        self._by_circuit: set[str] = set()
        self._node_of = {
            switch: node for switch in self._wiring.switches for node in layout.cut_off([switch])
        }
        self._by_job: dict[str, tuple[Job, Circuits]] = {}
        self._circuits: tuple[Wanted, Circuits] | None = None
        self._cut: tuple[Wanted, frozenset[str]] | None = None
        self._measured: dict[str, tuple[Job, Mapping[str, float]]] = {}
        self._choosing: dict[str, tuple[Job, Mapping[str, Choices]]] = {}
        self._selectable: dict[str, frozenset[frozenset[Circuit]]] = {}
        self._selecting: dict[str, Job] = {}
        self._health = Health(self._causes(), dict(self.wanted.silent))
        all_nodes = {"the nodes, by their light,": frozenset(layout.nodes)}
        self._light = Health(all_nodes, dict(self.wanted.dark))
        self._link_light, self._look = LinkLight(), Look()
        self._link_partners = LinkPartners()
        self._joined: frozenset[str] = frozenset()
        self._monitored: set[str] = set()
        self._dark_ports: dict[str, str] = {}
        self._links_by_job: dict[str, tuple[Job, list[Link]]] = {}
        self._last_heard: dict[str, int] = {}
        self.alive, self.ended = True, ""
        self.hindrance, self._next_report = "", 0
        self._status: dict[str, Any] = {}
        self._room: tuple[Wanted, bool] | None = None
        self._standing: Wanted | None = None  # of which nothing moves until another is wanted
        self._waiting = Waiting(layout)
        self._homeless = self._waiting.homeless(self.wanted)
        self._publish()

    # ------------------------------------------------------------------------ requests

    def start(self) -> None:
        """Bring the switches to what is wanted, whatever was done before a kill.

        Raises `LeaseConflictError` where another process drives them.
        """
        errors = self.step()
        if conflict := next((e for e in errors if isinstance(e, LeaseConflictError)), None):
            raise conflict

    def request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out one request of `requests` and return the status afterwards.

        With `dry_run`, return what it would change, and change nothing. Raises
        `OrchestrationError`, and then has changed nothing.
        """
        wish = parsed(request, self.layout.shape)
        if not isinstance(wish, Status):
            with self._lock:
                if wish.dry_run:
                    return self._outlook(self._next(wish))
                self._want(self._next(wish))
                if isinstance(wish, Submit):
                    self._last_heard[wish.job] = boot_time()
                self._order()
        return self.status()

    def change(self, name: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change fields of a job's shape that are `CHANGEABLE`; return the status afterwards.

        Raises `UnknownJobError` where the job has ended, `LeaseLostError`.
        """
        with self._lock:
            jobs = {job.name: job for job in self.wanted.jobs}
            if name not in jobs:
                raise self._without(name)
            jobs[name] = replace(jobs[name], shape={**jobs[name].shape, **fields})
            events = (f"job {name}: {key} is {new}" for key, new in sorted(fields.items()))
            self._want(replace(self.wanted, jobs=tuple(jobs.values())).noting(*events))
            self._order()
            return self.status()

    @property
    def switches(self) -> Collection[str]:
        """Names of the switches of the fabric."""
        return self._wiring.switches.keys()

    def status(self) -> Mapping[str, Any]:
        """Return the status; a new one is another object."""
        return self._status

    def lacking(self, circuits: Circuits) -> list[str]:
        """Return the switches that have not all of these circuits, as they were last read."""
        with self._lock:
            present = self._present
            return sorted(n for n, each in circuits.items() if each - present.get(n, frozenset()))

    def plan(self, request: Mapping[str, Any]) -> Plan:
        """Note what a request wants, and return the circuits of the switches that have others.

        For a caller that carries the orders out itself, to see each stage, and calls `done`.
        Raises `LightrigError`.
        """
        with self._lock:
            self._want(self._next(parsed(request, self.layout.shape)))
            wanted = self.circuits()
            unknown = wanted.keys() - self._present.keys()
            for name, found in self._switches.probe(unknown).items():
                if isinstance(found, LightrigError):
                    raise found
                self._present[name] = found.circuits
            changes = {n: c for n, c in wanted.items() if self._present[n] != c}
            return Plan(str(request["do"]), changes)

    def done(self) -> None:
        """Note that the orders of `plan` were carried out and read back."""
        with self._lock:
            self._present.update(self.circuits())
            self._publish()

    def links(self, name: str) -> list[Mapping[str, Any]]:
        """Return, for each group of a job, its ranks with their nodes and links between NIC ports.

        Links over switches that have failed are not among them. Raises `UnknownJobError`.
        """
        job = next((job for job in self.wanted.jobs if job.name == name), None)
        if job is None:
            raise self._without(name)
        links: defaultdict[str, list[Mapping[str, str]]] = defaultdict(list)
        failed = self._failed_switches()
        circuits = {n: each for n, each in self._circuits_of(job).items() if n not in failed}
        for link in self._wiring.links(Plan(name, circuits)):
            for near, far in ((link.a, link.b), (link.b, link.a)):
                links[near.owner].append({"port": near.name, "to": str(far)})
        return [
            {
                "group": number,
                "ranks": [
                    {"rank": rank, "node": node, "links": links[node]}
                    for rank, node in enumerate(group.nodes)
                ],
            }
            for number, group in enumerate(job.groups)
            if group
        ]

    def close(self) -> None:
        """Close the sessions with all switches; circuits stay as they are."""
        self._switches.close()

    # ------------------------------------------------------------------------ the loop

    def run(
        self,
        over: threading.Event,
        period_s: float,
        report: Callable[[str], None] = lambda why: None,
    ) -> None:
        """Step until `over` is set, or until another process leads: see `ended`.

        Steps begin a period after one another; one that took longer is followed at once. One that
        has no room or no descriptor for the lead or for what is wanted changes no switch, and is
        followed as if it had: see `hindrance`, which `report` receives as it begins, then once a
        minute.
        """
        wait_s = period_s
        try:
            while not over.wait(wait_s):
                began = boot_time()
                try:
                    self.step()
                    self.hindrance = ""
                except (LabFolderError, OSError) as error:
                    if not self.hindrance or began >= self._next_report:
                        self._next_report = began + _REPORT_NS
                        report(f"{error}; no switch is changed until that is mended")
                    self.hindrance = str(error)
                wait_s = max(period_s - (boot_time() - began) / 1e9, 0.0)
        except LeaseLostError as error:
            self.ended = str(error)
        finally:
            self.alive = False

    def step(self) -> list[LightrigError]:
        """Probe all switches once and act on what was seen; return what went wrong on the way.

        Raises `LeaseLostError` where this process no longer leads.
        """
        self._check_lead()
        orders = self._orders
        found = self._switches.probe(self._wiring.switches)
        read = {name: each for name, each in found.items() if isinstance(each, Reading)}
        errors = {
            name: each
            for name in sorted(found.keys() - read.keys())
            if isinstance(each := found[name], LightrigError)
        }
        with self._lock:
            if orders == self._orders:  # else these are older than what a request has ordered
                self._present.update(zip(read, map(_CIRCUITS_OF, read.values()), strict=True))
            self._missing = frozenset(self._wiring.switches.keys() - read.keys())
            refused, self._refused = self._refused, {}
            misses = {**refused, **{name: _line(error) for name, error in errors.items()}}
            lit = self._note_light(read)
            # A dead agent takes no orders; its server goes on where others see its light.
            unheard = self._look.silent.keys() & lit
            for name in [name for name in misses if self._node_of.get(name) in unheard]:
                del misses[name]
            self._health.note(misses, read.keys() - refused.keys() if refused else read.keys())
            seen = self.wanted.seeing(self._health.failed, self._light.failed)
            self._want(self._without_abandoned(seen))
            errors_of_orders = self._order()
            self._note_recoveries()
            return [*errors.values(), *errors_of_orders]

    def circuits(self) -> Circuits:
        """Return the circuits that are wanted of every switch that has not failed.

        Taken once for each wanted state without dark nodes, whose loops depend on what is seen.
        """
        if self._circuits is None or self._circuits[0] is not self.wanted or self.wanted.dark:
            self._circuits = self.wanted, self._circuits_wanted()
        return self._circuits[1]

    def _circuits_wanted(self) -> Circuits:
        failed = self._failed_switches()
        wanted: dict[str, frozenset[Circuit]] = {}
        for job in self.wanted.jobs:
            if not job.reserved:
                for name, circuits in self._circuits_of(job).items():
                    # Not copied where it is alone: lines whose circuits are alike share a set.
                    wanted[name] = wanted[name] | circuits if name in wanted else circuits
        for name in self._by_circuit if self.wanted.dark else ():
            for node, loop in self._wiring.loops(name).items():
                if node in self.wanted.dark:  # whose light is seen by this alone when it is back
                    wanted[name] = wanted.get(name, frozenset()) | {loop}
        return {
            name: wanted[name] if name in wanted else self.layout.idle(name)
            for name in self._wiring.switches
            if name not in failed
        }

    def _note_light(self, read: Mapping[str, Reading]) -> set[str]:
        """Note the nodes without light, by the switches' monitors and by carriers.

        Return those whose light arrives.
        """
        dark: defaultdict[str, list[str]] = defaultdict(list)
        lit = set()
        # Those without monitors, or with ones that no circuit leads light to now.
        blind = {name for name, reading in read.items() if not (reading.dark or reading.lit)}
        self._by_circuit |= blind
        for switch, reading in read.items() if len(blind) < len(read) else ():
            if switch in blind:
                continue
            for port, node in self._wiring.lights(switch).items():
                if port in reading.dark:
                    dark[node].append(f"{switch} port {port}")
                elif port in reading.lit:
                    lit.add(node)
                else:
                    self._by_circuit.add(switch)
        misses = {
            node: f"no light at {len(ports)} ports, such as {ports[0]}"
            for node, ports in dark.items()
            if node not in lit
        }
        self._dark_ports = {
            node: f"no light at {', '.join(ports[:_MOST_PORTS])}"
            + (f" and {len(ports) - _MOST_PORTS} more" if len(ports) > _MOST_PORTS else "")
            + ", and light at others: a fiber is broken, or not where the file has it"
            for node, ports in sorted(dark.items())
            if node in lit
        }
        self._monitored = dark.keys() | lit
        if isinstance(self._switches, SeesCarriers):
            self._look = self._switches.look
            links = self._links_set()
            unlit, arriving = self._link_light.note(links, self._look)
            self._link_partners.note(links, self._look)
            lit |= arriving
            misses = {node: why for node, why in {**unlit, **misses}.items() if node not in lit}
        before = set(self._light.failed)
        self._light.note(misses, lit)
        for node in self._light.failed.keys() - before:
            self._link_light.lose(node)
        return lit

    def _links_set(self) -> list[Link]:
        """Return the links of the jobs whose circuits are set."""
        found: dict[str, tuple[Job, list[Link]]] = {}
        for job in self.wanted.jobs:
            if job.name in self._joined and not self._selects(job):
                known = self._links_by_job.get(job.name)
                if known is None or known[0] is not job:
                    known = job, [*self._wiring.links(Plan(job.name, self._circuits_of(job)))]
                found[job.name] = known
        self._links_by_job = found
        return [link for _, links in found.values() for link in links]

    def _selects(self, job: Job) -> bool:
        """Whether a host has selected since the job was placed: a dark link is no fault then.

        Its ends may be at different topologies for a moment, and this service does not see when.
        """
        if job.name not in self._choosing or self._selecting.get(job.name) is job:
            return job.name in self._choosing
        if any(
            self._present.get(name) not in (None, circuits)
            for name, circuits in self._circuits_of(job).items()
            if name in self._selectable
        ):
            self._selecting[job.name] = job
            return True
        return False

    def _note_recoveries(self) -> None:
        for each in self._link_light.recovered(self._look):
            least, most = each.seconds
            event = (
                f"recovered from the loss of {each.node}: {least:.3f} to {most:.3f} s from the end "
                "of its light to light on all new links"
            )
            self._keep(self.wanted.noting(event, node=each.node, seconds=[least, most]))
            self._publish()

    def _order(self) -> list[LightrigError]:
        """Send the orders that are left to the switches that answer; return what went wrong."""
        self._let_choose()
        late = self._late()
        orders = {n: each for n, each in late.items() if n not in self._missing}
        found = self._switches.order(orders) if orders else {}
        self._orders += bool(orders)
        errors = []
        for name, outcome in found.items():
            if isinstance(outcome, Reading):
                self._present[name] = outcome.circuits
            else:
                errors.append(outcome)
                # It may have carried out a part: what it holds is known from the next probe on.
                self._present.pop(name, None)
                self._refused[name] = _line(outcome)
        self._publish(None if orders else late)
        return errors

    def _late(self) -> Circuits:
        """Return the circuits that are wanted of switches that were not seen with them."""
        present = self._present.get
        return {
            name: circuits
            for name, circuits in self.circuits().items()
            # Most are the same set: no call for those.
            if present(name) is not circuits and not self._holds(name, circuits)
        }

    def _holds(self, switch: str, circuits: frozenset[Circuit]) -> bool:
        """Whether a switch was seen with these circuits; quick where it is the same set."""
        present = self._present.get(switch)
        if present is circuits or present == circuits:
            return True
        choices = self._selectable.get(switch, frozenset())
        return present in choices and circuits in choices

    def _let_choose(self) -> None:
        """Tell the agents what their hosts may select, which is then as good as what is wanted."""
        if not (
            isinstance(self.layout, ChoosingLayout) and isinstance(self._switches, TakesChoices)
        ):
            return
        known, self._choosing = self._choosing, {}
        for job in self.wanted.jobs:
            if not job.reserved:
                old = known.get(job.name)
                if old is None or old[0] is not job:
                    old = job, self.layout.choices(job)
                self._choosing[job.name] = old
        if known == self._choosing:
            return
        hosts = {h: each for _, found in self._choosing.values() for h, each in found.items()}
        selectable: defaultdict[str, set[frozenset[Circuit]]] = defaultdict(set)
        for topologies in (of for host in hosts.values() for of in host.values()):
            for choice in topologies.values():
                for switch, pairs in choice.circuits.items():
                    selectable[switch].add(frozenset(Circuit(*pair) for pair in pairs))
        self._selectable = {name: frozenset(each) for name, each in selectable.items()}
        self._switches.let_choose(hosts)

    def _circuits_of(self, job: Job) -> Circuits:
        cached = self._by_job.get(job.name)
        if cached is None or cached[0] is not job:
            cached = self._by_job[job.name] = job, self.layout.circuits(job)
        return cached[1]

    def _measures_of(self, job: Job) -> Mapping[str, float]:
        """Return `Layout.measures` of a job, taken once for each placement."""
        cached = self._measured.get(job.name)
        if cached is None or cached[0] is not job:
            cached = self._measured[job.name] = job, dict(self.layout.measures(job))
        return cached[1]

    def _failed_switches(self) -> frozenset[str]:
        """Return the switches that have failed, or belong to a node that has."""
        if self._cut is None or self._cut[0] is not self.wanted:
            unusable = self.wanted.unusable(self.layout)
            cut = (name for name, node in self._node_of.items() if node in unusable)
            self._cut = self.wanted, frozenset(cut) | self.wanted.silent.keys()
        return self._cut[1]

    # ------------------------------------------------------------------------ what is wanted

    def _next(self, wish: Request) -> Wanted:
        wanted = self.wanted
        match wish:
            case Submit():
                return self._submitted(wish)
            case Withdraw():
                left = tuple(job for job in wanted.jobs if job.name != wish.job)
                if len(left) == len(wanted.jobs):
                    raise self._without(wish.job)
                return replace(wanted, jobs=left).noting(f"job {wish.job} is withdrawn")
            case Failed():
                new = known(wish.nodes, self.layout) - wanted.reported
                noted = (f"node {node} is reported as failed" for node in sorted(new))
                return replace(wanted, reported=wanted.reported | new).noting(*noted)
            case Repaired():
                nodes = known(wish.nodes, self.layout)
                for switch, node in self._node_of.items():
                    if node in nodes:  # it may have been restarted or replaced
                        self._present.pop(switch, None)
                back = nodes & (wanted.reported | wanted.drained)
                # Without circuits no carrier shows the light of a node that is back.
                unseen = nodes & wanted.dark.keys() - self._monitored
                for node in unseen:
                    self._light.forget(node)
                noted = (f"node {node} may be used again" for node in sorted(back | unseen))
                return replace(
                    wanted,
                    reported=wanted.reported - nodes,
                    drained=wanted.drained - nodes,
                    dark={node: why for node, why in wanted.dark.items() if node not in unseen},
                ).noting(*noted)
            case Drain():
                new = known(wish.nodes, self.layout) - wanted.drained
                noted = (f"node {node} gets no new group" for node in sorted(new))
                return replace(wanted, drained=wanted.drained | new).noting(*noted)
        return wanted

    def _submitted(self, wish: Submit) -> Wanted:
        wanted, shape = self.wanted, wish.shape.model_dump(mode="json")
        try:
            groups = (None,) * self.layout.groups_of(shape)
        except OrchestrationError as error:
            raise ImpossibleError(str(error)) from error
        within = None if wish.nodes is None else known(wish.nodes, self.layout)
        asked = Job(
            *(wish.job, shape, wish.priority, wish.gang, wish.reserve, groups),
            within=within,
            keep_alive=wish.keep_alive,
        )
        for number, job in enumerate(wanted.jobs):
            if job.name == wish.job:
                changeable = self.layout.shape.CHANGEABLE
                unsaid = {key for key in self.layout.shape.UNCHANGED_BY_NULL if shape[key] is None}
                shape |= {key: job.shape.get(key) for key in unsaid}
                changes = {
                    key: shape[key] for key in changeable if job.shape.get(key) != shape[key]
                }
                asks = shape, wish.priority, wish.gang, within, wish.keep_alive
                present = {**job.shape, **changes}, job.priority, job.gang, job.within
                if (*present, job.keep_alive) != asks:
                    raise JobConflictError(
                        f"job {job.name} is there with shape {job.shape}, priority {job.priority}, "
                        f"gang {job.gang}, keep_alive {job.keep_alive or 'none'}, "
                        f"nodes {job.document()['within'] or 'any'}: "
                        "withdraw it first"
                    )
                events = [f"job {job.name}: {key} is {new}" for key, new in sorted(changes.items())]
                if starts := job.reserved and not wish.reserve:
                    events.append(f"job {job.name} starts")
                if not events:
                    return wanted
                jobs = list(wanted.jobs)
                jobs[number] = replace(job, shape=shape, reserved=job.reserved and not starts)
                return replace(wanted, jobs=tuple(jobs)).noting(*events)
        refuse_impossible(self.layout, asked)
        what = "is reserved" if wish.reserve else "is submitted"
        return replace(wanted, jobs=(*wanted.jobs, asked)).noting(f"job {asked.name} {what}")

    def _without_abandoned(self, wanted: Wanted) -> Wanted:
        """Return what is wanted without the jobs whose clients have not been heard for long.

        After a restart of this service they have as long again.
        """
        now = boot_time()
        heard = {job.name: self._last_heard.get(job.name, now) for job in wanted.jobs}
        self._last_heard = heard
        late = {
            job.name: job.keep_alive
            for job in wanted.jobs
            if job.keep_alive is not None and now - heard[job.name] > job.keep_alive * 1e9
        }
        if not late:
            return wanted
        left = tuple(job for job in wanted.jobs if job.name not in late)
        noted = (
            f"job {name} is withdrawn: no submit of it in {seconds:g} s"
            for name, seconds in late.items()
        )
        return replace(wanted, jobs=left).noting(*noted)

    def _without(self, name: str) -> UnknownJobError:
        names = ", ".join(job.name for job in self.wanted.jobs) or "none"
        return UnknownJobError(f"found no job {name}; jobs are {names}")

    def _outlook(self, wanted: Wanted) -> dict[str, Any]:
        """Return what `wanted` would change, by job."""
        after = self._placed(wanted)[0]
        known = {job.name: job for job in self.wanted.jobs}
        changes: dict[str, Any] = dict.fromkeys(known)  # withdrawn
        for job in after.jobs:
            old = known.get(job.name)
            if job is old:
                del changes[job.name]
                continue
            pairs = zip(old.groups if old else (), job.groups, strict=False)
            changes[job.name] = {
                "changed": [n for n, (a, b) in enumerate(pairs) if a != b] if old else None,
                "moved": list(job.moved),
                "missing": {"before": old.missing if old else None, "after": job.missing},
                "measures": {
                    "before": dict(self.layout.measures(old)) if old else None,
                    "after": dict(self.layout.measures(job)),
                },
                "groups": job.document()["groups"],
            }
        return {"dry_run": True, "epoch": self.wanted.epoch, "doubt": self._doubt, "jobs": changes}

    @property
    def _doubt(self) -> str | None:
        return self._health.doubt or self._light.doubt or self._link_light.doubt

    def _want(self, wanted: Wanted) -> None:
        """Place what waits, write what is wanted, then want it."""
        placed, homeless = self._placed(wanted)
        self._keep(placed.passing(self.wanted, lambda job: self._circuits_of(job).keys()))
        self._homeless = homeless

    def _placed(self, wanted: Wanted) -> tuple[Wanted, frozenset[str]]:
        """Return what waits placed, and the jobs for which an empty fabric has no place either."""
        if self._doubt or wanted is self._standing:
            return wanted, self._homeless
        placed = wanted.placed(self.layout, self._homeless)
        homeless = self._waiting.homeless(placed)
        if not homeless <= self._homeless:  # these held back others
            placed = wanted.placed(self.layout, homeless)
        if placed is wanted and homeless == self._homeless:
            self._standing = wanted
        return placed, homeless

    def _keep(self, wanted: Wanted) -> None:
        if wanted is not self.wanted:
            self._check_lead()
            with opened(self._state.parent) as folder:
                text = journal_text(wanted, self.layout)
                folder.write_whole(self._state.name, text, durable=True)
            self._status = {**self._status, "settled": False}  # until its orders are carried out
        self.wanted = wanted

    def _check_lead(self) -> None:
        if self._control is not None:
            self._control.check()

    def _load(self) -> Wanted:
        try:
            with opened(self._state.parent, make=False) as folder:
                text = folder.read(self._state.name)
        except UntrustedFileError as error:
            raise OrchestrationError(f"{self._state} {error}: it is not used") from error
        except LabFolderError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return Wanted()
            raise
        try:
            return read_journal(text, self.layout, self._wiring.switches)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            why = _line(error) if isinstance(error, LightrigError) else repr(error)
            raise OrchestrationError(f"{self._state} is no state of this fabric: {why}") from error

    # ------------------------------------------------------------------------ status

    def _publish(self, late_circuits: Circuits | None = None) -> None:
        """Make a new status; note the jobs whose circuits have come to be set, or are no more.

        late_circuits: what `_late` returns, where it was asked since the last change.
        """
        failed = self._failed_switches()
        late = (self._late() if late_circuits is None else late_circuits).keys()
        doubtful = late | self._selectable.keys()  # the others have all circuits of their jobs
        joined = frozenset(
            job.name
            for job in self.wanted.jobs
            if not (job.missing or job.reserved)
            and all(
                self._holds(name, circuits := self._circuits_of(job)[name])
                or circuits <= self._present.get(name, frozenset())
                for name in self._circuits_of(job).keys() & doubtful - failed
            )
        )
        names = {job.name for job in self.wanted.jobs}
        events = [f"job {name}: circuits are set" for name in sorted(joined - self._joined)]
        undone = sorted((self._joined - joined) & names)
        self._keep(
            self.wanted.noting(*events, *(f"job {name}: circuits are not set" for name in undone))
        )
        self._joined = joined
        ready = joined - self._unproven()
        reasons = self._waiting.reasons(self.wanted, self._doubt, has_room=self._has_room())
        self._status = {
            "epoch": self.wanted.epoch,
            "lead": self._control.epoch if self._control else 0,
            "settled": not (late or self._missing - failed or self._refused or self._has_room()),
            "doubt": self._doubt,
            "faulty": self.wanted.unusable(self.layout),
            "dark_ports": self._dark_ports,
            "crossed": self._link_partners.crossed,
            "silent": dict(self.wanted.silent),
            "drained": sorted(self.wanted.drained),
            "agents": {
                host: {
                    "error": why,
                    "jobs": [job.name for job in self.wanted.jobs if host in job.nodes],
                }
                for host, why in self._look.silent.items()
            },
            "jobs": {
                job.name: {
                    **{key: each for key, each in job.document().items() if key != "job"},
                    "ready": job.name in ready,
                    "without": sorted(failed & self._circuits_of(job).keys()),
                    "measures": self._measures_of(job),
                    "reason": reasons.get(job.name),
                }
                for job in self.wanted.jobs
            },
        }

    def _unproven(self) -> frozenset[str]:
        """Return the jobs of whose links an end hears another port, or may yet come to hear it."""
        if not self._look.hearing:
            return frozenset()
        self._links_set()
        return frozenset(
            name
            for name, (_, links) in self._links_by_job.items()
            if any(map(self._link_partners.doubts, links))
        )

    def _has_room(self) -> bool:
        """See `Wanted.has_room`, which is asked once for each wanted state."""
        if not (self._doubt or any(job.missing for job in self.wanted.jobs)):
            return False  # all was placed when it came to be wanted
        if self._room is None or self._room[0] is not self.wanted:
            self._room = self.wanted, self.wanted.has_room(self.layout, self._homeless)
        return self._room[1]

    def _causes(self) -> dict[str, frozenset[str]]:
        """Return the switches by what they have in common: all of them, and each host."""
        hosts = defaultdict(set)
        for name, host in self._wiring.switches.items():
            hosts[host].add(name)
        causes = {"the switches": frozenset(self._wiring.switches)}
        for host, names in hosts.items():
            # A node's own host that is silent is a node that has failed.
            if host and len(self.layout.cut_off(names)) != 1:
                causes[f"the switches at {host}"] = frozenset(names)
        return causes


def _line(error: LightrigError) -> str:
    return "; ".join(map(str.strip, str(error).splitlines()))
