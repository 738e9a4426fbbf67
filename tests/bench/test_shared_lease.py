"""Leases between hosts that share a folder: one holder, a growing number, no stuck lease."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from bench.lease_holders import Holder, host_holder

from lightrig.harness.bench import shared_lease
from lightrig.harness.bench.lab_folder import file_name
from lightrig.harness.bench.lease import Lease, LeaseConflictError, LeaseLostError, this_owner
from lightrig.harness.bench.shared_lease import SECOND, SharedFolder
from lightrig.instruments.clock import SystemClock, boot_time

TERM = SECOND
OWNER = this_owner("a test")


def host(folder: Path, name: str = "b", term: int = TERM) -> Holder:
    return host_holder(folder, name, term)


def test_one_claim_at_a_time_with_growing_numbers(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path, TERM)
    numbers = []
    for _ in range(3):
        claim = folder.claim("ocs", OWNER)
        with pytest.raises(LeaseConflictError, match="for a test"):
            SharedFolder(tmp_path, TERM).claim("ocs", OWNER)
        folder.claim("other", OWNER).release()
        claim.check()
        numbers.append(claim.number)  # type: ignore[attr-defined]
        claim.release()
    assert numbers == [1, 2, 3]


def test_a_dead_host_holds_its_lease_for_one_term(tmp_path: Path) -> None:
    host(tmp_path).kill()
    with pytest.raises(LeaseConflictError):  # it may be a connection that was cut
        SharedFolder(tmp_path, TERM).claim("ocs", OWNER)
    SystemClock().sleep(TERM)
    began = boot_time()
    claim = SharedFolder(tmp_path, TERM).claim("ocs", OWNER)
    assert boot_time() - began >= TERM  # watched it unchanged for a term by its own clock
    claim.check()
    assert claim.number == 2  # type: ignore[attr-defined]
    claim.release()


def test_a_dead_process_on_this_machine_is_noticed_at_once(tmp_path: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    host(tmp_path, boot, 3600 * SECOND).kill()
    SharedFolder(tmp_path, 3600 * SECOND).claim("ocs", OWNER).release()


def test_a_holder_that_was_suspended_finds_out_before_it_changes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its renewals stop with the machine, whose clock since boot goes on."""
    claim = SharedFolder(tmp_path, 3600 * SECOND).claim("ocs", OWNER)
    claim.check()
    monkeypatch.setattr(shared_lease, "boot_time", lambda: boot_time() + 3600 * SECOND)
    with pytest.raises(LeaseLostError, match="could not be renewed in time"):
        claim.check()
    claim.release()


def test_a_replaced_holder_loses_its_lease_by_the_number(tmp_path: Path) -> None:
    lease = Lease([SharedFolder(tmp_path, 3600 * SECOND)], "a test")
    lease.take("ocs", ["k"])
    (record,) = tmp_path.glob("*.lease")
    following = record.with_name(record.name.replace("000000001", "000000002"))
    following.write_text("{}")
    with pytest.raises(LeaseLostError, match="restores nothing"):
        lease.check()
    lease.release()
    assert "released" not in json.loads(record.read_text())


def test_a_replaced_holder_loses_its_lease_by_its_record(tmp_path: Path) -> None:
    first = SharedFolder(tmp_path, 3600 * SECOND).claim("ocs", OWNER)
    (record,) = tmp_path.glob("*.lease")
    record.write_text(json.dumps({**json.loads(record.read_text()), "superseded": 2}))
    with pytest.raises(LeaseLostError, match="another host has taken over"):
        first.check()
    first.release()


def test_a_holder_is_told_in_its_record_who_follows_it(tmp_path: Path) -> None:
    record_of(tmp_path)
    SharedFolder(tmp_path, 3600 * SECOND).claim("ocs", OWNER).release()
    first, _ = sorted(tmp_path.glob("*.lease"))
    assert json.loads(first.read_text())["superseded"] == 2


