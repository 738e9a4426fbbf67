"""Key files of a night: what is made, what is refused, and who may speak to whom."""

import datetime as dt
import json
import os
import ssl
import stat
import tempfile
import threading

import pytest
from bench.accounts import BEN, needs_accounts
from cryptography import x509
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.night import keys
from lightrig.harness.night.keys import KeyFileError, make_keys, parse_key, read_key, temporary_key
from lightrig.testbeds.lab_hosts import load_hosts

LAB = """
keys: keys
scheduler: tls://10.0.0.5:8786
hosts:
  lab1: {testbeds: [a.yaml], address: tls://10.0.0.6}
  rack/2: {testbeds: [a.yaml], address: tls://10.0.0.7}
"""


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "lab.yaml").write_text(LAB)
    return load_hosts(tmp_path / "lab.yaml")


def lightrig(*arguments, **options):
    return CliRunner().invoke(application("night"), list(map(str, arguments)), **options)


def mode(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


def accepted(server, client):
    """Return whether a server and a client of these keys accept each other, by TLS itself."""
    ends = []
    for key, purpose in ((server, ssl.Purpose.CLIENT_AUTH), (client, ssl.Purpose.SERVER_AUTH)):
        context = ssl.create_default_context(purpose, cadata=key.authority)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        load_chain(context, key)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        is_server = purpose is ssl.Purpose.CLIENT_AUTH
        ends.append((context.wrap_bio(incoming, outgoing, is_server), incoming, outgoing))
    (serving, from_client, to_client), (asking, from_server, to_server) = ends
    done = set()
    for _ in range(4):
        for end in (asking, serving):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
            from_client.write(to_server.read())
            from_server.write(to_client.read())
    return len(done) == 2


def load_chain(context, key):
    """Load a key into a context, which reads files alone."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(key.key + key.certificate)
        file.flush()
        context.load_cert_chain(file.name)


def test_one_command_makes_a_file_for_each_participant(lab, tmp_path):
    made = lightrig("night", tmp_path / "lab.yaml", "--make-keys")
    assert made.exit_code == 0, made.output
    folder = tmp_path / "keys"
    names = ["authority.pem", "scheduler.pem", "worker-lab1.pem", "worker-rack%2F2.pem"]
    assert sorted(file.name for file in folder.iterdir()) == names
    assert {mode(file) for file in folder.iterdir()} == {"0o600"}
    assert mode(folder) == "0o700"
    for line, place in zip(
        made.stdout.splitlines()[1:], ["stays", "stays", "lab1", "rack/2"], strict=True
    ):
        assert place in line
    before = {file: file.read_bytes() for file in folder.iterdir()}
    again = lightrig("night", tmp_path / "lab.yaml", "--make-keys")
    assert again.stdout.count("was there") == 4
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_participants_accept_keys_of_their_lab_alone(lab, tmp_path):
    list(make_keys(lab))
    scheduler = read_key(tmp_path / "keys" / "scheduler.pem")
    worker = read_key(keys.key_file(lab.keys, "lab1"))
    assert accepted(scheduler, worker)
    assert accepted(worker, scheduler)
    stranger = temporary_key()
    assert accepted(stranger, stranger)
    assert not accepted(scheduler, stranger)
    assert not accepted(stranger, worker)
    constraints = x509.load_pem_x509_certificate(worker.certificate.encode()).extensions
    assert not constraints.get_extension_for_class(x509.BasicConstraints).value.ca
    # An authority's certificate signs keys and is none.
    assert not accepted(read_key(tmp_path / "keys" / "authority.pem"), worker)


def test_a_host_that_is_added_gets_a_key_of_the_same_authority(lab, tmp_path):
    list(make_keys(lab))
    (tmp_path / "lab.yaml").write_text(
        LAB + "  lab3: {testbeds: [a.yaml], address: tls://10.0.0.8}\n"
    )
    new = [file.name for file, _, is_new in make_keys(load_hosts(tmp_path / "lab.yaml")) if is_new]
    assert new == ["worker-lab3.pem"]
    assert accepted(
        read_key(tmp_path / "keys" / "scheduler.pem"), read_key(keys.key_file(lab.keys, "lab3"))
    )


def test_a_key_of_another_lab_is_named_when_keys_are_made(lab, tmp_path):
    list(make_keys(lab))
    file = keys.key_file(lab.keys, "lab1")
    file.write_text(temporary_key().pem)
    with pytest.raises(KeyFileError, match=r"worker-lab1.pem is not of the authority in .*remove"):
        list(make_keys(lab))


@pytest.mark.parametrize("bits", [0o604, 0o640, 0o620, 0o602, 0o666])
def test_a_key_that_other_accounts_can_use_is_refused(lab, bits):
    list(make_keys(lab))
    file = keys.key_file(lab.keys, "lab1")
    file.chmod(bits)
    with pytest.raises(KeyFileError, match=rf"\(mode {bits:04o}\): chmod 600 .*worker-lab1.pem"):
        read_key(file)


@needs_accounts
def test_a_key_of_another_account_is_refused(lab):
    list(make_keys(lab))
    file = keys.key_file(lab.keys, "lab1")
    os.chown(file, BEN, BEN)
    with pytest.raises(KeyFileError, match=rf"belongs to account {BEN}.*chown 0 "):
        read_key(file)


def test_a_key_is_valid_for_its_time_alone(monkeypatch):
    now = keys.wall_time()
    key = temporary_key()
    for days, problem in ((-2, "is valid from .* clock of this host"), (31, "expired on .*remove")):
        monkeypatch.setattr(keys, "wall_time", lambda days=days: now + dt.timedelta(days=days))
        with pytest.raises(KeyFileError, match=problem):
            parse_key("one.pem", key.pem.encode())
    monkeypatch.setattr(keys, "wall_time", lambda: now + dt.timedelta(days=29))
    assert parse_key("one.pem", key.pem.encode()) == key


@pytest.mark.parametrize("damage", ["", "cut", "key of another", "no authority", "not its own"])
def test_a_damaged_key_is_named_and_not_shown(damage):
    key, other = temporary_key(), temporary_key()
    content = {
        "": "",
        "cut": key.pem[:300],
        "key of another": other.key + key.certificate + key.authority,
        "no authority": key.key + key.certificate,
        "not its own": key.key + key.certificate + other.authority,
    }[damage]
    with pytest.raises(KeyFileError, match=r"one.pem is no key file of a night, or damaged") as bad:
        parse_key("one.pem", content.encode())
    assert bad.value.__context__ is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda file: file.unlink(), "there is no .*worker-lab1.pem: make it where"),
        (lambda file: file.chmod(0o644), "chmod 600 .*worker-lab1.pem"),
        (lambda file: file.write_text("x"), "worker-lab1.pem is no key file"),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_key(lab, tmp_path, change, sentence):
    list(make_keys(lab))
    change(keys.key_file(lab.keys, "lab1"))
    at = ["--worker", "lab1", "--scheduler", "tls://10.0.0.5:8786"]
    ended = lightrig("night", tmp_path / "lab.yaml", *at)
    assert ended.exit_code == 2
    assert_matches(sentence, ended)


def test_a_worker_of_a_lab_without_keys_needs_those_of_its_night(tmp_path):
    (tmp_path / "lab.yaml").write_text("hosts: {lab1: {testbeds: [a.yaml]}}")
    at = ["--worker", "lab1", "--scheduler", "tls://127.0.0.1:8786"]
    ended = lightrig("night", tmp_path / "lab.yaml", *at, input="")
    assert ended.exit_code == 2
    assert_matches("names no keys, so only lightrig night itself starts a worker", ended)


def test_a_scheduler_without_tls_is_refused(lab, tmp_path):
    at = ["--worker", "lab1", "--scheduler", "tcp://10.0.0.5:8786"]
    ended = lightrig("night", tmp_path / "lab.yaml", *at)
    assert ended.exit_code == 2
    assert_matches("--scheduler: found 'tcp://10.0.0.5:8786', expected tls://", ended)


@pytest.mark.parametrize("address", ["tcp://10.0.0.5:8786", "10.0.0.5:8786", "ws://lab1:1"])
def test_a_study_on_another_host_needs_tls(address):
    ended = CliRunner().invoke(application("claims"), ["claims", "opus", "--scheduler", address])
    assert ended.exit_code == 2
    assert_matches(r"expected tls://HOST:PORT beyond loopback", ended)


def test_keys_need_a_folder_in_the_file(tmp_path):
    (tmp_path / "lab.yaml").write_text("hosts: {lab1: {testbeds: [a.yaml]}}")
    ended = lightrig("night", tmp_path / "lab.yaml", "--make-keys")
    assert ended.exit_code == 2
    assert_matches("names no folder for keys; add e.g. keys: keys", ended)


@pytest.mark.long
@pytest.mark.parametrize("speaks_tls", [True, False])
def test_a_worker_does_not_wait_for_a_scheduler_of_another_authority(tmp_path, speaks_tls):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    import socket

    (tmp_path / "lab.yaml").write_text(
        json.dumps({"keys": "keys", "hosts": {"lab1": {"testbeds": ["a.yaml"]}}})
    )
    list(make_keys(load_hosts(tmp_path / "lab.yaml")))
    stranger = temporary_key()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=stranger.authority)
    load_chain(context, stranger)

    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            try:
                if speaks_tls:
                    context.wrap_socket(connection, server_side=True).close()
                else:
                    connection.sendall(bytes(16))  # as Dask without TLS begins
                    connection.recv(1 << 16)
            except OSError:
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        at = ["--worker", "lab1", "--scheduler", f"tls://127.0.0.1:{listener.getsockname()[1]}"]
        ended = lightrig("night", tmp_path / "lab.yaml", *at)
        thread.join()
    assert ended.exit_code == 3
    assert_matches("not of the authority" if speaks_tls else "speaks no TLS", ended)


def assert_matches(sentence, ended):
    import re

    assert re.search(sentence, ended.stderr), ended.stderr
