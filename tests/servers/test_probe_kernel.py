"""The kernel's log as the probe reads it, and what bounds the moments of its lines."""

import errno
import random

import pytest

from lightrig.instruments.servers.host.kernel_messages import LocalClock
from lightrig.instruments.servers.programs import probe_kernel
from lightrig.instruments.servers.programs.probe_kernel import KernelLog, masked

MS = 1_000_000


class Ring:
    """A kernel's log whose records a test hands over; None: nothing more for now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[bytes | OSError] = []
        self.at = 0
        monkeypatch.setattr(probe_kernel, "now", self.now)
        monkeypatch.setattr(probe_kernel, "slewed", lambda: 7)

    def now(self) -> int:
        self.at += 1
        return self.at

    def read(self) -> bytes:
        if not self.waiting:
            raise BlockingIOError
        found = self.waiting.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    def write(self, sequence: int, text: str, stamp: int = 5) -> None:
        self.waiting.append(f"6,{sequence},{stamp},-;{text}\n SUBSYSTEM=net\n".encode())


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    return Ring(monkeypatch)


def test_records_before_the_opening_are_left_out_and_later_ones_come_once(ring: Ring) -> None:
    ring.write(40, "of yesterday")
    log = KernelLog(ring.read)
    log.skip()
    ring.write(41, "of today", 1_234)
    log.read()
    taken = log.take()
    ((sequence, priority, stamp, earliest, latest, slewed, text),) = taken["records"]
    assert (sequence, priority, stamp, slewed, text) == (41, 6, 1_234, 7, "of today")
    assert earliest is not None
    assert earliest < latest
    assert (taken["lost"], taken["left_out"]) == (0, 0)
    assert log.take()["records"] == []


def test_overwritten_records_are_counted(ring: Ring) -> None:
    ring.write(40, "before")
    log = KernelLog(ring.read)
    log.skip()
    ring.waiting.append(OSError(errno.EPIPE, "Broken pipe"))
    ring.write(57, "after sixteen that were overwritten")
    ring.write(58, "the next one")
    log.read()
    taken = log.take()
    assert [one[0] for one in taken["records"]] == [57, 58]
    assert taken["lost"] == 16


def test_the_first_of_several_may_have_been_withheld(ring: Ring) -> None:
    """A line without a newline is shown when the next one comes: prb_commit of Linux."""
    log = KernelLog(ring.read)
    log.skip()
    for sequence in (1, 2, 3):
        ring.write(sequence, "one of three")
    log.read()
    assert [one[3] is None for one in log.take()["records"]] == [True, False, False]


def test_ten_thousand_lines_and_more_are_bounded(ring: Ring) -> None:
    log = KernelLog(ring.read)
    log.skip()
    for sequence in range(20_000):
        ring.write(sequence, f"storm {sequence} " + "x" * (sequence % 2_000))
    log.read()
    taken = log.take()
    assert len(taken["records"]) + taken["left_out"] == 20_000
    assert 10_000 <= len(taken["records"]) < 20_000
    assert max(len(one[6]) for one in taken["records"]) <= 1_000


def test_other_errors_are_no_empty_log(ring: Ring) -> None:
    ring.waiting.append(OSError(errno.EPERM, "Operation not permitted"))
    with pytest.raises(OSError, match="not permitted"):
        KernelLog(ring.read).skip()


# Secrets of the shapes that their makers document, all invented.
SECRETS = {
    "Kernel command line: quiet registry=https://bob:hunter2@mirror.test/x ro": "bob:hunter2",
    "agent: token=9f86d081884c7d65 started": "9f86d081884c7d65",
    "agent: API_KEY: 'two words' started": "two words",
    'agent: "password"= swordfish': "swordfish",
    "pushed with ghp_16C7e42F292c6912E7710c838347Ae178B4a": "16C7e42F",
    "assumed AKIAIOSFODNN7EXAMPLE": "IOSFODNN7EXAMPLE",
    "Authorization: Bearer eyJhbGciOi.eyJzdWIiOiIx.SflKxwRJ": "eyJzdWIi",
    "module: wep_passphrase=correct-horse": "correct-horse",
}


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_masked(text: str) -> None:
    shown = masked(text)
    assert SECRETS[text] not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "mlx5_core 0000:3b:00.0 ens3f0np0: Link up",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "pcieport 0000:00:1c.0: AER: Multiple Corrected error received: 0000:00:1c.0",
        "tokenring0: ring speed 16 Mb/s",
    ],
)
def test_lines_without_secrets_are_verbatim(text: str) -> None:
    assert masked(text) == text


# ------------------------------------------------------------------------ the local clock


class Session:
    """Lines of a kernel whose local clock is `offset` behind, and drifts; read every 10 ms."""

    def __init__(self, seed: int, drift: float = 0.5e-6) -> None:
        self.random = random.Random(seed)
        self.offset, self.drift = self.random.randrange(10**12), drift
        self.truth: list[int] = []
        self.records: list[tuple[int, int | None, int]] = []

    def line(self, at: int, *, withheld: int = 0) -> None:
        local = at - self.offset + int(self.drift * at)
        shown = at + withheld
        polled = shown - shown % (10 * MS)
        latest = shown + self.random.randrange(20_000, 400_000)
        self.truth.append(at)
        self.records.append((local // 1000 * 1000, polled, latest))

    def check(self, found: list[tuple[int | None, int]]) -> list[int]:
        """Return the widths of intervals that all hold the truth."""
        for at, (earliest, latest) in zip(self.truth, found, strict=True):
            assert earliest is None or earliest <= at <= latest
        return [latest - earliest for earliest, latest in found if earliest is not None]


@pytest.mark.parametrize("seed", range(8))
def test_lines_of_a_session_narrow_each_other(seed: int) -> None:
    session = Session(seed)
    at = 10**11
    for _ in range(60):
        at += session.random.randrange(1, 700 * MS)
        session.line(at)
    alone = max(latest - (earliest or 0) for _, earliest, latest in session.records)
    widths = session.check(LocalClock().narrowed(session.records))
    # Of 60 lines the one soonest after a reading is 10 ms / 61 after it on average; the drift of
    # the rest is that of two clocks, 1 ppm of up to 42 s.
    assert max(widths) < 1.5 * MS < alone


def test_earlier_lines_narrow_a_later_one() -> None:
    session = Session(5)
    clock = LocalClock()
    for number in range(40):
        session.line(10**11 + number * 13_370_001)
    clock.narrowed(session.records)
    session.records, session.truth = [], []
    session.line(10**11 + 700 * MS + 9 * MS)
    (width,) = session.check(clock.narrowed(session.records))
    assert width < 2 * MS


def test_a_withheld_line_does_not_spoil_the_others() -> None:
    session = Session(6)
    for number in range(30):
        session.line(10**11 + number * 37_000_123, withheld=30 * MS if number == 11 else 0)
    widths = session.check(LocalClock().narrowed(session.records))
    assert len(widths) == 30
    assert max(widths) < 2 * MS


def test_a_line_alone_has_its_own_bounds() -> None:
    session = Session(7)
    session.line(10**11 + 4 * MS)
    ((earliest, latest),) = LocalClock().narrowed(session.records)
    ((_, polled, shown),) = session.records
    assert earliest is not None
    assert abs(earliest - (polled or 0)) <= 1000
    assert latest == shown


def test_without_an_earliest_moment_there_is_none() -> None:
    assert LocalClock().narrowed([(1000, None, 9000)]) == [(None, 9000)]
    assert LocalClock().narrowed([]) == []


def test_stamps_are_cut_to_a_microsecond() -> None:
    """Written at 1,999 and 3,000 ns of both clocks, which agree; stamped at 1 and 3 us."""
    (_, second) = LocalClock().narrowed([(1_000, 1_990, 2_100), (3_000, None, 9_000)])
    earliest, latest = second
    assert earliest is not None
    assert earliest <= 3_000 <= latest
