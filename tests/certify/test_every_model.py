"""Each model of optical switch on each of its wires: which clauses it can be asked."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from certify_labs import LAB

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.subject import Trial

MATRIX = ("pass", "pass", "pass", "pass")
# One input: no second port to ask for; OCSTrx: each module always leads somewhere.
ONE_INPUT = ("pass", "pass", "not applicable", "not applicable")
MODULES = ("pass", "pass", "not tested", "not applicable")
SEEN, UNSEEN = ("pass",), ("not tested",)  # by monitors of the switch

MODELS = yaml.safe_load((Path(__file__).parent / "models.yaml").read_text("utf-8"))
SERIAL = "serial:///dev/ttyUSB0"
CASES = [
    *[("polatis", f"{wire}://ocs.invalid", "8x8", MATRIX + SEEN) for wire in ("tl1", "scpi")],
    *[("polatis", f"{w}://ocs.invalid", "8x8", MATRIX + SEEN) for w in ("netconf", "restconf")],
    ("polatis", SERIAL, "8x8", MATRIX + SEEN),
    ("calient-s", "tl1://ocs.invalid", "8x8", MATRIX + SEEN),
    ("dicon-gp600", "scpi://ocs.invalid", "8x8", MATRIX + UNSEEN),
    ("sonic-ocs", "ssh://ocs.invalid", "8x8", MATRIX + UNSEEN),
    ("sonic-ocs", "gnmi://ocs.invalid", "8x8", MATRIX + UNSEEN),
    ("ocstrx", SERIAL, "2x6", MODULES + UNSEEN),
    ("sercalo", SERIAL, "1x4", ONE_INPUT + UNSEEN),
    ("dicon-mems", SERIAL, "1x8", ONE_INPUT + UNSEEN),
    ("agiltron", SERIAL, "1x8", ONE_INPUT + UNSEEN),
    ("osw-ascii", SERIAL, "1x16", ONE_INPUT + UNSEEN),
    ("thorlabs-osw", SERIAL, "1x2", ONE_INPUT + UNSEEN),
    ("keysight-n773x", "scpi://ocs.invalid", "1x4", ONE_INPUT + UNSEEN),
]
OPTIONS = {"agiltron": "standing: 1"}
PLANS = "plans:\n  one: {circuits: {ocs: [1>3, 2>7]}}\n  two: {circuits: {ocs: [1>4, 2>8]}}\n"


def lab_of(model: str, address: str, size: str) -> str:
    """Return a lab with one switch; of a matrix six and five ports are cabled, else all."""
    inputs, outputs = map(int, size.split("x"))
    ingress, egress = (1, inputs), (inputs + 1, inputs + outputs)
    if model not in ONLY_SMALL:
        ingress, egress = (2, 7), (inputs + 2, inputs + 6)
    ports = [high - low + 1 for low, high in (ingress, egress)]
    text = LAB.replace("tl1://ocs.invalid, size: 8x12", f'"{address}", size: {size}')
    text = text.replace("model: polatis", f"model: {model}").replace(
        "ports: 6", f"ports: {max(ports)}"
    )
    text = text.replace("rerouting: REROUTING", OPTIONS.get(model, ""))
    text = text.replace(
        "p[0-5] -> ocs.[2-7]", f"p[0-{ports[0] - 1}] -> ocs.[{ingress[0]}-{ingress[1]}]"
    )
    text = text.replace("ocs.[10-14]", f"ocs.[{egress[0]}-{egress[1]}]")
    text = text.replace("p[0-4]", f"p[0-{ports[1] - 1}]")
    text = text.replace("ACKNOWLEDGE", "40 ms").replace("SETTLE", "24 ms")
    return text.replace("simulation:", PLANS + "simulation:") if model == "ocstrx" else text


ONLY_SMALL = {model for model, _, size, _ in CASES if size != "8x8"}


@pytest.mark.parametrize(
    ("model", "address", "size", "expected"),
    CASES,
    ids=[f"{c[0]}-{c[1].partition(':')[0]}" for c in CASES],
)
def test_a_healthy_switch_of_each_model(
    simulated: Callable[..., Bench], model: str, address: str, size: str, expected: tuple[str, ...]
) -> None:
    bench = simulated(lab_of(model, address, size))
    before = bench.switches["ocs"].circuits()
    known = requirements()
    profile = known.profiles[known.profile_of(model)]
    certification = Certification(Fabric(bench), "ocs", profile)
    found = {each: certification.outcome(each) for each in ("1.1", "1.2", "2.1", "2.2", "3.1")}
    assert tuple(each.verdict for each in found.values()) == expected, found
    assert (certification.not_restored, bench.switches["ocs"].circuits()) == ("", before)


@pytest.mark.long
@pytest.mark.parametrize(("model", "address", "size", "expected"), CASES)
def test_verdicts_of_each_model_are_those_of_the_documentation(
    simulated: Callable[..., Bench], model: str, address: str, size: str, expected: tuple[str, ...]
) -> None:
    """The table is `models.yaml`; what fails there is what a simulated wire does."""
    bench = simulated(lab_of(model, address, size))
    wire = address.partition(":")[0]
    known, stated = requirements(), MODELS[f"{model} {wire} {size}"]
    trial = Trial(permitted=frozenset({"harmless", "interrupting", "destructive"}))
    profile = known.profiles[known.profile_of(model)]
    certification = Certification(Fabric(bench), "ocs", profile, trial)
    found = {number: certification.outcome(number) for number in stated}
    letters = {n: each.verdict.removeprefix("not ")[0] for n, each in found.items()}
    letters |= {n: "n" for n, each in found.items() if each.verdict == "not tested"}
    assert letters == stated, found
