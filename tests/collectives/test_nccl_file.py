"""The file that nccl-tests writes with -J: single times, and what is refused of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from lightrig.instruments.jobs.simulated import nccl_tests_format as nccl
from lightrig.instruments.jobs.tools import nccl_tests
from lightrig.instruments.servers.tools.output import ToolOutputError

TIMES = [210_400, 208_100, 219_700, 209_900]


def written(**arguments: Any) -> str:
    """All-reduces among two ranks, as a simulated server writes them."""
    asked = nccl.Arguments("all_reduce_perf", ("all_reduce_perf",), iterations=4, **arguments)
    devices = [nccl.Device(rank, f"server{rank}", 42, 0, "L40") for rank in range(2)]
    rows = [nccl.Timed(1 << 20, 1 << 18, TIMES, TIMES[::-1], 0)]
    return nccl.as_json(nccl.Finished(asked, devices, rows))


def test_single_times_are_read() -> None:
    run = nccl_tests.parse(written(per_iteration=True))
    iterations = run.rows[0].measured[0].iterations
    assert iterations is not None
    assert iterations.each_us == tuple(time / 1e3 for time in TIMES)
    assert (run.ranks, run.hosts) == (2, ("server0", "server1"))


def test_without_them_there_are_averages() -> None:
    run = nccl_tests.parse(written())
    assert run.rows[0].measured[0].iterations is None
    assert run.rows[0].measured[0].time_ns == sum(TIMES) / 4


def _times(value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["results"][0]["out_of_place_per_iter"]["times_us"] = value

    return change


def _of_row(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["results"][0]["out_of_place"][key] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_times([210.4, 208.1, 219.7, 200.0]), "min_us and max_us"),
        (_times([210.4, 208.1, 209.9]), "min_us and max_us"),
        (_times([210.4, "208.1"]), "numbers from 0"),
        (_times([210.4, -1.0]), "numbers from 0"),
        (_times({"a": 1}), "times_us"),
        (_of_row("time", 250.0), "size / time"),
        (_of_row("bus_bw", 1.0), "ratio|busbw"),
        (_of_row("nwrong", -1), "wrong"),
        (lambda document: document.pop("results"), "results"),
        (lambda document: document["average_bus_bandwidth"].update(bandwidth=1.0), "average"),
    ],
)
def test_files_that_contradict_themselves(
    change: Callable[[dict[str, Any]], None], expected: str
) -> None:
    document = json.loads(written(per_iteration=True))
    change(document)
    with pytest.raises(ToolOutputError, match=expected):
        nccl_tests.parse(json.dumps(document))


@pytest.mark.parametrize("end", [40, 400, 1200])
def test_a_file_that_was_cut_off(end: int) -> None:
    with pytest.raises(ToolOutputError):
        nccl_tests.parse(written(per_iteration=True)[:end])
