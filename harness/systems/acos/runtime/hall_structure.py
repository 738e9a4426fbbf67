"""A data centre that a testbed file describes by its sizes; its switches are arrays of equal ones.

The file has `fabric: {gpus: 4096, node_backups: 1, rack_backups: 1}` and no parts: 4,096 GPUs have
some 300,000 switches. `check` wires it, and traces every topology of two jobs that between them
move each kind of adaptation switch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lightrig.harness.systems.acos.generator import switch_name
from lightrig.harness.systems.acos.planning.datacentre import (
    HALLS,
    DataCentre,
    Hall,
    build_hall,
    join_places,
)
from lightrig.harness.systems.acos.planning.datacentre_plans import configure_hall, hall_errors
from lightrig.harness.systems.acos.planning.optics import Array, FabricError
from lightrig.harness.systems.acos.planning.replanning import Failures, Replanned, Unjoined, replan
from lightrig.testbeds import PlanError, Vocabulary
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.schema import Document

PLANS: Mapping[str, tuple[int, int, int]] = {
    f"tp{tp}-pp{pp}-ep{ep}": (tp, pp, ep)
    for tp, pp, ep in product((4, 8, 16), (8, 4), (64, 32, 16))
}
"""Degrees of TP, PP and EP by the name of the plan."""

_CHECKED = ("tp8-pp8-ep64", "tp4-pp4-ep16")
_FLAGS = ("node_backups", "rack_backups", "double_offsets")
_NODE = re.compile(r"rack(\d+)-node(\d+)")
_RACK = re.compile(r"rack(\d+)")
_SHOWN = 8


class HallStructure:
    """A data centre of 1,024, 4,096 or 32,768 active GPUs; a `PlannedFabric`.

    Raises `TestbedError` with what is wrong in the file, or with its fabric.
    """

    def __init__(self, path: str | Path, vocabulary: Vocabulary | None = None) -> None:
        self.path = Path(path)
        document, located, findings = read_as(Document, self.path)
        sizes = document.fabric or {}
        for key in ("switches", "servers", "instruments", "fibers", "plans"):
            if located.data.get(key):
                findings.add((key,), f"expected no {key}: they are made of the sizes", of_key=True)
        for name in sizes.keys() - {"gpus", *_FLAGS}:
            expected = ", ".join(("gpus", *_FLAGS))
            message = f"found the unknown size {name!r}; expected one of {expected}"
            findings.add(("fabric", name), message, of_key=True)
        for name in sizes.keys() & set(_FLAGS):
            if sizes[name] != 1:
                findings.add(("fabric", name), f"found {sizes[name]}, expected 1, or no {name}")
        if sizes.get("gpus") not in HALLS:
            listed = ", ".join(map(str, HALLS))
            message = f"found {sizes.get('gpus', 'no gpus')}, expected gpus of {listed}"
            findings.add(("fabric",), message, of_key=True)
        findings.raise_if_any()
        self.name, self.about = document.name, document.about
        self.lab_folder = self.path.parent / document.lab_folder if document.lab_folder else None
        self.made = _built(sizes, findings)
        self.notes = tuple(f"{self.path}: {note}" for note in _cannot(self.made.hall))

    @property
    def plans(self) -> Sequence[str]:
        """Names of the plans."""
        return tuple(PLANS)

    def parts(self) -> Iterator[tuple[str, int, list[str]]]:
        """See `SizedFabric`."""
        hall, fabric = self.made.hall, self.made.fabric
        kinds: Counter[str] = Counter()
        for array in fabric.arrays.values():
            kinds[array.kind] += array.count
        counted = [f"{count} {kind}" for kind, count in sorted(kinds.items())]
        yield "switches", fabric.switches, counted
        arrays = [f"{a.name} ({a.count} {a.kind})" for a in fabric.arrays.values()]
        yield "arrays", len(arrays), arrays
        around = [f"8 stages x {hall.positions} racks"]
        around[0] += "".join(f" x {size}" for size in hall.further)
        yield "racks", hall.columns, around
        yield "servers", hall.columns * hall.nodes, [f"{hall.nodes} a rack, of 8 GPUs"]
        yield "GPUs", hall.gpus, [f"{hall.active} with tasks"]
        yield "NIC ports", hall.gpus * fabric.lanes, []
        yield "fibers", int((fabric.sinks() >= 0).sum()) + hall.gpus * fabric.lanes, []
        yield "plans", len(PLANS), list(PLANS)

    def planned(self, plan: str, failed: Sequence[str]) -> tuple[bool, dict[str, Any]]:
        """Return whether a plan holds with what has failed, and what it is, as JSON has it.

        failed: names such as rack3, rack3-node2, or of switches. Raises `PlanError` for others.
        """
        if plan not in PLANS:
            raise PlanError(f"{self.path} has no plan {plan!r}; its plans are {', '.join(PLANS)}")
        found = replan(self.made, PLANS[plan], self._failures(failed))
        states = {
            array.name: {
                str(state): int(count)
                for state, count in zip(
                    *np.unique(found.plan.states[array.part], return_counts=True), strict=True
                )
            }
            for array in self.made.fabric.arrays.values()
        }
        return found.is_whole, {
            "plan": plan,
            "failed": list(failed),
            "outcome": _outcome(found),
            "moved_tasks": found.moved,
            "changed_switches": found.changed,
            "left_out_for_switches": list(found.passed),
            "shuffled": list(found.shuffled),
            "expander_fibers_gone_round": found.around,
            "unjoined": len(found.unjoined),
            "unjoined_fibers": [self._fiber(each) for each in found.unjoined],
            "states": states,
        }

    @staticmethod
    def tell(document: Mapping[str, Any]) -> list[str]:
        """Return what `planned` found, as lines for a person to read."""
        states = document["states"]
        lines = [f"{document['plan']}: {document['outcome']}"]
        if document["failed"]:
            lines.append(
                f"  without {', '.join(document['failed'])}: {document['moved_tasks']} tasks move, "
                f"{document['changed_switches']} switches change"
            )
        if document["left_out_for_switches"]:
            lines.append(f"  left out for switches: {', '.join(document['left_out_for_switches'])}")
        if document["expander_fibers_gone_round"]:
            count = document["expander_fibers_gone_round"]
            lines.append(f"  traffic goes round {count} fibers of expanders")
        if fibers := document["unjoined_fibers"]:
            more = f" and {len(fibers) - _SHOWN} more (--json)" if len(fibers) > _SHOWN else ""
            lines.append(f"  no setting joins {', '.join(fibers[:_SHOWN])}{more}")
        width = max(map(len, states))
        for name, counts in states.items():
            listed = ", ".join(f"{count} in state {state}" for state, count in counts.items())
            lines.append(f"  {name:<{width}}  {listed}")
        return lines

    def _failures(self, names: Sequence[str]) -> Failures:
        racks, nodes, switches = set(), set(), set()
        hall = self.made.hall
        for name in names:
            if match := _NODE.fullmatch(name):
                nodes.add((int(match[1]), int(match[2])))
            elif match := _RACK.fullmatch(name):
                racks.add(int(match[1]))
            else:
                switches.add(self._switch(name))
        for rack, node in (*nodes, *((rack, 0) for rack in racks)):
            if rack >= hall.columns or node >= hall.nodes:
                raise PlanError(
                    f"found rack{rack}-node{node}, expected racks 0 to {hall.columns - 1} with "
                    f"nodes 0 to {hall.nodes - 1}"
                )
        return Failures(frozenset(racks), frozenset(nodes), frozenset(switches))

    def _switch(self, name: str) -> int:
        """Return the number of a switch, named as in files of smaller clusters."""
        for array in self.made.fabric.arrays.values():
            template = re.escape(switch_name(array, ["*"] * _places(array)))
            match = re.fullmatch(template.replace(r"\*", r"(\d+)"), name)
            if match is None:
                continue
            place = [int(each) for each in match.groups()]
            shape = array.shape
            if all(at < size for at, size in zip(place, shape, strict=True)):
                return array.first + int(np.ravel_multi_index(place, shape))
            last = switch_name(array, [size - 1 for size in shape])
            raise PlanError(f"found {name}; the last one of its array is {last}")
        arrays = [switch_name(a, [0] * _places(a)) for a in self.made.fabric.arrays.values()]
        raise PlanError(
            f"found {name}, expected rackR, rackR-nodeN or a switch, such as "
            f"{', '.join(arrays[2:5])}"
        )

    def _fiber(self, each: Unjoined) -> str:
        j, rack, node = np.unravel_index(each.gpu, self.made.gpu.shape)
        return f"rack{rack}-node{node}.gpu{j}.p{each.lane} ({each.topology})"


def _outcome(found: Replanned) -> str:
    if not found.is_whole:
        return f"refused, {len(found.unjoined)} fibers that the job needs cannot be joined"
    if found.shuffled:
        return f"re-formed, with links between unequal ranks in {', '.join(found.shuffled)}"
    return "re-formed" if found.changed or found.around else "as it is"


def _places(array: Array) -> int:
    return len(array.shape)


def _built(sizes: Mapping[str, int], findings: Findings) -> DataCentre:
    base = HALLS[sizes["gpus"]]
    flags = {name: name in sizes for name in _FLAGS}
    try:
        made = build_hall(Hall(base.ring, base.further, **flags))
        for plan in _CHECKED:
            for error in hall_errors(made, configure_hall(made, *PLANS[plan])):
                findings.add(("fabric",), f"{plan}: {error}", of_key=True)
    except FabricError as error:
        findings.add(("fabric",), str(error), of_key=True)
    findings.raise_if_any()
    return made


def _cannot(hall: Hall) -> Iterator[str]:
    """Yield what a data centre cannot have, and what of the paper's backup racks is meant."""
    if hall.rack_backups:
        count = hall.columns - hall.columns // hall.positions * hall.ring
        wiring = (
            f"the DP ring between racks is the resilient one: {hall.ring} racks and a backup, "
            f"{count} backup racks in all"
        )
        if hall.ring < 8:
            wiring += (
                "; at 1,024 GPUs the paper makes the pipeline that ring (§5.3), eight stages and "
                "one backup, 2 in all, which is not built"
            )
        yield f"{wiring}; two failed racks of a ring are refused"
    else:
        yield "without backup racks a failed rack is refused"
    if hall.node_backups:
        yield "a second failed node of a rack takes " + (
            "the rack with it" if hall.rack_backups else "the job with it"
        )
        if not hall.double_offsets:
            yield (
                "links between racks have single offsets (Table 6; the text of §5.3 has double "
                "ones): failed nodes in neighbouring racks can leave links between unequal ranks"
            )
    else:
        yield "without backup nodes a failed node takes " + (
            "its rack with it" if hall.rack_backups else "the job with it"
        )
    if hall.node_backups or hall.rack_backups:
        where = "at one place" if len(join_places(hall)) == 1 else "at either of two places"
        yield (
            f"rings of racks merge for PP 4 {where}, by 2x2 on regular links: a failed node or "
            "rack at each of them is refused"
        )
    if hall.further:
        sizes = " x ".join(map(str, (hall.ring, *hall.further)))
        yield f"the paper prints no sizes of its 4D torus: {sizes} between racks are chosen here"
    yield (
        "DP rings of racks and nodes through a failed 2x2 that both of its nodes need, such as one "
        "between the halves of a split ring, are refused (m28)"
    )
    yield "a service drives 144 GPUs at most: these are planned, and not orchestrated"


def layout_refusal(path: Path) -> str:
    """Return why a file of sizes is not orchestrated."""
    return (
        f"{path} has the sizes of a data centre, which check and plan read; a service drives "
        "18, 72 or 144 GPUs"
    )
