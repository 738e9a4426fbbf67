"""Which worker of pytest-xdist measures which testbed.

Tests of two files meet at a pipe that the file system names: its ends are opened one by another.
"""

import os
from pathlib import Path

import preloaded
import pytest
from bench.served_lab import describe

# Named as a part of the other, whose name comes first in the ids of no test.
SPACES = """
name: lab-spaces
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 4x4}}
servers:
  server[0-1]:
    address: "netns://{name}"
    nics: {nic0: {netdev: fabric0, ip: "192.0.2.{k}/24", rate: 200M, transceiver: fr}}
transceivers:
  fr: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers: ["server[0-1].nic0 <-> ocs"]
plans: {straight: [server0.nic0 <-> server1.nic0]}
"""
SUITE = """
import os, pathlib, pytest

HERE = pathlib.Path(__file__)

def note(testbed):
    with HERE.with_name(f"workers of {testbed.name}").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)

def test_first(testbed):
    note(testbed)
    if testbed.name == "MEETS":
        with HERE.with_name("pipe").open("r" if "one" in HERE.name else "w"):
            pass

@pytest.mark.parametrize("cut", ["300ms", "1s"])
@pytest.mark.parametrize("again", ["lab"])
def test_hyphens(testbed, cut, again):
    note(testbed)

def test_last(testbed):
    note(testbed)
"""


@pytest.mark.parametrize("instruments", ["simulated", "hardware"])
def test_a_testbed_stays_on_one_worker_unless_it_is_namespaces_of_each(
    tmp_path: Path, instruments: str
) -> None:
    files = [describe(tmp_path), tmp_path / "spaces.yaml"]
    files[1].write_text(SPACES)
    meets = "lab-spaces" if instruments == "simulated" else "none"
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(SUITE.replace("MEETS", meets))
    os.mkfifo(tmp_path / "pipe")
    command = ["pytest", "-n", "2", "-p", "no:cacheprovider", "--instruments", instruments]
    for file in files:
        command += ["--testbed", str(file)]
    ended = preloaded.run([*command, tmp_path], cwd=tmp_path, timeout=120)
    assert (ended.returncode, "16 passed" in ended.stdout) == (0, True), ended.stdout
    lab, spaces = (
        (tmp_path / f"workers of {name}").read_text().split() for name in ("lab", "lab-spaces")
    )
    assert (len(lab), len(spaces)) == (8, 8)
    assert len(set(lab)) == 1
    assert len(set(spaces)) == (2 if instruments == "simulated" else 1)
