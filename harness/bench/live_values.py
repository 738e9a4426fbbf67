"""Readings of a bench that go on: powers and carriers once a second, by one thread an address.

The lease on each instrument yields: another process that wants it has it within 2 s. Then nothing
is contacted there until it is free again and nobody waits for it.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lightrig.harness.bench.assembly import spec_of
from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.binding import LabUnavailableError, bind_only, open_lease
from lightrig.harness.bench.lease import (
    Lease,
    LeaseConflictError,
    MachineLocks,
    address_keys,
    owner_text,
)
from lightrig.harness.bench.lease_queue import waiting_for
from lightrig.harness.bench.named_values import (
    NO_MONITOR,
    NamedValue,
    Value,
    is_named,
    momentary_values,
    owners,
    setting_values,
)
from lightrig.harness.bench.port_values import port_readers
from lightrig.harness.machine_folder import machine_folder
from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.core.capabilities import PortWatch
from lightrig.testbeds import LightrigError, Testbed

SLOW_PERIOD = 30_000_000_000
"""Between two readings of a module, of FEC, of RDMA state or of settings, in ns."""

_POLL_PERIOD = 10_000_000
"""Of carriers, on the server itself, in ns."""

_LOOK = 0.25
"""Seconds between two looks at who wants an instrument."""

_LOOKS_BEFORE_CUT = 4
"""Looks for which a reading may go on when its instrument is wanted; then it is cut off."""

_RETRY = 2_000_000_000
"""Between two attempts to open what is in use or does not answer, in ns."""

SHARED = "hosts share this lab: live contacts nothing, and shows journals"


@dataclass(frozen=True, slots=True)
class Seen:
    """A value that was read.

    Attributes:
        value: the value.
        at: when it was there: the latest possible time, in ns of the system's clock.
        simulated: whether its instrument is.
    """

    value: NamedValue
    at: int
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class CarrierLoss:
    """The carrier of a NIC port was lost: when, in ns of the system's clock, from `at.earliest`."""

    port: str
    at: Span


def first_lost(losses: Sequence[CarrierLoss]) -> list[CarrierLoss]:
    """Return the loss that was first; several where their intervals do not tell which.

    A loss whose interval begins after the earliest of all ends was later than that one.
    """
    end = min((each.at.latest for each in losses), default=0)
    found = [each for each in losses if each.at.earliest <= end]
    return sorted(found, key=lambda each: each.at.earliest)


