"""The readers that `tests.campaigns.mutations` feeds: parsers, files, replies on wires.

A target takes bytes, and either returns a value or raises an error that it declares.
"""

import atexit
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from ncclient.manager import make_device_handler

from lightrig.harness.bench.lab_folder import file_name
from lightrig.harness.bench.lease import owner_text, parse_owner
from lightrig.harness.bench.saved_state import SavedStateError, SavedStates
from lightrig.harness.night.outcomes import TestbedNight, not_run
from lightrig.harness.night.outcomes import parse as parse_outcome
from lightrig.harness.record import Context, Journal, RecordError, Row, TestOutcome
from lightrig.harness.record.digests import with_digest
from lightrig.harness.record.journal_reading import read_journal
from lightrig.harness.record.places import Place
from lightrig.harness.record.rows_check import Inspector
from lightrig.harness.record.rows_files import MANIFEST, Compacted, Manifest, RowsFile, stored_rows
from lightrig.harness.record.run_folder import parse_facts
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import AddressError, Endpoint
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.core.transcript import TranscriptError
from lightrig.instruments.core.transcript import read as read_transcript
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.recognition import read as recognize
from lightrig.instruments.wire import framing, netconf, pipelined, tl1
from lightrig.instruments.wire.restconf import Http
from lightrig.testbeds import LightrigError, load, quantities
from lightrig.testbeds.baselines import load_baselines
from lightrig.testbeds.fault_plan import load_fault_plan
from lightrig.testbeds.plans import Circuit
from lightrig.testbeds.ranges import expand
from lightrig.testbeds.references import load_references

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "fuzz_corpus"
"""Inputs that once crashed, by target."""


@dataclass
class Target:
    """A function of bytes, and the errors that it may raise.

    Attributes:
        name: of the target and of its folders.
        run: the function.
        errors: what it may raise.
        corpus: valid inputs.
    """

    name: str
    run: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    corpus: list[bytes]

    def __post_init__(self) -> None:
        folder = CORPUS / self.name
        if folder.is_dir():
            self.corpus += [path.read_bytes() for path in sorted(folder.iterdir())]


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def files(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


class _File:
    """A file in memory that each input is written into."""

    def __init__(self, name: str, read: Callable[[Path], object]) -> None:
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        folder = tempfile.mkdtemp(prefix="lightrig-mutations-", dir=base)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, name)
        self._read = read

    def __call__(self, data: bytes) -> object:
        self.path.write_bytes(data)
        return self._read(self.path)


def tools() -> list[Target]:
    """Outputs of tools, each by its parser, and all by the parser that recognizes them."""
    sys.path.insert(0, str(ROOT / "tests" / "tools"))
    from tool_samples import names, parser_of, sample

    by_parser: dict[Any, list[str]] = {}
    for name in names():
        by_parser.setdefault(parser_of(name), []).append(name)
    found = []
    for parse, of in by_parser.items():
        seeds = [sample(name).encode()[:8192] for name in of]
        name = f"{parse.__module__.rpartition('.')[2]}.{parse.__name__}"
        found.append(Target(name, lambda d, p=parse: p(text(d)), (ToolOutputError,), seeds))
    every = [sample(name).encode()[:4096] for name in names()]
    found.append(Target("recognition", lambda d: recognize(text(d)), (ToolOutputError,), every))
    return found


def parts_of_files() -> list[Target]:
    """Words of testbed files: quantities, ranges, circuits, addresses."""
    parsers = [
        getattr(quantities, name) for name in sorted(vars(quantities)) if name.startswith("parse_")
    ]
    samples = [b"1.5 ms", b"-3.2 dBm", b"3 dB", b"100G", b"95 %", b"1310 nm", b"23 C", b"2 W"]

    def quantity(data: bytes) -> object:
        given = text(data)
        for parse in parsers:
            try:
                parse(given)
            except LightrigError:
                continue
        return None

    errors = (LightrigError,)
    ranges = [b"server[0-3].nic[0,2-4]", b"ocs.[1-64]", b"a[1-2][3,5]"]
    addresses = [b"ssh://bench@h.invalid:22", b"serial:///dev/x", b"scpi://[::1]:5025", b"visa://a"]
    return [
        Target("quantities", quantity, errors, samples),
        Target("ranges", lambda d: len(expand(text(d))), errors, ranges),
        Target("circuits", lambda d: Circuit.parse(text(d)), (ValueError,), [b"1>33"]),
        Target("addresses", lambda d: Endpoint.parse(text(d), None), (AddressError,), addresses),
        Target("owners", lambda d: owner_text(parse_owner(d)), (), [OWNER]),
    ]


