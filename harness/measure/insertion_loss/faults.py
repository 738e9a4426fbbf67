"""Diagnosis of loss faults: connector, fiber, laser, monitor, or circuit."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy

from lightrig.harness.findings import Finding
from lightrig.harness.measure.insertion_loss.chains import Chain, shared_components
from lightrig.harness.measure.insertion_loss.check_standards import (
    FAULTY_DB,
    Shift,
    changed_sentence,
    changes,
    is_of_meter,
    power_changes,
    sentence,
    shifts,
    swapped_ingresses,
)
from lightrig.harness.measure.insertion_loss.matrix import FIRST_READINGS, Losses
from lightrig.harness.measure.insertion_loss.readings import Numbers
from lightrig.harness.measure.insertion_loss.settings import swapped_egresses, unsteady_settings
from lightrig.harness.statistics.loss_matrix import (
    Effects,
    Outlier,
    at_ceiling,
    outliers,
    outliers_since,
    slope,
    standing_still,
    take_apart,
)
from lightrig.harness.statistics.uncertainty import Budget, Component, combine
from lightrig.testbeds import Circuit, Port, Testbed
from lightrig.testbeds.intervals import interval
from lightrig.testbeds.plans import circuit_subject

FaultKind: TypeAlias = Literal[
    "dirty connector",
    "dirty connector or bent fiber",
    "bent fiber",
    "lossy circuit",
    "drifting laser",
    "stuck monitor",
    "saturated monitor",
    "swapped monitors",
    "unsteady readings",
    "shifted meter",
    "changed check standard",
    "no light",
]

WORTH_DB = FAULTY_DB
"""Less than this is no reason to walk to the lab."""

DRIFT_DB = 0.1
"""By how much a laser must have moved while all circuits were measured."""

FEWEST_BEFORE = 3
"""Number of earlier nights from which on losses are compared with them."""

_RESOLUTION_DB = 0.005
"""Rounding of a reading at the end of a range: half of 0.01 dB."""

_OF_ALL = frozenset({"shifted meter", "changed check standard"})
"""Faults whose subject is a switch of which no loss is sure."""

_OF_PORTS = frozenset({"stuck monitor", "swapped monitors", "changed check standard"})
"""Faults whose subjects are ports whose losses say nothing."""

_MISREADING = frozenset({"stuck monitor", "swapped monitors"})

_ERROR = 0.01
"""Rate of false alarms of each kind of search, for all switches of a testbed together."""


def find_faults(
    losses: Losses, testbed: Testbed, *, switches: int = 1, before: Sequence[Numbers] = ()
) -> list[Finding]:
    """Return the faults in `losses`; deviations that one fault explains are reported once.

    switches: number of switches that are searched, which share the rate of false alarms. before:
    matrices of the same losses in earlier nights.
    """
    search = _Search(losses, testbed, _ERROR / switches, before)
    saturation = list(search.saturated_monitors())
    misreading = [*search.stuck_monitors(), *search.swapped_monitors()]
    unsteady = list(search.unsteady_readings())
    shifted = list(search.shifted_meters(misreading))
    found = [*saturation, *misreading, *(shifted or unsteady), *search.drifting_lasers()]
    if not any(fault.kind == "shifted meter" for fault in shifted):
        found += search.bent_fibers()
    found += search.without_light()
    lossy = list(search.lossy_ports_and_circuits(misreading))
    found += lossy
    if not shifted:
        found += search.changed_circuits(misreading, lossy)
    return found


def misread(losses: Losses, faults: Iterable[Finding]) -> set[Circuit]:
    """Return the circuits whose losses say nothing.

    Those whose monitor is stuck, swapped or was saturated, whose readings were unsteady, or whose
    check standard has changed; all of them, where that of most circuits has.
    """
    faults, name = list(faults), losses.chain.switch
    if any(fault.kind in _OF_ALL and fault.subject == name for fault in faults):
        return {*losses.losses}
    wrong = {s for fault in faults if fault.kind in _OF_PORTS for s in fault.subjects}
    found = {c for c in losses.losses if {f"{name}.{port}" for port in c} & wrong}
    for _, circuits in saturated(losses):
        found |= circuits
    if any(fault.kind == "unsteady readings" for fault in faults):
        for setting in unsteady_settings(losses, _matrix_without_misread(losses, faults)):
            found |= set(setting.circuits)
    return found


def _matrix_without_misread(losses: Losses, faults: Iterable[Finding]) -> Numbers:
    """Return the matrix of losses without those of misread ports and of saturated circuits."""
    chain, matrix = losses.chain, losses.matrix()
    wrong = {s for fault in faults if fault.kind in _MISREADING for s in fault.subjects}
    for circuit in (c for _, circuits in saturated(losses) for c in circuits):
        matrix[chain.ingress.index(circuit.ingress), chain.egress.index(circuit.egress)] = np.nan
    for axis, ports in enumerate((chain.ingress, chain.egress)):
        for index, port in enumerate(ports):
            if f"{chain.switch}.{port}" in wrong:
                matrix[(index, slice(None)) if axis == 0 else (slice(None), index)] = np.nan
    return matrix


def check_shifts(losses: Losses, faults: Iterable[Finding]) -> list[Shift]:
    """Return the shifts of the check standard, circuits whose monitors are misread left out."""
    if not losses.checks:
        return []
    beside = _misread_checks(losses, faults)
    return list(shifts(losses.chain, losses.checks, *_check_noise(losses), beside=beside))


def _check_noise(losses: Losses) -> tuple[Component, Component | None]:
    """Return the noise of a reading of the check standard, and its repeatability."""
    # The first of them is the mean of the fewest readings.
    noise = replace(losses.noise, standard=losses.noise.standard / math.sqrt(FIRST_READINGS))
    return noise, losses.repeatability


def _misread_checks(losses: Losses, faults: Iterable[Finding]) -> set[Circuit]:
    """Return the circuits of the check standard whose monitor is stuck, swapped or saturated."""
    stuck = {s for fault in faults if fault.kind in _MISREADING for s in fault.subjects}
    name, ceilings = losses.chain.switch, _ceilings(losses)
    return {
        circuit
        for circuit in losses.checks[0].losses
        if {f"{name}.{port}" for port in circuit} & stuck
        or any(one.reached_by(circuit, 0) for one in ceilings)
    }


class _Ceiling(NamedTuple):
    """Greatest power in dBm that monitors of one side show, and which (setting, port) reached it.

    side: place of the port in a circuit.
    """

    dbm: float
    reached: npt.NDArray[np.bool_]
    ports: tuple[int, ...]
    side: int

    def reached_by(self, circuit: Circuit, setting: int) -> bool:
        return bool(self.reached[setting, self.ports.index(circuit[self.side])])


def _ceilings(losses: Losses) -> list[_Ceiling]:
    """Return the ends of the monitors' ranges that readings reached: as stated, or as seen."""
    chain, found = losses.chain, []
    for side, (ports, readings) in enumerate(
        ((chain.ingress, losses.entered), (chain.egress, losses.left))
    ):
        most = chain.most_dbm
        reached = np.any(readings >= (math.inf if most is None else most - _RESOLUTION_DB), axis=1)
        if most is not None and reached.any():
            found.append(_Ceiling(most, reached, ports, side))
        elif (ceiling := at_ceiling(readings)) is not None:
            found.append(_Ceiling(*ceiling, ports, side))
    return found


