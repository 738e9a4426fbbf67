"""One archive of tests of a run, for the vendor of an instrument or another engineer.

It is a run's folder with these tests alone: page, journal, rows, wire traffic, testbed files. So
every command that reads a run reads it once it is unpacked, and `lightrig replay` as it is.
"""

import binascii
import json
import os
import platform
import secrets
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lightrig.harness.record import (
    Context,
    Journal,
    RecordError,
    Row,
    RunRecord,
    TestOutcome,
    load_descriptions,
    load_quantities,
    read_journal,
)
from lightrig.harness.record.bundle_archive import FORMAT, MANIFEST, MOST_BYTES, VERSION
from lightrig.harness.record.digests import digest_of
from lightrig.harness.record.places import appearing
from lightrig.harness.record.pseudonyms import Names, Pseudonyms
from lightrig.harness.record.results import rows_as_csv
from lightrig.harness.record.run_folder import OPENING, TRACES
from lightrig.harness.report.run_page import write_page
from lightrig.instruments.core.transcript import (
    REPLAYED,
    Piece,
    Transcript,
    TranscriptError,
    about_line,
    first_line,
    read,
)
from lightrig.testbeds import LightrigError, Testbed
from lightrig.testbeds.credentials import CredentialError, look_up
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.readdressing import addresses_of
from lightrig.testbeds.regular_files import open_regular
from lightrig.testbeds.schema import json_schema
from lightrig.testbeds.secret_masking import asterisks, mask_document, mask_secrets

KEY = ".pseudonyms.key"
"""Beside the runs: by it a name is replaced by the same one in every archive of these results."""

_LONGEST_HEAD = 1 << 16
_FAILED = ("failed", "error")
_ROWS = ("test", "subject", "quantity", "value", "lower", "upper", "unit", "time_ns", "conditions")


class BundleError(LightrigError):
    """A bundle cannot be made of this run: no such test, or too large."""


@dataclass(frozen=True)
class Bundle:
    """What was written.

    tests: names of the tests that it has. traces: of which instruments, in how many recordings.
    unplayable: recordings that `lightrig replay` cannot play, each with its wire.
    """

    path: Path
    tests: Sequence[str]
    traces: int
    unplayable: Mapping[str, str]
    size: int


def write_bundle(
    results: Path, run: str, path: Path, test: str | None = None, *, anonymous: bool = False
) -> Bundle:
    """Write an archive of tests of a run, by default those that failed.

    test: a name, its end, or a pattern with * and ?. anonymous: hosts, serial numbers, addresses
    and accounts are replaced.

    Raises `BundleError`, `RecordError` for what cannot be read, and `OSError`.
    """
    folder = results / "runs" / run
    load_quantities(folder)
    record = read_journal(folder / "journal.jsonl")
    traces = _traces(folder)
    tests = _chosen(record, test, opened=OPENING not in traces.values())
    names = [one.nodeid for one in tests]
    testbeds = load_descriptions(record)
    wanted = [path for path, of in traces.items() if of in names or of == OPENING]
    _refuse_large(folder, wanted)
    transcripts = [(path, _read(path)) for path in wanted]
    clean = _Clean(testbeds.values())
    if anonymous:
        clean.learn(_names_of(record, tests, testbeds, transcripts, folder), _key(results))
    with TemporaryDirectory(prefix="lightrig-bundle-") as made:
        target = Path(made)
        _write_run(record, tests, folder, target, clean)
        unplayable = {}
        for source, transcript in transcripts:
            name = clean.path(source.relative_to(folder))
            wire = _write_transcript(transcript, target / name, clean)
            if wire not in REPLAYED:
                unplayable[name.as_posix()] = wire
        about = [transcript.about for _, transcript in transcripts]
        _write_facts(record, tests, target, (about, unplayable), clean, anonymous=anonymous)
        size = _pack(target, path)
    return Bundle(path, names, len(transcripts), unplayable, size)


