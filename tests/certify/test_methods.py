"""What each clause asks of a switch is what the method of its requirement says, in this order.

The ports are six of the ingress side, 2 to 7, and five of the egress side, 10 to 14, of a switch
whose last port is 20; two circuits between them are there before.
"""

from collections.abc import Callable

import pytest
from certify_labs import lab, sonic_lab
from single_clauses import clause, subject_of

from lightrig.harness.bench import Bench
from lightrig.harness.certify.subject import Trial
from lightrig.testbeds import Circuit

Simulated = Callable[..., Bench]
FOUND = frozenset({Circuit(3, 12), Circuit(6, 10)})
ALL = "2>10 3>11 4>12 5>13 6>14"
BY_ONE = "3>10 4>11 5>12 6>13 7>14"
BY_LAST = "2>14 4>10 5>11 6>12 7>13"
TURNED = "2>11 3>12 4>13 5>14 6>10"
EVERY = Trial(permitted=frozenset({"harmless", "interrupting", "destructive"}), hours=0.0002)

CYCLE = "2>11 3>12, 2>10 3>12, 2>14 3>12, 2>10 3>12, 2>10 3>13, 2>11 3>13, 2>11 3>12, 2>10 3>12"
NOTIFIED = ((ALL, BY_ONE), (BY_ONE, BY_LAST), (BY_LAST, ALL))

# By code: what is asked, by hand, and how many samples there are.
METHODS: dict[str, tuple[str, int]] = {
    "identity": ("", 5),
    "port_model": (f"set {ALL}, set {ALL}, set {BY_ONE}, set {BY_LAST}", 3),
    "labels": ("", 6 + 5),
    # One circuit is made before each of the three requests.
    "refusals": ("set 2>10, ask +21>11, set 2>10, ask +3>21, set 2>10, ask +2>11", 3),
    # The third of five is the bad one.
    "batch": ("set nothing, ask +2>10 3>11 4>21 5>13 6>14", 1),
    "port_twice": ("set nothing, ask +2>10 3>11 3>12, set nothing, ask +2>10 3>11 4>11", 2),
    "absent_removal": ("set 4>12 5>13 6>14, ask -2>10", 1),
    "exchange": ("set 2>10 3>11 4>12, ask +2>11 3>10 4>12", 1),
    # Each three times; a port in use is moved here, which is asked once.
    "error_codes": (
        "set 2>10, ask +21>11, " * 3 + "set 2>10, ask +3>21, " * 3 + "set 2>10, ask +2>11",
        6,
    ),
    "lost_connection": (", ".join([f"set nothing, may lose nothing and get {ALL}"] * 5), 5),
    "two_clients": (
        f"set {ALL}, set {ALL}, another client asks -{ALL} +{BY_ONE}, "
        f"set {BY_ONE}, another client asks -{BY_ONE} +{BY_LAST}, "
        f"set {BY_LAST}, another client asks -{BY_LAST} +{ALL}",
        3,
    ),
    "many_clients": ("", 50 + 200),
    # 1, 2, N/2 (two again) and N, from none; then N are moved.
    "acknowledged_light": (
        f"set nothing, set 2>10, set nothing, set 2>10 3>11, set nothing, set {ALL}, set {TURNED}",
        1 + 2 + 5 + 5,
    ),
    # Places of egress ports are 0 to 4: with bit 0 set 11 and 13, bit 1 12 and 13, bit 2 14.
    # Then the light of ingress ports with bit 0, 1 and 2 of their number, 1 to 6, is taken away,
    # while five have circuits and while the sixth has one.
    "reported_light": (
        f"set {ALL}, set {BY_ONE}, set 2>11 3>13, set 2>12 3>13, set 2>14, set nothing, "
        f"set {ALL}, set 7>10",
        6 + 2 * 3,
    ),
    "forced_block": (f"set {ALL}", 3),
    # Five circuits, each at four other egress ports.
    "crosstalk": ("set nothing, set 2>10, set 3>11, set 4>12, set 5>13, set 6>14", 5 * 4),
    "repeatability": (", ".join([f"set {ALL}, set {BY_ONE}"] * 6), 2 * 5 * 6),
    # One (which every second change removes), two and five circuits, changed five times each.
    "settling": (
        f"set 3>11 4>12 5>13 6>14, set {ALL}, " * 3
        + f"set 2>11 3>10 4>12 5>13 6>14, set {ALL}, " * 3
        + ", ".join([f"set {TURNED}, set {ALL}"] * 3),
        3 + 5 * 2 + 5 * 5,
    ),
    # One circuit to and fro, 32 times (Wald), after it was made.
    "slow_share": ("set 2>11, " + ", ".join(["set 2>10, set 2>11"] * 16), 32),
    # A near egress and back, a far one and back; the other circuit moves before the near one does.
    "settling_by_move": (
        "set 2>10 3>12, " + ", ".join(f"set {each}" for each in CYCLE.split(", ") * 6),
        36,
    ),
    "reset": (f"set {ALL}, may lose {ALL} and get nothing", 1),
}
OF_SONIC = {
    "warm_restart": (f"set {ALL}, may lose {ALL} and get {ALL}", 1),
    "cold_restart": (f"set {ALL}, set {TURNED}, may lose {TURNED} and get {ALL}", 1),
    "notifications": (
        f"set {ALL}, " + ", ".join(f"set {a}, may lose {a} and get {b}" for a, b in NOTIFIED),
        3,
    ),
}


TIMED = {"settling", "slow_share", "settling_by_move"}


def try_clause(bench: Bench, code: str, method: tuple[str, int], profile: str) -> None:
    switch = bench.switches["ocs"]
    switch.change([], FOUND).done()
    subject = subject_of(bench, EVERY, profile, settling_ms=250.0, even_ms=250.0)
    outcome = clause(subject, code)
    asked, n = method
    assert (outcome.verdict, outcome.n) == ("pass", n), outcome
    assert ", ".join(subject.asked) == asked
    subject.fabric.restore()
    assert switch.circuits() == FOUND


@pytest.mark.parametrize("code", METHODS)
def test_what_a_clause_asks_is_its_method(simulated: Simulated, code: str) -> None:
    # Fewer readings of each of many changes, whose times are judged elsewhere.
    text = lab().replace("averaging: 10 ms", "averaging: 80 ms") if code in TIMED else lab()
    try_clause(simulated(text), code, METHODS[code], "polatis")


@pytest.mark.parametrize("code", OF_SONIC)
def test_what_a_clause_asks_of_sonic_is_its_method(simulated: Simulated, code: str) -> None:
    bench = simulated(sonic_lab("gnmi" if code == "notifications" else "ssh"))
    try_clause(bench, code, OF_SONIC[code], "sonic-ocs")


def test_endurance_makes_settings_in_turn_until_its_hours_are_over(simulated: Simulated) -> None:
    """0.72 s of changes, each 0.1 s apart and acknowledged within about 40 ms; n by hand below.

    Upper bound of no failure in n, at 95 %: 1 - 0.05 ** (1 / n); for 6 that is 0.393.
    """
    subject = subject_of(simulated(lab()), EVERY)
    outcome = clause(subject, "endurance")
    assert subject.asked == [
        f"set {each}" for each in (ALL, BY_ONE, BY_LAST, ALL, BY_ONE, BY_LAST, ALL)
    ]
    assert (outcome.verdict, outcome.n, outcome.unit) == ("pass", 6, "1")
    assert outcome.value == pytest.approx(0.393, abs=5e-4)
    assert outcome.interval == (0.0, outcome.value)
    assert clause(subject_of(simulated(lab())), "endurance").verdict == "not tested"