OWNER = json.dumps(
    {"user": "a", "process": "1", "host": "h", "since": "2026-03-14", "purpose": "pytest"}
).encode()


def wires() -> list[Target]:
    """Bytes that an instrument sends."""
    cut = {
        "lines": framing.Lines(),
        "bracketed": framing.Bracketed(),
        "sized": framing.Sized(8),
        "scpi": framing.Scpi(),
        "http": Http(),
    }
    seeds = {
        "lines": [b"OK\r\n", b"\n\nS 1\r\nS 2\r\n"],
        "bracketed": [b"<OSW_OUT_03>\r\n"],
        "sized": [bytes(range(16))],
        "scpi": [b"+1.0E-03\n", b"#15hello\n", b"#216ABCDEFGHIJKLMNOP\r\n"],
        "http": [
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\nETag: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ],
    }
    found = []
    for name, how in cut.items():

        def run(data: bytes, how: Any = how) -> object:
            how.show(data)
            return how.cut(data)

        found.append(Target(f"framing {name}", run, (framing.FramingError,), seeds[name]))
    return [*found, _tl1(), _netconf()]


def _tl1() -> Target:
    class _Connection:
        def send(self, data: bytes) -> None: ...

        def close(self) -> None: ...

        over = False

    clock = SystemClock()
    # Nothing is opened: bytes are given to the session as its connection gives them.
    nothing = {"TcpConnection": lambda *_: _Connection()}

    def run(data: bytes) -> object:
        session = tl1.Tl1Session("ocs", "h", 1, clock)
        with mock.patch.multiple(tl1, **nothing), mock.patch.object(pipelined, "connect"):
            pending = session.submit("RTRV-PATCH")
        second = session.submit("RTRV-PORT-SUM", "1&2")
        half = len(data) // 2
        session.received(data[:half], 0)
        session.received(data[half:], 0)
        session.disconnected("the end")
        for each in (pending, second):
            try:
                each.result(0)
            except InstrumentError:
                continue
        return None

    seeds = [
        b'\r\n\n   it 00-01-01 00:00:00\r\nM  1 COMPLD\r\n   "1,33"\r\n   "2,34"\r\n;',
        b"\r\n\n   it 00-01-01 00:00:00\r\nM  2 DENY\r\n   IIAC\r\n   /* Invalid */\r\n;",
        b'\r\n\n   it 00-01-01 00:00:00\r\nA  7 REPT EVT\r\n "1"\r\n;\r\nM  1 PRTL\r\n   "1"\r\n>',
        b"IP 1\r\n<",
    ]
    return Target("wire tl1", run, (), seeds)


class _Answering:
    """Transport of a NETCONF session that gives it one message for the first rpc, and ends."""

    handler = make_device_handler(None)
    server_capabilities = ()
    id, over = "1", False

    def close(self) -> None: ...

    def __init__(self, message: str, listener: netconf.NetconfSession) -> None:
        self._message, self._listener = message, listener

    def get_listener_instance(self, _: object) -> None:
        """Return none of ncclient's listeners: they hear of nothing."""

    def add_listener(self, _: object) -> None: ...

    def send(self, _: str) -> None:
        self._listener.read(self._message, 0)
        self.over = True
        self._listener.ended(self, EOFError("the end"))  # type: ignore[arg-type]


