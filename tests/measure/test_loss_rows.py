"""Rows of insertion losses, from losses of which each number differs, by hand."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import scipy

from lightrig.harness.measure.insertion_loss import rows
from lightrig.harness.statistics.uncertainty import Component, combine
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import Circuit, Port

ONE, TWO, THREE = Circuit(1, 6), Circuit(2, 8), Circuit(3, 7)
NAMES = {ONE: "ocs 1>6", TWO: "ocs 2>8", THREE: "ocs 3>7"}


def loss(value: float, at: int, *parts: Component, relative: str | None = None) -> Any:
    return SimpleNamespace(value=value, at=at, budget=combine(parts), relative=relative)


def losses(method: str = "monitors", **other: Any) -> Any:
    """Return three losses, one of them relative, whose budgets differ."""
    found = {
        ONE: loss(1.2, 70, Component("noise", 0.03, 9), Component("reference", 0.04)),
        TWO: loss(
            *(0.8, 90, Component("noise", 0.06, 9), Component("reference", 0.08)),
            Component("reference", 0.06, sensitivity=-1),
        ),
        THREE: loss(2.5, 80, Component("noise", 0.01, 9), relative="no reference"),
    }
    chain = SimpleNamespace(switch="ocs", method=method, wavelength_nm=1310.4, launched={2})
    known = {"losses": found, "chain": chain, "times": [50, 60, 99], "repeatability": None}
    return SimpleNamespace(**known | other)


def test_a_loss_has_its_expanded_uncertainty_on_both_sides() -> None:
    made = list(rows.loss_rows(losses(), {"temperature_c": 20}))
    assert [(row.subject, row.quantity, row.value, row.time_ns) for row in made] == [
        ("ocs 1>6", "insertion_loss", 1.2, 70),
        ("ocs 2>8", "insertion_loss", 0.8, 90),
        ("ocs 3>7", "insertion_loss.relative", 2.5, 80),
    ]
    t = scipy.stats.t.ppf(0.975, 9)
    assert made[2].upper == pytest.approx(2.5 + t * 0.01)
    assert made[2].lower == pytest.approx(2.5 - t * 0.01)
    assert {row.unit for row in made} == {"dB"}
    stated = {"wavelength_nm": 1310, "temperature_c": 20}
    assert made[0].conditions == {**stated, "not_included": ", ".join(rows.NOT_INCLUDED)}
    assert made[2].conditions == stated


def test_a_budget_has_the_median_of_each_component_and_its_ends() -> None:
    """References of the second loss are 0.08 and 0.06 dB, together 0.1; combined 0.05 to 0.117."""
    made = {row.quantity: row for row in rows.budget_rows(losses(), {"c": 1})}
    expected = {
        "loss.budget.noise": (0.01, 0.03, 0.06),
        "loss.budget.reference": (0.04, 0.07, 0.1),
        "loss.budget.combined": (0.01, 0.05, math.hypot(0.06, 0.1)),
    }
    assert made.keys() == expected.keys()
    for quantity, ends in expected.items():
        row = made[quantity]
        assert (row.lower, row.value, row.upper) == pytest.approx(ends)
        assert (row.subject, row.time_ns, row.unit) == ("ocs", 50, "dB")
        assert row.conditions.items() >= {"c": 1, "method": "monitors"}.items()
    noise, reference, combined = (made[name].conditions for name in expected)
    assert (noise["type"], noise["degrees"]) == ("A, normal", 9)
    assert reference["type"] == "B, normal"
    assert "degrees" not in reference
    # That of the middle one by its expanded uncertainty, of 9 x (5/3)^4 degrees of freedom.
    degrees = 9 * (5 / 3) ** 4
    assert combined["degrees"] == round(degrees, 1)
    factor = scipy.stats.t.ppf(0.975, degrees)
    assert combined["factor"] == pytest.approx(factor)
    assert combined["expanded_db"] == pytest.approx(factor * 0.05)
    assert list(rows.budget_rows(losses(losses={}), {})) == []


@pytest.mark.parametrize(
    ("parts", "method", "lacking"),
    [
        ((), "monitors", [*rows.NOT_INCLUDED]),
        (("drift", "check standard", "linearity", "polarization"), "monitors", ["wavelength"]),
        (("check standard", "wavelength"), "source", ["linearity", "polarization"]),
        (("drift", "linearity", "wavelength", "polarization"), "monitors", ["check standard"]),
        (("check standard", "linearity", "wavelength", "polarization"), "monitors", []),
        ((), "modules", []),
    ],
)
def test_what_a_budget_lacks_is_stated_of_absolute_losses(
    parts: tuple[str, ...], method: str, lacking: list[str]
) -> None:
    one = loss(1.0, 1, Component("noise", 0.1), *(Component(name, 0.1) for name in parts))
    of_another = loss(1.0, 1, *(Component(name, 0.1) for name in rows.NOT_INCLUDED), relative="x")
    text = rows.not_included(losses(method, losses={ONE: one, TWO: of_another}))
    if not lacking:
        assert text is None
        return
    assert text is not None
    assert text.startswith("insertion loss of ocs: ")
    assert [name for name in rows.NOT_INCLUDED if f"{name} not included" in text] == lacking
    light = [name for name in lacking if name in ("polarization", "wavelength")]
    assert (f"by light of another {' or '.join(light)}" in text) == bool(light)
    assert ("`lightrig reference`" in text) == ("check standard" in lacking)
    assert rows.not_included(losses(method, losses={TWO: of_another})) is None


def test_makings_deviate_from_their_mean_and_scatter_beyond_noise() -> None:
    """Three and two makings: 3 degrees of freedom; four readings of 0.02 dB each."""
    makings = {ONE: [1.0, 1.3, 0.7], TWO: [2.0, 2.4]}
    noise = Component("noise", 0.02, 12)
    known = losses(
        makings=makings, noise=noise, readings=4, repeatability=Component("repeatability", 0.25, 3)
    )
    *remade, spread = rows.repeatability_rows(known, {"c": 1})
    half = scipy.stats.t.ppf(0.975, 12) * 0.01
    assert [row.value for row in remade] == pytest.approx([0, 0.3, -0.3, -0.2, 0.2])
    assert [row.upper - row.value for row in remade] == pytest.approx([half] * 5)
    assert [row.value - row.lower for row in remade] == pytest.approx([half] * 5)
    assert [row.subject for row in remade] == ["ocs 1>6"] * 3 + ["ocs 2>8"] * 2
    assert [row.conditions["repetition"] for row in remade] == [0, 1, 2, 0, 1]
    # Squares of the deviations: 0.18 and 0.08.
    ends = [math.sqrt(0.26 / q - 0.01**2) for q in scipy.stats.chi2.ppf([0.975, 0.025], 3)]
    assert (spread.lower, spread.upper) == pytest.approx(ends)
    assert (spread.subject, spread.value, spread.time_ns) == ("ocs", 0.25, 99)
    assert list(rows.repeatability_rows(losses(), {})) == []


def test_faults_are_rows_of_their_kind() -> None:
    fault: Any = SimpleNamespace(kind="port", subject="ocs.7", value=1.5, lower=1.2, upper=1.9)
    (row,) = rows.fault_rows(losses(), [fault], {"c": 1})
    assert (row.subject, row.quantity, row.lower, row.value, row.upper) == (
        *("ocs.7", "loss.fault"),
        *(1.2, 1.5, 1.9),
    )
    assert (row.conditions, row.time_ns) == ({"c": 1, "fault": "port"}, 99)


class Calibrated:
    """A switch that stores a loss of circuits 1>6 and 3>7, and one at 1550 nm of 2>8."""

    def factory_losses(self) -> Any:
        def stored(loss_db: float, nm: float) -> Any:
            return SimpleNamespace(
                loss_db=loss_db, accuracy_db=0.12, temperature_c=25, frequency_thz=299_792.458 / nm
            )

        return {ONE: stored(0.9, 1310.0), TWO: stored(0.5, 1550.0), THREE: stored(1.0, 1310.0)}


class Refusing(Calibrated):
    def factory_losses(self) -> Any:
        raise DeniedError("ocs", code="1", text="it stores none", command="?")


def test_factory_losses_are_compared_by_their_uncertainties() -> None:
    """ISO 13528: 0.3 dB over the root of squares of 0.12 dB and of the loss's own."""
    bench: Any = SimpleNamespace(switches={"ocs": Calibrated()})
    (row,) = rows.factory_rows(losses(), bench, {"c": 1})
    expanded = losses().losses[ONE].budget.expanded
    assert row.value == pytest.approx(0.3 / math.hypot(expanded, 0.12))
    assert (row.subject, row.quantity, row.time_ns) == ("ocs 1>6", "insertion_loss.factory_en", 70)
    assert row.conditions["difference_db"] == 0.3
    assert row.conditions["factory_c"] == 25
    bench.switches["ocs"] = Refusing()
    assert list(rows.factory_rows(losses(), bench, {})) == []
    bench.switches["ocs"] = object()
    assert list(rows.factory_rows(losses(), bench, {})) == []


