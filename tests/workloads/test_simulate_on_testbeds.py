"""`lightrig simulate` on what a lab has: its testbed files, and the switching times of its runs."""

import json
from pathlib import Path

import pytest
from record.recorded import MS, begin, context
from typer.testing import CliRunner
from uneven import DELAYS, write_results

from lightrig.harness.cli.app import application
from lightrig.harness.record import Row, settle

ROOT = Path(__file__).parents[2]
OPUS = ROOT / "testbeds/opus.yaml"
SMALL = """\
name: small
model: {layers: 4, width: 1024, hidden: 4096, vocabulary: 1000, heads: 16}
parallelism: {data: 2, tensor: 2, pipeline: 2}
batch: {sequences: 8, length: 128}
device: {tera_operations: 100, memory_gb_per_s: 1000}
"""
LEAVES = """\
name: leaves
servers:
  server[0-4]:
    address: ssh://bench@{name}.invalid
    gpus: {count: 2, model: A100}
    nics:
      nic[0-1]: {netdev: "ens{n}", rate: 40G}
switches:
  leaf0: {kind: packet, model: SN3700, ports: 8, rate: 100G}
  leaf1: {kind: packet, model: SN3700, ports: 8, rate: 100G}
  spine: {kind: packet, model: SN3700, ports: 8, rate: 100G}
fibers:
  - server[0-2].nic0 <-> leaf0.[1-3]
  - server[0-2].nic1 <-> leaf0.[4-6]
  - server[3-4].nic0 <-> leaf1.[1-2]
  - server[3-4].nic1 <-> leaf1.[3-4]
  - leaf0.8 <-> spine.1
  - leaf1.8 <-> spine.2
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    return write_results(tmp_path_factory.mktemp("results"))


def simulate(*arguments):
    return CliRunner().invoke(application(), ["simulate", *map(str, arguments)])


def document(*arguments):
    done = simulate(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_testbed_is_its_systems_fabric_with_its_rates(job):
    """Opus §5.1: two L40 a server with a NIC each, 100G."""
    found = document(job, OPUS)
    named = document(job, "opus:scale_out=100G")
    assert (found["step_s"], found["mode"]) == (named["step_s"], "provisioned")
    assert found["step_s"] > document(job, "opus:scale_out=200G")["step_s"]
    assert "links of 100 Gbit/s and 2 ranks a server" in found["assumptions"][0]


def test_options_replace_what_the_file_states(job):
    assert (
        document(job, f"{OPUS}:scale_out=200G,latency=3us")["step_s"]
        == (document(job, "opus:scale_out=200G,latency=3us")["step_s"])
    )


def test_a_job_larger_than_the_testbed_is_an_assumption(tmp_path):
    large = tmp_path / "large.yaml"
    large.write_text(SMALL.replace("data: 2, tensor: 2", "data: 4, tensor: 4"), "utf-8")
    found = document(large, OPUS)["assumptions"]
    assert "servers of 4 ranks: the file's have 2" in found
    assert "32 ranks: the file's fabric of 8 is built larger alike" in found
    fits = tmp_path / "fits.yaml"
    fits.write_text(SMALL, "utf-8")
    assert not [one for one in document(fits, OPUS)["assumptions"] if "built larger" in one]


def test_packet_switches_are_leaves_with_what_goes_up(tmp_path):
    """Six NICs of 40G below 100G upwards are 2.4 to 1, four are 1.6 to 1; the leaf of two servers
    has four ranks."""
    job, leaves = tmp_path / "job.yaml", tmp_path / "leaves.yaml"
    job.write_text(SMALL.replace("data: 2, tensor: 2", "data: 4, tensor: 2"), "utf-8")
    leaves.write_text(LEAVES, "utf-8")
    found = document(job, leaves)
    named = document(job, "fat-tree:oversubscription=2.4,leaf=4,scale_out=40G")
    assert found["step_s"] == named["step_s"]
    assert found["links"] == named["links"]
    assert "leaf switches of 4 ranks, oversubscribed 2.4 to 1" in found["assumptions"][0]
    assert found["step_s"] > document(job, f"{leaves}:oversubscription=1")["step_s"]


def test_circuits_without_a_system_have_no_known_controller(job):
    done = simulate(job, ROOT / "testbeds/namespaces.yaml")
    assert done.exit_code == 2
    assert "namespaces.yaml: has optical switches and no `system:`" in done.output


def test_a_testbed_that_is_not_there_or_is_wrong_is_located(job, tmp_path):
    done = simulate(job, tmp_path / "none.yaml")
    assert done.exit_code == 2
    assert "No such file" in done.output
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(LEAVES.replace("rate: 40G", "rate: fast"), "utf-8")
    done = simulate(job, wrong)
    assert done.exit_code == 2
    assert "wrong.yaml:7:" in done.output


# ------------------------------------------------------------------------------- switching times


def test_each_change_takes_what_one_of_a_run_took(job, results):
    """Two stages wait for 3 PP - 2 = 4 changes on demand: of whole ms each, from the run's."""
    found = document(
        job, OPUS, "--mode", "archived-on-demand", "--switching-time", "r1", "--results", results
    )
    assert found["switching_of"] == {
        "run": "r1",
        "testbed": "opus",
        "quantity": "reconfiguration.signal_recovered",
        "samples": 20,
        "simulated": True,
    }
    assert found["switching_s"] == sorted((DELAYS * 3)[:20])[9] / 1e3
    fixed = document(job, OPUS, "--mode", "archived-on-demand", "--switching-time", "0..1s")[
        "curve"
    ]
    alone = fixed[-1]["step_s"] - 4
    waited = [(step - alone) * 1e3 for step in found["drawn_steps_s"]]
    assert len(waited) == 40
    assert all(abs(each - round(each)) < 1e-3 for each in waited)
    assert all(4 * min(DELAYS) <= round(each) <= 4 * max(DELAYS) for each in waited)
    assert len({round(each) for each in waited}) > 10
    assert found["drawn_steps_s"] == sorted(found["drawn_steps_s"])
    assert found["step_s"] == found["drawn_steps_s"][19]
    assert "simulated lab" in found["assumptions"][-1]


