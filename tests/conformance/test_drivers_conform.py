"""Every driver on every wire: declarations, simulated device, recordings, wire faults.

`make generated` rewrites the table in docs/appendix/conformance.md, `python
tests/conformance/transcripts.py [MODEL ...]` recordings of simulated devices in tests/transcripts.
"""

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driver_cases import KINDS, NAME, Case, Rig, cases
from transcripts import FOLDER, replayed, script

from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.core.instrument import Option
from lightrig.instruments.core.registry import driver
from lightrig.instruments.core.scpi_instrument import Setting
from lightrig.instruments.core.transcript import read
from lightrig.instruments.simulated.faults.replay_device import REPLAYED
from lightrig.instruments.simulated.faults.wire_faults import WIRE_FAULTS, WireFault
from lightrig.testbeds import LightrigError

CASES = cases()

TABLE = Path(__file__).parents[2] / "docs" / "appendix" / "conformance.md"
LONGEST = 400_000_000_000
"""More virtual time than any reply may take: several queries and a resynchronization."""

_results: dict[Case, dict[WireFault, str]] = {}


def _needs_extra(case: Case) -> None:
    if case.scheme == "gnmi":
        pytest.importorskip("pygnmi", reason="the extra gnmi is not installed")
        pytest.importorskip("h2", reason="the extra gnmi is not installed")


@pytest.fixture(scope="module")
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    _needs_extra(request.param)
    with pytest.MonkeyPatch.context() as patch:
        made = Rig(request.param, tmp_path_factory.mktemp("one"), patch)
    yield made
    made.faults.fault = "none"
    made.bench.close()


def every(wanted: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", wanted, ids=str, indirect=True, scope="module")


@pytest.mark.parametrize("model", sorted({case.model for case in CASES}))
def test_a_driver_declares_and_documents_itself(model: str) -> None:
    made = driver(model)
    assert list(inspect.signature(made.open).parameters) == ["spec", "endpoint", "clock"]
    text = inspect.getdoc(made) or ""
    assert "Source:" in text
    assert tuple(made.schemes)
    for name, member in inspect.getmembers_static(made):
        if isinstance(member, (Option, Setting)):
            assert member.about, f"{model}.{name} has no description"
    for name, member in inspect.getmembers(made, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.getdoc(member), f"{model}.{name} has no docstring"


@every(CASES)
def test_identity_and_capabilities_are_complete(rig: Rig) -> None:
    identity = rig.bench.identities[NAME]
    assert all((identity.manufacturer, identity.model, identity.serial, identity.firmware))
    assert NAME in rig.bench.simulated
    for capability in KINDS[rig.case.kind]:
        wanted = {name for name in dir(capability) if not name.startswith("_")}
        assert wanted <= set(dir(rig.driver))
    assert rig.driver.name == NAME
    assert rig.driver.wire()


@every(CASES)
def test_repeated_queries_agree(rig: Rig) -> None:
    ask = rig.case.question(rig.driver)
    assert ask() == ask()


@every(CASES)
def test_a_wire_fault_ends_in_a_typed_error_or_the_right_value(rig: Rig) -> None:
    ask = rig.case.question(rig.driver)
    expected = ask()
    clock = rig.bench.clock
    found = _results.setdefault(rig.case, {})
    for fault in WIRE_FAULTS[1:]:
        _again(rig.driver.identity, fault)  # so that `previous` is another reply
        injected, begun = rig.faults.injected, clock.now()
        rig.faults.fault = fault
        try:
            answer = ask()
        except InstrumentError as error:
            found[fault] = _error_kind(error)
        except LightrigError as error:
            pytest.fail(f"{fault}: {type(error).__name__} is no error of an instrument: {error}")
        else:
            assert answer == expected, fault
            found[fault] = "answers"
        rig.faults.fault = "none"
        assert clock.now() - begun < LONGEST, fault
        if rig.case.model != "agiltron":  # its protocol has no query
            assert rig.faults.injected > injected, fault
        assert _again(ask, fault) == expected, f"after {fault}"


def _again(ask: Callable[[], Any], fault: WireFault) -> Any:
    """Repeat a query until it works: the next one, or one after an error that tells why."""
    seen = ""
    for _ in range(3):
        try:
            return ask()
        except InstrumentError as error:
            seen = f"{_error_kind(error)}: {error}"
    pytest.fail(f"no query works after {fault}: {seen}")


def _error_kind(error: InstrumentError) -> str:
    """Return the kind of an error, which must name the instrument."""
    if NAME not in str(error).splitlines()[0]:
        pytest.fail(f"names no instrument: {error}")
    return type(error).__name__.removesuffix("Error")


RECORDINGS = sorted(FOLDER.glob("*/*.jsonl"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_replayed_recording_gives_the_recorded_results(path: Path, tmp_path: Path) -> None:
    about = read(path).about
    case = next(each for each in CASES if (each.model, each.scheme) == (about["model"], path.stem))
    _needs_extra(case)
    unknown: list[bytes] = []
    with replayed(path, case, tmp_path, unknown.append) as (instrument, clock):
        assert str(instrument.identity()) == about["identity"]
        if "learnt" in about:
            assert list(script(case, instrument, clock)) == json.loads(about["learnt"])
    assert unknown == []


def test_every_driver_is_recorded_on_every_wire_that_can_be_replayed() -> None:
    wanted = {(case.model, case.scheme) for case in CASES if case.scheme in REPLAYED}
    assert {(path.parent.name, path.stem) for path in RECORDINGS} >= wanted
    assert {model for model, _ in wanted} == {case.model for case in CASES}


def test_the_table_in_the_docs_is_the_outcome_of_this_run() -> None:
    if len(_results) < len(CASES):
        return  # only a part of the suite was run
    text = TABLE.read_text()
    head, _, rest = text.partition("<!-- generated -->\n")
    _, _, foot = rest.partition("<!-- end -->\n")
    new = f"{head}<!-- generated -->\n{_table()}<!-- end -->\n{foot}"
    if os.environ.get("LIGHTRIG_WRITE_DOCS"):
        TABLE.write_text(new)
    assert text == new or os.environ.get("LIGHTRIG_WRITE_DOCS"), "stale; run: make generated"


def _table() -> str:
    faults = WIRE_FAULTS[1:]
    lines = [f"| driver | wire | {' | '.join(faults)} |", "| --- " * (len(faults) + 2) + "|"]
    for case in sorted(_results, key=str):
        cells = [_results[case].get(fault, "") for fault in faults]
        shown = (re.sub(r"(?<!^)(?=[A-Z])", " ", cell).lower() for cell in cells)
        lines.append(f"| {case.model} | {case.scheme} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"
