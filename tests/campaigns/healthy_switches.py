"""Wrong fails of certification on healthy switches: at most 1 % of the clauses that are tried.

No clause may end with a fault of Lightrig.

`HEALTHY_SEEDS` (default 100) seeds, each of a simulated 8 x 12 Polatis switch that is tried by
all clauses, those that interrupt too. Clauses that this switch cannot be asked are tried on
others: with optical instruments, an oscilloscope, traffic, notifications, and an operator. Twenty
seeds of 18 x 18 switches with monitors, of five wires or models, are tried as by `--quick`. The
upper end of the exact 95 % interval is printed beside.
"""

import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import scipy

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.subject import Trial
from lightrig.testbeds import load
from tests.campaigns.records import log

sys.path.insert(0, str(Path(__file__).parents[1] / "certify"))

from certify_labs import lab, optics_lab, scope_lab, sonic_lab, traffic_lab
from sonic_defects import cut_power, install_firmware
from test_crossed_ports import LAB as lab_18  # noqa: N811 -- a text

CLASSES = frozenset({"harmless", "interrupting", "destructive"})
SWITCHES: Mapping[str, tuple[Callable[[], str], Sequence[str]]] = {
    "polatis that moves ports": (lambda: lab(rerouting=True), ()),
    "polatis that refuses ports in use": (lambda: lab(rerouting=False), ()),
    "optical instruments": (optics_lab, ("3.4", "5.7", "5.8")),
    "oscilloscope": (scope_lab, ("5.6",)),
    "traffic": (traffic_lab, ("6.1", "6.2", "6.3", "6.4")),
    "notifications": (lambda: sonic_lab("gnmi"), ("1.5",)),
    "operator": (sonic_lab, ("4.4", "4.5")),
}
"""Labs, and the clauses that each is asked; all for none. Of the first two each seed has one."""
QUICK = {
    f"quick {model} {wire}": lab_18.replace("polatis", model).replace("tl1:", f"{wire}:")
    for model, wire in (
        ("polatis", "tl1"),
        ("polatis", "scpi"),
        ("polatis", "netconf"),
        ("polatis", "restconf"),
        ("calient-s", "tl1"),
    )
}
QUICK_SEEDS, QUICK_PORTS = 20, 8


def tried(name: str, seed: int, path: Path) -> dict[str, Any]:
    """Return how many clauses have each verdict, and the outcome of each that was not decided."""
    quick = QUICK.get(name)
    text, numbers = SWITCHES[name] if quick is None else (lambda: quick, ())
    path.write_text(text())
    known, counts, bad = requirements(), Counter[str](), dict[str, str]()
    bench = bind(load(path), "simulated", seed)
    try:
        with pytest.MonkeyPatch.context() as patch:
            steps = (cut_power(patch), install_firmware(patch)) if name == "operator" else ()

            def ask(text: str) -> None:
                for step in steps:
                    step(text)

            ports = None if quick is None else QUICK_PORTS
            trial = Trial(seed, ports, CLASSES, ask if steps else None, hours=0.002)
            profile = known.profile_of(bench.testbed.switches["ocs"].model)
            certification = Certification(Fabric(bench), "ocs", known.profiles[profile], trial)
            for each in numbers or [each.number for each in known.requirements]:
                outcome = certification.outcome(each)
                counts[outcome.verdict] += 1
                if outcome.verdict in ("fail", "inconclusive"):
                    bad[each] = f"{outcome.verdict}: {outcome.reason}"
    finally:
        bench.close()
    return {"switch": name, "seed": seed, "found": dict(counts), "bad": bad}


def table(done: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the counts by switch, and whether the promise holds."""
    by_switch, seeds = defaultdict[str, Counter[str]](Counter), Counter[str]()
    lines = []
    for each in done:
        by_switch[each["switch"]].update(each["found"])
        seeds[each["switch"]] += 1
        lines += [
            f"seed {each['seed']}, {each['switch']}: {number} {outcome}"
            for number, outcome in each["bad"].items()
        ]
    for name, counts in by_switch.items():
        lines.append(f"{seeds[name]} seeds, {name}: {dict(counts)}")
    total = sum(by_switch.values(), Counter[str]())
    fails, n = total["fail"], total["pass"] + total["fail"] + total["inconclusive"]
    high = float(scipy.stats.beta.ppf(0.975, fails + 1, n - fails)) if n else 1.0
    faults = sum("a fault of Lightrig" in text for each in done for text in each["bad"].values())
    lines.append(f"wrong fails {fails} of {n}, at most {high:.2%}; faults of Lightrig {faults}")
    return lines, fails <= 0.01 * n and not faults


def main() -> bool:
    """Run it; return whether the promise holds."""
    with log("healthy_switches") as done, tempfile.TemporaryDirectory() as folder:
        known = {(each["switch"], each["seed"]) for each in done.done}
        moves, refuses, *others = SWITCHES
        for seed in range(int(os.environ.get("HEALTHY_SEEDS", "100"))):
            for name in ((moves, refuses)[seed % 2], *others):
                if (name, seed) not in known:
                    done.add(tried(name, seed, Path(folder) / "lab.yaml"))
        for name in QUICK:
            for seed in range(min(QUICK_SEEDS, int(os.environ.get("HEALTHY_SEEDS", "100")))):
                if (name, seed) not in known:
                    done.add(tried(name, seed, Path(folder) / "lab.yaml"))
        lines, well = table(done.done)
    print("\n".join(lines))
    return well
