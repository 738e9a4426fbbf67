"""Clauses on the clients of a switch: lost connections, several, their limit, subscribers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import (
    DecidedError,
    Outcome,
    Subject,
    Verdict,
    listed,
)
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import (
    CircuitNotifications,
    NotifiesCircuits,
    OpticalSwitch,
)
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import InstrumentError, NoReplyError
from lightrig.instruments.core.registry import Driver
from lightrig.testbeds import Circuit

CLIENTS, IN_TURN = 50, 200
"""Numbers of further clients that are tried at most, beside each other and one after the other."""

_LASTING = ("tl1", "scpi", "netconf")
"""Schemes of wires on which a client keeps its session."""

_MS = 1_000_000
_CLOSED_AFTER_MS = (0, 5, 10, 20, 50)
_SECOND, _BETWEEN = 1_000 * _MS, 200 * _MS
_LATEST = 5 * _SECOND


def lost_connection(subject: Subject, requirement: Requirement) -> Outcome:
    """Close the connection in the middle of changes, at several moments."""
    wanted = subject.pairs_of(2)
    states: list[str] = []
    for after_ms in _CLOSED_AFTER_MS:
        # From none: on a switch that refuses ports in use a change of circuits is two commands.
        subject.apply([])
        present = subject.note([], wanted)
        made = present | frozenset(wanted)
        subject.switch.change([], wanted)
        subject.sleep(after_ms * _MS)
        subject.switch.close()
        subject.sleep(_SECOND)
        found = subject.switch.circuits()
        subject.sleep(_BETWEEN)
        again = subject.switch.circuits()
        if again != found:
            stated = f"{listed(found)}, and then {listed(again)}"
            return Outcome("fail", f"after a lost connection it reports {stated}")
        partial = subject.profile.partial_batches and present <= found <= made
        if found not in (present, made) and not partial:
            stated = f"{listed(found)}, neither those before nor those wanted"
            return Outcome("fail", f"a connection lost after {after_ms} ms leaves {stated}")
        states_by_circuits = {present: "unchanged", made: "changed"}
        states.append(f"{after_ms} ms {states_by_circuits.get(found, 'changed in part')}")
    return Outcome("pass", "lost after " + ", ".join(states), n=len(states))


def two_clients(subject: Subject, requirement: Requirement) -> Outcome:
    """Let two clients make settings in turn, each read by the other."""
    settings = subject.settings()
    first = subject.switch
    for index, setting in enumerate(settings):
        subject.apply(setting)
        before = first.circuits()
        with _further(subject) as second:
            for client, name in ((second, "second"), (first, "first")):
                try:
                    found = client.circuits()
                except InstrumentError as error:
                    return Outcome("fail", f"the {name} of two clients is not served: {error}")
                if found != before:
                    stated = f"{listed(found)}, not {listed(before)}"
                    return Outcome("fail", f"the {name} client is told of {stated}")
            wanted = settings[(index + 1) % len(settings)]
            denied = subject.attempt(wanted, setting, by=second)
            if denied is not None:
                return Outcome("fail", f"the second client is denied a change: {denied.text}")
            expected = (before - frozenset(setting)) | frozenset(wanted)
            for client, name in ((second, "second"), (first, "first")):
                if (found := client.circuits()) != expected:
                    stated = f"{listed(found)}, not {listed(expected)}"
                    return Outcome("fail", f"after the second's change the {name} sees {stated}")
    return Outcome("pass", "each client sees what the other has made", n=len(settings))


def many_clients(subject: Subject, requirement: Requirement) -> Outcome:
    """Open clients beside each other until one is refused, then others one after the other."""
    opened: list[OpticalSwitch] = []
    limit = ""
    try:
        for number in range(1, CLIENTS + 1):
            client = _open(subject)
            opened.append(client)
            try:
                client.circuits()
            except NoReplyError:
                return Outcome("fail", f"further client {number} is neither served nor refused")
            except InstrumentError as error:
                limit = f"; further client {number} is refused: {_first_line(error)}"
                break
        served = opened[:-1] if limit else opened
        known = [("the first client", subject.switch)]
        known += [(f"further client {number}", each) for number, each in enumerate(served, 1)]
        for name, client in known:
            if why := _not_served(client, had_session=True):
                beside = f"beside {len(opened)} further ones"
                return Outcome("fail", f"{name} is no longer served {beside}: {why}")
    finally:
        for client in opened:
            client.close()
    subject.sleep(_SECOND)
    for number in range(1, IN_TURN + 1):
        if why := _refused_in_turn(subject):
            closed = f"{len(opened)} beside each other and {number - 1} one after the other"
            stated = f"client {number} of those one after the other is not served: {why}"
            return Outcome("fail", f"{stated}; sessions leak: {closed} were closed before")
    if why := _not_served(subject.switch, had_session=True):
        return Outcome("fail", f"the first client is no longer served after {IN_TURN}: {why}")
    stated = f"{len(served)} further clients are served at once, {IN_TURN} one after the other"
    return Outcome("pass", stated + limit, n=len(opened) + IN_TURN)


def _refused_in_turn(subject: Subject) -> str:
    """Open a client, ask it and close it; return why it is not served, even a while later."""
    for pause in (_LATEST, 0):
        with _further(subject) as client:
            if not (why := _not_served(client)):
                return ""
        subject.sleep(pause)  # the switch may be late to free sessions
    return why


def _not_served(client: OpticalSwitch, *, had_session: bool = False) -> str:
    """Return why a client is not answered, or not in the session that it had; else nothing."""
    before = _openings(client)
    try:
        client.circuits()
    except InstrumentError as error:
        return _first_line(error)
    ended = had_session and _openings(client) > before  # the driver has opened another one
    return "its session was ended without a word" if ended else ""


def _openings(client: OpticalSwitch) -> int:
    """Return how many sessions were opened of late; none where a wire may close idle ones."""
    endpoint: Endpoint | None = getattr(client, "endpoint", None)
    if endpoint is None or endpoint.scheme not in _LASTING:
        return 0
    return sum("connected to " in line for line in client.wire())


def _first_line(error: InstrumentError) -> str:
    return str(error).splitlines()[0]


def notifications(subject: Subject, requirement: Requirement) -> Outcome:
    """Change circuits as a second client, and compare notifications with queries."""
    switch, clock = subject.switch, subject.fabric.bench.clock
    if not isinstance(switch, NotifiesCircuits):
        return Outcome("not tested", "the driver has no notifications over this wire")
    settings = subject.settings()
    delays: list[tuple[float, float]] = []
    for index, setting in enumerate(settings):
        subject.apply(setting)
        wanted = settings[(index + 1) % len(settings)]
        remove, add = frozenset(setting) - set(wanted), frozenset(wanted) - set(setting)
        expected = subject.note(remove, add) - remove | add
        following = switch.follow_circuits()
        try:
            with _further(subject) as second:
                change = second.change(remove, add)
                seen = [(clock.now(), clock.now(), switch.circuits())]
                while seen[-1][2] != expected and clock.now() < seen[0][0] + _LATEST:
                    asked = clock.now()
                    seen.append((asked, clock.now(), switch.circuits()))
                change.done()
            arrived, notified = _until(following, expected, clock.now() + _LATEST, clock)
        finally:
            following.close()
        if (found := switch.circuits()) != expected:
            return Outcome("fail", f"a query shows {listed(found)}, not {listed(expected)}")
        if arrived is None:
            missing = f"{listed(notified)} {_LATEST / 1e9:g} s later, not {listed(expected)}"
            return Outcome("fail", f"by notifications there is {missing}")
        last, before = seen[-1], seen[-2] if len(seen) > 1 else seen[-1]
        low, high = arrived.earliest - last[1], arrived.latest - before[0]
        delays.append((low / 1e6, high / 1e6))
    worst = max(delays, key=lambda each: each[1])
    reason = "delay after the first query that shows the change"
    verdict = "fail" if worst[0] > _LATEST / 1e6 else "pass"
    return Outcome(cast(Verdict, verdict), reason, sum(worst) / 2, worst, "ms", len(delays))


def _until(
    following: CircuitNotifications, expected: frozenset[Circuit], latest: int, clock: Clock
) -> tuple[Span | None, frozenset[Circuit]]:
    """Return when notifications came to `expected` and stayed so, and what they came to at last."""
    arrived: Span | None = None
    notified: frozenset[Circuit] = frozenset()
    while True:
        try:
            at, notified = following.next(max(latest - clock.now(), 0))
        except NoReplyError:
            return arrived, notified
        if notified != expected:
            arrived = None
        elif arrived is None:
            arrived = at
        # What else comes at once: states of the same circuits, or one that contradicts them.
        latest = min(latest, clock.now() + _SECOND) if arrived is not None else latest


@contextmanager
def _further(subject: Subject) -> Iterator[OpticalSwitch]:
    client = _open(subject)
    try:
        yield client
    finally:
        client.close()


def _open(subject: Subject) -> OpticalSwitch:
    """Return another client of the switch; raises `DecidedError` where there can be none."""
    endpoint: Endpoint | None = getattr(subject.switch, "endpoint", None)
    if endpoint is None:
        raise DecidedError(Outcome("not tested", "the driver does not say how it is connected"))
    if endpoint.scheme in ("serial", "visa"):
        raise DecidedError(Outcome("not applicable", f"{endpoint.scheme} has one client"))
    spec = subject.fabric.testbed.switches[subject.name]
    driver = cast(type[Driver], type(subject.switch))
    return cast(OpticalSwitch, driver.open(spec, endpoint, subject.fabric.bench.clock))
