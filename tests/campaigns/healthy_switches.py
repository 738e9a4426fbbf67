"""Wrong fails of certification on healthy switches: at most 1 % of the clauses that are tried.

`HEALTHY_SEEDS` (default 100) simulated 8 x 12 Polatis switches, one a seed, are each tried by all
clauses, those that interrupt too. The upper end of the exact 95 % interval is printed beside.
"""

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from scipy import stats

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.subject import Trial
from lightrig.testbeds import load

sys.path.insert(0, str(Path(__file__).parents[1] / "certify"))

from certify_labs import lab

CLASSES = frozenset({"harmless", "interrupting", "destructive"})


def main() -> bool:
    """Run it; return whether the promise holds."""
    known, counts = requirements(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.yaml"
        for seed in range(int(os.environ.get("HEALTHY_SEEDS", "100"))):
            path.write_text(lab(rerouting=seed % 2 == 0))
            bench = bind(load(path), "simulated", seed)
            try:
                trial = Trial(seed=seed, permitted=CLASSES)
                certification = Certification(
                    Fabric(bench), "ocs", known.profiles["polatis"], trial
                )
                for each in known.requirements:
                    outcome = certification.outcome(each.number)
                    counts[outcome.verdict] += 1
                    if outcome.verdict in ("fail", "inconclusive"):
                        print(f"seed {seed}: {each.number} {outcome}", flush=True)
            finally:
                bench.close()
    tried = counts["pass"] + counts["fail"] + counts["inconclusive"]
    high = float(stats.beta.ppf(0.975, counts["fail"] + 1, tried - counts["fail"]))
    print(f"{dict(counts)}; wrong fails {counts['fail']} of {tried}, at most {high:.2%}")
    return counts["fail"] <= 0.01 * tried
