"""`lightrig survive`: what it prints of faults that end differently, and what it asks for."""

import importlib
import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.jobs.bench.jobs import JobSetting
from lightrig.harness.jobs.measure.light_faults import Fault, FaultKind
from lightrig.harness.jobs.measure.survival import Survival
from lightrig.harness.jobs.measure.survival_map import LongestFault
from lightrig.instruments.clock import Span
from lightrig.testbeds import Link, Port

COMMAND = importlib.import_module("lightrig.harness.jobs.commands.survive")
MS = 1_000_000
ONE = Link(Port("server0", "nic0.p0"), Port("server1", "nic0.p1"))
OTHER = Link(Port("server2", "nic0.p0"), Port("server3", "nic0.p1"))
NO_RING = """
name: two
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", size: 12x12}}
servers:
  server[0-2]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {ports: 2, netdev: "eth{p}", rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -14 dBm, max: 4 dBm}
fibers: ["server[0-2].nic0.p[0-1] <-> ocs"]
plans:
  pair: [server0.nic0.p0 <-> server1.nic0.p0]
  ring:
    - server[0-2].nic0.p0 <-> server[1,2,0].nic0.p1
  again:
    - server[0-2].nic0.p1 <-> server[1,2,0].nic0.p0
"""

CUT = Survival(
    "stalled, then went on",
    Fault(FaultKind("cut", 200 * MS), ONE),
    "ring",
    Span(210 * MS, 230 * MS),
    Span(1_005 * MS, 1_006 * MS),
    Span(1_216 * MS, 1_235 * MS),
    690 * MS,
    2 * MS,
    90,
    0,
    "",
    (),
    {
        "command": Span(1_000 * MS, 1_001 * MS),
        "carrier lost": Span(1_005 * MS, 1_006 * MS),
        "rate back to 95 %": Span(3_400 * MS, 3_500 * MS),
    },
    used=True,
)
PARTED = Survival(
    "parted",
    Fault(FaultKind("swap", 300 * MS), ONE, OTHER),
    "ring",
    Span(0, 0),
    Span(2_000 * MS, 2_000 * MS),
    Span(2_000 * MS, 2_000 * MS),
    20 * MS,
    1 * MS,
    41,
    3,
    "",
    (("server0", "server3"), ("server2",)),
    {"command": Span(2_003 * MS, 2_004 * MS), "parted": Span(2_900 * MS, 2_950 * MS)},
    used=True,
)
FAILED = replace(
    CUT, outcome="error", error="TimeoutError: no reply", moments={"command": Span(0, 7 * MS)},
    lost=Span(5 * MS, 6 * MS),
)  # fmt: skip
SLOWER = replace(CUT, outcome="slower", moments={"command": Span(1_000 * MS, 1_001 * MS)})


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (
            CUT,
            [
                "cut:0.2s of server0.nic0.p0 <-> server1.nic0.p1: stalled, then went on",
                "  stall 690 ms, 220 ms without carrier; 0 wrong results of 90; no error",
                "    0.000 to 0.001 s  command",
                "    0.005 to 0.006 s  carrier lost",
                "    2.400 to 2.500 s  rate back to 95 %",
            ],
        ),
        (
            PARTED,
            [
                "swap:0.3s of server0.nic0.p0 <-> server1.nic0.p1 and "
                "server2.nic0.p0 <-> server3.nic0.p1: parted",
                "  stall 20 ms; 3 wrong results of 41; no error",
                "  went on as server0 server3 | server2",
                "  the rate was not back to 95 % while it was watched",
                "    0.003 to 0.004 s  command",
                "    0.900 to 0.950 s  parted",
            ],
        ),
        (
            FAILED,
            [
                "cut:0.2s of server0.nic0.p0 <-> server1.nic0.p1: error",
                "  stall 690 ms, 220 ms without carrier; 0 wrong results of 90; "
                "TimeoutError: no reply",
                "    0.000 to 0.007 s  command",
            ],
        ),
        (
            replace(FAILED, outcome="hang", error=""),
            [
                "cut:0.2s of server0.nic0.p0 <-> server1.nic0.p1: hang",
                "  stall 690 ms, 220 ms without carrier; 0 wrong results of 90; no error",
                "    0.000 to 0.007 s  command",
            ],
        ),
        (
            # The carrier may have been away for no time at all, or for 30 ms.
            replace(FAILED, outcome="hang", dark=Span(0, 30 * MS)),
            [
                "cut:0.2s of server0.nic0.p0 <-> server1.nic0.p1: hang",
                "  stall 690 ms, 15 ms without carrier; 0 wrong results of 90; "
                "TimeoutError: no reply",
                "    0.000 to 0.007 s  command",
            ],
        ),
        (
            replace(FAILED, outcome="not felt: other link", error="", stalls=700 * MS, used=None),
            [
                "cut:0.2s of server0.nic0.p0 <-> server1.nic0.p1: not felt: other link",
                "  stall 690 ms of 700 ms in all, 220 ms without carrier; 0 wrong results of 90; "
                "no error",
                "  not checked whether the job uses the link: its ports count no bytes",
                "  the rate was not back to 95 % while it was watched",
                "    0.000 to 0.007 s  command",
            ],
        ),
        (
            SLOWER,
            [
                "cut:0.2s of server0.nic0.p0 <-> server1.nic0.p1: slower",
                "  stall 690 ms, 220 ms without carrier; 0 wrong results of 90; no error",
                "  the rate was not back to 95 % while it was watched",
                "    0.000 to 0.001 s  command",
            ],
        ),
    ],
)
def test_lines_of_a_fault(run, found, lines):
    run.ends[:], run.drawn = [found], False
    shown = run("--fault", found.fault.what).stdout.splitlines()
    assert shown[:-2] == lines


