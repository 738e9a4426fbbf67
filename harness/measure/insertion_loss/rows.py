"""Insertion loss of every circuit, recorded: losses, budgets, faults and closure as rows."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import overload

import numpy as np
import scipy

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.findings import Finding
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.insertion_loss.chains import NothingToMeasureError, chains
from lightrig.harness.measure.insertion_loss.check_standards import check_rows
from lightrig.harness.measure.insertion_loss.faults import (
    check_shifts,
    find_faults,
    misread,
)
from lightrig.harness.measure.insertion_loss.matrix import (
    FIRST_READINGS,
    Loss,
    Losses,
    measure_losses,
)
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.measure.measured import Measured, NothingMeasuredError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.closure import judge_deviations
from lightrig.harness.statistics.uncertainty import Component, combine, en_number, pooled
from lightrig.instruments.core.capabilities import ClimateChamber, FactoryCalibrated
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import Circuit, LightrigError, Plan, Port
from lightrig.testbeds.plans import circuit_in, circuit_subject
from lightrig.testbeds.references import SAME_NM, Calibration, ReferenceSet

LOSS, RELATIVE = "insertion_loss", "insertion_loss.relative"
NOT_INCLUDED = ("check standard", "drift", "linearity", "polarization", "wavelength")
"""What a loss depends on that is in its budget only where references state or show it."""

_C_NM_THZ = 299_792.458
"""Speed of light: wavelength in nm times frequency in THz."""


@overload
def measure_insertion_loss(fabric: Fabric, recording: Recording) -> list[Finding]: ...


@overload
def measure_insertion_loss(fabric: Fabric, recording: Recording, circuit: str) -> Measured: ...


def measure_insertion_loss(
    fabric: Fabric, recording: Recording, circuit: str | None = None
) -> list[Finding] | Measured:
    """Measure the insertion loss of every measurable circuit; return the faults found.

    Losses without a reference are recorded as `insertion_loss.relative` and have no limit.
    The fabric restores the established circuits. circuit: such as "ocs 3>17", to measure that one
    alone against its references: the circuits are as before afterwards, and its loss is returned,
    with the 95 % interval of its budget.

    Raises:
        NothingToMeasureError: no switch has an observer of its light, or none of that circuit.
        RelativeLossError: that circuit has no references.
        InstrumentError: an instrument refused or failed.
    """
    if circuit is not None:
        return _one_loss(fabric, recording, circuit)
    bench, found = fabric.bench, list[Finding]()
    references = references_of(bench)
    measurable = chains(bench, references)
    if not references.simulated:
        for each in references.sets:
            recording.note_once(f"references {each.name}", _traceability(each))
    nights = cache(lambda nm: recording.before(LOSS, {"wavelength_nm": nm}))
    for chain in measurable:
        losses = measure_losses(fabric, chain)
        before = [losses.matrix_of(night) for night in nights(round(chain.wavelength_nm))]
        faults = find_faults(losses, bench.testbed, switches=len(measurable), before=before)
        losses = losses.without(misread(losses, faults))
        fabric.power_budget.add_measured(chain.switch, losses.known())
        conditions = {**temperature(bench), **recording.conditions}
        recording.record(all_rows(losses, faults, bench, conditions))
        reasons = [each.relative for each in losses.losses.values()]
        if reasons and None not in reasons:
            recording.missing[LOSS] = (
                f"All {len(reasons)} losses of {chain.switch} are relative: {reasons[0]}. "
                f"`lightrig reference {fabric.testbed.path}` takes references."
            )
        if (lack := not_included(losses)) is not None:
            recording.note_once(f"polarization {chain.switch}", lack)
        recording.found(faults)
        found += faults
    return found


class RelativeLossError(LightrigError):
    """Raised where a loss would be relative only, since no reference is valid for it."""


def _one_loss(fabric: Fabric, recording: Recording, subject: str) -> Measured:
    """Measure and record the loss of one circuit against its references."""
    bench, path = fabric.bench, fabric.testbed.path
    name, circuit = circuit_in(subject) or ("", Circuit(0, 0))
    if name not in bench.switches:
        raise NothingToMeasureError(
            f"found {subject!r}, expected a switch of {path} and its circuit, such as "
            f"'{next(iter(bench.switches), 'ocs')} 1>2'"
        )
    measurable = chains(bench, references_of(bench))
    chain = next((each for each in measurable if each.switch == name), None)
    if chain is None:
        raise NothingToMeasureError(f"no circuit of {name} can be measured")
    if circuit.ingress not in chain.ingress or circuit.egress not in chain.egress:
        sides = (", ".join(map(str, ports)) for ports in (chain.ingress, chain.egress))
        raise NothingToMeasureError(
            f"{subject} cannot be measured: nothing reads the light at both of its ports; circuits "
            f"can that lead from {' to '.join(sides)}"
        )
    if (why := chain.relative(*circuit)) is not None:
        raise RelativeLossError(
            f"the loss of {subject} would be relative: {why}\n"
            f"  try       `lightrig reference {path}`, which takes references; then again"
        )
    before = Plan("as before", {name: fabric.present(name)[0]})
    try:
        losses = measure_losses(fabric, chain.of_circuit(circuit))
    finally:
        fabric.apply(before, check_budget=False)
    loss = losses.losses.get(circuit)
    if loss is None:
        raise NothingMeasuredError(
            f"no light has arrived through {subject}\n"
            f"  try       is its source on, are its connectors in? `lightrig get {path} {name}`"
        )
    conditions = {**temperature(bench), **recording.conditions}
    recording.record([*loss_rows(losses, conditions), *closure_rows(losses, bench)])
    half = loss.budget.expanded
    lacks = ["making the circuit again", *lacking_components(losses)]
    remark = f"not included: {', '.join(lacks)}"
    return Measured(
        LOSS,
        subject,
        loss.value,
        loss.value - half,
        loss.value + half,
        "dB",
        FIRST_READINGS,
        name in bench.simulated,
        remark=remark,
    )


def _traceability(references: ReferenceSet) -> str:
    """Return a sentence on the calibrations behind a set of references."""
    stated = references.calibrations or (Calibration(),) * len(references.instruments)
    each = zip(references.instruments, stated, strict=True)
    instruments = "; ".join(f"{name}: {calibration}" for name, calibration in each)
    return f"references {references.name} of {references.taken}: {instruments}"


def quantity_of(loss: Loss) -> str:
    """Return the quantity of a loss; one without a reference is relative."""
    return LOSS if loss.relative is None else RELATIVE


def loss_rows(losses: Losses, conditions: Mapping[str, Scalar]) -> Iterator[Row]:
    """A row a circuit: its loss in dB with its 95 % interval.

    The condition `not_included` names what the budget of losses against a reference lacks.
    """
    row_conditions = {"wavelength_nm": round(losses.chain.wavelength_nm), **conditions}
    lacks = ", ".join(lacking_components(losses))
    for circuit, loss in losses.losses.items():
        ends = loss.value - loss.budget.expanded, loss.value + loss.budget.expanded
        subject = circuit_subject(losses.chain.switch, circuit)
        of_loss = row_conditions
        if lacks and loss.relative is None:
            of_loss = {**row_conditions, "not_included": lacks}
        yield Row(subject, quantity_of(loss), loss.value, *ends, "dB", loss.at, of_loss)


def budget_rows(losses: Losses, conditions: Mapping[str, Scalar]) -> Iterator[Row]:
    """A row a component: its standard uncertainty in dB, the median of all losses, its ends.

    Their conditions say how the losses were measured, of what kind the component is, and the
    degrees of freedom, if finite; of the combined one, coverage factor and expanded uncertainty.
    """
    shares: dict[str, list[float]] = {}
    stated: dict[str, dict[str, Scalar]] = {}
    for loss in losses.losses.values():
        together: dict[str, float] = {}
        for part in loss.budget.components:
            together[part.name] = together.get(part.name, 0.0) + part.contribution**2
            stated[part.name] = {"type": f"{part.evaluation}, {part.distribution}"}
            stated[part.name] |= _degrees(part.degrees)
        together["combined"] = loss.budget.standard**2
        for name, square in together.items():
            shares.setdefault(name, []).append(square**0.5)
    if losses.losses:
        budgets = [loss.budget for loss in losses.losses.values()]
        middle = sorted(budgets, key=lambda one: one.expanded)[len(budgets) // 2]
        stated["combined"] = {"factor": middle.factor, "expanded_db": middle.expanded}
        stated["combined"] |= _degrees(middle.degrees)
    for name, found in shares.items():
        row_conditions = {**conditions, "method": losses.chain.method, **stated[name]}
        quantity = f"loss.budget.{name.replace(' ', '_')}"
        middle_db, low, high = float(np.median(found)), min(found), max(found)
        yield Row(
            subject=losses.chain.switch,
            quantity=quantity,
            value=middle_db,
            lower=low,
            upper=high,
            unit="dB",
            time_ns=losses.times[0],
            conditions=row_conditions,
        )


def _degrees(degrees: float) -> dict[str, Scalar]:
    return {"degrees": round(degrees, 1)} if math.isfinite(degrees) else {}


def lacking(names: Collection[str]) -> list[str]:
    """Return what a budget with components of these names does not include.

    A check standard that is compared with its references shows how meters have drifted since.
    """
    shown = {*names, "drift"} if "check standard" in names else {*names}
    return [name for name in NOT_INCLUDED if name not in shown]


def lacking_components(losses: Losses) -> list[str]:
    """Return what the budget of losses against a reference lacks; of modules nothing is stated."""
    absolute = [loss for loss in losses.losses.values() if loss.relative is None]
    if not absolute or losses.chain.method == "modules":
        return []
    return lacking({part.name for loss in absolute for part in loss.budget.components})


def not_included(losses: Losses) -> str | None:
    """Return a sentence on what the budget of the losses lacks; None where it lacks nothing."""
    names = lacking_components(losses)
    if not names:
        return None
    stated = ", ".join(f"{name}: ..." for name in names if name != "check standard")
    ways = [f"state `uncertainty: {{{stated}}}` of the references"] if stated else []
    if "check standard" in names:
        ways.append("take the references with `lightrig reference`, which notes their `checks`")
    light = [name for name in names if name in ("polarization", "wavelength")]
    meter = [name for name in names if name not in light]
    unlike = [f"by light of another {' or '.join(light)}"] if light else []
    unlike += [f"by a meter whose {' or '.join(meter)} differs"] if meter else []
    return (
        f"insertion loss of {losses.chain.switch}: "
        f"{', '.join(f'{name} not included' for name in names)}; a loss {', or '.join(unlike)} may "
        f"lie outside its interval; {'; '.join(ways)}"
    )


def repeatability_rows(losses: Losses, conditions: Mapping[str, Scalar]) -> Iterator[Row]:
    """Deviation of each set-up of a circuit from its mean loss, and their standard deviation.

    Deviations have the interval due to noise; the standard deviation excludes noise and has its
    95 % interval for normally distributed deviations.
    """
    if losses.repeatability is None:
        return
    at, name = losses.times[-1], losses.chain.switch
    # A number with a fraction: beside a standard deviation it distinguishes no cases of nights.
    row_conditions = {**conditions, "wavelength_nm": float(losses.chain.wavelength_nm)}
    mean_of = losses.noise.standard / math.sqrt(losses.readings)
    half = combine([Component("noise", mean_of, losses.noise.degrees)]).expanded
    for circuit, makings in losses.makings.items():
        mean = math.fsum(makings) / len(makings)
        for number, making in enumerate(makings):
            more = making - mean
            stated = {**row_conditions, "repetition": number}
            ends = more - half, more + half
            yield Row(circuit_subject(name, circuit), "loss.remade", more, *ends, "dB", at, stated)
    found = pooled(losses.makings.values(), "repeatability")
    low, high = (
        math.sqrt(max(found.standard**2 * found.degrees / quantile - mean_of**2, 0.0))
        for quantile in scipy.special.chdtri(found.degrees, (0.025, 0.975))
    )
    value = min(max(losses.repeatability.standard, low), high)
    yield Row(name, "insertion_loss.repeatability", value, low, high, "dB", at, row_conditions)


def fault_rows(
    losses: Losses, faults: Sequence[Finding], conditions: Mapping[str, Scalar]
) -> Iterator[Row]:
    """A row for each thing that is wrong: by how many dB, and as condition what it is."""
    for fault in faults:
        size = fault.value or 0.0, fault.lower or 0.0, fault.upper or 0.0
        stated = {**conditions, "fault": fault.kind}
        yield Row(fault.subject, "loss.fault", *size, "dB", losses.times[-1], stated)


def factory_rows(losses: Losses, bench: Bench, conditions: Mapping[str, Scalar]) -> Iterator[Row]:
    """A row a circuit that the switch stores a factory loss of: how far they disagree.

    The stated accuracy is taken for an expanded uncertainty (k = 2). A factory loss at another
    wavelength is none of this circuit's; its temperature is stated as a condition.
    """
    switch = bench.switches[losses.chain.switch]
    if not isinstance(switch, FactoryCalibrated):
        return
    try:
        stored = switch.factory_losses()
    except DeniedError:  # this unit stores none
        return
    for circuit, loss in losses.losses.items():
        factory = stored.get(circuit)
        if loss.relative is not None or factory is None:
            continue
        if abs(_C_NM_THZ / factory.frequency_thz - losses.chain.wavelength_nm) > SAME_NM:
            continue
        difference = loss.value - factory.loss_db
        value = en_number(difference, loss.budget.expanded, factory.accuracy_db)
        stated = {
            **conditions,
            "difference_db": round(difference, 3),
            "factory_thz": factory.frequency_thz,
            "factory_c": factory.temperature_c,
        }
        subject = circuit_subject(losses.chain.switch, circuit)
        yield Row(subject, "insertion_loss.factory_en", value, value, value, "1", loss.at, stated)


def temperature(bench: Bench) -> dict[str, Scalar]:
    """Return the temperature of the climate chamber, if there is one."""
    for name, spec in bench.testbed.instruments.items():
        if spec.kind == "climate_chamber":
            chamber: ClimateChamber = bench.instruments[name]  # type: ignore[assignment]
            return {"temperature_c": round(chamber.temperature(), 2)}
    return {}


def closure_rows(losses: Losses, bench: Bench) -> Iterator[Row]:
    """Share of the intervals that hold the loss of the measured path in a simulated world."""
    name = losses.chain.switch
    found = [deviation for _, deviation in normalized_errors(losses, bench)]
    if found:
        yield closure_row(name, "loss.closure", judge_deviations(found), losses.times[-1])


def normalized_errors(losses: Losses, bench: Bench) -> Iterator[tuple[Circuit, float]]:
    """Of each loss against a reference: measured less true, over half its 95 % interval.

    The true loss is that of the measured path, faults of the simulated lab included, found or not:
    of the circuit, of the fiber before it where no observer reads the light that enters, and of the
    fiber behind it where the observer is at its end. A circuit of a drifting laser whose power is
    not read is left out, since its true loss depends on the moment.
    """
    world, chain = bench.world, losses.chain
    if world is None or chain.switch not in bench.simulated:
        return
    cabling, fading = bench.testbed.cabling, world.fading()
    for circuit, loss in losses.losses.items():
        if loss.relative is not None:
            continue
        true = world.loss(chain.switch, circuit)
        if circuit.ingress in chain.launched:
            if cabling.transmitter(chain.switch, circuit.ingress) in fading:
                continue
            true += world.lost_in_fiber(Port(chain.switch, str(circuit.ingress)))
        behind = cabling.receiver(chain.switch, circuit.egress)
        if chain.method != "monitors" and behind is not None:
            true += world.lost_in_fiber(behind)
        yield circuit, (loss.value - true) / loss.budget.expanded


def inside(losses: Losses, bench: Bench) -> Iterable[bool]:
    """For each loss against a reference, whether its interval holds the truth."""
    return (abs(error) <= 1 for _, error in normalized_errors(losses, bench))


def all_rows(
    losses: Losses, faults: Sequence[Finding], bench: Bench, conditions: Mapping[str, Scalar]
) -> list[Row]:
    """Return everything that is to be recorded of one switch."""
    return [
        *loss_rows(losses, conditions),
        *repeatability_rows(losses, conditions),
        *budget_rows(losses, conditions),
        *fault_rows(losses, faults, conditions),
        *check_rows(
            losses.chain.switch,
            losses.checks,
            check_shifts(losses, faults),
            bench.testbed.switches[losses.chain.switch].check_standard.limit_db,
            conditions,
        ),
        *factory_rows(losses, bench, conditions),
        *closure_rows(losses, bench),
    ]
