"""Programs with other people's drivers run unchanged against `lightrig serve`.

They run in an environment of their own, `.clients`, which `make clients` makes; PyMeasure's
drivers are in tests/instruments/test_public_drivers.py. LabExT reaches its meter over HiSLIP, as a
program for VISA does by default.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PYTHON = Path(os.environ.get("LIGHTRIG_CLIENTS", HERE.parents[1] / ".clients" / "bin" / "python"))
LAB = """
name: clients
switches:
  ocs: {model: polatis, address: "netconf://ocs.invalid", login: env:CLIENTS_LOGIN, size: 8x8}
instruments:
  meter: {kind: power_meter, model: thorlabs-pm100d, address: "scpi://meter.invalid", channels: 1}
  multiport: {kind: power_meter, model: keysight-n7745a, channels: 4,
              address: "visa://TCPIP::multiport.invalid::hislip0::INSTR"}
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON.exists(), reason="no environment of public clients"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The lab on loopback, with the login that public programs have for a Polatis."""
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(LAB)
    command = [sys.executable, "-c", "from lightrig.harness.cli import main; main()", "serve"]
    with subprocess.Popen(
        [*command, str(file), "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CLIENTS_LOGIN": "admin:root"},
    ) as process:
        assert process.stdout is not None
        try:
            yield {each["name"]: each for each in json.loads(process.stdout.readline())}
        finally:
            process.kill()


@pytest.fixture
def run(served: dict[str, Any]) -> Callable[[str, str], Any]:
    def run_program(program: str, instrument: str) -> Any:
        told = served[instrument]
        address = told["address"].partition("://")[2]
        visa = re.fullmatch(r"TCPIP::(.*)::hislip0,(\d+)::INSTR", address)
        host, port = visa.groups() if visa else address.rsplit(":", 1)
        arguments = (host, port, told["user"], told["password"])
        ended = subprocess.run(
            [str(PYTHON), str(HERE / "programs" / program), *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return run_program


def test_qcodes_reads_a_thorlabs_meter(run):
    told = run("qcodes_pm100d.py", "meter")
    assert (told["identity"]["vendor"], told["identity"]["model"]) == ("Thorlabs", "PM100D")
    assert told["identity"]["serial"] == "SIM-meter"
    assert float(told["wavelength"]) == pytest.approx(1310)
    assert told["attenuation"] == 0
    assert told["auto_range"] is True
    assert abs(told["power"]) < 1e-8  # no light


def test_instrumentkit_reads_a_thorlabs_meter(run):
    told = run("instrumentkit_pm100usb.py", "meter")
    assert told["name"].startswith("Thorlabs,PM100D,SIM-meter,")
    assert told["averaging"] == 10
    assert told["configuration"] == "power"
    assert abs(told["flux"]) < 1e-8


def test_labext_reads_and_logs_a_keysight_multiport_meter(run):
    told = run("labext_n7744a.py", "multiport")
    assert told["identity"].startswith("Keysight Technologies,N7744A,SIM-multiport,")
    assert (told["unit"], told["wavelength"], told["autogain"]) == ("dBm", 1310, True)
    assert told["averaging"] == pytest.approx(1e-3)
    assert told["power"] == float("inf")  # what LabExT makes of a reading without light, in dBm
    assert told["logged"] == 100


def test_scrapli_makes_and_deletes_a_circuit(run):
    told = run("scrapli_polatis.py", "ocs")
    assert told["failed"] == [False, False]
    listed = re.sub(r"\s+", "", told["listed"])
    assert "<pair><ingress>1</ingress><egress>12</egress></pair>" in listed
    assert "<data/>" in told["after"]
    assert any("module=optical-switch&revision=" in each for each in told["capabilities"])


def test_ncclient_makes_and_deletes_a_circuit(run):
    told = run("ncclient_polatis.py", "ocs")
    assert told == {"listed": [["1", "12"]], "after": []}
