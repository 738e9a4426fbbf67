"""`lightrig init` on a terminal and without one; what it writes passes `lightrig check`."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner
from unused_ports import unused_ports

from lightrig import testbeds
from lightrig.harness.cli.app import application
from lightrig.harness.vocabulary import InstalledNames

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
SWITCH = """
name: x
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:OCS_LOGIN, size: 16x16}
"""


def run(*arguments):
    return CliRunner().invoke(application("init"), ["init", *map(str, arguments)])


@pytest.mark.parametrize(
    ("options", "links"),
    [
        ((), [2, 2]),
        (("--servers", 4, "--ports", 1), [2, 2]),
        (("--ports", 1), [1]),
        (("--rdma", ""), [2, 2]),
    ],
    ids=["defaults", "four servers of one port", "two servers of one port", "no RDMA"],
)
def test_what_is_written_is_right(tmp_path, options, links):
    file = tmp_path / "mine.yaml"
    ended = run(file, "--defaults", *options)
    assert ended.exit_code == 0, ended.output
    written = testbeds.load(file, InstalledNames())
    assert [len(written.links(plan)) for plan in written.plans] == links
    assert file.read_text().count("#") >= 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "polatys"), "did you mean 'polatis'"),
        (("--size", "16"), "expected ingress x egress"),
        (("--servers", 3), "even number"),
        (("--servers", 20), "40 NIC ports do not fit on 16"),
        (("--rate", "fast"), "these answers make no testbed"),
    ],
)
def test_answers_that_make_no_testbed_write_nothing(tmp_path, options, message):
    ended = run(tmp_path / "mine.yaml", "--defaults", *options)
    assert ended.exit_code == 2
    assert message in ended.output
    assert not list(tmp_path.iterdir())


def test_a_file_is_never_overwritten(tmp_path):
    (tmp_path / "mine.yaml").write_text("mine")
    assert run(tmp_path / "mine.yaml", "--defaults").exit_code == 2
    assert (tmp_path / "mine.yaml").read_text() == "mine"


@pytest.mark.long
def test_a_person_is_asked_and_the_switch_is_probed(tmp_path):
    """On a pty, beside a served switch; the servers do not answer."""
    (tmp_path / "x.yaml").write_text(SWITCH)
    port = unused_ports()[0]
    clean = {**os.environ, "COLUMNS": "200", "LIGHTRIG_STATE": str(tmp_path / "state")}
    clean["OCS_LOGIN"] = "bench:secret"
    serving = subprocess.Popen(
        [*LIGHTRIG, "serve", "x.yaml", "--port", str(port), "--json"],
        cwd=tmp_path, env=clean, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert serving.stdout is not None
    try:
        address = json.loads(serving.stdout.readline())[0]["address"]
        answers = ["polatis", "rack", address, "env:OCS_LOGIN", "16x16", "2", "2", "", "", "", ""]
        printed, code = on_terminal([*LIGHTRIG, "init", "mine.yaml"], answers, tmp_path, clean)
    finally:
        serving.terminate()
        serving.communicate(timeout=60)
    assert re.search(r"ocs: answers as .*Polatis.*SIM", printed, re.IGNORECASE), printed
    assert "server0: does not answer" in printed
    assert "lightrig doctor mine.yaml" in printed
    assert code == 1
    assert testbeds.load(tmp_path / "mine.yaml").switches["ocs"].address == address


def on_terminal(command, answers, folder, environment, most_s=120):
    """Give an answer to each question on a terminal; return what was printed and the status."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        printed, left, until = "", list(answers), time.monotonic() + most_s
        while time.monotonic() < until:
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                got = os.read(ours, 4096).decode()
            except OSError:  # its other end is closed
                break
            printed += got
            if left and printed.rstrip().endswith("]:"):
                os.write(ours, (left.pop(0) + "\n").encode())
                printed += "\n"
        os.close(ours)
        return printed, process.wait(timeout=60)
