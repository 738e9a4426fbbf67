"""Exceptions files: two writers at once, other accounts, mistakes where they stand, comments."""

import datetime
import json
import os
import re
import subprocess
import sys
import textwrap

import pytest

from lightrig.testbeds import TestbedError, load
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import (
    ExceptionsError,
    UnknownPartError,
    change_exceptions,
    exceptions_path,
    load_exceptions,
    ports_named,
)
from lightrig.testbeds.exceptions_document import exceptions_schema

MINE = """\
name: mine
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 16x16}
servers:
  server[0-2]:
    address: ssh://bench@{name}.invalid
    nics:
      nic0: {ports: 2, netdev: "ens{n}f{p}np{p}", rate: 100G, transceiver: lr4}
      nic1: {netdev: ens9, rate: 100G}
transceivers: {lr4: {pmd: 100GBASE-LR4}}
fibers:
  - fiber: server[0-2].nic0.p[0-1] <-> ocs
    label: F-[0117-0122]
plans:
  first: [server0.nic0.p0 <-> server1.nic0.p1]
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    return load(path)


def entry(what, because="LAB-123", until="2026-12-12"):
    return Entry(
        what, because, datetime.date.fromisoformat(until), "anna@bench", "2026-11-28 13:05"
    )


def put(mine, *names, **stated):
    return change_exceptions(mine, "out", add={name: entry(name, **stated) for name in names})


def test_a_testbed_without_the_file_has_none(mine):
    found = load_exceptions(mine)
    assert (found.path.name, found.out, found.known) == ("mine.exceptions.yaml", {}, {})


def test_what_was_written_is_read_and_taken_back(mine):
    put(mine, "server2.nic0.p1", until="2026-12-24")
    change_exceptions(mine, "known", add={"link down: fiber F-0120": entry("x", "see: LAB #7")})
    found = load_exceptions(mine)
    out = found.out["server2.nic0.p1"]
    assert (out.because, out.until) == ("LAB-123", datetime.date(2026, 12, 24))
    assert (out.who, out.at) == ("anna@bench", "2026-11-28 13:05")
    assert found.known["link down: fiber F-0120"].because == "see: LAB #7"
    change_exceptions(mine, "out", remove=frozenset(["server2.nic0.p1"]))
    assert (load_exceptions(mine).out, len(load_exceptions(mine).known)) == ({}, 1)
    change_exceptions(mine, "known", remove=frozenset(["link down: fiber F-0120"]))
    assert not exceptions_path(mine.path).exists()


def test_what_a_person_wrote_beside_it_stays(mine):
    path = exceptions_path(mine.path)
    path.write_text(
        "# use the microscope\nout:\n  ocs.3: {because: bent pin, until: 2027-01-03}  # ask Ben\n",
        encoding="utf-8",
    )
    put(mine, "server0.nic0.p0")
    text = path.read_text(encoding="utf-8")
    assert "# use the microscope" in text
    assert "# ask Ben" in text
    assert list(load_exceptions(mine).out) == ["ocs.3", "server0.nic0.p0"]


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("out: {server2.nic0.p7: {because: a, until: 2026-12-12}}", "1:7", "server2.nic0.p1"),
        ("out:\n  ocs.40: {because: a, until: 2026-12-12}", "2:3", "no port, fiber, NIC or server"),
        ("out:\n  ocs: {because: a, until: 2026-12-12}", "2:3", "a whole switch"),
        ("out:\n  ocs.3: {because: a, until: 2026-13-12}", "2:30", "2026-13-12"),
        ("out:\n  ocs.3: {because: a, until: soon}", "2:30", "soon"),
        ("out:\n  ocs.3: {until: 2026-12-12}", "2:3", "because"),
        ('known:\n  a card: {because: " ", until: 2026-12-12}', "2:21", "no reason"),
        ("out:\n  ocs.3: {because: a, until: 2026-12-12}\n  ocs.3: {because: b}", "3:3", "ocs.3"),
        ("aus: {}", "1:1", "aus"),
    ],
)
def test_mistakes_are_located_and_stop_a_change(mine, text, where, says):
    path = exceptions_path(mine.path)
    path.write_text(text, encoding="utf-8")
    for read in (load_exceptions, lambda mine: put(mine, "server0.nic0.p0")):
        with pytest.raises(TestbedError, match=re.escape(f"{path}:{where}: ")) as error:
            read(mine)
        assert says in str(error.value)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("what", "ports"),
    [
        ("server1.nic0.p1", "server1.nic0.p1"),
        ("ocs.3", "ocs.3"),
        ("ocs.18", "ocs.18"),
        ("server1", "server1.nic0.p0 server1.nic0.p1 server1.nic1"),
        ("server1.nic0", "server1.nic0.p0 server1.nic0.p1"),
        ("F-0119", "ocs.19 ocs.3 server1.nic0.p0"),  # both fibers of the third pair
    ],
)
def test_names_of_ports_fibers_and_servers(mine, what, ports):
    assert sorted(map(str, ports_named(mine, what))) == ports.split()


def test_a_port_that_the_testbed_has_not_leaves_no_file(mine):
    with pytest.raises(UnknownPartError, match=r"did you mean 'server2\.nic0\.p1'"):
        put(mine, "server2.nic0.p3")
    for because in (" ", "LAB-1\nout: {}"):
        with pytest.raises(ExceptionsError):
            put(mine, "ocs.3", because=because)
    assert not exceptions_path(mine.path).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root with setpriv can become another account")
def test_the_list_of_another_account_is_refused(mine):
    put(mine, "ocs.3")
    path = exceptions_path(mine.path)
    before = path.read_bytes()
    os.chown(path, 65534, -1)
    for use in (load_exceptions, lambda mine: put(mine, "ocs.4")):
        with pytest.raises(ExceptionsError, match="belongs to account 65534"):
            use(mine)
    assert path.read_bytes() == before
    os.chown(mine.path, 65534, -1)  # of the same person as the testbed's file
    assert list(load_exceptions(mine).out) == ["ocs.3"]


def test_a_link_and_a_named_pipe_are_refused(mine, tmp_path):
    path = exceptions_path(mine.path)
    path.symlink_to(mine.path)
    for use in (load_exceptions, lambda mine: put(mine, "ocs.4")):
        with pytest.raises(ExceptionsError, match="is a link"):
            use(mine)
    assert mine.path.read_text(encoding="utf-8") == MINE
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ExceptionsError, match="no regular file"):
        load_exceptions(mine)


_ADDS = """
import datetime, sys
from lightrig.testbeds import load
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import (change_exceptions)
mine = load(__import__("pathlib").Path(sys.argv[1]))
print(flush=True)
sys.stdin.readline()
for what in sys.argv[2:]:
    until = datetime.date(2026, 12, 12)
    change_exceptions(mine, "out", add={what: Entry(what, "LAB-9", until)})
    if what != sys.argv[-1]:
        change_exceptions(mine, "out", remove=frozenset([what]))
"""


def test_several_people_at_once_lose_nothing(mine):
    """The file is removed again and again, when the last entry is."""
    sets = [[f"ocs.{port}" for port in range(first, first + 2)] for first in (1, 3, 19)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_ADDS), str(mine.path), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for names in sets
    ]
    for each in running:
        each.stdout.readline()
    for each in running:
        each.stdin.write("\n")
        each.stdin.flush()
    for each in running:
        each.communicate()
    assert [each.returncode for each in running] == [0] * len(running)
    assert sorted(load_exceptions(mine).out) == sorted(names[-1] for names in sets)
    assert [p.name for p in mine.path.parent.iterdir() if "draft" in p.name] == []


def test_the_schema_is_one_for_editors():
    assert '"type": "null"' not in json.dumps(exceptions_schema())
