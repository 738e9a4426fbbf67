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

CLIENTS = 16
"""Number of further clients that are tried at most."""

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
    """Open further clients until one is refused."""
    opened: list[OpticalSwitch] = []
    refused = ""
    try:
        for number in range(1, CLIENTS + 1):
            client = _open(subject)
            opened.append(client)
            try:
                client.circuits()
            except NoReplyError:
                return Outcome("fail", f"further client {number} is neither served nor refused")
            except InstrumentError as error:
                refused = f"further client {number} is refused: {str(error).splitlines()[0]}"
                break
        try:
            subject.switch.circuits()
        except InstrumentError as error:
            return Outcome("fail", f"the first client is no longer served: {error}")
    finally:
        for client in opened:
            client.close()
    served = len(opened) - bool(refused)
    return Outcome("pass", refused or f"{served} further clients are served", n=len(opened))


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