def _netconf() -> Target:
    clock = SystemClock()

    def run(data: bytes) -> object:
        def opened(*arguments: Any) -> _Answering:
            *_, session, _connect_timeout = arguments
            return _Answering(text(data), session)

        def session() -> netconf.NetconfSession:
            return netconf.NetconfSession("ocs", "h", 830, clock, user="u", known_hosts=None)

        with mock.patch.object(netconf, "open_session", opened):
            with contextlib.suppress(InstrumentError):
                session().edit("<config/>").result(0)
            try:
                reply = session().get("<cross-connects/>")
            except InstrumentError:
                return None
        reply.leaves("product-information")
        reply.children("cross-connects")
        return reply.entries("cross-connects", "pair")

    ns = 'xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"'
    seeds = [
        f'<rpc-reply {ns} message-id="1"><data><cross-connects xmlns="u"><pair><ingress>1'
        "</ingress><egress>9</egress></pair></cross-connects></data></rpc-reply>",
        f'<rpc-reply {ns} message-id="1"><rpc-error><error-tag>in-use</error-tag>'
        "<error-severity>error</error-severity><error-message>no</error-message></rpc-error>"
        "</rpc-reply>",
        f'<rpc-reply {ns} message-id="1"><ok/></rpc-reply>',
        f"<notification {ns}><eventTime>x</eventTime></notification>",
    ]
    return Target("wire netconf", run, (), [each.encode() for each in seeds])


def records() -> list[Target]:
    """Journals, facts of runs, saved states, traces."""
    whole = _journal()
    salvaged = _File("journal.jsonl", lambda p: _rows(p, salvage=True))
    strict = _File("journal.jsonl", lambda p: _rows(p, salvage=False))
    unsealed = [json.dumps({"schema": 1, "run": "r", "night": "2026-03-14"}).encode() + b"\n"]
    unsealed[0] += b'{"context":0,"testbed":"t","test":"x","instruments":[],"simulated":true,'
    unsealed[0] += b'"conditions":{}}\n[0,"s","reconfiguration.control",1,1,1,"ns",5,{}]\n'
    facts = json.dumps(
        {
            "schema": 1,
            "state": "complete",
            "torn": False,
            "testbeds": {},
            "tests": [["a", "passed", 1.0]],
            "header": {"run": "r", "night": "2026-03-14"},
            "summary": None,
        }
    ).encode()
    origin = dict.fromkeys(
        (
            "key",
            "instrument",
            "identity",
            "address",
            "testbed",
            "file",
            "purpose",
            "user",
            "host",
            "saved",
        ),
        "x",
    )
    state = {"lightrig state": 1, "origin": origin, "found": ["1>9"], "cabling": {"1": "a"}}
    state |= {"before": [], "after": ["2>9"], "changed": ""}
    settings = {"lightrig state": 1, "origin": origin, "found": {"on 1": False}, "changed": ""}
    settings |= {"values": {"on 1": [True]}}
    states = _File(f"{file_name('x')}.circuits.found.json", _states)
    traces = _File("trace.jsonl", read_transcript)
    record = (RecordError,)
    sealed = with_digest({**json.loads(facts), "digests": {"lab": "0" * 64}}).encode()
    nights = {"2026-01-03": {"20260103-021500-a": 31}, "2026-01-04": {"20260104-021500-a": 7}}
    compacted = Compacted("rows/testbed=lab/2026-01.x.parquet", nights)
    plain = json.dumps({"schema": 1, "files": {compacted.name: nights}}).encode()
    night = TestbedNight("lab", "measured", "host", "r", 0, 31, 5, 1, 1, 2, 1, 12.5, "again")
    outcome = json.dumps(asdict(night)).encode()
    not_run_lab = json.dumps({"testbed": "lab", "state": "not run", "reason": "lost"}).encode()
    return [
        Target("journal", strict, record, [whole, *unsealed]),
        Target("journal salvaged", salvaged, record, [whole, *unsealed]),
        Target("facts", _facts, record, [facts, sealed]),
        Target(
            "manifest", _Rows().manifest, record, [Manifest((compacted,)).text().encode(), plain]
        ),
        Target(
            "night outcomes", lambda d: parse_outcome("x.json", d), record, [outcome, not_run_lab]
        ),
        Target("nights not run", _Outcomes(), record, [outcome, not_run_lab]),
        Target("rows", _Rows().inspected, record, [_Rows().whole()]),
        Target(
            "saved states",
            states,
            (SavedStateError,),
            [json.dumps(each).encode() for each in (state, settings)],
        ),
        Target(
            "traces",
            traces,
            (TranscriptError,),
            [each[:2000] for each in files("tests/transcripts/*/*.jsonl")],
        ),
    ]


def _states(path: Path) -> object:
    found, refused = SavedStates(path.parent).read_all()
    for error in refused:
        raise error
    return found