@pytest.mark.parametrize("written", [0, 2**32])
def test_a_clock_of_the_file_server_that_jumps_ends_no_live_lease(
    tmp_path: Path, written: int
) -> None:
    """The holder renews its record while it is watched."""
    term = 10 * SECOND  # longer than a busy machine lets a process wait
    process = host(tmp_path, "b", term)
    try:
        (record,) = tmp_path.glob("*.lease")
        os.utime(record, (written, written))
        with pytest.raises(LeaseConflictError, match="for b"):
            SharedFolder(tmp_path, term).claim("ocs", OWNER)
    finally:
        process.kill()


def test_a_record_of_a_time_to_come_keeps_nobody_out(tmp_path: Path) -> None:
    """The file server's clock was set back after a host was cut off."""
    record_of(tmp_path, boot="another host's")
    (record,) = tmp_path.glob("*.lease")
    os.utime(record, (2**32, 2**32))
    claim = SharedFolder(tmp_path, TERM).claim("ocs", OWNER)
    claim.check()
    claim.release()


@pytest.mark.long
def test_a_stopped_holder_is_replaced_and_notices_when_it_goes_on(tmp_path: Path) -> None:
    process = host(tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        # Beyond the term: stamps of files are some ms coarse, and it may finish a renewal first.
        SystemClock().sleep(TERM * 3 // 2)
        claim = SharedFolder(tmp_path, TERM).claim("ocs", OWNER)
        os.kill(process.pid, signal.SIGCONT)
        SystemClock().sleep(TERM)
        claim.check()
        claim.release()
    finally:
        process.kill()


def test_old_records_are_removed_and_numbers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_lease, "_RECORDS_LEFT", 3)
    for number in range(1, 8):
        claim = SharedFolder(tmp_path, TERM).claim("ocs", OWNER)
        assert claim.number == number  # type: ignore[attr-defined]
        claim.release()
    assert len(list(tmp_path.glob("*.lease"))) == 3


def record_of(folder: Path, **fields: str) -> None:
    """Leave the record of a holder whose process has ended, on this boot of this machine."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    known = {"boot": boot, "processes": os.readlink("/proc/self/ns/pid"), "started": "1"}
    record = {**OWNER, **known, "process": str(ended.pid), **fields}
    (folder / f"{file_name('ocs')}.000000001.lease").write_text(json.dumps(record))


def test_a_process_of_another_container_is_not_looked_up_by_its_number_here(
    tmp_path: Path,
) -> None:
    """Numbers of processes are those of a PID namespace: one that runs there need not run here."""
    record_of(tmp_path)
    claim = SharedFolder(tmp_path, 3600 * SECOND).claim("ocs", OWNER)  # it ended: at once
    assert claim.number == 2  # type: ignore[attr-defined]
    claim.release()
    for path in tmp_path.glob("*.lease"):
        path.unlink()
    record_of(tmp_path, processes="pid:[1]")
    with pytest.raises(LeaseConflictError):
        SharedFolder(tmp_path, 3600 * SECOND).claim("ocs", OWNER)


@pytest.mark.parametrize(
    ("held", "asked", "is_free"),
    [("a", "a", True), ("b", "a", False), (None, "a", False), ("a", None, False)],
)
def test_only_a_process_of_one_service_follows_another_at_once(
    tmp_path: Path, held: str | None, asked: str | None, is_free: bool
) -> None:
    """Which of its processes may claim is decided elsewhere."""
    others = {"boot": "another machine", **({"service": held} if held else {})}
    record_of(tmp_path, **others)
    folder = SharedFolder(tmp_path, 3600 * SECOND)
    owner = {**OWNER, "service": asked} if asked else OWNER
    if is_free:
        claim = folder.claim("ocs", owner)
        assert claim.number == 2  # type: ignore[attr-defined]
        claim.release()
        return
    with pytest.raises(LeaseConflictError):
        folder.claim("ocs", owner)