class LiveReader:
    """Reads the instruments and servers of one address, again and again in its own thread.

    Attributes:
        names: of the instruments and servers.
        state: why there are no readings now; empty where there are.
        is_tried: whether it has been tried to read them.
        in_use: whether another process uses them.
    """

    def __init__(
        self, testbed: Testbed, names: Sequence[str], lab: "LiveLab", keys: frozenset[str]
    ) -> None:
        self.names = tuple(names)
        self.state = SHARED if lab.is_shared else "is opened"
        self.is_tried = lab.is_shared
        self.in_use = False
        self._testbed = testbed
        self._lab = lab
        self._keys = keys
        self._guard = threading.Lock()
        self._values: dict[str, Seen] = {}
        self._losses: list[CarrierLoss] = []
        self._reading = threading.Lock()
        self._lease: Lease | None = None
        self._bench: Bench | None = None
        self._looks = 0
        self._up: dict[tuple[str, str], bool] = {}
        self._unmonitored: dict[str, set[int]] = {}
        self._slow: deque[tuple[int, Callable[[], list[NamedValue]]]] = deque()

    @property
    def is_silent(self) -> bool:
        """Whether it was tried to read what no other process uses, and it did not answer."""
        return self.is_tried and bool(self.state) and not self.in_use and not self._lab.is_shared

    def values(self) -> list[Seen]:
        """Return the newest readings; none where the instruments are not read now."""
        with self._guard:
            return list(self._values.values())

    def carrier_losses(self) -> list[CarrierLoss]:
        """Return all carriers that were seen to be lost."""
        with self._guard:
            return list(self._losses)

    def go_on(self, ends: threading.Event) -> None:
        """Read until `ends`."""
        clock = self._lab.clock
        due = clock.now()
        while not ends.wait(max(0, due - clock.now()) / 1e9):
            with self._reading:
                if self._bench is None:
                    self._open()
                if self._bench is not None:
                    self._attempt(partial(self._read, self._bench))
            self.is_tried = True
            pause = self._lab.every if self._bench is not None else _RETRY
            due = max(due + pause, clock.now())

    def is_wanted(self) -> bool:
        """Whether another process waits for the instruments."""
        lease = self._lease
        if lease is not None and lease.is_wanted():
            return True
        self._looks = 0
        return False

    def yield_instruments(self) -> None:
        """Close and free the instruments for a process that waits for them."""
        self._looks += 1
        # A reading that goes on may end first; one that takes longer is cut off.
        if self._reading.acquire(blocking=False):
            try:
                self.shut("is freed for another process")
            finally:
                self._reading.release()
        elif self._looks >= _LOOKS_BEFORE_CUT:
            self.shut("is freed for another process")

    def shut(self, state: str) -> None:
        """Close and free the instruments; readings end."""
        bench, self._bench, lease, self._lease = self._bench, None, self._lease, None
        with self._guard:
            self._values.clear()
            self.state = state
        self._slow.clear()
        try:
            if bench is not None:
                with contextlib.suppress(LightrigError, OSError):
                    bench.close()
        finally:
            if lease is not None:
                lease.release()

    def wait_for_reading(self, seconds: float) -> None:
        """Wait until the present reading has ended, at most `seconds`."""
        if self._reading.acquire(timeout=seconds):
            self._reading.release()

    # ------------------------------------------------------------------------- inside

    def _attempt(self, step: Callable[[], None]) -> None:
        """Do a step; what goes wrong closes the instruments and is the state."""
        lease = self._lease
        try:
            step()
        except Exception as error:
            # Whatever it is: what was cut off may fail anywhere, and a fault of one driver must
            # not end the readings of all others.
            if self._lease is not lease or lease is None:
                return  # it was cut off, since another process wants the instruments
            self.in_use = isinstance(error, LeaseConflictError)
            lines = str(error).splitlines() or [repr(error)]
            # The first line of this error says for how many instruments its others are.
            shown = lines[1] if isinstance(error, LabUnavailableError) and lines[1:] else lines[0]
            self.shut(shown.strip())

    def _open(self) -> None:
        holder = self._lab.holder(self._keys)
        self.in_use = bool(holder)
        if holder:
            self.state = holder
            return
        purpose = self._lab.purpose
        lease = self._lease = open_lease(self._testbed, purpose, yields=True)

        def opened() -> None:
            bench = bind_only(self._testbed, set(self.names), purpose, lease=lease)
            if self._lease is not lease:  # freed meanwhile
                bench.close()
                return
            self._bench = bench
            self._up = {}
            for name in self.names:
                self._begin(bench, name)
            self.state = ""

        self._attempt(opened)

    def _begin(self, bench: Bench, name: str) -> None:
        now = self._lab.clock.now()
        if name in bench.servers:
            watched = [
                PortWatch(spec.netdev)
                for nic in self._testbed.servers[name].nics.values()
                for spec in nic.ports
            ]
            up = bench.servers[name].watch(watched, period=_POLL_PERIOD, datagram_period=None)
            self._up |= {(name, port.netdev): (port.netdev, "carrier") in up for port in watched}
            self._slow.extend((now, reader) for reader in port_readers(bench, name))
        elif name in bench.instruments or self._lab.has_subjects:
            self._slow.append((now, lambda: list(setting_values(bench, name))))

    def _read(self, bench: Bench) -> None:
        for name in self.names:
            if name in bench.servers:
                self._read_carriers(bench, name)
            else:
                self._put(
                    bench, momentary_values(bench, name, self._unmonitored.setdefault(name, set()))
                )
        if self._slow and self._slow[0][0] <= self._lab.clock.now() and not self._lab.is_in_use:
            # One at a time: the tools of a server's eight modules take seconds.
            _, reader = self._slow.popleft()
            self._put(bench, reader())
            self._slow.append((self._lab.clock.now() + SLOW_PERIOD, reader))

    def _read_carriers(self, bench: Bench, name: str) -> None:
        ports = {
            spec.netdev: str(spec.port)
            for nic in self._testbed.servers[name].nics.values()
            for spec in nic.ports
        }
        lost = []
        for event in bench.servers[name].settle({}, timeout=0).result().events:
            if event.stage == "carrier" and event.port in ports:
                self._up[name, event.port] = event.up
                port = ports[event.port]
                if not event.up and self._lab.is_shown(f"{port}.carrier"):
                    lost.append(CarrierLoss(port, event.at))
        with self._guard:
            self._losses += lost
        self._put(
            bench,
            (
                NamedValue(f"{port}.carrier", "up" if self._up[name, netdev] else "down")
                for netdev, port in ports.items()
            ),
        )

    def _put(self, bench: Bench, values: Iterable[NamedValue]) -> None:
        read = [value for value in values if self._lab.is_shown(value.name, value.value)]
        at, simulated = self._lab.clock.now(), bench.simulated
        with self._guard:
            if self._bench is bench:
                self._values |= {
                    value.name: Seen(value, at, value.name.partition(".")[0] in simulated)
                    for value in read
                }


