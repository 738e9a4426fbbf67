"""Choice between hardware and simulation for each optical domain, and the notes on it."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.served_lab import STRAIGHT, ServedLab, describe
from real_time import over_soon
from uneven import SIZE
from unused_ports import unused_ports

from lightrig.harness.bench import Bench, LabUnavailableError, bind, bind_only
from lightrig.harness.modes import Mode
from lightrig.testbeds import Circuit, load

ALL = {"ocs", "server0", "server1"}
Bind = Callable[[Path, Mode], Bench]

TWO_DOMAINS = """
name: two
switches:
  near: {{model: polatis, address: "tl1://{near}", login: env:LAB_OCS, size: 8x8}}
  far: {{model: polatis, address: "tl1://far.invalid", login: env:LAB_OCS, size: {size}}}
servers:
  server0: {{address: "ssh://far0.invalid", nics: {{nic0: {{
    netdev: ens1, rate: 100G, transceiver: lr4}}}}}}
transceivers:
  lr4: {{wavelength: 1310 nm, launch: {{min: -4 dBm, max: 4 dBm}},
        receive: {{min: -10 dBm, max: 4 dBm}}}}
fibers: [server0.nic0 <-> far]
plans: {{dark: {{circuits: {{near: []}}}}}}
"""


@pytest.fixture
def bound() -> Iterator[Bind]:
    with contextlib.ExitStack() as stack:

        def open_bench(path: Path, mode: Mode) -> Bench:
            bench = bind(load(path), mode, 1)
            stack.callback(bench.close)
            return bench

        yield open_bench


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_OCS", "admin:opensesame")
    monkeypatch.setenv("LAB_SERVER", "bench:opensesame")


def closed_ports() -> dict[str, str]:
    ports = unused_ports(len(ALL))
    return {name: f"127.0.0.1:{port}" for name, port in zip(sorted(ALL), ports, strict=True)}


def test_placeholders_are_all_named_and_never_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.delenv("LAB_OCS", raising=False)
    path = describe(tmp_path)
    with over_soon(), pytest.raises(LabUnavailableError) as error:
        bind(load(path), "hardware")
    first, *lines = str(error.value).splitlines()
    assert first == f"3 of 3 instruments of {path} did not answer as described:"
    assert [line.split(",")[0] for line in lines] == [
        "  ocs at tl1://ocs.invalid",
        "  server0 at ssh://server0.invalid",
        "  server1 at ssh://server1.invalid",
    ]
    assert all(", after " in line and "placeholders" in line for line in lines)


@pytest.mark.usefixtures("credentials")
def test_closed_ports_are_all_named(tmp_path: Path) -> None:
    places = closed_ports()
    with pytest.raises(LabUnavailableError, match="3 of 3") as error:
        bind(load(describe(tmp_path, places)), "hardware")
    for name, place in places.items():
        scheme = "tl1" if name == "ocs" else "ssh"
        assert f"{name} at {scheme}://{place}, after " in str(error.value)
    assert str(error.value).count("refused") == 3
    assert "opensesame" not in str(error.value)


def test_a_missing_credential_is_an_absence(
    lab: ServedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB_OCS")
    with pytest.raises(LabUnavailableError, match="1 of 3") as error:
        bind(lab.testbed, "hardware")
    assert "LAB_OCS is not set" in str(error.value)


def test_a_wrong_credential_is_an_absence(lab: ServedLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_OCS", "admin:wr0ng-and-secret")
    monkeypatch.setenv("LAB_SERVER", "bench:wr0ng-and-secret")
    with pytest.raises(LabUnavailableError, match="3 of 3") as error:
        bind(lab.testbed, "hardware")
    assert str(error.value).count("refused the login") == 3
    assert "wr0ng-and-secret" not in str(error.value)


def test_an_unreadable_address_is_an_absence(tmp_path: Path) -> None:
    places = {name: f"[1:{index}]" for index, name in enumerate(ALL)}
    with pytest.raises(LabUnavailableError, match="3 of 3"):
        bind(load(describe(tmp_path, places)), "hardware")


def test_another_serial_is_not_the_expected_instrument(lab: ServedLab) -> None:
    with pytest.raises(LabUnavailableError, match="1 of 3") as error:
        bind(load(lab.describe(serial="'21877'")), "hardware")
    assert "serial 'SIM-ocs', expected '21877'" in str(error.value)


@pytest.mark.parametrize("mode", ["hardware", "auto"])
def test_served_simulation_is_bound_and_marked_simulated(
    lab: ServedLab, bound: Bind, mode: Mode
) -> None:
    bench = bound(lab.file, mode)
    assert set(bench.identities) == ALL
    assert bench.identities["ocs"].serial == "SIM-ocs"
    assert bench.simulated == ALL
    assert bench.external == ALL
    assert not bench.in_process
    assert bench.notes == ()
    assert bench.truth is None
    assert not bench.clock.virtual
    assert bench.participants()[0].startswith("ocs: Polatis N-VST-8x8-")
    bench.switches["ocs"].change((), STRAIGHT).done()
    assert lab.switch.circuits() == STRAIGHT


def test_simulated_mode_opens_no_connection(lab: ServedLab, bound: Bind) -> None:
    bench = bound(lab.file, "simulated")
    bench.switches["ocs"].change((), STRAIGHT).done()
    assert lab.switch.circuits() == frozenset()
    assert bench.simulated == ALL
    assert bench.in_process
    assert bench.clock.virtual
    assert bench.truth is not None
    assert bench.notes == ()


def test_auto_simulates_a_domain_of_which_a_member_is_absent(
    lab: ServedLab, bound: Bind, tmp_path: Path
) -> None:
    path = describe(tmp_path, lab.places | {"server1": "server1.invalid"})
    bench = bound(path, "auto")
    (note,) = bench.notes
    assert note.startswith(
        "ocs, server0, server1 simulated, since server1 at ssh://server1.invalid"
    )
    assert bench.in_process
    assert bench.clock.virtual
    bench.switches["ocs"].change((), STRAIGHT).done()
    assert lab.switch.circuits() == frozenset()


def test_auto_chooses_domain_by_domain(lab: ServedLab, bound: Bind, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWO_DOMAINS.format(near=lab.places["ocs"], size=SIZE))
    bench = bound(path, "auto")
    (note,) = bench.notes
    assert note.startswith("far, server0 simulated, since far at tl1://far.invalid, after ")
    assert bench.external == {"near"}
    assert not bench.in_process
    assert not bench.clock.virtual
    assert bench.simulated == {"near", "far", "server0"}
    assert {name: i.serial for name, i in bench.identities.items()} == {
        "near": "SIM-ocs",
        "far": "SIM-far",
        "server0": "SIM-server0",
    }
    # The last ports of 8 x 8, which is reached over its wire, and of 12 x 20 in this process.
    last = {"near": Circuit(8, 16), "far": Circuit(12, 32)}
    for name, circuit in last.items():
        bench.switches[name].change((), {circuit}).done()
    assert {name: bench.switches[name].circuits() for name in last} == {
        name: {circuit} for name, circuit in last.items()
    }
    assert lab.switch.circuits() == {last["near"]}
    bench.close()
    with pytest.raises(LabUnavailableError, match="2 of 3"):
        bind(load(path), "hardware")


def test_closing_ends_every_session(lab: ServedLab, bound: Bind) -> None:
    bench = bound(lab.file, "hardware")
    bench.close()
    again = bound(lab.file, "hardware")
    assert again.switches["ocs"].circuits() == frozenset()


def known_hosts(lab: ServedLab) -> Path:
    return lab.folder / ".ssh" / "known_hosts"


@pytest.mark.parametrize("mode", ["hardware", "auto"])
def test_lines_of_other_hosts_leave_the_lab_on_hardware(
    lab: ServedLab, bound: Bind, mode: Mode
) -> None:
    """An authority of other hosts is no fault of the file; a line of SSH 1 is named in a note."""
    file = known_hosts(lab)
    authority = " ".join(file.read_text().split()[-2:])
    file.write_text(f"@cert-authority *.corp.example {authority}\n{file.read_text()}")
    bench = bound(lab.file, mode)
    assert bench.notes == ()
    bench.close()
    file.write_text(f"old 1024 35 123456789\n{file.read_text()}")
    bench = bound(lab.file, mode)
    assert bench.external == ALL
    assert bench.notes == (
        "left out of the known host keys in ~/.ssh/known_hosts: line 1 (unknown kind 1024)",
    )


@pytest.mark.parametrize("mode", ["hardware", "auto"])
def test_a_lab_is_not_simulated_for_an_unreadable_file_of_host_keys(
    lab: ServedLab, bound: Bind, tmp_path: Path, mode: Mode
) -> None:
    file = known_hosts(lab)
    file.unlink()
    file.mkdir()
    with pytest.raises(LabUnavailableError, match=f"known_hosts cannot be read: .*{file}"):
        bound(lab.file, mode)
    with pytest.raises(LabUnavailableError, match="known_hosts cannot be read"):
        bind_only(lab.testbed, {"ocs", "server0"}, "a test")
    placeholders = describe(tmp_path)
    assert bound(placeholders, "auto").in_process


@pytest.mark.parametrize("mode", ["hardware", "auto"])
def test_a_lab_is_not_simulated_for_an_unreadable_configuration_of_ssh(
    lab: ServedLab, bound: Bind, mode: Mode
) -> None:
    (lab.folder / "broken").write_text("Host *\n  Port a\n")
    lab.file.write_text(f"ssh_config: broken\n{lab.file.read_text()}")
    with pytest.raises(LabUnavailableError, match=r"server0 .*broken cannot be read"):
        bound(lab.file, mode)


def test_a_run_ends_with_status_3_where_no_host_key_can_be_read(lab: ServedLab) -> None:
    file = known_hosts(lab)
    file.unlink()
    file.mkdir()
    (lab.folder / "test_it.py").write_text("def test_it(bench): ...\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--instruments", "auto"]
    ended = subprocess.run(
        [*command, "--testbed", str(lab.file), "test_it.py"],
        cwd=lab.folder,
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 3, ended.stdout
    assert "known_hosts cannot be read" in ended.stdout
