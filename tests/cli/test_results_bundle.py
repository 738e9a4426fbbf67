"""`lightrig results bundle`: tests of a run as one archive, and what must not be in it.

A test of a lab whose file names its hosts fails by a switch that denies a command. 40 secrets stand
where devices, programs, people and kernels write them; host names, serial numbers, addresses and
accounts stand in the same places and in the testbed file.
"""

import io
import json
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from runs.running import started

from lightrig.harness.record import read_journal
from lightrig.instruments.core.transcript import read
from lightrig.testbeds import load

LAB = """
name: lab
switches:
  ocs:
    model: polatis
    address: "tl1://xc-b17.photonics.acme-labs.com"
    size: 16x16
    place: rack 7
servers:
  trainer[0-1]:
    address: "ssh://mkowalski@{name}.photonics.acme-labs.com"
    nics:
      nic0: {ports: 2, netdev: "ens1f{p}", rate: 100G, transceiver: optics}
transceivers:
  optics:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
    damage: 5.5 dBm
fibers:
  - trainer[0-1].nic0.p[0-1] <-> ocs
plans:
  straight:
    - trainer[0].nic0.p[0-1] <-> trainer[1].nic0.p[0-1]
"""

# Each secret once. Assembled, so that no scanner takes this file for a leak.
SECRETS = [
    f"{head}{'qZ7' if number % 2 else 'Xk4'}v{number:02d}Tw9b"
    for number, head in enumerate(["s3", "Pw", "hunter", "k-", "_m"] * 8)
]
TOKENS = [
    "ghp_" + "a8Gm27Tq5Xz91Lk04PbVn3RsWd6YcHfJ2uEo",
    "AKIA" + "Q3EGR7HXLMN4ZT2V",
    "xoxb-" + "2847563910-5829104736-hTgRfEdWsQaZxCvBnM",
]
PLACES = [
    "connecting to https://netops:{}@xc-b17.photonics.acme-labs.com/rest/v1",
    "password={}",
    "PGPASSWORD={} psql -h trainer0",
    "export AWS_SECRET_ACCESS_KEY={}",
    "password: {}",
    '{{"user": "mkowalski", "password": "{}"}}',
    "login({{'token': '{}'}})",
    '{{\\"api_key\\": \\"{}\\"}}',
    "Authorization: Basic {}",
    "authorization: Bearer {}",
    "X-Auth-Token: {}",
    "Set-Cookie: session={}; Path=/",
    "<password>{}</password>",
    '<auth-key type="1">{}</auth-key>',
    "snmp-server community {} RO",
    "rocommunity {} 10.31.0.0/16",
    "snmpget -v2c -c {} xc-b17 sysName.0",
    "snmpwalk -v3 -u netops -A {} -l authNoPriv xc-b17",
    "username netops privilege 15 secret 5 {}",
    "enable secret {}",
    "tacacs-server host 10.31.7.9 key {}",
    "neighbor 10.31.7.9 password {}",
    "sshpass -p {} ssh mkowalski@trainer0.photonics.acme-labs.com",
    "curl -sk -u netops:{} https://xc-b17.photonics.acme-labs.com/",
    "ipmitool -H 10.31.7.9 -U netops -P {} power status",
    "tool --password {} --port 3",
    "ACT-USER::netops:0041::{};",
    "ED-PID::netops:12::{};",
    ':SYST:PASS:CEN "{}"',
    'wpa psk="{}"',
    "login netops:{}",
    "grpc metadata: [('username', 'netops'), ('password', '{}')]",
    "metadata password: {}",
    "kernel: [ 12.5] usb 1-1: dongle: secret={}",
    "kernel: cifs: mount //nas/lab with username=mkowalski,password={}",
    "radius-server host 10.31.7.9 key 7 {}",
    "key-string {}",
    "passphrase: {}",
]
NAMES = {
    "hosts": ["xc-b17", "photonics", "acme-labs", "nas-7.corp.local"],
    "serials": ["MY49123456", "FT2103K7QX"],
    "addresses": ["10.31.7.9", "10.31.0.0", "fe80::9a03:9bff:fe7c:21d4", "98:03:9b:7c:21:d4"],
    "accounts": ["mkowalski", "netops"],
}
LINES = [
    *(place.format(secret) for place, secret in zip(PLACES, SECRETS, strict=False)),
    *(f"mlx5_core 0000:3b:00.0: {token} seen" for token in TOKENS),
    "Vendor SN : FT2103K7QX",
    "serial number: MY49123456, firmware 6.7.3.9",
    "link/ether 98:03:9b:7c:21:d4 inet6 fe80::9a03:9bff:fe7c:21d4/64 inet 10.31.7.9/24",
    "mkowalski@nas-7.corp.local:/home/mkowalski/run.sh",
]