def _chosen(record: RunRecord, test: str | None, *, opened: bool) -> list[TestOutcome]:
    """Return the tests that are wanted, each attempt; raises `BundleError` where there is none.

    opened: whether the instruments were; a run that could not open them has no test.
    """
    run = record.header["run"]
    if test is None:
        found = [one for one in record.tests if one.outcome in _FAILED]
        if not found and opened:
            raise BundleError(f"{run}: no test failed; name one by --test")
        return found
    found = [one for one in record.tests if _is_named(one.nodeid, test)]
    if not found:
        known = sorted({one.nodeid for one in record.tests})
        short = [one.rpartition("::")[2] for one in known]
        guess = did_you_mean(test, [*known, *short])
        raise BundleError(f"{run}: no test {test!r} has ended{guess}")
    return found


def _is_named(nodeid: str, test: str) -> bool:
    name = nodeid.rpartition("::")[2]
    return (
        nodeid == test
        or test in (name, name.partition("[")[0])
        or nodeid.endswith(f"/{test}")
        or fnmatchcase(nodeid, test)
    )


def _traces(folder: Path) -> dict[Path, str]:
    """Return the recordings of a run, each with its test."""
    found = {}
    for path in sorted((folder / TRACES).glob("*/*.jsonl")):
        with open_regular(path) as file:
            head = file.readline(_LONGEST_HEAD)
        try:
            found[path] = str(from_json(head)["test"])
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path}:1: no line of a trace: {error}") from error
    return found


def _read(path: Path) -> Transcript:
    try:
        return read(path)
    except TranscriptError as error:
        raise RecordError(str(error)) from error


def _refuse_large(folder: Path, traces: Sequence[Path]) -> None:
    files = [folder / "journal.jsonl", *traces, *_descriptions(folder)]
    sizes = {file: file.stat().st_size for file in files}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(files, key=sizes.__getitem__)
        raise BundleError(
            f"{folder}: {sum(sizes.values()) / 1e9:.1f} GB are more than an archive may have "
            f"({MOST_BYTES / 1e9:.0f} GB); the largest file is {largest.relative_to(folder)} with "
            f"{sizes[largest] / 1e9:.1f} GB\n  try       name one test by --test, or export rows"
        )


def _descriptions(folder: Path) -> list[Path]:
    found = sorted((folder / "testbeds").rglob("*"))
    return [path for path in found if path.is_file() and not path.is_symlink()]


# ---------------------------------------------------------------------------------------- cleaning


class _Clean:
    """Masks secrets, and replaces names where they have been learnt."""

    def __init__(self, testbeds: Iterable[Testbed]) -> None:
        self._secrets: set[str] = set()
        self.accounts: set[str] = set()
        for testbed in testbeds:
            logins = [part.login for part in testbed.servers.values()]
            logins += [part.login for part in testbed.optical_switches.values()]
            for login in (*logins, *(part.login for part in testbed.instruments.values())):
                self._add_login(login)
        self._names: Pseudonyms | None = None

    def _add_login(self, login: str | None) -> None:
        if login is not None:
            with suppress(CredentialError):  # as on a machine that has none
                user, password = look_up(login)
                self.accounts.add(user)
                self._secrets |= {password} - {""}

    def learn(self, names: Names, key: bytes) -> None:
        names.accounts |= self.accounts
        self._names = Pseudonyms(key, names)

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, asterisks(secret))
        text = mask_secrets(text)
        return text if self._names is None else self._names.replaced(text)

    def data(self, data: bytes) -> bytes:
        """Return bytes as by `text`, with the checksum that a frame had."""
        found = self.text(data.decode("latin-1")).encode("latin-1")
        return found if found == data else _checked(data, found)

    def document(self, document: Any) -> Any:
        if isinstance(document, str):
            return self.text(document)
        document = mask_document(document)
        if isinstance(document, Mapping):
            return {self.text(str(key)): self.document(one) for key, one in document.items()}
        if isinstance(document, list | tuple):
            return [self.document(one) for one in document]
        return document

    def path(self, path: Path) -> Path:
        return Path(*map(self.text, path.parts))

    def row(self, row: Row) -> Row:
        conditions = self.document(row.conditions)
        return replace(row, subject=self.text(row.subject), conditions=conditions)

    def context(self, context: Context) -> Context:
        instruments = tuple(self.document(one) for one in context.instruments)
        return Context(
            self.text(context.testbed),
            self.text(context.test),
            instruments,
            context.simulated,
            self.document(context.conditions),
        )

    def outcome(self, test: TestOutcome) -> TestOutcome:
        details = self.document(test.details)
        return TestOutcome(self.text(test.nodeid), test.outcome, test.duration_s, details)