class LiveLab:
    """Reads the instruments that subjects name until it is closed.

    Args:
        testbed: whose instruments are read.
        subjects: names as `get` takes them; all of the testbed where there are none.
        every: between two readings, in ns.
        purpose: what other processes are shown.

    Attributes:
        is_shared: whether other hosts use the lab as well: then nothing is contacted.

    Raises `SubjectError` and `LabFolderError`.
    """

    def __init__(self, testbed: Testbed, subjects: Sequence[str], every: int, purpose: str) -> None:
        self.every = every
        self.purpose = purpose
        self.clock = SystemClock()
        self.is_shared = testbed.lab_folder is not None or testbed.coordinator is not None
        self._subjects = subjects
        self._ends = threading.Event()
        self._locks = MachineLocks(machine_folder())
        self.readers = [
            LiveReader(testbed, names, self, keys)
            for names, keys in _by_address(testbed, owners(testbed, subjects))
        ]
        if not self.is_shared:
            works: list[Callable[[], None]] = [self._watch_wishes]
            works += [partial(reader.go_on, self._ends) for reader in self.readers]
            for work in works:
                threading.Thread(target=work, name="live", daemon=True).start()

    @property
    def is_in_use(self) -> bool:
        """Whether another process uses a part of what is shown."""
        return any(reader.in_use for reader in self.readers)

    @property
    def has_subjects(self) -> bool:
        """Whether a person has named what is shown."""
        return bool(self._subjects)

    def is_shown(self, name: str, value: Value = None) -> bool:
        """Whether a value of that name is to be shown; a port without monitor if it is named."""
        if not self._subjects:
            return value != NO_MONITOR
        return any(is_named(each, name) for each in self._subjects)

    def holder(self, keys: Iterable[str]) -> str:
        """Return who has the instrument of any of `keys`, or waits for it; empty if nobody has."""
        for key in sorted(keys):
            if (owner := self._locks.holder(key)) is not None:
                return f"is in use by {owner_text(owner)}"
        waiting = waiting_for(machine_folder(), set(keys))
        return f"is free for the {waiting} that wait for it" if waiting else ""

    def close(self) -> None:
        """End all readings, close the instruments and free them."""
        self._ends.set()
        for reader in self.readers:
            reader.wait_for_reading(1)
        self.clock.parallel(*(partial(reader.shut, "") for reader in self.readers))
        self.clock.close()

    def _watch_wishes(self) -> None:
        while not self._ends.wait(_LOOK):
            wanted = [reader for reader in self.readers if reader.is_wanted()]
            self.clock.parallel(*(reader.yield_instruments for reader in wanted))


def _by_address(
    testbed: Testbed, names: Collection[str]
) -> Iterator[tuple[list[str], frozenset[str]]]:
    """Yield the names at each address, in the order of the testbed, and the keys of its lease."""
    known = [*testbed.optical_switches, *testbed.instruments, *testbed.servers]
    left = {name: address_keys(spec_of(testbed, name)) for name in known if name in names}
    while left:
        first = next(iter(left))
        keys = left.pop(first)
        same = [name for name, each in left.items() if not keys.isdisjoint(each)]
        yield [first, *same], keys.union(*(left.pop(name) for name in same))