def _facts(data: bytes) -> object:
    """Read `run.json`, and make the tables of it that lists and queries show."""
    from lightrig.harness.record.runs_tables import runs_table, tests_table

    facts = [parse_facts("run.json", data)]
    return runs_table(facts), tests_table(facts), facts[0].count("passed"), facts[0].duration_s


class _Outcomes:
    """Outcomes of a night in results, of which the report names testbeds that were not run."""

    def __init__(self) -> None:
        self._file = _File("lab.json", self._not_run)

    def __call__(self, data: bytes) -> object:
        return self._file(data)

    def _not_run(self, path: Path) -> object:
        night = path.parent / "nights" / "20260103-021500"
        night.mkdir(parents=True, exist_ok=True)
        path.replace(night / path.name)
        return not_run(path.parent)


class _Rows:
    """Results with one file of rows, which is read as files without a digest are."""

    def __init__(self) -> None:
        self._inspector = Inspector()
        self._file = _File("r.parquet", self._inspect)
        self._place = Place(self._file.path.parent)
        atexit.register(self._inspector.close)

    def whole(self) -> bytes:
        """Return a file of rows."""
        from lightrig.harness.record.dataset import write_dataset

        with tempfile.TemporaryDirectory() as name:
            path = Path(name, "runs", "r", "journal.jsonl")
            path.parent.mkdir(parents=True)
            path.write_bytes(_journal())
            return write_dataset(path, Path(name, "rows"))[0].read_bytes()

    def inspected(self, data: bytes) -> object:
        """Inspect a file of rows; an ended process is what the reader names as damage."""
        return self._file(data)

    def manifest(self, data: bytes) -> object:
        """Read the list of compacted files as each reader of rows does."""
        path = self._place.path(MANIFEST)
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_bytes(data)
        return [[*file.nights_and_runs()] for file in stored_rows(self._place)]

    def _inspect(self, path: Path) -> object:
        file = RowsFile("rows/testbed=lab/night=2026-03-14/r.parquet", "lab", "2026-03-14", "r")
        if problem := self._inspector.problem(path, file, {}):
            raise RecordError(problem)
        return path


def _rows(path: Path, *, salvage: bool) -> int:
    return sum(1 for _ in read_journal(path, salvage=salvage).rows())


def _journal() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "journal.jsonl")
        with Journal(path, {"run": "r", "night": "2026-03-14"}) as journal:
            context = Context("lab", "test", ("ocs: a",), True, {})
            for number in range(4):
                journal.append(
                    context, Row("ocs", "reconfiguration.control", 1, 1, 1, "ns", number)
                )
            journal.note_test(TestOutcome("test", "passed", 1.0))
        return path.read_bytes()


def descriptions() -> list[Target]:
    """YAML files: testbeds, baselines, references, fault plans."""
    small = (
        b"name: lab\nswitches:\n"
        b"  ocs: {model: polatis, address: tl1://h, login: env:X, size: 8x8}\n"
        b"servers:\n  server[0-1]:\n    address: ssh://{name}\n"
        b"    nics: {nic0: {netdev: e0, rate: 100G, transceiver: lr}}\n"
        b"transceivers:\n  lr: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm},"
        b" receive: {min: -10 dBm, max: 4 dBm}}\n"
        b'fibers:\n  - server[0-1].nic0 <-> ocs\nplans:\n  a: {circuits: {ocs: ["1>10"]}}\n'
        b"limits:\n  insertion_loss: {max: 3 dB}\n"
    )
    plan = b'faults:\n  - {fault: fiber cut, at: [server0.nic0], after: 2 s, tests: "*x*"}\n'
    errors = (LightrigError,)
    return [
        Target("testbeds", _File("lab.yaml", load), errors, [small]),
        Target("fault plans", _File("faults.yaml", load_fault_plan), errors, [plan]),
        Target(
            "baselines",
            _File("lab.baselines.yaml", load_baselines),
            errors,
            [each[:1500] for each in files("testbeds/*.baselines.yaml")],
        ),
        Target(
            "references",
            _File("lab.references.yaml", load_references),
            errors,
            files("testbeds/*.references.yaml") or [b"sets: {}\n"],
        ),
    ]


def targets() -> list[Target]:
    """Return all targets."""
    return [*parts_of_files(), *wires(), *tools(), *records(), *descriptions()]
