"""Runs with `--soak`, in simulated labs: what is refused, what links do, turns, pages, size."""

import contextlib
import itertools
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from bench.served_lab import ServedLab, describe
from runs.running import Ended, Started, started
from servers.ssh_cable import Cable

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.port_counters import PortCounters
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.soak import Soak, SoakPeriods
from lightrig.harness.record import Context, Journal, Row, read_journal
from lightrig.testbeds import load

SECOND = 1_000_000_000
SUITE = "suites/test_soak.py"

LAB = """
name: small
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 4x4}}
servers:
  server[0-1]: {address: "ssh://{name}.invalid", nics: {nic0: {
    ports: 2, netdev: "ens1f{p}", rate: 100G, transceiver: lr4}}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers: ["server[0-1].nic0.p[0-1] <-> ocs"]
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
simulation:
  nic: {bring_up: {mean: 400 ms, sd: 1 ms}, resume: {mean: 300 ms, sd: 1 ms}}
"""

FAULTS = """
faults:
  - {fault: NIC flap, at: [server0.nic0.p1], after: 31 s, lasting: 2 s}
  - {fault: fiber cut, at: [server1.nic0.p0], after: 52 s, lasting: 11 s}
"""

Run = Callable[..., Ended]


@pytest.fixture
def run(start: Callable[..., Started], tmp_path: Path) -> Run:
    def begin(*arguments: object, more: str = "", faults: str = "") -> Ended:
        file = tmp_path / "small.yaml"
        file.write_text(LAB + more)
        (tmp_path / "faults.yaml").write_text(faults or "faults: []")
        injected = ("--faults", tmp_path / "faults.yaml") if faults else ()
        given = ("--testbed", file, "--instruments", "simulated", *injected)
        return start(SUITE, *given, *arguments).end()

    return begin


def rows_of(ended: Ended, quantity: str) -> list[Row]:
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    return [row for _, row in read_journal(journal).rows() if row.quantity == quantity]


def test_without_the_option_a_soak_is_deselected(run: Run) -> None:
    ended = run()
    assert ended.code == 5, ended.output
    assert "1 deselected" in ended.output
    assert "not applicable" not in ended.output


def test_a_testbed_without_links_has_no_soak(start: Callable[..., Started]) -> None:
    given = "--testbed", "testbeds/switchlab.yaml", "--instruments", "simulated"
    ended = start(SUITE, *given, "--soak", "1h").end()
    assert ended.code == 5, ended.output
    assert "1 test not applicable: no plan of links between servers (1)" in ended.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--soak", "soon"), "found 'soon', expected a duration"),
        (("--soak", "0s"), "expected a time above 0"),
        (("--soak", "2000000h"), r"has room for [\d.,]+ GB; make room"),
        (("--soak", "1h", "-n", "2"), "a soak is one process; leave out -n"),
        (("--soak", "1h", "--soak-resume", "20200101-000000-none"), "there is no run"),
    ],
)
def test_what_no_soak_can_be_is_refused_before_anything_is_contacted(
    run: Run, options: tuple[str, ...], sentence: str
) -> None:
    ended = run(*options)
    assert ended.code == 4, ended.output
    assert re.search(sentence, ended.output), ended.output
    assert not list(ended.results.glob("runs/*"))


def test_each_loss_of_a_link_is_named_with_its_length_and_light(run: Run) -> None:
    ended = run("--soak", "3min", faults=FAULTS)
    assert ended.code == 1, ended.output
    flaps = rows_of(ended, "soak.flap")
    long = {row.subject: row for row in flaps if row.conditions["elapsed_s"] < 100}  # type: ignore[operator]
    flapped = long["server0.nic0.p1 <-> server1.nic0.p1"]
    cut = long["server0.nic0.p0 <-> server1.nic0.p0"]
    # Dark for as long as the plan of faults says, and until the NICs have their links again.
    for row, dark in ((flapped, 2.0), (cut, 11.0)):
        assert row.lower is not None
        assert row.upper is not None
        assert row.lower / 1e9 < dark + 0.9
        assert row.upper / 1e9 > dark
        assert "lost" in str(row.conditions["light"])
    assert cut.conditions["elapsed_s"] - flapped.conditions["elapsed_s"] == pytest.approx(21, abs=1)  # type: ignore[operator]
    watched = sum(
        row.value * int(row.conditions["links"]) for row in rows_of(ended, "soak.watched")
    )
    assert watched == pytest.approx(2 * 180e9, rel=0.02)
    found = re.findall(r"link flapped at ([\w., ]+)", ended.output)
    assert sorted(found) == [
        "server0.nic0.p0, server1.nic0.p0",
        "server0.nic0.p1, server1.nic0.p1",
    ]


def test_plans_take_turns_and_a_limit_judges(run: Run) -> None:
    more = "soak:\n  - {plan: crossed, hold: 50 s}\n  - {plan: straight, hold: 20 s}\n"
    more += "limits:\n  soak.flap: {max: 5 s}\n"
    ended = run("--soak", "2min", more=more)
    turns = rows_of(ended, "soak.turn")
    assert [row.subject for row in turns] == ["crossed", "straight", "crossed"]
    begins = [float(row.conditions["elapsed_s"]) for row in turns]
    assert [b - a for a, b in itertools.pairwise(begins)] == pytest.approx([50, 20], abs=3)
    changes = [row.conditions["why"] for row in rows_of(ended, "soak.gap")]
    assert changes == ["change to crossed", "change to straight", "change to crossed"]
    assert "0 flaps in 0.0667 link hours: at most 45 an hour" in ended.output
    assert ended.code == 0, ended.output


