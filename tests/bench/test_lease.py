"""One process at a time has an instrument, whatever account, file, name or address it uses."""

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from bench.lease_holders import machine_holder
from bench.served_lab import ServedLab, describe

from lightrig.harness.bench import LabUnavailableError, bind, bind_only
from lightrig.harness.bench.lab_folder import LabFolderError, open_folder
from lightrig.harness.bench.lease import (
    Claim,
    Lease,
    LeaseConflictError,
    MachineLocks,
    address_keys,
    identity_key,
)
from lightrig.harness.machine_folder import machine_folder
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.temporary_folders import TemporaryFolder
from lightrig.testbeds import load


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can reach."""
    with TemporaryFolder("tests") as made:
        Path(made).chmod(0o777)
        yield Path(made) / "shared"


def lease(folder: Path, purpose: str = "a test") -> Lease:
    return Lease([MachineLocks(folder)], purpose)


def test_a_lease_is_exclusive_and_ends_with_its_process(folder: Path) -> None:
    process = machine_holder(folder)
    assert process.answer == "leased"
    with pytest.raises(LeaseConflictError) as conflict:
        lease(folder).take("ocs (tl1://ocs.lab)", ["k"])
    text = str(conflict.value)
    assert text.startswith("ocs (tl1://ocs.lab) is in use by ")
    assert f"process {process.pid} on " in text
    assert ", for a test" in text
    lease(folder).take("another", ["l"])
    process.kill()
    mine = lease(folder)
    mine.take("ocs", ["k"])
    with pytest.raises(LeaseConflictError, match=f"process {os.getpid()}"):
        lease(folder).take("ocs", ["k"])
    mine.release()
    lease(folder).take("ocs", ["k"])


def test_a_conflict_frees_no_claim_of_either_process(folder: Path) -> None:
    first, second = lease(folder), lease(folder)
    first.take("ocs", ["b"])
    assert second.take("meter", ["a"]) == ["a"]
    with pytest.raises(LeaseConflictError):
        second.take("ocs", ["a", "b"])
    with pytest.raises(LeaseConflictError):
        first.take("meter", ["a"])
    second.give_back(["a"])
    assert first.take("meter", ["a", "b"]) == ["a"]


def test_a_record_that_cannot_be_read_names_an_unknown_process(folder: Path) -> None:
    mine = lease(folder)
    mine.take("ocs", ["k"])
    (file,) = folder.glob("*.lock")
    file.write_text("{")
    with pytest.raises(LeaseConflictError, match="in use by an unknown process"):
        lease(folder).take("ocs", ["k"])
    mine.release()


def test_a_shorter_record_covers_a_longer_one(folder: Path) -> None:
    for purpose in ("a night with a long name", "a look"):
        mine = lease(folder, purpose)
        mine.take("ocs", ["k"])
        with pytest.raises(LeaseConflictError, match=rf", for {purpose}(\n|$)"):
            lease(folder).take("ocs", ["k"])
        mine.release()


def test_a_lock_file_that_was_removed_is_made_anew(folder: Path) -> None:
    mine = lease(folder)
    mine.take("ocs", ["k"])
    (file,) = folder.glob("*.lock")
    file.unlink()
    mine.release()
    mine.take("ocs", ["k"])
    with pytest.raises(LeaseConflictError):
        lease(folder).take("ocs", ["k"])


def test_the_folder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "named"))
    assert machine_folder() == tmp_path / "named"
    monkeypatch.delenv("LIGHTRIG_STATE")
    monkeypatch.setattr("lightrig.harness.machine_folder.PREPARED", tmp_path / "prepared")
    monkeypatch.setattr("lightrig.harness.machine_folder.FALLBACK", tmp_path / "fallback")
    assert machine_folder() == tmp_path / "fallback"
    (tmp_path / "prepared").mkdir()
    assert machine_folder() == tmp_path / "prepared"


def test_the_folder_is_open_to_all_accounts_unless_it_was_prepared(tmp_path: Path) -> None:
    assert open_folder(tmp_path / "a" / "b").stat().st_mode & 0o7777 == 0o1777
    (tmp_path / "of_a_group").mkdir()
    (tmp_path / "of_a_group").chmod(0o770)
    assert open_folder(tmp_path / "of_a_group").stat().st_mode & 0o777 == 0o770


@pytest.mark.parametrize("what", ["file", "below a file"])
def test_a_folder_that_cannot_be_used_says_what_to_try(tmp_path: Path, what: str) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" if what == "file" else tmp_path / "file" / "lightrig"
    with pytest.raises(LabFolderError) as error:
        MachineLocks(folder)
    assert str(folder) in str(error.value)
    assert "LIGHTRIG_STATE" in str(error.value)


def test_addresses_of_one_instrument_have_one_key(tmp_path: Path) -> None:
    def keys(address: str) -> frozenset[str]:
        path = tmp_path / "a.yaml"
        path.write_text(
            f"name: a\nswitches:\n  ocs: {{model: polatis, address: '{address}', size: 4x4}}\n"
        )
        return address_keys(load(path).switches["ocs"])

    assert keys("tl1://127.0.0.1") == keys("tl1://127.0.0.1:3082")
    assert keys("tl1://localhost") & keys("tl1://127.0.0.1:3082")
    assert keys("tl1://127.0.0.1:3083") != keys("tl1://127.0.0.1:3082")
    assert keys("tl1://ocs.invalid") == frozenset()


def test_an_instrument_is_known_by_its_serial_number() -> None:
    polatis = Identity("H+S", "N-VST", "21877", "6.5")
    newer = Identity("H+S", "N-VST", "21877", "6.6")
    assert identity_key(polatis, "tl1://a") == identity_key(newer, "netconf://b")
    for serial in ("unknown", "", "SIM-ocs"):
        nameless = Identity("H+S", "N-VST", serial, "6.5")
        assert identity_key(nameless, "tl1://a") != identity_key(nameless, "tl1://b")


def test_a_bench_has_its_instruments_until_it_is_closed(lab: ServedLab) -> None:
    bench = bind(lab.testbed, "hardware", purpose="the first")
    try:
        with pytest.raises(LeaseConflictError, match="for the first"):
            bind(lab.testbed, "hardware")
        with pytest.raises(LeaseConflictError, match=r"ocs .* is in use"):
            bind_only(lab.testbed, {"ocs"}, "the second")
    finally:
        bench.close()
    bind(lab.testbed, "hardware").close()


def test_a_second_name_of_the_testbed_is_the_same_lab(lab: ServedLab) -> None:
    copy = lab.folder / "copy.yaml"
    copy.write_text(lab.file.read_text().replace("name: lab", "name: mine"))
    bench = bind(lab.testbed, "hardware")
    try:
        with pytest.raises(LeaseConflictError):
            bind(load(copy), "hardware")
    finally:
        bench.close()


def test_a_lease_is_taken_before_anything_is_contacted(
    lab: ServedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contact(*_: object) -> None:
        raise AssertionError("opened before it was leased")

    bench = bind(lab.testbed, "hardware")
    try:
        for name in ("open_instrument", "open_server"):
            monkeypatch.setattr(f"lightrig.harness.bench.binding.{name}", contact)
        with pytest.raises(LeaseConflictError):
            bind(lab.testbed, "hardware")
    finally:
        bench.close()


def test_what_does_not_answer_is_free_again(lab: ServedLab) -> None:
    text = lab.file.read_text().replace(lab.places["server0"], "127.0.0.1:9")
    lab.file.write_text(text)
    with pytest.raises(LabUnavailableError):
        bind(lab.testbed, "hardware")
    bench = bind_only(lab.testbed, {"ocs"}, "a test")
    bench.close()


def test_simulated_benches_need_no_lease(tmp_path: Path) -> None:
    testbed = load(describe(tmp_path))
    first = bind(testbed, "simulated")
    bind(testbed, "simulated").close()
    assert first.lease is None
    first.close()


class Refusing:
    """Another host that has every instrument."""

    def claim(self, key: str, owner: Mapping[str, str]) -> Claim:
        raise LeaseConflictError(f"another host, for {key}")


def test_a_claim_that_another_host_refuses_is_free_on_this_machine_again(folder: Path) -> None:
    refused = Lease([MachineLocks(folder), Refusing()], "a test")
    with pytest.raises(LeaseConflictError, match="another host, for k"):
        refused.take("ocs", ["k"])
    assert lease(folder).take("ocs", ["k"]) == ["k"]


def test_an_owner_that_yields_is_asked_and_frees_the_instrument(folder: Path) -> None:
    shown = Lease([MachineLocks(folder)], "a live table", yields=True)
    shown.take("ocs", ["k"])
    assert not shown.is_wanted()
    other = Lease([MachineLocks(folder)], "another table", yields=True)
    with pytest.raises(LeaseConflictError, match="for a live table"):
        other.take("ocs", ["k"])  # neither of two that yield would have it for long
    assert not shown.is_wanted()
    run = lease(folder)
    taken = threading.Thread(target=run.take, args=("ocs", ["k"]), daemon=True)
    taken.start()
    asked = threading.Event()
    while not shown.is_wanted():
        asked.wait(0.01)
    shown.release()
    taken.join()
    with pytest.raises(LeaseConflictError, match="for a test"):
        shown.take("ocs", ["k"])
    run.release()
    shown.take("ocs", ["k"])
    assert not shown.is_wanted()


def test_an_owner_that_does_not_yield_as_it_promised_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightrig.harness.bench.lease._YIELD_TRIES", 2)
    Lease([MachineLocks(folder)], "a live table", yields=True).take("ocs", ["k"])
    mine = lease(folder)
    with pytest.raises(LeaseConflictError, match="for a live table"):
        mine.take("ocs", ["k"])
