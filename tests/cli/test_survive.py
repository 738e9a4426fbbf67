"""`lightrig survive`: what it refuses, its list of faults, and cuts in namespaces."""

import json
import re
from dataclasses import replace

import pytest
from click.testing import Result
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.jobs.measure.light_faults import Fault, FaultKind
from lightrig.harness.jobs.measure.survival import Outcome, Survival
from lightrig.harness.jobs.measure.survival_map import LongestFault
from lightrig.harness.jobs.report.survival_page import survival_page
from lightrig.instruments.clock import Span
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Link, Port

NAMESPACES = "testbeds/namespaces.yaml"


def run(*arguments: str, testbed: str = NAMESPACES) -> Result:
    given = ["survive", testbed, "--instruments", "simulated", *arguments]
    return CliRunner().invoke(application("survive"), given)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--fault", "bend:2s"], 2, "found 'bend', expected one of cut, flap, swap, dim"),
        (["--fault", "cut:2s..1s"], 2, "the first time is not the shorter one"),
        (["--fault", "cut:2s", "--plan", "none"], 2, "has no plan 'none'"),
        (["--fault", "cut:2s", "--user-timeout", "3"], 2, "found '3', expected a duration"),
    ],
)
def test_what_is_no_fault_is_refused(arguments: list[str], status: int, text: str) -> None:
    done = run(*arguments)
    assert done.exit_code == status
    assert text in done.output


def test_servers_without_tcp_are_an_error_of_the_lab() -> None:
    done = run("--fault", "cut:2s", testbed="testbeds/opus.yaml")
    assert done.exit_code == 3
    assert "simulated servers run no TCP" in done.output


def test_a_seed_lists_the_same_faults() -> None:
    arguments = ("--list", "--number", "6", "--fault", "cut:2s,one-way", "--fault", "swap:1s")
    first, again, different = (run(*arguments, "--seed", seed) for seed in ("7", "7", "8"))
    assert first.stdout_bytes == again.stdout_bytes
    assert first.stdout_bytes != different.stdout_bytes
    lines = [json.loads(line) for line in first.stdout.splitlines()]
    assert [each["fault"] for each in lines] == ["cut:2s,one-way", "swap:1s"] * 3
    assert all(("partner" in each) == (each["fault"] == "swap:1s") for each in lines)