def test_the_same_run_gives_the_same_answer(job, results):
    arguments = (job, OPUS, "--switching-time", "r5", "--results", results)
    assert document(*arguments) == document(*arguments)
    printed = simulate(*arguments).stdout
    assert "computed, with switching times of a run" in printed
    assert "the middle of 40 computed steps" in printed


def test_the_last_attempt_and_the_last_stage_count(job, tmp_path):
    """The first attempt's and the switch's own word, which is earlier, do not."""
    run = begin(tmp_path, "r1", "2026-03-14")

    def row(quantity, value, attempt, event):
        about = {"event": event, "attempt": attempt}
        return Row("opus", f"reconfiguration.{quantity}", *[value * MS] * 3, "ns", event, about)

    rows = [row("acknowledged", 20, 2, event) for event in range(3)]
    rows += [row("carrier_up", value, 1, event) for event, value in enumerate((900, 950, 990))]
    rows += [row("carrier_up", value, 2, event) for event, value in enumerate((40, 80, 50))]
    run.append_many(context(simulated=False), rows)
    run.close({"exit": 0, "duration_s": 1.0})
    settle(run.path.parent)
    found = document(job, OPUS, "--switching-time", "last", "--results", tmp_path)
    assert found["switching_s"] == pytest.approx(0.05)
    assert found["switching_of"]["samples"] == 3
    assert found["switching_of"]["quantity"] == "reconfiguration.carrier_up"
    assert "simulated" not in found["assumptions"][-1]


@pytest.mark.parametrize(
    ("fabric", "run", "printed"),
    [
        ("opus", "r9", "'r9' is no run"),
        ("opus", "r", "'r' is the beginning of"),
        ("opus", "r1", "has reconfigurations of mixnet, opus: name the file of one"),
    ],
)
def test_a_run_that_does_not_tell_ends_with_2(job, results, fabric, run, printed):
    done = simulate(job, fabric, "--switching-time", run, "--results", results)
    assert done.exit_code == 2
    assert printed in done.output


def test_a_run_without_reconfigurations_says_what_it_has(job, tmp_path):
    run = begin(tmp_path, "r1", "2026-03-14")
    run.append_many(context(), [Row("x", "insertion_loss", 1.0, 0.9, 1.1, "dB", 5)])
    run.close({"exit": 0, "duration_s": 1.0})
    settle(run.path.parent)
    done = simulate(job, "opus", "--switching-time", "last", "--results", tmp_path)
    assert done.exit_code == 2
    assert "has none of reconfiguration.first_datagram" in done.output
    done = simulate(job, "opus", "--switching-time", "last", "--results", tmp_path / "none")
    assert done.exit_code == 2
    assert "no such folder of results" in done.output
