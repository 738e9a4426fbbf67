"""Pooled results of labs: a cell for each lab and quantity, and the criteria that each meets."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy

from tests.campaigns.hard_labs.found import Lab
from tests.campaigns.hard_labs.power import ERROR, POWER, judge, seeds_needed

COVERED = 0.95
WIDEST = 1.5
"""Most that the median width may be, of that of an estimator that knows the noise.

Of hard bounds that is what the observer leaves open whatever its noise is (`Found.holds`); of 95 %
intervals it is the range of the middle 95 % of all errors, and what the observer leaves open.
"""
WRONG_PASS, WRONG_FAIL = 0.07, 0.01
"""Most verdicts that may be wrong with the truth at the limit, and at 0.8 of it (upper bounds)."""
STATED = frozenset({"insertion_loss"})
"""Quantities that state a standard uncertainty, where one that is too large is wrong as well.

Intervals of counts and of order statistics have at least their confidence.
"""
NAMED = 0.95
"""Least share of the seeds in which a cause that must be named is."""

Line = Mapping[str, Any]


def clopper_pearson(k: float, n: float, confidence: float) -> tuple[float, float]:
    """Return both one-sided bounds of a share; k and n may be numbers of effective samples."""
    lower = scipy.special.betaincinv(k, n - k + 1, 1 - confidence) if k > 0 else 0.0
    upper = scipy.special.betaincinv(k + 1, n - k, confidence) if k < n else 1.0
    return float(lower), float(upper)


def effective(missed: Sequence[int], counted: Sequence[int]) -> float:
    """Return the effective number of independent intervals in those of some seeds.

    From the scatter of the share of misses from seed to seed; without it, one a seed.
    """
    n, k = np.array(counted, float), np.array(missed, float)
    total = n.sum()
    share = k.sum() / total
    if not 0 < share < 1 or n.size < 2:
        return float(n.size)
    between = float((((k - share * n) / total) ** 2).sum()) * n.size / (n.size - 1)
    return float(min(max(share * (1 - share) / between, 1.0), total))


def cells_of(lines: Sequence[Line], several: int = 1) -> dict[str, dict[str, Any]]:
    """Return the cells of one lab by quantity, from the campaign's lines of its seeds.

    several: number of cells over which the bounds that decide are corrected.
    """
    by_quantity: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        for quantity, cell in line.get("cells", {}).items():
            by_quantity[quantity].append({**cell, "seed": line["seed"]})
    return {quantity: _cell(quantity, parts, several) for quantity, parts in by_quantity.items()}


def _cell(quantity: str, parts: Sequence[Mapping[str, Any]], several: int) -> dict[str, Any]:
    n, missed = sum(p["n"] for p in parts), sum(p["missed"] for p in parts)
    errors = np.array([e for p in parts for e in p["errors"]])
    widths = np.array([w for p in parts for w in p["widths"]])
    kind = next((p["kind"] for p in parts if p["n"]), parts[0]["kind"])
    cell: dict[str, Any] = {
        "kind": kind,
        "seeds": len(parts),
        "n": n,
        "missed": missed,
        "declined": sum(p["declined"] for p in parts),
    }
    if not n:
        return cell
    informed, width = max(p["resolution"] for p in parts), float(np.median(widths))
    if kind == "interval":
        tail = (1 - COVERED) / 2
        informed += float(np.diff(np.quantile(errors, [tail, 1 - tail]))[0])
    cell |= {
        "bias": round(sum(p["bias"] for p in parts) / n, 4),
        "width": round(width, 4),
        "informed": round(informed, 4),
        "ratio": round(width / informed, 2) if informed > 0 else None,
    }
    if kind == "interval":
        with_data = [p for p in parts if p["n"]]
        worth = effective([p["missed"] for p in with_data], [p["n"] for p in with_data])
        held = (1 - missed / n) * worth
        lower, upper = clopper_pearson(held, worth, 0.975)
        decides = clopper_pearson(held, worth, 1 - 0.05 / several)[1]
        normal = scipy.special.ndtri(0.975)
        deviations = [
            2 * normal * p["errors"][place] / p["widths"][place]
            for p in with_data
            if p["widths"][place := p["seed"] % len(p["errors"])] > 0
        ]
        pooled = judge(deviations, ERROR / several) if len(deviations) > 1 else None
        cell |= {
            "coverage": [round(x, 4) for x in (1 - missed / n, lower, upper)],
            "too few": decides < COVERED,
            "deviations": None if pooled is None else [round(pooled.mean, 3), round(pooled.sd, 3)],
            "pooled": [len(deviations), seeds_needed(ERROR / several)],
            "biased": pooled is not None and pooled.bias,
            "wrong by a factor": pooled is not None
            and pooled.factor
            and (pooled.sd > 1 or quantity in STATED),
        }
    return cell


def verdicts_of(lines: Iterable[Line]) -> dict[str, dict[str, Any]]:
    """Return the numbers of right, wrong and undecided verdicts of one lab, by what was judged."""
    total: defaultdict[str, dict[str, Any]] = defaultdict(
        lambda: {"right": 0, "wrong": 0, "undecided": 0}
    )
    for line in lines:
        for what, counts in line.get("verdicts", {}).items():
            for word, count in counts.items():
                total[what][word] += count
    for counts in total.values():
        n = counts["right"] + counts["wrong"] + counts["undecided"]
        counts["bounds"] = [round(x, 4) for x in clopper_pearson(counts["wrong"], n, 0.95)]
    return dict(total)


def most_wrong(what: str) -> float:
    """Return the greatest share of wrong verdicts that is allowed, by what was judged."""
    return WRONG_FAIL if what.endswith("at 0.8") else WRONG_PASS


def summary(labs: Mapping[str, Lab], lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """Return cells, verdicts and criteria of each lab that was run."""
    by_lab: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_lab[line["lab"]].append(line)
    several = max(sum(len(cells_of(each)) for each in by_lab.values()), 1)
    found = {}
    for name in labs:
        if of_lab := by_lab.get(name):
            named = [line["named"] for line in of_lab if line.get("named") is not None]
            found[name] = {
                "seeds": len(of_lab),
                "seconds": round(math.fsum(line["seconds"] for line in of_lab) / len(of_lab), 3),
                "cells": cells_of(of_lab, several),
                "verdicts": verdicts_of(of_lab),
                "named": [sum(named), len(named)] if named else None,
                "errors": sorted({line["error"] for line in of_lab if "error" in line}),
            }
            found[name]["broken"] = list(broken(labs[name], found[name]))
    return found


def broken(lab: Lab, found: Mapping[str, Any]) -> Iterator[str]:
    """Return a sentence for each promise that the results of a lab break."""
    yield from found["errors"]
    for quantity, cell in found["cells"].items():
        most = lab.declined_by_chance * (cell["n"] + cell["declined"])
        if cell["declined"] > most and quantity not in lab.declined:
            yield f"{quantity}: {cell['declined']:,} declined"
        if quantity in lab.excused or not cell["n"]:
            continue
        if cell["kind"] == "bound" and cell["missed"]:
            yield f"{quantity}: {cell['missed']:,} of {cell['n']:,} bounds miss the truth"
        if cell.get("too few"):
            share, lower, upper = cell["coverage"]
            yield f"{quantity}: covers {share:.1%} ({lower:.1%} to {upper:.1%})"
        if cell.get("biased"):
            yield f"{quantity}: biased by {cell['deviations'][0]:.2g} standard uncertainties"
        if cell.get("wrong by a factor"):
            factor = cell["deviations"][1]
            size = f"small by {factor:.2g}" if factor > 1 else f"large by {1 / factor:.2g}"
            yield f"{quantity}: stated uncertainty too {size}"
        if "pooled" in cell and cell["pooled"][0] < cell["pooled"][1]:
            seeds, needed = cell["pooled"]
            yield f"{quantity}: {seeds:,} of the {needed:,} seeds that {POWER:.0%} power takes"
        if cell["width"] > WIDEST * cell["informed"]:
            yield f"{quantity}: {cell['ratio'] or math.inf:.3g} times as wide as need be"
    for what, counts in found["verdicts"].items():
        if counts["bounds"][1] > most_wrong(what):
            most, upper = most_wrong(what), counts["bounds"][1]
            yield f"{what}: {counts['wrong']:,} wrong verdicts, up to {upper:.1%}, of {most:.0%}"
        if counts["undecided"] and what not in lab.declined:
            yield f"{what}: {counts['undecided']:,} undecided"
    if found["named"] is not None and found["named"][0] < NAMED * found["named"][1]:
        yield "cause named in {} of {} seeds".format(*found["named"])
