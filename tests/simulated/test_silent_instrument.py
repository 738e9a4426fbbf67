"""A simulated switch that falls silent, as its testbed's file says, and speaks again."""

from pathlib import Path

import pytest

from lightrig.harness.bench import bind
from lightrig.instruments.core.errors import NoReplyError
from lightrig.testbeds import load

LAB = """
name: silent
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, login: env:OCS_LOGIN, size: 4x4}}
  other: {{model: polatis, address: tl1://other.invalid, login: env:OCS_LOGIN, size: 4x4}}
simulation:
  faults: [{{fault: silent instrument, at: [ocs], {when}}}]
"""
S = 1_000_000_000


def lab(folder: Path, when: str):
    path = folder / "silent.yaml"
    path.write_text(LAB.format(when=when))
    return bind(load(path), "simulated", seed=1)


def answers(ocs) -> bool:
    try:
        ocs.circuits()
    except NoReplyError:
        return False
    return True


def test_silence_from_a_time_on(tmp_path: Path) -> None:
    bench = lab(tmp_path, "after: 20 s, lasting: 30 s")
    ocs = bench.switches["ocs"]
    assert ocs.circuits() == frozenset()
    bench.clock.sleep(20 * S)
    with pytest.raises(NoReplyError, match="ocs did not answer"):
        ocs.circuits()
    assert bench.switches["other"].circuits() == frozenset()
    bench.clock.sleep(30 * S)
    assert ocs.circuits() == frozenset()
    bench.close()


def test_silence_after_a_number_of_replies(tmp_path: Path) -> None:
    bench = lab(tmp_path, "answers: 12")
    ocs = bench.switches["ocs"]
    answered = sum(1 for _ in iter(lambda: answers(ocs), False))
    assert 0 < answered < 12
    bench.clock.sleep(1000 * S)
    with pytest.raises(NoReplyError):
        ocs.circuits()
    bench.close()
