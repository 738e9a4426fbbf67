"""One suite for every driver on every wire: manners, its peer, recordings, wires that lie.

LIGHTRIG_WRITE_DOCS=1 writes the table in docs/conformance.md anew, `python
tests/conformance/transcripts.py` the recordings of simulated instruments in tests/transcripts.
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

from instruments.errors import InstrumentError
from instruments.registry import driver
from instruments.simulated.lying import LIES, Lie
from instruments.simulated.replay_peer import REPLAYED
from instruments.transcript import read
from testbeds import LightrigError

CASES = cases()

TABLE = Path(__file__).parents[2] / "docs" / "conformance.md"
LONGEST = 400_000_000_000
"""More virtual time than any answer may take: several questions and what regains step."""

_results: dict[Case, dict[Lie, str]] = {}


@pytest.fixture(scope="module")
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with pytest.MonkeyPatch.context() as patch:
        made = Rig(request.param, tmp_path_factory.mktemp("one"), patch)
    yield made
    made.liar.lie = "none"
    made.bench.close()


def every(wanted: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", wanted, ids=str, indirect=True, scope="module")


@pytest.mark.parametrize("model", sorted({case.model for case in CASES}))
def test_a_driver_has_the_manners_of_the_house(model: str) -> None:
    made = driver(model)
    assert list(inspect.signature(made.open).parameters) == ["spec", "way", "clock"]
    text = inspect.getdoc(made) or ""
    assert "Source:" in text
    assert "name:" in text
    assert "clock:" in text
    assert tuple(made.schemes)
    for name, member in inspect.getmembers(made, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.getdoc(member), f"{model}.{name} says nothing of itself"


@every(CASES)
def test_it_says_who_it_is_and_what_it_is(rig: Rig) -> None:
    identity = rig.bench.identities[NAME]
    assert all((identity.manufacturer, identity.model, identity.serial, identity.firmware))
    assert NAME in rig.bench.simulated
    for capability in KINDS[rig.case.kind]:
        wanted = {name for name in dir(capability) if not name.startswith("_")}
        assert wanted <= set(dir(rig.driver))
    assert rig.driver.name == NAME
    assert rig.driver.wire()


@every(CASES)
def test_it_answers_its_question_twice_alike(rig: Rig) -> None:
    ask = rig.case.question(rig.driver)
    assert ask() == ask()


@every(CASES)
def test_a_wire_that_lies_is_found_out(rig: Rig) -> None:
    """Whatever is done to an answer: a typed error in time, or the right answer all the same."""
    ask = rig.case.question(rig.driver)
    truth = ask()
    clock = rig.bench.clock
    found = _results.setdefault(rig.case, {})
    for lie in LIES[1:]:
        _again(rig.driver.identity, lie)  # so that the answer before is another one
        told, begun = rig.liar.told, clock.now()
        rig.liar.lie = lie
        try:
            answer = ask()
        except InstrumentError as error:
            found[lie] = _told(error)
        except LightrigError as error:
            pytest.fail(f"{lie}: {type(error).__name__} is no error of an instrument: {error}")
        else:
            assert answer == truth, lie
            found[lie] = "answers"
        rig.liar.lie = "none"
        assert clock.now() - begun < LONGEST, lie
        if rig.case.model != "agiltron":  # it cannot be asked anything
            assert rig.liar.told > told, lie
        assert _again(ask, lie) == truth, f"after {lie}"


def _again(ask: Callable[[], Any], lie: Lie) -> Any:
    """The next question works, or says why it cannot, and then the one after it does."""
    words = ""
    for _ in range(3):
        try:
            return ask()
        except InstrumentError as error:
            words = f"{_told(error)}: {error}"
    pytest.fail(f"nothing works around {lie}: {words}")


def _told(error: InstrumentError) -> str:
    """The kind of an error, which must name the instrument."""
    if NAME not in str(error).splitlines()[0]:
        pytest.fail(f"names no instrument: {error}")
    return type(error).__name__.removesuffix("Error")


RECORDINGS = sorted(FOLDER.glob("*/*.jsonl"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_from_a_recording_it_learns_what_was_learnt_then(path: Path, tmp_path: Path) -> None:
    about = read(path).about
    case = next(each for each in CASES if (each.model, each.scheme) == (about["model"], path.stem))
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


def test_the_table_in_the_docs_is_what_this_run_found() -> None:
    if len(_results) < len(CASES):
        return  # a part of the suite was run, and a part of the table proves nothing
    text = TABLE.read_text()
    head, _, rest = text.partition("<!-- generated -->\n")
    _, _, foot = rest.partition("<!-- end -->\n")
    new = f"{head}<!-- generated -->\n{_table()}<!-- end -->\n{foot}"
    if os.environ.get("LIGHTRIG_WRITE_DOCS"):
        TABLE.write_text(new)
    assert text == new or os.environ.get("LIGHTRIG_WRITE_DOCS")


def _table() -> str:
    lies = LIES[1:]
    lines = [f"| driver | wire | {' | '.join(lies)} |", "| --- " * (len(lies) + 2) + "|"]
    for case in sorted(_results, key=str):
        cells = [_results[case].get(lie, "") for lie in lies]
        words = (re.sub(r"(?<!^)(?=[A-Z])", " ", cell).lower() for cell in cells)
        lines.append(f"| {case.model} | {case.scheme} | {' | '.join(words)} |")
    return "\n".join(lines) + "\n"