def _checked(before: bytes, after: bytes) -> bytes:
    """Return a changed frame with its checksum, where the frame had one that a driver checks.

    Sercalo's frames end with the sum of their bytes, OCSTrx's with CRC-16/CCITT-FALSE.
    """
    if before[:2] in (b"\xef\xef", b"\xfe\xfe") and sum(before[:-1]) & 0xFF == before[-1]:
        return after[:-1] + bytes([sum(after[:-1]) & 0xFF])
    crc = binascii.crc_hqx(before[:-2], 0xFFFF).to_bytes(2, "big")
    if len(before) > 2 and before[-2:] == crc:
        return after[:-2] + binascii.crc_hqx(after[:-2], 0xFFFF).to_bytes(2, "big")
    return after


def _names_of(
    record: RunRecord,
    tests: Sequence[TestOutcome],
    testbeds: Mapping[str, Testbed],
    transcripts: Sequence[tuple[Path, Transcript]],
    folder: Path,
) -> Names:
    """Return what identifies the lab, from all that goes into the archive."""
    names = Names(reserved=_reserved())
    for testbed in testbeds.values():
        for address in addresses_of(testbed).values():
            names.learn(address)
        identities = [part.identity for part in testbed.optical_switches.values()]
        for one in (*identities, *(part.identity for part in testbed.instruments.values())):
            if one.serial is not None:
                names.serials.add(one.serial)
    names.learn_document([record.header, record.summary or {}])
    for context in record.contexts.values():
        names.learn_document([context.instruments, context.conditions])
    for test in tests:
        names.learn_document(test.details)
    for _, transcript in transcripts:
        names.learn_document(transcript.about)
        for piece in transcript.pieces:
            names.learn(piece.data.decode("latin-1"))
    for path in _descriptions(folder):
        names.learn(path.read_text("utf-8", errors="replace"))
    with suppress(KeyError, OSError):  # an account without a name
        names.accounts.add(Path.home().name)
    names.hosts.add(platform.node())
    names.hosts.discard("")
    names.accounts.discard("")
    return names


def _reserved() -> frozenset[str]:
    """Return the words of testbed files and journals, which no account or host may change."""
    found: set[str] = set()

    def walk(part: Any) -> None:
        if isinstance(part, Mapping):
            found.update(map(str, part.get("properties", ())))
            found.update(str(one) for one in part.get("enum", ()))
            found.update([str(part["const"])] if "const" in part else [])
            for each in part.values():
                walk(each)
        elif isinstance(part, list):
            for each in part:
                walk(each)

    walk(json_schema())
    return frozenset(found | {"lightrig", "test", "tests", "suites", "passed", "failed", "admin"})


def _key(results: Path) -> bytes:
    """Return the key of these results, made with the first anonymous archive."""
    path = results / KEY
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
    key = path.read_bytes()
    if len(key) < 16:
        raise RecordError(f"{path} is no key; remove it, and names are replaced by new ones")
    return key


# ----------------------------------------------------------------------------------------- writing