@pytest.mark.parametrize("method", ["monitors", "source"])
@pytest.mark.parametrize("fading", [False, True])
def test_losses_are_compared_with_those_of_the_whole_path(method: str, fading: bool) -> None:
    """Fibers lose 0.2 dB before ingress 2, whose light is not read, and 0.1 dB behind egress 8."""
    port = Port("server0", "nic0")
    world: Any = SimpleNamespace(
        fading=lambda: {port} if fading else set(),
        loss=lambda switch, circuit: {ONE: 1.1, TWO: 0.7}[circuit],
        lost_in_fiber=lambda at: {Port("ocs", "2"): 0.2, port: 0.1}[at],
    )
    cabling = SimpleNamespace(
        transmitter=lambda switch, ingress: port if ingress == 2 else None,
        receiver=lambda switch, egress: port if egress == 8 else None,
    )
    bench: Any = SimpleNamespace(
        world=world, simulated={"ocs"}, testbed=SimpleNamespace(cabling=cabling)
    )
    found = dict(rows.normalized_errors(losses(method), bench))
    known = losses().losses
    assert found[ONE] == pytest.approx((1.2 - 1.1) / known[ONE].budget.expanded)
    if fading:
        assert found.keys() == {ONE}
    else:
        behind = 0.0 if method == "monitors" else 0.1
        true = 0.7 + 0.2 + behind
        assert found[TWO] == pytest.approx((0.8 - true) / known[TWO].budget.expanded)
        assert found.keys() == {ONE, TWO}
        inside = [abs(each) <= 1 for each in found.values()]
        assert list(rows.inside(losses(method), bench)) == inside
    bench.simulated = set()
    assert dict(rows.normalized_errors(losses(method), bench)) == {}