def saturated(losses: Losses) -> list[tuple[float, set[Circuit]]]:
    """Return the greatest power in dBm that monitors show, and the circuits that reached it."""
    when = {at: number for number, at in enumerate(losses.times)}
    return [
        (one.dbm, {c for c, loss in losses.losses.items() if one.reached_by(c, when[loss.at])})
        for one in _ceilings(losses)
    ]


class _Search:
    def __init__(
        self, losses: Losses, testbed: Testbed, error: float, before: Sequence[Numbers]
    ) -> None:
        self._error = error
        self._before = before if len(before) >= FEWEST_BEFORE else ()
        self._losses = losses
        self._chain: Chain = losses.chain
        self._testbed = testbed
        self._matrix = losses.matrix()
        self._seconds = (np.array(losses.times) - losses.times[0]) / 1e9
        self._odd: set[int] = set()

    def saturated_monitors(self) -> Iterator[Finding]:
        """Monitors that show the greatest value of their side again and again, without noise."""
        chain = self._chain
        for dbm, circuits in saturated(self._losses):
            for circuit in circuits:
                row, column = chain.ingress.index(circuit[0]), chain.egress.index(circuit[1])
                self._matrix[row, column] = np.nan
            yield _fault(
                "saturated monitor",
                chain.switch,
                f"monitors show no more than {dbm:.2f} dBm; the losses of {len(circuits)} circuits "
                "with more light are left out: send less light",
            )

    def stuck_monitors(self) -> Iterator[Finding]:
        """Monitors whose readings have no noise and do not care which light they see."""
        chain = self._chain
        found = [(chain.ingress[n], 0, n) for n in self._still(self._losses.entered)]
        found += [(chain.egress[n], 1, n) for n in self._still(self._losses.left)]
        for port, axis, index in found:
            self._odd.add(port)
            self._matrix[(index, slice(None)) if axis == 0 else (slice(None), index)] = np.nan
            yield _fault(
                "stuck monitor",
                f"{chain.switch}.{port}",
                "it reads the same whatever light it gets; losses of this port say nothing",
            )

    def shifted_meters(self, faults: Iterable[Finding]) -> Iterator[Finding]:
        """Meters whose check standard is beyond the limit: the first time that it was."""
        limit = self._limit()
        for shift in check_shifts(self._losses, faults):
            if shift.exceeds(limit):
                ends = shift.value, shift.value - shift.half, shift.value + shift.half
                about = sentence(self._chain, shift, limit)
                kind: FaultKind = "changed check standard"
                if is_of_meter(shift, limit):
                    kind = "shifted meter"
                again = "take the references of this switch again: "
                again += f"`lightrig reference {self._testbed.path.name}`"
                yield replace(_fault(kind, self._chain.switch, about, ends), next_step=again)
                return

    def swapped_monitors(self) -> Iterator[Finding]:
        """Pairs of monitors of one side that show each other's light."""
        chain = self._chain
        since = {circuit: db for circuit, (db, _) in self._changes([]).items()}
        pairs = [
            (0, chain.ingress.index(first), chain.ingress.index(second))
            for first, second in swapped_ingresses(chain, self._losses.checks, since)
        ]
        pairs += [
            (1, *pair) for pair in swapped_egresses(self._losses, self._matrix, least=WORTH_DB)
        ]
        for axis, first, second in pairs:
            for index in (first, second):
                self._matrix[(index, slice(None)) if axis == 0 else (slice(None), index)] = np.nan
            ports = chain.ingress if axis == 0 else chain.egress
            pair = ports[first], ports[second]
            self._odd.update(pair)
            names = [f"{chain.switch}.{port}" for port in pair]
            about = (
                "each shows the light of the other: with their readings exchanged, losses are what "
                "their ports explain; the losses of both are left out: exchange them, or their "
                "numbers in the testbed file"
            )
            yield Finding(
                "swapped monitors", f"{' and '.join(names)}: swapped monitors: {about}", (*names,)
            )

    def unsteady_readings(self) -> Iterator[Finding]:
        """Settings in which all circuits lose more, or less, than in the first one."""
        chain = self._chain
        found = unsteady_settings(self._losses, self._matrix)
        for setting in found:
            for ingress, egress in setting.circuits:
                self._matrix[chain.ingress.index(ingress), chain.egress.index(egress)] = np.nan
        if found:
            most = max(found, key=lambda one: abs(one.value))
            numbers = ", ".join(str(one.number + 1) for one in found)
            yield _fault(
                "unsteady readings",
                chain.switch,
                f"so much more than in the first setting do all circuits lose in setting {numbers} "
                f"of {self._losses.settings}, most in {most.number + 1}: meters, or light that is "
                "not read, changed meanwhile; the losses of these settings are left out: measure "
                "again",
                (most.value, most.value - most.half, most.value + most.half),
            )

    def changed_circuits(
        self, faults: Iterable[Finding], lossy: Iterable[Finding]
    ) -> Iterator[Finding]:
        """Circuits of the check standard that differ from the others since the references."""
        chain, limit, changed = self._chain, self._limit(), self._changes(faults)
        explained = {s for fault in lossy for s in fault.subjects}
        powers = power_changes(chain, self._losses.checks)
        for circuit, (change, budget) in changed.items():
            names = [f"{chain.switch}.{port}" for port in circuit]
            if explained & {*names, circuit_subject(chain.switch, circuit)}:
                continue
            error = self._error / len(changed)
            factor = float(scipy.special.stdtrit(budget.degrees, 1 - error / 2))
            if abs(change) <= max(limit, factor * budget.standard):
                continue
            entering = powers.get(circuit.ingress)
            about = changed_sentence(circuit, change, entering, limit)
            if entering is not None and abs(entering) <= limit:
                names = names[1:]
            elif entering is not None and abs(entering - change) <= limit:
                names = names[:1]
            ends = change - budget.expanded, change + budget.expanded
            whole = _fault(
                "changed check standard",
                circuit_subject(chain.switch, circuit),
                about,
                (change, *ends),
            )
            yield replace(whole, subjects=(*names,))

    def _limit(self) -> float:
        return self._testbed.switches[self._chain.switch].check_standard.limit_db

    def drifting_lasers(self) -> Iterator[Finding]:
        """Lasers whose light becomes less, or more, from setting to setting."""
        for index, ingress in enumerate(self._chain.ingress):
            observed = ingress not in self._chain.launched
            levels = self._entering(index) if observed else -self._by_time(index)
            known = np.isfinite(levels)
            if ingress in self._odd or known.sum() < 5:
                continue
            found = slope(self._seconds, levels, error=self._error / len(self._chain.ingress))
            lasted = float(np.ptp(self._seconds[known]))
            change = found.value * lasted
            if abs(change) < DRIFT_DB or found.lower <= 0 <= found.upper:
                continue
            fair = slope(self._seconds, levels, error=0.05)
            source = self._testbed.cabling.transmitter(self._chain.switch, ingress)
            what = "both sides were read at once, so the losses are free of it"
            if not observed:
                what = f"losses of ingress {ingress} are wrong by up to as much"
            yield _fault(
                "drifting laser",
                str(source),
                f"in {lasted:.1f} s, {found.value * 60:.2g} dB a minute; {what}",
                (change, fair.lower * lasted, fair.upper * lasted),
            )

    def bent_fibers(self) -> Iterator[Finding]:
        """Fibers of which less comes than should, at ports that lose nothing themselves."""
        for ingress, (level, plane) in self._chain.entering.items():
            index = self._chain.ingress.index(ingress)
            ingress_plane = self._chain.planes[ingress]
            levels = self._entering(index)
            if ingress in self._odd or ingress_plane.relative or not np.isfinite(levels).any():
                continue
            missing = level - (float(np.nanmean(levels[:3])) - ingress_plane.correction_db)
            noise = Component("noise", self._losses.noise.standard)
            shared = shared_components(plane.of, ingress_plane.of)
            parts = (*plane.components, *ingress_plane.components, *shared, noise)
            half = combine(parts).expanded
            if missing - 2 * half > WORTH_DB:
                fiber = self._testbed.cabling.fiber_to(Port(self._chain.switch, str(ingress)))
                yield _fault(
                    "bent fiber",
                    str(fiber),
                    f"that much less enters {self._chain.switch}.{ingress} than when its reference "
                    "was taken: is the fiber bent, or its far end dirty?",
                    (missing, missing - half, missing + half),
                )

    def without_light(self) -> Iterator[Finding]:
        """Ports that no light came to, or from."""
        dark = set(self._losses.dark)
        for side, ports, rest in (
            ("ingress", self._chain.ingress, self._chain.egress),
            ("egress", self._chain.egress, self._chain.ingress),
        ):
            for port in ports:
                all_of = {Circuit(port, o) if side == "ingress" else Circuit(o, port) for o in rest}
                tried = all_of & (dark | self._losses.losses.keys())
                if tried and tried <= dark:
                    yield _fault(
                        "no light",
                        f"{self._chain.switch}.{port}",
                        f"no circuit of this {side} brought light: is its fiber plugged in, is "
                        "its transmitter on?",
                    )

    def lossy_ports_and_circuits(self, faults: Iterable[Finding]) -> Iterator[Finding]:
        """Rows, columns and cells that lose more: than others, than at references, than before.

        A few ports say little of how far they scatter, so that what is stored of them is compared
        too, where there is any; what is compared shares the rate of false alarms.
        """
        chain, matrix = self._chain, self._matrix
        if np.isfinite(matrix).sum() < 4:
            return
        effects = take_apart(matrix)
        changed = self._changes(faults)
        error = self._error / (1 + bool(changed) + bool(self._before))
        searches = [("those of the others", outliers(effects, least=WORTH_DB, error=error))]
        if changed:
            since = self._since_references(effects, changed, error)
            searches.append(("when its references were taken", list(since)))
        if self._before:
            since_nights = outliers_since(matrix, self._before, least=WORTH_DB, error=error)
            searches.append((f"in the {len(self._before)} nights before", since_nights))
        named: set[tuple[int | None, int | None]] = set()
        powers = power_changes(chain, self._losses.checks)
        for than, found in searches:
            for one in found:
                place = one.row, one.column
                if not named.isdisjoint({place, (one.row, None), (None, one.column)}):
                    continue
                shown = powers.get(chain.ingress[one.row], 0.0) if one.row is not None else 0.0
                if one.column is None and shown > one.value / 2:
                    continue  # dirt behind the monitor of an ingress does not let it show more
                named.add(place)
                span = (one.value, one.lower, one.upper)
                if one.row is not None and one.column is not None:
                    circuit = Circuit(chain.ingress[one.row], chain.egress[one.column])
                    yield _fault(
                        "lossy circuit",
                        circuit_subject(chain.switch, circuit),
                        "more than its two ports explain: do its mirrors need to be aligned anew?",
                        span,
                    )
                    continue
                side, port = (
                    ("ingress", chain.ingress[one.row])
                    if one.row is not None
                    else ("egress", chain.egress[one.column or 0])
                )
                # A monitor behind the connector does not see what the fiber before it loses.
                inside = chain.method == "monitors" and port not in chain.launched
                kind: FaultKind = "dirty connector" if inside else "dirty connector or bent fiber"
                yield _fault(
                    kind,
                    f"{chain.switch}.{port}",
                    f"every circuit of this {side} loses that much more than {than}: "
                    f"clean {side} {port}" + ("" if inside else " and look along its fiber"),
                    span,
                )

    # ------------------------------------------------------------------------- inside

    def _changes(self, faults: Iterable[Finding]) -> dict[Circuit, tuple[float, Budget]]:
        """Return by how much the check standard's circuits lost more since the references."""
        losses = self._losses
        if not losses.checks:
            return {}
        beside = _misread_checks(losses, faults)
        return changes(self._chain, losses.checks, *_check_noise(losses), beside=beside)

    def _since_references(
        self, effects: Effects, changed: Mapping[Circuit, tuple[float, Budget]], error: float
    ) -> Iterator[Outlier]:
        """Circuits of the check standard that lose more, with the ports that explain it.

        A part explains it if it loses more than its like by at least a third of the change.
        """
        chain = self._chain
        for circuit, (change, budget) in changed.items():
            factor = float(scipy.special.stdtrit(budget.degrees, 1 - error / len(changed)))
            if change <= max(WORTH_DB, factor * budget.standard):
                continue
            row, column = chain.ingress.index(circuit[0]), chain.egress.index(circuit[1])
            parts = {
                (row, None): effects.rows[row],
                (None, column): effects.columns[column],
                (row, column): effects.rest[row, column],
            }
            parts = {at: db for at, db in parts.items() if db > max(WORTH_DB, change / 3)}
            for (of_row, of_column), db in parts.items():
                value = change - (sum(parts.values()) - db)
                ends = value - budget.expanded, value + budget.expanded
                yield Outlier(of_row, of_column, value, *ends)

    def _still(self, readings: Numbers) -> list[int]:
        seen = np.isfinite(readings).any(axis=(0, 1))
        if not seen.any():
            return []
        places = np.flatnonzero(seen)
        return [int(places[n]) for n in standing_still(readings[:, :, seen])]

    def _entering(self, index: int) -> Numbers:
        """Input power at an ingress in each setting, in dBm."""
        readings = self._losses.entered[:, :, index]
        known = np.isfinite(readings).any(axis=1)
        levels = np.full(len(readings), np.nan)
        levels[known] = np.nanmean(readings[known], axis=1)
        return levels

    def _by_time(self, index: int) -> Numbers:
        """By how much losses of an ingress exceeded those of their egress, setting by setting."""
        effects = take_apart(self._matrix)
        levels = np.full(len(self._seconds), np.nan)
        when = {at: place for place, at in enumerate(self._losses.times)}
        ingress = self._chain.ingress[index]
        for (start, egress), loss in self._losses.losses.items():
            if start == ingress:
                column = self._chain.egress.index(egress)
                levels[when[loss.at]] = self._matrix[index, column] - effects.columns[column]
        return levels


def _fault(
    kind: FaultKind, subject: str, about: str, size: tuple[float, float, float] | None = None
) -> Finding:
    """Return a fault.

    size: by how much, in dB, with its 95 % interval; of a drift, over the whole measurement. about:
    what follows from it, and what to do.
    """
    if size is None:
        return Finding(kind, f"{subject}: {kind}: {about}", (subject,))
    value, lower, upper = size
    size_written = interval(lower, upper, "dB", value)
    sentence = (
        f"{subject}: {kind}: {size_written.value} (95 % interval {size_written.ends}); {about}"
    )
    return Finding(kind, sentence, (subject,), (), value, lower, upper, "dB")
