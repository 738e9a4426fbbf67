"""`--traces`: what went over the wires of a test that failed is in the run's folder, bounded."""

from pathlib import Path
from typing import Any

import pytest
from runs.running import Ended, started

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.transcript import Piece, Transcript, read
from lightrig.instruments.wire import recent_traffic
from lightrig.instruments.wire.recent_traffic import RecentTraffic

LAB = Path(__file__).parents[2] / "testbeds" / "rails4.yaml"
SUITE = """
from lightrig.testbeds import Circuit

def test_circuits(switches):
    assert len(switches["ocs"].circuits()) < 99
    print("password=Zq9vT2xb")

def test_denied(fabric, switches):
    print("password=Zq9vT2xb")
    switches["ocs"].change((), [Circuit(1, 99)]).done()

def test_labels(switches):
    assert switches["ocs"].labels() is not None
"""


def run_with(folder: Path, *options: str) -> Ended:
    (folder / "test_it.py").write_text(SUITE, encoding="utf-8")
    chosen = ("--testbed", LAB, "--instruments", "simulated", *options)
    with started((folder / "test_it.py", *chosen), folder / "results", page=True) as run:
        return run.end()


def traces(ended: Ended) -> dict[str, Transcript]:
    found = sorted(ended.results.glob("runs/*/traces/*/ocs.jsonl"))
    return {path.parent.name: read(path) for path in found}


def asked(transcript: Transcript) -> list[str]:
    return [
        piece.data.decode().partition(":")[0] for piece in transcript.pieces if piece.kind == ">"
    ]


def test_of_a_test_that_failed(tmp_path: Path) -> None:
    ended = run_with(tmp_path)
    (found,) = traces(ended).values()
    assert found.about["test"].endswith("::test_denied[rails4]")
    assert found.about["model"] == "polatis"
    # How it was opened, the test's own command, and nothing of the tests beside it.
    assert asked(found)[0] == "ACT-USER"
    assert "ENT-PATCH" in asked(found)
    assert not [each for each in asked(found) if "LABEL" in each or "PORT" in each]
    assert any(b"IDNV" in piece.data for piece in found.pieces if piece.kind == "<")
    assert "traces   " in ended.output
    stored = b"".join(one.read_bytes() for one in ended.results.rglob("*") if one.is_file())
    assert b"Zq9vT2xb" not in stored


@pytest.mark.long
def test_of_all_tests_and_of_none(tmp_path: Path) -> None:
    every = traces(run_with(tmp_path, "--traces", "all"))
    assert list(every) == [f"_test_{name}_rails4_" for name in ("circuits", "denied", "labels")]
    assert "ENT-PATCH" not in asked(every["_test_labels_rails4_"])
    (tmp_path / "second").mkdir()
    assert not traces(run_with(tmp_path / "second", "--traces", "none"))


def piece(number: int, size: int, clock: Any) -> Piece:
    return Piece(clock.now(), 1, ">", b"%06d" % number + b"x" * size)


def test_an_instrument_that_is_asked_much(tmp_path: Path) -> None:
    """The opening stays, of the test the end; what is missing between them is said."""
    clock = VirtualClock()
    traffic = RecentTraffic(tmp_path)
    traffic.watch(clock)
    traffic.note("ocs", piece(0, 10, clock))
    traffic.opened({})
    for number in range(1, 4001):
        traffic.note("ocs", piece(number, 1000, clock))
    folder = traffic.write("test_long")
    traffic.close()
    clock.close()
    assert folder is not None
    file = folder / "ocs.jsonl"
    assert file.stat().st_size < 1_300_000
    first, note, *rest = read(file).pieces
    assert first.data.startswith(b"000000")
    assert rest[-1].data.startswith(b"004000")
    missing = int(rest[0].data[:6]) - 1
    assert note.kind == "!"
    assert note.data.startswith(b"%d pieces" % missing)


def test_a_run_with_many_failures_is_bounded(tmp_path: Path) -> None:
    clock = VirtualClock()
    traffic = RecentTraffic(tmp_path, most=5_000)
    traffic.watch(clock)
    traffic.opened({})
    for number in range(9):
        traffic.begin()
        traffic.note("ocs", piece(number, 1000, clock))
        traffic.write(f"test_{number}")
    traffic.close()
    clock.close()
    size = sum(one.stat().st_size for one in tmp_path.rglob("*.jsonl"))
    assert 3_000 < size <= 5_000
    assert len(traffic.refused) == 9 - len(list(tmp_path.iterdir()))


def test_attempts_of_one_test_have_folders_of_their_own(tmp_path: Path) -> None:
    clock = VirtualClock()
    traffic = RecentTraffic(tmp_path)
    traffic.watch(clock)
    traffic.opened({})
    traffic.note("ocs", piece(1, 1, clock))
    assert [traffic.write("a/b::c[x y]"), traffic.write("a/b::c[x y]")] == [
        tmp_path / "a_b_c_x_y_",
        tmp_path / "a_b_c_x_y_-2",
    ]
    clock.close()


@pytest.mark.parametrize("name", ["..", "../../x", ".hidden", "a" * 300])
def test_names_of_folders_stay_below_the_run(name: str) -> None:
    made = recent_traffic.file_name(name)
    assert "/" not in made
    assert not made.startswith(".")
    assert len(made) <= 120
