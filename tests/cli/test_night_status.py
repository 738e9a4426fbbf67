"""Runs, terminal lines and exit status of `lightrig night` for testbeds that end differently."""

import json
import signal
import socket
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner
from uneven import SIZE, write_results

from lightrig.harness.cli import night
from lightrig.harness.cli.app import application
from lightrig.harness.night.outcomes import TestbedNight, store

MEASURED = TestbedNight("one", "measured", passed=7, inconclusive=1)
FAILED = TestbedNight("two", "measured", passed=5, failed=2)
CUT_OFF = TestbedNight("three", "interrupted", passed=3, reason="the power failed")
MISSING = TestbedNight("four", "not run", reason="host b is down")


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([MEASURED, MEASURED], 0),
        ([MEASURED, FAILED, MEASURED], 1),
        ([FAILED, FAILED], 1),
        ([MEASURED, MISSING, MEASURED], 3),
        ([CUT_OFF, MEASURED], 3),
        ([FAILED, CUT_OFF], 3),
        ([MISSING, MISSING], 3),
    ],
)
def test_one_testbed_among_several_decides_the_status(run, over_hosts, found, status):
    """docs/reference: 0 passed, 1 a test failed, 3 the lab was unavailable."""
    over_hosts(found)
    ended = run("--night", "n7", "--json")
    assert ended.exit_code == status
    document = json.loads(ended.stdout)
    assert [one["testbed"] for one in document["testbeds"]] == [one.testbed for one in found]
    assert document["page"] is None


@pytest.fixture
def over_hosts(monkeypatch):
    """Return a function that lets a night over hosts end with these testbeds."""

    def over_hosts(ends):
        coordinator = SimpleNamespace(run_night=lambda *_: ends)
        monkeypatch.setitem(sys.modules, "lightrig.harness.night.coordinator", coordinator)

    return over_hosts


@pytest.fixture
def run(tmp_path):
    """Run the command on a host of the testbeds alpha and beta."""
    for name in ("alpha", "beta"):
        switch = f'{{model: polatis, address: "tl1://ocs.invalid", size: {SIZE}}}'
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nswitches: {{ocs: {switch}}}\n")
    file = tmp_path / "lab.yaml"
    file.write_text("results: r\nhosts: {one: {testbeds: [alpha.yaml, beta.yaml]}}\n")

    def run(*options, **given):
        return CliRunner().invoke(application("night"), ["night", str(file), *options], **given)

    run.folder = tmp_path
    return run


def test_a_job_measures_its_testbed_alone_and_draws_no_page(run, tmp_path, monkeypatch):
    tasks = []

    def measure(lab, task, host):
        tasks.append((lab.results, task.night, task.testbed, task.file, host))
        counts = {"rows": 1234, "passed": 7, "failed": 2, "inconclusive": 1, "skipped": 5}
        took = {"attempts": 3, "duration_s": 12.7, "reason": "the host was lost"}
        return TestbedNight(task.testbed, "measured", host, **counts, **took)

    write_results(tmp_path / "r")
    monkeypatch.setattr(night, "measure", measure)
    ended = run("--testbed", "beta", "--night", "n7")
    here = socket.gethostname()
    assert tasks == [(str(tmp_path / "r"), "n7", "beta", "beta.yaml", here)]
    head, line, *more = ended.stdout.splitlines()
    heads = "testbed state host rows passed failed inconclusive attempts took reason"
    assert head.split() == heads.split()
    measured = ["beta", "measured", here, "1234", "7", "2", "1", "3"]
    assert line.split() == [*measured, "12.7", "s", "the", "host", "was", "lost"]
    assert (ended.exit_code, more) == (1, [])
    assert not (tmp_path / "r" / "nights.html").exists()
    unknown = run("--testbed", "gamma")
    assert unknown.exit_code == 2
    assert "lab.yaml has no testbed 'gamma'; it has alpha, beta" in unknown.stderr


def test_a_collected_night_names_testbeds_that_left_nothing(run, tmp_path):
    (tmp_path / "r").mkdir()
    store(TestbedNight("beta", "measured", passed=4), "n7", str(tmp_path / "r"))
    ended = run("--collect", "n7", "--json")
    assert ended.exit_code == 3
    shown = json.loads(ended.stdout)
    assert [(one["testbed"], one["state"], one["passed"]) for one in shown["testbeds"]] == [
        *(("alpha", "not run", 0), ("beta", "measured", 4))
    ]
    assert shown["page"] is None


def test_the_table_of_testbeds_has_a_line_each_and_the_page(run, over_hosts):
    ends = [
        TestbedNight("alpha", "measured", "one", rows=23, passed=7, attempts=1, duration_s=61.4),
        TestbedNight("beta", "measured", "two", passed=5, inconclusive=3, attempts=2),
    ]
    over_hosts(ends)
    page = write_results(run.folder / "r") / "nights.html"
    ended = run("--night", "n7")
    assert ended.exit_code == 0, ended.output
    assert [line.split() for line in ended.stdout.splitlines()[1:]] == [
        ["alpha", "measured", "one", "23", "7", "0", "0", "1", "61.4", "s"],
        ["beta", "measured", "two", "0", "5", "0", "3", "2"],
        ["nights", str(page)],
    ]
    assert "<html" in page.read_text()