SUITE = f"""
import pytest
from lightrig.testbeds import Circuit

LINES = {LINES!r}

def test_passes(switches):
    assert len(switches["ocs"].circuits()) < 99

def test_denied(fabric, switches):
    for line in LINES:
        print(line)
    for line in LINES[26:28]:
        try:
            switches["ocs"].ask(line)
        except Exception as refused:
            print(refused)
    assert Circuit(3, 99) not in switches["ocs"].circuits()
    switches["ocs"].change((), [Circuit(3, 99)]).done()

def test_asserts(switches):
    switches["ocs"].labels()
    assert not LINES, "; ".join(LINES)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "lab.yaml").write_text(LAB, encoding="utf-8")
    (folder / "test_it.py").write_text(SUITE, encoding="utf-8")
    chosen = ("--testbed", folder / "lab.yaml", "--instruments", "simulated")
    with started((folder / "test_it.py", *chosen), folder / "results", page=True) as run:
        ended = run.end()
    assert ended.code == 1, ended.output
    assert "2 failed, 1 passed" in ended.output
    return ended.results


def bundle(results: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["lightrig", "results", "bundle", "last", "--results", str(results), *options]
    with preloaded.Process(
        command, cwd=results.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        printed, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, printed, errors)


@pytest.fixture(scope="module")
def archives(results: Path) -> dict[str, Path]:
    found = {}
    for name, options in (("plain", ()), ("anonymous", ("--anonymous",))):
        path = results.parent / f"{name}.zip"
        done = bundle(results, *options, "--output", str(path))
        assert done.returncode == 0, done.stderr
        assert "2 tests, traffic of" in done.stdout
        found[name] = path
    return found


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def places_of(text: str, archive: Path) -> list[str]:
    found = [
        name for name, data in contents(archive).items() if text.encode().lower() in data.lower()
    ]
    return found + [name for name in contents(archive) if text.lower() in name.lower()]


def test_the_secrets_were_planted() -> None:
    assert len(SECRETS[: len(PLACES)] + TOKENS) >= 40
    assert len(set(SECRETS)) == len(SECRETS)


@pytest.mark.parametrize("kind", ["plain", "anonymous"])
def test_no_secret_is_in_an_archive(archives: dict[str, Path], kind: str) -> None:
    planted = [*SECRETS[: len(PLACES)], *TOKENS]
    assert [secret for secret in planted if places_of(secret, archives[kind])] == []


def test_no_secret_was_recorded(results: Path) -> None:
    """Masked as it is recorded: neither in the journal nor in the traffic, nor on the page."""
    stored = b"".join(
        path.read_bytes()
        for pattern in ("journal.jsonl", "traces/*/*")
        for path in results.glob(f"runs/*/{pattern}")
    )
    assert [one for one in (*SECRETS[: len(PLACES)], *TOKENS) if one.encode() in stored] == []


@pytest.mark.parametrize("kind", NAMES)
def test_names_are_in_the_plain_archive_alone(archives: dict[str, Path], kind: str) -> None:
    for name in NAMES[kind]:
        assert places_of(name, archives["plain"]), name
        assert places_of(name, archives["anonymous"]) == [], name


def test_detect_secrets_finds_none(archives: dict[str, Path], tmp_path: Path) -> None:
    program = shutil.which("detect-secrets")
    if program is None:
        pytest.skip("detect-secrets is not installed")
    for kind, path in archives.items():
        (tmp_path / kind).mkdir()
        with zipfile.ZipFile(path) as opened:
            opened.extractall(tmp_path / kind)
    (tmp_path / "leak.txt").write_text(f"password = '{SECRETS[3]}'\n{TOKENS[1]}\n")
    command = [program, "scan", "--all-files", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    found = json.loads(done.stdout)["results"]
    assert [Path(name).name for name in found] == ["leak.txt"]


def test_an_archive_has_what_a_vendor_asks_for(archives: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(archives["anonymous"]) as opened:
        opened.extractall(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    assert {tuple(one) for one in manifest["tests"]} == {
        ("test_it.py::test_denied[lab]", "failed"),
        ("test_it.py::test_asserts[lab]", "failed"),
    }
    record = read_journal(tmp_path / "journal.jsonl")
    assert [test.nodeid for test in record.tests] == [
        "test_it.py::test_denied[lab]",
        "test_it.py::test_asserts[lab]",
    ]
    assert "IDNV" in str(record.tests[0].details)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "test_denied" in page
    assert "test_passes" not in page
    sums = subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=False
    )
    assert sums.returncode == 0
    (testbed,) = (tmp_path / "testbeds").glob("*/lab.yaml")
    assert not {"trainer0", "trainer1"} & set(load(testbed).servers)


def test_a_name_is_always_the_same_other_one(archives: dict[str, Path], results: Path) -> None:
    again = results.parent / "again.zip"
    assert bundle(results, "--anonymous", "--output", str(again)).returncode == 0
    first, second = (contents(path) for path in (archives["anonymous"], again))
    assert {
        name: data for name, data in first.items() if name.startswith(("traces", "testbeds"))
    } == {name: data for name, data in second.items() if name.startswith(("traces", "testbeds"))}


@pytest.fixture
def replayed(archives: dict[str, Path], tmp_path: Path) -> Iterator[dict[str, object]]:
    """The anonymous archive, replayed in another folder."""
    options = ["--test", "test_denied", "--write", str(tmp_path / "replay.yaml"), "--json"]
    pipe = subprocess.PIPE
    process = preloaded.Process(
        ["lightrig", "replay", str(archives["anonymous"]), *options], stdout=pipe, stderr=pipe
    )
    try:
        line = process.stdout.readline()
        assert line, process.communicate(timeout=60)[1]
        yield {row["name"]: row for row in json.loads(line)}
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()


@pytest.mark.usefixtures("replayed")
def test_the_vendor_gets_the_same_error(results: Path, tmp_path: Path) -> None:
    (journal,) = results.glob("runs/*/journal.jsonl")
    (why,) = [t.details["why"] for t in read_journal(journal).tests if "test_denied" in t.nodeid]
    command = [
        "lightrig",
        "ask",
        str(tmp_path / "replay.yaml"),
        "ocs",
        "ENT-PATCH::3,99:1:;",
        "--yes",
    ]
    environment = {"LIGHTRIG_REPLAYED": "replay:replay", "LIGHTRIG_STATE": str(tmp_path / "state")}
    with preloaded.Process(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        printed, errors = process.communicate(timeout=120)
    expected = [line for line in why.splitlines() if not line.strip().startswith("sent")]
    assert "answered  DENY IDNV Invalid OXC port: 99" in why
    assert [line for line in expected if line not in printed + errors] == [], printed + errors


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--test", "test_dennied"), "no test 'test_dennied' has ended"),
        (("--results", "nowhere"), "no such folder"),
    ],
)
def test_what_cannot_be_packed(results: Path, options: tuple[str, ...], problem: str) -> None:
    done = bundle(results, *options)
    assert done.returncode == 2
    assert problem in done.stderr


def test_a_run_of_more_than_a_gigabyte_is_refused(results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    (trace, *_) = sorted(copy.glob("runs/*/traces/*denied*/*.jsonl"))
    with trace.open("rb+") as file:
        file.truncate(1_200_000_000)  # a file with holes
    done = bundle(copy)
    assert done.returncode == 2
    assert "1.2 GB are more than an archive may have" in done.stderr
    assert trace.name in done.stderr
    assert not list(copy.parent.glob("*.zip"))


@pytest.mark.parametrize("name", ["../out.txt", "/tmp/out.txt", "traces/../../out.txt"])
def test_an_archive_leaves_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"lightrig bundle": 1}))
        archive.writestr(name, "x")
    assert "no bundle has a file" in refused(path)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    """64 kB that would be 1.2 GB, and say so or not."""
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps({"lightrig bundle": 1}))
        for number in range(3):
            archive.writestr(f"traces/t/{number}.jsonl", bytes(1000))
    whole = bytearray(path.read_bytes())
    place = whole.rfind(b"PK\x01\x02")
    whole[place + 24 : place + 28] = (1_200_000_000).to_bytes(4, "little")
    path.write_bytes(whole)
    assert "more than 1 GB" in refused(path)


@pytest.mark.parametrize("content", [b"PK\x05\x06" + bytes(18), None])
def test_other_archives_are_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.zip"
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("hello.txt", "x")
    path.write_bytes(content or written.getvalue())
    assert "is no archive of `lightrig results bundle`" in refused(path)


@pytest.mark.parametrize(
    "manifest", ["[" * 100_000, '{"lightrig bundle": ' + "9" * 5000 + "}", "[1]"]
)
def test_a_hostile_list_of_files_is_no_archive(tmp_path: Path, manifest: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", manifest)
    assert "is no archive of `lightrig results bundle`" in refused(path)


def refused(path: Path) -> str:
    with preloaded.Process(
        ["lightrig", "replay", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    return str(errors)


def test_what_cannot_be_replayed_is_said(results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    for trace in copy.glob("runs/*/traces/*denied*/ocs.jsonl"):
        trace.write_text(trace.read_text().replace("tl1://", "netconf://"))
        assert read(trace).wire.startswith("netconf://")
    done = bundle(copy, "--test", "test_denied", "--output", str(tmp_path / "n.zip"))
    assert done.returncode == 0
    assert "recorded over netconf, which `lightrig replay` cannot play" in done.stdout.replace(
        "\n", " "
    )
