"""`lightrig live`: on a terminal, in a pipe, on a page; what is lost, and what others record."""

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading

import pytest
from bench.served_lab import STRAIGHT, ServedLab, describe, set_circuits
from real_time import until
from rich.console import Console
from typer.testing import CliRunner

from lightrig.harness.bench import bind_only
from lightrig.harness.cli.app import application
from lightrig.harness.cli.live_screen import Line, LiveScreen
from lightrig.harness.record import Row
from lightrig.harness.run import Run
from lightrig.testbeds import Circuit


@pytest.fixture
def lab(tmp_path, monkeypatch):
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, STRAIGHT)
        yield served


def run(*arguments):
    return CliRunner().invoke(application("live"), ["live", *map(str, arguments)])


def test_lines_and_a_table_where_there_is_no_terminal(lab):
    result = run(lab.file, "server0.nic0.p1.carrier", "ocs.1", "ocs.11", "--for", "2s")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d ocs\.1\.circuit 1>11  simulated", e) for e in lines)
    assert any(e.endswith("server0.nic0.p1.carrier up  simulated") for e in lines)
    assert re.search(
        # Light that comes after the first reading is a change.
        r"^ocs\.11\.power( +-?\d+\.\d\d dBm){3}( +1)? +simulated$",
        result.stdout,
        re.MULTILINE,
    )
    assert "ocs.2" not in result.stdout


@pytest.mark.usefixtures("ctrl_c_raises")
def test_a_lost_carrier_ends_with_1_and_its_end(lab):
    """The light of one direction is cut for a moment, between two readings."""
    page = lab.folder / "lab.html"
    began = threading.Thread(target=_cut_when_shown, args=(lab, page))
    began.start()
    result = run(lab.file, "server0", "server1", "--for", "10m", "--page", page, "--json")
    began.join()
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert "server0.nic0.p0" in found["first"]  # the other end goes down a moment later
    assert {each["port"] for each in found["lost"]} <= {"server0.nic0.p0", "server1.nic0.p0"}
    (carrier,) = [e for e in found["values"] if e["name"] == "server0.nic0.p0.carrier"]
    assert carrier["last"] == "up"
    assert LOST.search(page.read_text())
    assert "http-equiv" not in page.read_text()  # it has ended


LOST = re.compile("carrier first, at .*server0.nic0.p0|server0.nic0.p0 lost")


def _cut_when_shown(lab, page):
    """Cut the light once all carriers are shown; Ctrl-C comes once the loss and its end are."""
    try:
        until(lambda: page.exists() and page.read_text().count("carrier up") == 4, lab.clock)
        set_circuits(lab.switch, STRAIGHT - {Circuit(3, 9)})  # server1's p0 to server0's p0
        set_circuits(lab.switch, STRAIGHT)
        until(lambda: LOST.search(page.read_text()), lab.clock)
        until(lambda: page.read_text().count("carrier up") == 4, lab.clock)
    finally:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_rows_of_a_run_stand_beside_what_it_uses(lab):
    recorded = Run(lab.folder / "results", {"testbeds": {"lab": str(lab.file)}})
    with contextlib.closing(bind_only(lab.testbed, {"ocs", "server0", "server1"}, "a night")) as b:
        recorder = recorded.recorder(b, "test_a", {})
        now = lab.clock.now()
        for value, at in ((1.5, now), (2.25, now + 1000)):
            recorder([Row("ocs 1>11", "insertion_loss", value, 2 * value - 3, None, "dB", at)])
        result = run(lab.file, "--for", "1s", "--results", lab.folder / "results")
        assert result.exit_code == 0, result.output
        assert f"{recorded.name} ocs 1>11 insertion_loss 2.25 dB" in result.stdout
        assert "1.5 dB" not in result.stdout
        assert "for a night" in result.stdout
        page = lab.folder / "lab.html"
        run(lab.file, "--for", "300ms", "--results", lab.folder / "results", "--page", page)
    assert re.search(r"<td>[1-9]\d? s ago</td>", page.read_text())


def test_a_lab_that_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LAB_OCS", "a:b")
    file = describe(
        tmp_path, {"ocs": "127.0.0.1:1", "server0": "a.invalid", "server1": "b.invalid"}
    )
    result = run(file, "ocs", "--for", "10m")
    assert result.exit_code == 3, result.output
    assert "ocs: ocs at tl1://127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--every", "50ms"], "--every: found '50ms', expected 200 ms or more"),
        (["--for", "0s"], "--for: found '0s', expected a time above 0"),
        (["--for", "soon"], "--for: "),
        (["ocz.1"], "has no instrument 'ocz'; did you mean 'ocs'?"),
    ],
)
def test_what_cannot_be_shown_is_refused(tmp_path, monkeypatch, options, sentence):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    result = run(describe(tmp_path), *options)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_only_rows_that_changed_are_drawn_again(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60, height=5, color_system="standard")
    screen = LiveScreen(console)
    screen.draw([Line("ocs.1 power -3.10 dBm"), Line("ocs.2 power -2.20 dBm")], "foot")
    assert "ocs.1" in file.getvalue()
    file.seek(file.truncate(0))
    screen.draw([Line("ocs.1 power -3.10 dBm"), Line("ocs.2 power -9.90 dBm", is_new=True)], "foot")
    assert file.getvalue().startswith("\x1b[2;1H\x1b[7mocs.2 power -9.90 dBm")
    assert "ocs.1" not in file.getvalue()
    file.seek(file.truncate(0))
    screen.draw([Line(f"ocs.{n}" + "x" * 80) for n in range(9)], "foot")
    drawn = file.getvalue()
    assert "... 6 more: name what is to be shown, or use --page" in drawn
    assert max(map(len, re.split(r"\x1b\[[\d;]*[A-Za-z]", drawn))) <= 60
    screen.close()


@pytest.mark.long
@pytest.mark.parametrize("ending", ["q", "Ctrl-C", "SIGTERM"])
def test_a_person_on_a_narrow_terminal(lab, ending):
    ours, theirs = pty.openpty()
    environment = {**lab.environment, "COLUMNS": "60", "LINES": "20", "TERM": "xterm"}
    code = "import sys; from lightrig.harness.cli import main; main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, "live", str(lab.file), "server0.nic0.p1", "ocs.11.power"],
        env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as running:  # fmt: skip
        os.close(theirs)
        printed = ""

        def read():
            nonlocal printed
            while select.select([ours], [], [], 0.01)[0]:
                got = b""
                with contextlib.suppress(OSError):
                    got = os.read(ours, 65536)
                if not got:
                    break
                printed += got.decode()
            return printed

        until(lambda: "server0.nic0.p1 simulated" in read(), lab.clock)
        os.write(ours, b"z")
        until(lambda: "dBm (" in read(), lab.clock)
        if ending == "q":
            os.write(ours, b"q")
        else:
            running.send_signal(signal.SIGINT if ending == "Ctrl-C" else signal.SIGTERM)
        until(lambda: "\x1b[?1049l" in read() and running.poll() is not None, lab.clock)
        read()
    os.close(ours)
    assert running.returncode == 0
    table = printed.partition("\x1b[?1049l")[2]
    assert "least" in table
    assert "simulated" in table