def _write_run(
    record: RunRecord, tests: Sequence[TestOutcome], folder: Path, target: Path, clean: _Clean
) -> None:
    """Write journal, rows, testbed files and page of the tests."""
    names = {one.nodeid for one in tests}
    header = {key: one for key, one in record.header.items() if key not in ("crc", "schema")}
    journal = Journal(target / "journal.jsonl", clean.document(header))
    contexts = {id(one): clean.context(one) for one in record.contexts.values()}
    shown: list[list[object]] = []
    for context, group in groupby(record.rows(), key=lambda pair: pair[0]):
        if context.test not in names:
            continue
        rows = [clean.row(row) for _, row in group]
        journal.append_many(contexts[id(context)], rows)
        shown += (_cells(contexts[id(context)], row) for row in rows)
    for test in tests:
        journal.note_test(clean.outcome(test))
    journal.close(clean.document(record.summary or {}))
    (target / "rows.csv").write_text(rows_as_csv(_ROWS, shown), "utf-8")
    for source in _descriptions(folder):
        path = target / clean.path(source.relative_to(folder))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(clean.text(source.read_text("utf-8", errors="replace")), "utf-8")
    for source in sorted(folder.glob("*.json")):  # such as declarations of quantities
        if source.name != "run.json":
            text = source.read_text("utf-8", errors="replace")
            (target / source.name).write_text(clean.text(text), "utf-8")
    part = read_journal(target / "journal.jsonl")
    page = target / "report.html"
    write_page(part, load_descriptions(part), page)
    page.write_text(clean.text(page.read_text("utf-8")), "utf-8")


def _cells(context: Context, row: Row) -> list[object]:
    conditions = json.dumps({**context.conditions, **row.conditions}, sort_keys=True)
    return [
        context.test,
        row.subject,
        row.quantity,
        row.value,
        "" if row.lower is None else row.lower,
        "" if row.upper is None else row.upper,
        row.unit,
        row.time_ns,
        conditions,
    ]


def _write_transcript(transcript: Transcript, path: Path, clean: _Clean) -> str:
    """Write a recording, cleaned; return its wire."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        head = {key: transcript.about[key] for key in _HEAD if key in transcript.about}
        rest = {key: one for key, one in transcript.about.items() if key not in head}
        file.write(f"{first_line(clean.document(head))}\n".encode())
        if rest:
            file.write(f"{about_line(clean.document(rest))}\n".encode())
        for piece in transcript.pieces:
            file.write(_cleaned(piece, clean).line())
    return transcript.wire.partition("://")[0] or "a wire that is not named"


_HEAD = ("instrument", "when", "clock", "test")


def _cleaned(piece: Piece, clean: _Clean) -> Piece:
    return replace(piece, data=clean.data(piece.data))


def _write_facts(
    record: RunRecord,
    tests: Sequence[TestOutcome],
    target: Path,
    traffic: tuple[Sequence[Mapping[str, str]], Mapping[str, str]],
    clean: _Clean,
    *,
    anonymous: bool,
) -> None:
    """Write identities, versions and the manifest.

    traffic: what each recording says of its instrument, and the wires that cannot be replayed.
    """
    recorded, unplayable = traffic
    identities = {
        f"{one['instrument']}: {one['identity']}" for one in recorded if "identity" in one
    } | {str(one) for context in record.contexts.values() for one in context.instruments}
    facts = {
        "identities": sorted(map(clean.text, identities)),
        "versions": {
            "lightrig that wrote this": version("lightrig"),
            "python that wrote this": platform.python_version(),
            "run": clean.document(record.header.get("versions", {})),
        },
    }
    (target / "identities.json").write_text(json.dumps(facts, indent=1), "utf-8")
    files = sorted(path for path in target.rglob("*") if path.is_file())
    if sum(path.stat().st_size for path in files) > MOST_BYTES:
        raise BundleError(f"{record.path}: the archive would have more than 1 GB; use --test")
    manifest = {
        FORMAT: VERSION,
        "run": record.header["run"],
        "anonymous": anonymous,
        "tests": [[clean.text(one.nodeid), one.outcome] for one in tests],
        "files": {path.relative_to(target).as_posix(): path.stat().st_size for path in files},
        "not replayable": dict(unplayable),
    }
    digests = [f"{digest_of(path)}  {path.relative_to(target).as_posix()}\n" for path in files]
    (target / "SHA256SUMS").write_text("".join(digests), "utf-8")
    (target / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")


def _pack(target: Path, path: Path) -> int:
    """Write the archive, which appears whole or not at all; return its size."""
    with appearing(path) as hidden, zipfile.ZipFile(hidden, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(target.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(target).as_posix())
    return path.stat().st_size
