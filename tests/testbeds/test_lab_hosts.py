"""The file of a night over several hosts, and the job files made of it."""

import json
import subprocess
from pathlib import Path

import pytest

from lightrig.harness.night.job_arrays import kubernetes, placed, slurm
from lightrig.harness.night.outcomes import TestbedNight, collect, not_run, run_name, store
from lightrig.harness.record import RecordError
from lightrig.testbeds import TestbedError
from lightrig.testbeds.lab_hosts import load_hosts

TEXT = """
results: results
hosts:
  lab1: {testbeds: [a.yaml, b.yaml, c.yaml], parallel: 2}
  lab2: {testbeds: [a.yaml], start: "{command}"}
"""
NAMES = {"a.yaml": "alpha", "b.yaml": "beta", "c.yaml": "it's c"}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yaml"
    path.write_text(TEXT)
    return path


def test_files_are_relative_to_the_file_of_hosts(lab):
    found = load_hosts(lab)
    assert found.testbeds == ("a.yaml", "b.yaml", "c.yaml")
    assert found.results == str(lab.parent / "results")
    assert found.resolve("a.yaml") == lab.parent / "a.yaml"
    assert found.wait_ns == 300 * 10**9


def test_a_start_without_a_place_for_the_command_is_located(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text("hosts:\n  lab1: {testbeds: [a.yaml], start: ssh lab1}\n")
    with pytest.raises(TestbedError, match=r"lab.yaml:2:\d+: expected {command}"):
        load_hosts(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("scheduler: tcp://127.0.0.1:0", r"2:12: found 'tcp://.*expected tls://HOST"),
        ("scheduler: tls://10.0.0.5:80", "2:12: found tls://10.0.0.5:80 in a file without keys"),
        ("scheduler: tls://lab1", r"2:12: found tls://lab1 in a file without keys"),
        ("scheduler: tls://0.0.0.0:8786", "2:12: .*all of the host's addresses"),
        ("scheduler: 'tls://[::]:8786'", "2:12: .*all of the host's addresses"),
        ("scheduler: tls://127.0.0.1:65536", "2:12: .*[Pp]ort"),
        ("scheduler: tls://127.0.0.1/x", "2:12: found 'tls://127.0.0.1/x'"),
        ("scheduler: tls://10.0.0.5\nkeys: keys", r"1:9: expected address, where lab1's worker"),
    ],
)  # fmt: skip
def test_an_address_that_would_not_be_protected_is_located(tmp_path, text, problem):
    path = tmp_path / "lab.yaml"
    path.write_text(f"hosts: {{lab1: {{testbeds: [a.yaml]}}}}\n{text}\n")
    with pytest.raises(TestbedError, match=rf"lab.yaml:{problem}"):
        load_hosts(path)


def test_a_worker_beyond_loopback_needs_keys(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text("hosts:\n  lab1: {testbeds: [a.yaml], address: tls://10.0.0.6:0}\n")
    with pytest.raises(TestbedError, match=r"lab.yaml:2:39: found tls://10.0.0.6:0 in a file with"):
        load_hosts(path)


def test_listeners_are_on_loopback_unless_the_file_names_keys_and_addresses(tmp_path, lab):
    found = load_hosts(lab)
    addresses = [found.scheduler, *(host.address for host in found.hosts)]
    assert addresses == ["tls://127.0.0.1:0"] * 3
    path = tmp_path / "named.yaml"
    path.write_text(
        "keys: keys\nscheduler: tls://10.0.0.5:8786\n"
        "hosts: {lab1: {testbeds: [a.yaml], address: 'tls://[2001:db8::6]'}}\n"
    )
    found = load_hosts(path)
    assert (found.scheduler, found.keys) == ("tls://10.0.0.5:8786", tmp_path / "keys")
    assert found.hosts[0].address == "tls://[2001:db8::6]"


def test_each_testbed_is_placed_once_on_a_host_that_reaches_it(lab):
    found = placed(load_hosts(lab), NAMES)
    assert found == {"lab1": ["beta", "it's c"], "lab2": ["alpha"]}


def test_the_slurm_script_submits_what_each_element_is_to_run(lab, tmp_path):
    # A stand-in for sbatch that runs each element of an array at once, as Slurm would.
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(
        "#!/bin/bash\n"
        'for word in "$@"; do case "$word" in --array=*) array=${word#--array=};; '
        "--nodelist=*) host=${word#--nodelist=};; --wrap=*) wrap=${word#--wrap=};; esac; done\n"
        "array=${array%%%*}; first=${array%-*}; last=${array#*-}\n"
        'for task in $(seq "${first:-0}" "${last:-0}"); do SLURM_ARRAY_TASK_ID=$task '
        'bash -c "$wrap" >&2; done\necho 17\n'
    )
    lightrig = tmp_path / "lightrig"
    lightrig.write_text(
        f'#!/bin/bash\nprintf "%s|" "$@" >> {tmp_path}/ran\necho >> {tmp_path}/ran\n'
    )
    date = tmp_path / "date"
    date.write_text('#!/bin/sh\necho "20260312-$TZ"\n')
    for program in (sbatch, lightrig, date):
        program.chmod(0o755)
    script = tmp_path / "night.sh"
    script.write_text(slurm(load_hosts(lab), NAMES, "America/Los_Angeles"))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", script], env=environment, check=True, capture_output=True)
    ran = [line.split("|")[:-1] for line in (tmp_path / "ran").read_text().splitlines()]
    night = ran[0][-1]
    assert night == "20260312-America/Los_Angeles-slurm"
    assert ran == [
        *(["night", str(lab), "--testbed", name, "--night", night] for name in ("beta", "it's c")),
        ["night", str(lab), "--testbed", "alpha", "--night", night],
        ["night", str(lab), "--collect", night],
    ]


def test_kubernetes_has_an_indexed_job_for_each_host(lab):
    items = json.loads(kubernetes(load_hosts(lab), NAMES, "20260101-000000-a"))["items"]
    specs = [item["spec"] for item in items]
    assert [spec["completions"] for spec in specs] == [2, 1]
    assert [spec["parallelism"] for spec in specs] == [2, 1]
    hosts = [spec["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"] for spec in specs]
    assert hosts == ["lab1", "lab2"]


def test_what_left_no_outcome_was_not_run(tmp_path):
    results, night = str(tmp_path), "20260101-000000-a"
    store(TestbedNight("alpha", "measured", "lab1", run_name(night, "alpha"), 0, 5), night, results)
    store(TestbedNight("beta", "not run", reason="no host"), night, results)
    found = collect(night, ["alpha", "beta", "it's c"], results)
    assert [one.state for one in found] == ["measured", "not run", "not run"]
    assert "left no outcome" in found[2].reason
    assert not_run(tmp_path) == {"beta": ("2026-01-01", "no host")}


def test_a_damaged_outcome_is_named(tmp_path):
    store(TestbedNight("alpha", "measured"), "20260101-000000-a", str(tmp_path))
    file = next(tmp_path.glob("nights/*/*.json"))
    file.write_text("{")
    with pytest.raises(RecordError, match=r"alpha\.json is damaged"):
        collect("20260101-000000-a", ["alpha"], str(tmp_path))