@pytest.mark.long
def test_a_ring_of_plain_tcp_under_a_cut() -> None:
    if (reason := kernel.available()) is not None:
        pytest.skip(reason)
    done = run("--fault", "cut:300ms", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    (found,) = document["faults"]
    assert document["simulated"] == ["ocs"]
    assert (found["outcome"], found["wrong"]) == ("stalled, then went on", 0)
    moments = found["moments_ns"]
    assert moments["command"][0] < moments["carrier lost"][1] < moments["carrier back"][0]
    assert moments["carrier back"][0] < moments["first result"][1]
    assert found["stall_ns"] >= sum(found["dark_ns"]) / 2 - 10e6


MS = 1_000_000
LINK = Link(Port("server0", "nic0.p0"), Port("server1", "nic0.p1"))


def survival(outcome: Outcome, duration: int, error: str = "") -> Survival:
    """Return a fault of `duration` ms whose carrier was away from 5 ms on and 20 ms longer."""
    lost, back = Span(5 * MS, 6 * MS), Span((duration + 25) * MS, (duration + 26) * MS)
    moments = {"command": Span(0, 0), "carrier lost": lost, "carrier back": back}
    ended = Span((duration + 700) * MS, (duration + 700) * MS)
    moments["error" if error else "first result"] = ended
    fault = Fault(FaultKind("cut", duration * MS), LINK)
    return Survival(
        outcome, fault, "ring", back.since(lost), lost, back, (duration + 690) * MS, 2 * MS, 90, 0,
        error, (), moments,
    )  # fmt: skip


def test_the_page_has_shares_the_longest_fault_and_a_timeline_of_each_outcome() -> None:
    search = LongestFault(100 * MS, 30_000 * MS)
    found = [
        survival("stalled, then went on", 200),
        survival("stalled, then went on", 220),
        survival("error", 230, "TimeoutError: <script>"),
        survival("error", 9_000, "TimeoutError"),
    ]
    for each in found * 4:
        search.found(each)
    page = survival_page("all_reduce over tcp", "mine", found, search)
    assert "<script>" not in page
    assert "TimeoutError: &lt;script&gt;" in page
    assert f"<strong>{search}</strong>" in page
    assert page.count("Timeline of cut") == 2
    # Without carrier for 20 ms longer; thirds of a decade: 215, 464 ms ... 4.64, 10 s.
    rows = re.findall("<td>([^<]* to [^<]*)</td>((?:<td>[^<]*</td>)*)", page)
    assert rows == [
        ("215 ms to 464 ms", "<td>1 of 3</td><td>2 of 3</td>"),
        ("4.64 s to 10 s", "<td>1 of 1</td><td>0 of 1</td>"),
    ]
    assert "0.006 s</dt><dd>carrier lost" in page
    assert "went on as" not in page


def test_the_page_names_the_groups_of_ranks_that_went_on() -> None:
    left = (("server0", "server3"), ("server2",))
    apart = replace(survival("parted", 200), groups=left)
    formed = Span(90 * MS, 90 * MS)
    apart.moments["re-formed"] = formed
    page = survival_page("all_reduce over openmpi", "mine", [apart], None)
    assert "went on as server0, server3 | server2." in page
    # Drawn, and listed.
    assert page.count("re-formed<") == 2


def test_nothing_that_fails_is_at_least_the_longest_tried() -> None:
    search = LongestFault(100 * MS, 30_000 * MS)
    search.found(survival("stalled, then went on", 30_000))
    row = search.row("job", 7)
    # One trial leaves the lower end of the interval below what was tried.
    assert row.lower is not None
    assert row.value == row.lower < 30_000 * MS
    for _ in range(7):
        search.found(survival("stalled, then went on", 30_000))
    assert str(search).startswith("at least ")
    row = search.row("job", 7)
    assert (row.quantity, row.value, row.lower, row.upper) == (
        "survival.longest_cut", 30_000 * MS, 30_000 * MS, 30_000 * MS,
    )  # fmt: skip
    assert row.conditions is not None
    assert (row.conditions["bound"], row.conditions["trials"]) == ("at least", 8)
    for _ in range(30):
        search.found(survival("error", 100))
    assert str(search) == "less than 110 ms"
    row = search.row("job", 7)
    # The upper end of the interval, not the shortest duration that can be tried.
    assert row.value == row.upper == round(search.longest.upper * 1e9) > 100 * MS
    assert row.conditions is not None
    assert row.conditions["bound"] == "less than"


def test_what_counts_is_the_time_without_carrier() -> None:
    found = survival("error", 100)
    # From 5 or 6 ms on until 125 or 126 ms.
    assert found.duration == 120 * MS
    assert replace(found, dark=Span(0, 0)).duration == 100 * MS
    late = replace(found, dark=Span(10_000 * MS, 10_000 * MS))
    search = LongestFault(100 * MS, 30_000 * MS)
    for _ in range(6):
        search.found(survival("unharmed", 4_000))
        search.found(late)
    assert search.longest.value > 3.5


def test_a_longest_fault_has_its_interval() -> None:
    search = LongestFault(100 * MS, 30_000 * MS)
    for duration in (900, 1_000, 1_100) * 5:
        outcome: Outcome = "error" if duration > 1_000 else "unharmed"
        search.found(survival(outcome, duration))
    row = search.row("job", 7)
    assert row.conditions is not None
    assert "bound" not in row.conditions
    assert 900 * MS < row.lower < 1_100 * MS
    assert row.lower <= row.value <= row.upper < 1_200 * MS
    assert str(search).endswith(")")
