"""`soak:` of a testbed file: plans in turn, and what is refused."""

from pathlib import Path

import pytest

from lightrig.testbeds import SoakTurn, TestbedError, load

FILE = Path("testbeds/namespaces.yaml")


def read(text: str) -> tuple[SoakTurn, ...]:
    return load(FILE, content=(FILE.read_text() + text).encode()).soak


def test_plans_come_in_the_order_of_the_file() -> None:
    found = read("soak:\n  - {plan: pairs, hold: 30 min}\n  - {plan: ring, hold: 12 h}\n")
    assert found == (SoakTurn("pairs", 1800 * 10**9), SoakTurn("ring", 43_200 * 10**9))
    assert load(FILE).soak == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{plan: rnig, hold: 1 h}", "no plan 'rnig'; did you mean 'ring'?"),
        ("{plan: ring, hold: 0.5 s}", "found 500 ms, expected 1 s or more"),
        ("{plan: ring, hold: 3}", "expected a duration"),
        ("{plan: ring}", "the key 'hold' is missing here"),
    ],
)
def test_what_cannot_be_is_located(line: str, problem: str) -> None:
    with pytest.raises(TestbedError) as raised:
        read(f"soak:\n  - {line}\n")
    place = len(FILE.read_text().splitlines()) + 2
    assert f"namespaces.yaml:{place}:" in str(raised.value)
    assert problem in str(raised.value)