def test_the_document_counts_from_the_first_moment(run):
    run.ends[:], run.drawn = [PARTED], False
    (document,) = json.loads(run("--fault", "swap:0.3s", "--json").stdout)["faults"]
    assert document == {
        "fault": "swap:0.3s",
        "link": "server0.nic0.p0 <-> server1.nic0.p1",
        "partner": "server2.nic0.p0 <-> server3.nic0.p1",
        "after_ns": 300 * MS,
        "outcome": "parted",
        "stall_ns": 20 * MS,
        "stalls_ns": 0,
        "link_used": True,
        "dark_ns": [0, 0],
        "exchanges": 41,
        "wrong": 3,
        "error": "",
        "groups": [["server0", "server3"], ["server2"]],
        "phase": None,
        "moments_ns": {"command": [3 * MS, 4 * MS], "parted": [900 * MS, 950 * MS]},
    }


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command with faults of which each ends as `run.ends` has it; note what it does."""
    (tmp_path / "two.yaml").write_text(NO_RING)
    noted: list[tuple[object, ...]] = []
    bench = SimpleNamespace(simulated={"zebra", "ocs"})
    ends = [CUT]

    @contextmanager
    def restored(given):
        assert given is bench
        noted.append(("fabric",))
        yield "the fabric"
        noted.append(("restored",))

    def bind(testbed, instruments, seed, purpose):
        noted.append(("bench", testbed.name, instruments, seed, purpose))
        return bench

    def jobs(given, library, setting, environment):
        assert given is bench
        noted.append(("jobs", library, setting, environment))
        return SimpleNamespace(close=lambda: noted.append(("jobs closed",)))

    def commands(given, command):
        assert given is bench
        noted.append(("command", command))
        return SimpleNamespace(close=lambda: noted.append(("command closed",)))

    def fault_run(fabric, links, jobs, plan, collective, reform, timeout, phase, reroute):
        share = None if phase is None else phase.share
        noted.append(("run", fabric, links, plan.name, collective, reform, timeout, share, reroute))
        left = iter(ends)

        def under(fault):
            noted.append(("fault", str(fault.what)))
            found = next(left)
            return replace(found, fault=fault) if run.drawn else found

        return SimpleNamespace(under=under)

    monkeypatch.setattr(COMMAND, "bind", bind)
    monkeypatch.setattr(COMMAND, "restored", restored)
    monkeypatch.setattr(COMMAND, "Jobs", jobs)
    monkeypatch.setattr(COMMAND, "CommandJobs", commands)
    monkeypatch.setattr(COMMAND, "FaultRun", fault_run)
    monkeypatch.setattr(COMMAND, "quiet_observation", lambda _: "links")

    def run(*arguments):
        noted.clear()
        whole = ["survive", str(tmp_path / "two.yaml"), *map(str, arguments)]
        return CliRunner().invoke(application("survive"), whole)

    run.noted, run.ends, run.drawn = noted, ends, True
    return run


def test_settings_reach_the_job_and_each_fault_is_tried_in_turn(run, tmp_path):
    run.ends[:] = [CUT, PARTED, FAILED]
    page = tmp_path / "page.html"
    done = run(
        *("--fault", "cut:2s", "--fault", "flap:1s,duty=0.3,number=4", "--number", 3),
        *("--user-timeout", "3s", "--timeout", "5s", "--retries", 6, "--detector", "1s"),
        *("--job", "all_to_all", "--library", "gloo", "--reform", "--recovery", "7s"),
        *(
            "--reroute",
            "--environment",
            "there",
            "--instruments",
            "hardware",
            "--seed",
            9,
            "--page",
            page,
        ),
    )
    assert done.exit_code == 1, done.output
    setting = JobSetting(3 * 10**9, 5 * 10**9, 6, 10**9)
    assert run.noted == [
        ("bench", "two", "hardware", 9, "lightrig survive all_to_all"),
        ("fabric",),
        ("jobs", "gloo", setting, Path("there")),
        # The first plan with a ring is the second one.
        ("run", "the fabric", "links", "ring", "all_to_all", True, 7 * 10**9, None, True),
        ("fault", "cut:2s"),
        ("fault", "flap:1s,duty=0.3,number=4"),
        ("fault", "cut:2s"),
        ("jobs closed",),
        ("restored",),
    ]
    last = done.stdout.splitlines()[-2:]
    assert last == [
        "error: 1, parted: 1, stalled, then went on: 1",
        "simulated: ocs, zebra",
    ]
    assert done.stdout.count("wrong results") == 3
    title = "all_to_all over gloo (TCP user timeout 3 s, timeout 5 s, tcp_retries2 6, detector 1 s)"
    assert f"<h1>{title}</h1>" in page.read_text()
    assert "testbed two; 3 faults by light" in page.read_text()


def test_without_settings_the_defaults_are_used_and_a_plan_is_taken_by_name(run):
    done = run("--fault", "cut:2s", "--plan", "again")
    assert done.exit_code == 0, done.output
    assert run.noted[2] == ("jobs", "tcp", JobSetting(0, None, None, None), Path(".extras/openmpi"))
    assert run.noted[3][3:] == ("again", "all_reduce", False, 60 * 10**9, None, False)
    assert "longest" not in done.stdout


def test_a_command_is_the_job_in_place_of_a_library(run, tmp_path):
    page = tmp_path / "page.html"
    line = "mpirun -n 2 all_reduce_perf -N 0"
    done = run(
        *("--fault", "plan:1s,to=again", "--plan", "ring", "--command", line),
        *("--phase", 0.25, "--page", page),
    )
    assert done.exit_code == 0, done.output
    assert run.noted[2] == ("command", line)
    assert run.noted[3][3:] == ("ring", "all_reduce", False, 60 * 10**9, 0.25, False)
    assert run.noted[4] == ("fault", "plan:1s,to=again")
    assert run.noted[-2] == ("command closed",)
    assert f"<h1>{line}</h1>" in page.read_text()


@pytest.mark.parametrize(
    "setting",
    [
        ["--reroute"], ["--user-timeout", "3s"], ["--timeout", "5s"], ["--retries", "5"],
        ["--detector", "1s"], ["--fault", "dim:2s"],
    ],
)  # fmt: skip
def test_settings_of_libraries_are_refused_with_a_command(run, setting):
    done = run("--fault", "cut:2s", "--command", "all_reduce_perf", *setting)
    assert done.exit_code == 2
    assert "of the jobs of --library" in done.stderr
    assert run.noted == []


def test_the_longest_fault_is_looked_for_between_its_bounds(run):
    run.ends[:] = [CUT, FAILED, CUT]
    done = run("--fault", "cut:0.1s..30s", "--number", 3, "--json")
    assert done.exit_code == 1, done.output
    tried = [one[1] for one in run.noted if one[0] == "fault"]
    assert len(tried) == 3
    assert all(one.startswith("cut:") for one in tried)
    document = json.loads(done.stdout)
    search = LongestFault(100 * MS, 30_000 * MS)
    for each in run.ends:
        search.found(each)
    assert document["longest"] == str(search)
    assert document["simulated"] == ["ocs", "zebra"]
    assert len(document["faults"]) == 3
    assert f"longest that half of the faults survive: {document['longest']}" in (
        run("--fault", "cut:0.1s..30s", "--number", 3).stdout.splitlines()
    )


def test_bounds_of_durations_are_those_of_the_text(run):
    """The longest one is listed; two faults are no bounds."""
    listed = [
        json.loads(line) for line in run("--fault", "cut:0.1s..30s", "--list").stdout.splitlines()
    ]
    assert {each["fault"] for each in listed} == {"cut:30s"}
    both = run("--fault", "cut:1s", "--fault", "swap:2s", "--list", "--number", 2).stdout
    assert [json.loads(line)["fault"] for line in both.splitlines()] == ["cut:1s", "swap:2s"]
    for text in ("cut:30s..0.1s", "cut:3s..3s"):
        wrong = run("--fault", text)
        assert wrong.exit_code == 2
        assert f"--fault {text}: the first time is not the shorter one" in wrong.stderr


@pytest.mark.parametrize("text", ["cut:2s..2s", "cut:3s..2s"])
def test_a_first_time_that_is_not_shorter_is_refused(run, text):
    done = run("--fault", text)
    assert (done.exit_code, run.noted) == (2, [])
    assert f"--fault {text}: the first time is not the shorter one" in done.stderr


def test_a_testbed_without_a_ring_is_named(run, tmp_path):
    whole = (tmp_path / "two.yaml").read_text()
    (tmp_path / "two.yaml").write_text(whole[: whole.index("  ring:")])
    done = run("--fault", "cut:2s")
    assert done.exit_code == 2
    assert done.stderr == f"{tmp_path / 'two.yaml'}: no plan has a ring of all servers\n"