def test_a_soak_goes_on_with_an_earlier_one_and_its_page_shows_both(
    run: Run, tmp_path: Path
) -> None:
    first = run("--soak", "1min", faults=FAULTS)
    (folder,) = first.results.glob("runs/*")
    given = ("--testbed", tmp_path / "small.yaml", "--instruments", "simulated", "--soak", "90s")
    resumed = "--soak-resume", f"{folder}/"
    with started((SUITE, *given, *resumed), tmp_path / "second", page=True) as going_on:
        second = going_on.end()
    assert len(rows_of(second, "soak_before.flap")) == len(rows_of(first, "soak.flap")) > 0
    (between,) = [
        row for row in rows_of(second, "soak.gap") if row.conditions["why"] == "between two runs"
    ]
    assert between.conditions["elapsed_s"] == pytest.approx(60, abs=1)
    before = sum(row.value for row in rows_of(second, "soak_before.watched"))
    now = sum(row.value for row in rows_of(second, "soak.watched"))
    assert before == pytest.approx(60e9, rel=0.02)
    assert now == pytest.approx(30e9, rel=0.05)  # the length counts both
    journal = second.page.with_name("journal.jsonl")
    header = json.loads(journal.read_text().partition("\n")[0])
    assert header["soak"] == {"length_s": 90.0, "resumes": f"{folder}/"}
    text = unescape(re.sub(r"<[^>]+>", " ", second.page.read_text()))
    assert re.search(r"[1-9] flaps? in 0.05 link hours", re.sub(r"\s+", " ", text))
    assert "between two runs" in text
    assert "The whole soak" in text


WIDE = """
name: wide
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 128x128}}
servers:
  server[0-15]: {address: "ssh://{name}.invalid", nics: {"nic[0-3]": {
    ports: 2, netdev: "ens{n}f{p}", rate: 100G, transceiver: lr4}}}
transceivers:
  lr4: {wavelength: 1310 nm, wavelengths: 4, launch: {min: -4 dBm, max: 4 dBm},
        receive: {min: -10 dBm, max: 4 dBm}}
fibers: ["server[0-15].nic[0-3].p[0-1] <-> ocs"]
plans:
  halves: ["server[0-7].nic[0-3].p[0-1] <-> server[8-15].nic[0-3].p[0-1]"]
limits:
  transceiver.temperature: {max: 200 °C}
"""


@pytest.mark.long
def test_an_hour_at_rest_adds_little_to_a_journal_of_64_links(tmp_path: Path) -> None:
    file = tmp_path / "wide.yaml"
    file.write_text(WIDE)
    testbed = load(file)
    bench = bind(testbed, "simulated", 3)
    path = tmp_path / "journal.jsonl"
    with Journal(path, {"run": "20260101-000000-a", "night": "2026-01-01"}) as journal:
        context = Context("wide", "test", (), True, {})
        measure = Recording(lambda rows: journal.append_many(context, rows), testbed.limits)
        fabric, links = Fabric(bench), LinkObservation(bench)
        assert len(fabric.links(testbed.plans["halves"])) == 64
        # The rows are those of an hour; readings, of which there are fewer, are not rows.
        periods = SoakPeriods(look=10 * SECOND, light=10 * SECOND)
        Soak(fabric, links, measure, PortCounters(bench), 3600 * SECOND, None, periods).run()
        bench.close()
    rows = [row for _, row in read_journal(path).rows()]
    assert {"soak.watched", "soak.power", "transceiver.temperature"} <= {r.quantity for r in rows}
    assert sum(row.quantity == "soak.watched" for row in rows) == pytest.approx(60, abs=2)
    assert path.stat().st_size < 2_000_000


@pytest.mark.long
def test_a_server_that_hangs_up_is_a_gap_and_is_watched_again(
    lab: ServedLab,
    start: Callable[..., Started],
    until: Callable[[Callable[[], bool]], None],
) -> None:
    host, _, port = lab.places["server0"].rpartition(":")
    with contextlib.closing(Cable(int(port))) as cable:
        known = lab.folder / ".ssh" / "known_hosts"
        known.write_text(known.read_text().replace(f":{port} ", f":{cable.port} "))
        describe(lab.folder, {**lab.places, "server0": f"{host}:{cable.port}"})
        going_on = start(
            *(SUITE, "--testbed", lab.file, "--instruments", "hardware", "--soak", "25s"),
            environment=lab.environment,
        )

        def watched() -> bool:
            found = [*going_on.results.glob("runs/*/journal.jsonl")]
            return bool(found) and '"soak.watched"' in found[0].read_text()

        until(watched)
        cable.cut()
        ended = going_on.end()
    (gap,) = [row for row in rows_of(ended, "soak.gap") if row.subject == "server0"]
    assert 9e9 < gap.value < 20e9
    corrected = {row.subject: row.value for row in rows_of(ended, "soak.fec_corrected")}
    assert set(corrected) == {f"server{n}.nic0.p{p}" for n in (0, 1) for p in (0, 1)}
    assert min(corrected.values()) > 0
    assert str(gap.conditions["why"]).startswith("server0 ")
    time = sum(row.value for row in rows_of(ended, "soak.watched"))
    assert time == pytest.approx(25e9 - gap.value, abs=2e9)
    assert ended.code == 0, ended.output