def test_a_night_over_hosts_follows_each_testbed(run, monkeypatch):
    changes = []

    class Progress:
        def __init__(self, console, disable):
            assert (console, disable) == (night.err, not night.err.is_terminal)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            changes.append("over")

        def add_task(self, name, total):
            changes.append((name, total))
            return f"bar of {name}"

        def update(self, bar, **values):
            changes.append((bar, values))

    def run_night(lab, name, follow, announce):
        assert (lab.path.name, name, announce) == ("lab.yaml", "n7", night.err.print)
        follow("beta", "one", 3, 17)
        follow("alpha", "two", 0, 0)
        return [MEASURED, FAILED]

    monkeypatch.setattr("rich.progress.Progress", Progress)
    coordinator = SimpleNamespace(run_night=run_night)
    monkeypatch.setitem(sys.modules, "lightrig.harness.night.coordinator", coordinator)
    ended = run("--night", "n7", "--json")
    assert ended.exit_code == 1, ended.output
    assert [one["testbed"] for one in json.loads(ended.stdout)["testbeds"]] == ["one", "two"]
    assert changes == [
        *(("alpha", None), ("beta", None)),
        ("bar of beta", {"description": "beta on one", "completed": 3, "total": 17}),
        ("bar of alpha", {"description": "alpha on two", "completed": 0, "total": None}),
        "over",
    ]


def test_a_worker_gets_its_host_and_key_and_leaves_ctrl_c_to_the_scheduler(run, monkeypatch):
    worked, signals = [], []

    async def work(lab, host, scheduler, key):
        worked.append((lab.path.name, host.name, scheduler, key))

    def parse(name, content):
        return f"{name}: {content.decode()}"

    coordinator = SimpleNamespace(work=work, SchedulerError=RuntimeError)
    monkeypatch.setitem(sys.modules, "lightrig.harness.night.coordinator", coordinator)
    monkeypatch.setattr(night, "parse_key", parse)
    monkeypatch.setattr(night.signal, "signal", lambda *given: signals.append(given))
    at = ("--worker", "one", "--scheduler", "tls://127.0.0.1:8786")
    ended = run(*at, input="a key")
    assert ended.exit_code == 0, ended.output
    key = "standard input: a key"
    assert worked == [("lab.yaml", "one", "tls://127.0.0.1:8786", key)]
    assert signals[0] == (signal.SIGINT, signal.SIG_IGN)  # asyncio sets one of its own next
    assert night.logging.getLogger("distributed").level == night.logging.WARNING

    async def refuse(*_):
        raise RuntimeError("no TLS")

    coordinator.work = refuse
    ended = run(*at, input="a key")
    assert (ended.exit_code, ended.stderr) == (3, "host one: no TLS\n")
    assert "lab.yaml has no host 'six'" in run("--worker", "six").stderr
    assert "--worker needs --scheduler" in run("--worker", "one").stderr


def test_job_files_have_the_testbeds_by_file(run, monkeypatch):
    asked = []
    jobs = SimpleNamespace(
        slurm=lambda lab, names, zone: asked.append((lab.path.name, names, zone)) or "slurm",
        kubernetes=lambda lab, names, name: asked.append((lab.path.name, names, name)) or "kube",
    )
    monkeypatch.setattr(night, "job_arrays", jobs)
    for name in ("alpha.yaml", "beta.yaml"):
        with (run.folder / name).open("a") as file:
            file.write("\ntimezone: Asia/Tokyo\n")
    assert run("--job-array", "slurm").stdout == "slurm"
    assert run("--job-array", "kubernetes", "--night", "n7").stdout == "kube"
    names = {"alpha.yaml": "alpha", "beta.yaml": "beta"}
    assert asked == [("lab.yaml", names, "Asia/Tokyo"), ("lab.yaml", names, "n7")]


def test_key_files_are_listed_with_their_places(run, monkeypatch):
    (run.folder / "lab.yaml").write_text(
        "keys: k\nscheduler: tls://10.0.0.5:8786\nhosts:\n"
        "  one: {testbeds: [alpha.yaml], address: tls://10.0.0.6}\n"
        "  two: {testbeds: [beta.yaml], address: tls://10.0.0.7}\n"
    )
    made = run("--make-keys")
    assert made.exit_code == 0, made.output
    (run.folder / "k" / "scheduler.pem").unlink()
    head, *lines = run("--make-keys").stdout.splitlines()
    assert head.split() == ["key", "file", "valid", "until"]
    words = [line.split() for line in lines]
    expires = words[0][3]
    folder = f"{run.folder / 'k'}/"
    assert [" ".join(one).replace(folder, "").replace(expires, "DATE") for one in words] == [
        "authority.pem was there DATE stays here, for the keys of further hosts",
        "scheduler.pem made DATE stays here, where the night is started",
        "worker-one.pem was there DATE copy to one",
        "worker-two.pem was there DATE copy to two",
    ]
