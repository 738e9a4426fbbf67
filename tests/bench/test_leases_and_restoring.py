"""Restoring with pauses, leases by a clock that is set, and the reach of light, by hand."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig import testbeds
from lightrig.harness.bench import shared_lease
from lightrig.harness.bench.aftermath import is_of_run
from lightrig.harness.bench.lab_folder import file_name
from lightrig.harness.bench.lease import LeaseLostError, this_owner
from lightrig.harness.bench.light_reach import light_reach
from lightrig.harness.bench.restoring import NotRestoredError, persist
from lightrig.harness.bench.shared_lease import SECOND, SharedFolder
from lightrig.instruments.core.errors import DeniedError, InstrumentError
from lightrig.testbeds import Circuit, LightrigError

OWNER = this_owner("a test")


class _Clock:
    def __init__(self) -> None:
        self.at = 7 * SECOND
        self.pauses: list[int] = []

    def now(self) -> int:
        return self.at

    def sleep(self, ns: int) -> None:
        self.pauses.append(ns)
        self.at += ns


class _Action:
    """Fails with each error in turn, then succeeds."""

    def __init__(self, *errors: LightrigError) -> None:
        self._errors = list(errors)
        self.tries = 0

    def __call__(self) -> None:
        self.tries += 1
        if self._errors:
            raise self._errors.pop(0)


def bench_with(clock: _Clock, *, in_process: bool = False) -> Any:
    return SimpleNamespace(clock=clock, in_process=in_process)


def test_pauses_double_up_to_ten_seconds_until_the_time_is_over() -> None:
    clock, told = _Clock(), list[str]()
    dead = InstrumentError("ocs", "first line\nsecond line")
    actions = {
        "well": _Action(),
        "ocs": _Action(*[dead] * 99),
        "slow": _Action(InstrumentError("slow", "restarts"), InstrumentError("slow", "restarts")),
    }
    failures = persist(actions, bench_with(clock), 25 * SECOND, told.append)
    # 0.5, 1, 2, 4, 8 s are 15.5; the next would be 10 but 9.5 are left.
    assert clock.pauses == [round(each * SECOND) for each in (0.5, 1, 2, 4, 8, 9.5)]
    assert list(failures) == ["ocs"]
    assert [action.tries for action in actions.values()] == [1, 7, 3]
    assert [line.split("tried for ")[1].split(":")[0] for line in told if "first line" in line] == [
        *("25 s more", "24 s more", "24 s more", "22 s more", "18 s more", "10 s more")
    ]
    assert not any("second line" in line for line in told)


def test_denial_is_tried_three_times_and_another_error_once() -> None:
    clock = _Clock()
    denial = DeniedError("ocs", code="IDNV", text="no port", command="ENT-PATCH")
    denied = _Action(*[denial] * 9)
    wrong, late = _Action(LightrigError("no state")), _Action(InstrumentError("b", "dead"))
    failures = persist({"a": denied, "b": late, "c": wrong}, bench_with(clock), 100 * SECOND)
    assert (denied.tries, late.tries, wrong.tries) == (3, 2, 1)
    assert list(failures) == ["a", "c"]


@pytest.mark.parametrize(("in_process", "seconds"), [(True, 10), (False, 120)])
def test_time_of_restoring(in_process: bool, seconds: int) -> None:
    clock = _Clock()
    dead = _Action(*[InstrumentError("ocs", "dead")] * 99)
    persist({"ocs": dead}, bench_with(clock, in_process=in_process))
    assert sum(clock.pauses) == seconds * SECOND


def test_error_names_all_instruments_and_the_command() -> None:
    errors = {"a": LightrigError("one\ntwo"), "b": LightrigError("three")}
    found = NotRestoredError(SimpleNamespace(path=Path("lab.yaml")), errors)  # type: ignore[arg-type]
    assert str(found).splitlines() == [
        "NOT as found: a, b; run `lightrig restore lab.yaml`", "  one", "  two", "  three"
    ]  # fmt: skip


# ------------------------------------------------------------------------------- leases


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """The clock since boot of this host, which stands where it is set."""
    clock = _Clock()
    monkeypatch.setattr(shared_lease, "boot_time", clock.now)
    return clock


@pytest.mark.parametrize(("after", "lost"), [(24.9, False), (25.0, True)])
def test_lease_is_valid_for_five_sixths_of_a_term_of_30_s(
    tmp_path: Path, boot: _Clock, after: float, lost: bool
) -> None:
    claim: Any = SharedFolder(tmp_path).claim("ocs", OWNER)
    boot.at += round(after * SECOND)
    if lost:
        with pytest.raises(LeaseLostError, match="could not be renewed in time"):
            claim.check()
    else:
        claim.check()
    claim.release()


def test_renewed_lease_is_valid_from_its_renewal(tmp_path: Path, boot: _Clock) -> None:
    claim: Any = SharedFolder(tmp_path).claim("ocs", OWNER)
    boot.at += 20 * SECOND
    claim.renew()
    boot.at += 20 * SECOND
    claim.check()
    (record,) = tmp_path.glob("ocs-*.lease")
    assert json.loads(record.read_text())["renewed"] == 1
    boot.at += 5 * SECOND
    claim.renew()
    with pytest.raises(LeaseLostError, match="in time"):
        claim.check()


def test_renewal_of_a_removed_record_ends_the_lease(tmp_path: Path, boot: _Clock) -> None:
    claim: Any = SharedFolder(tmp_path).claim("ocs", OWNER)
    (record,) = tmp_path.glob("ocs-*.lease")
    record.unlink()
    claim.renew()
    with pytest.raises(LeaseLostError, match="its record was removed"):
        claim.check()
    claim.release()
    assert not list(tmp_path.glob("ocs-*.lease"))


def test_released_record_says_so_and_is_not_renewed(tmp_path: Path, boot: _Clock) -> None:
    before = set(threading.enumerate())
    claim: Any = SharedFolder(tmp_path).claim("ocs", OWNER)
    claim.release()
    (record,) = tmp_path.glob("ocs-*.lease")
    assert json.loads(record.read_text())["released"] is True
    assert set(threading.enumerate()) <= before
    assert SharedFolder(tmp_path).claim("ocs", OWNER).number == 2  # type: ignore[attr-defined]


def test_hundred_records_are_left(tmp_path: Path, boot: _Clock) -> None:
    for number in range(1, 200):
        (tmp_path / f"{file_name('ocs')}.{number:09d}.lease").write_text('{"released": true}')
    claim: Any = SharedFolder(tmp_path).claim("ocs", OWNER)
    assert claim.number == 200
    left = sorted(int(path.name.split(".")[-2]) for path in tmp_path.glob("ocs-*.lease"))
    assert left == list(range(101, 201))
    claim.release()


# --------------------------------------------------------------------- states and light


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([("2026-03-01", ""), ("2026-03-02", "2026-03-03")], False),
        ([("2026-03-01", ""), ("2026-03-02", "2026-03-05"), ("2026-03-03", "")], True),
        ([("2026-03-05", "2026-03-04"), ("2026-03-01", "")], True),
        ([("2026-03-04", "2026-03-01")], True),
        ([], False),
        ([("2026-03-06", "2026-03-07")], False),  # what a person wants to stay
    ],
)
def test_states_are_of_a_run_if_saved_or_changed_since(
    states: list[tuple[str, str]], expected: bool
) -> None:
    left = [
        SimpleNamespace(
            state=SimpleNamespace(
                origin=SimpleNamespace(saved=saved), changed=changed, stays=saved == "2026-03-06"
            )
        )
        for saved, changed in states
    ]
    assert is_of_run(SimpleNamespace(left=left), "2026-03-04") is expected  # type: ignore[arg-type]


CHAIN = """\
name: chain
switches:
  a: {model: polatis, address: tl1://a.invalid, size: 3x4}
  b: {model: polatis, address: tl1://b.invalid, size: 5x5}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: scpi://laser.invalid}
  other: {kind: light_source, model: keysight-n7776c, address: scpi://other.invalid}
  meter: {kind: power_meter, model: keysight-n7745a, address: scpi://meter.invalid, channels: 3}
fibers:
  - laser -> a.1
  - other -> a.3
  - a.5 -> b.2
  - a.7 -> meter.1
  - b.8 -> meter.2
"""


@pytest.mark.parametrize(
    ("name", "circuits", "expected"),
    [
        ("laser", {"a": [(1, 5)], "b": [(2, 8)]}, {"a", "b", "meter"}),
        ("laser", {"a": [(1, 5)], "b": []}, {"a", "b"}),
        ("laser", {"a": [(3, 5), (1, 4)], "b": [(2, 8)]}, {"a"}),
        ("other", {"a": [(3, 7), (1, 5)], "b": []}, {"a", "meter"}),
        ("meter", {"a": [(3, 7)], "b": [(1, 8)]}, {"a", "b", "other"}),
        ("laser", {"b": [(1, 8)]}, {"a", "b", "meter", "other"}),  # a did not answer
    ],
)
def test_light_reaches_what_the_circuits_join(
    tmp_path: Path, name: str, circuits: dict[str, list[tuple[int, int]]], expected: set[str]
) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text(CHAIN)
    made = {switch: [Circuit(*ends) for ends in each] for switch, each in circuits.items()}
    assert light_reach(testbeds.load(path), name, made) == expected
