"""Clauses on restarts, lost power, configurations and firmware: run where allowed alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lightrig.harness.certify.configuration import SAVED, UNSAVED, is_mark
from lightrig.harness.certify.light_clauses import levels_of
from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import DecidedError, Outcome, Subject, listed
from lightrig.harness.measure.insertion_loss.matrix import lit
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM
from lightrig.harness.measure.slow_watch import LATE_WINDOWS, longest_blind, slow_watch
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import (
    HasPortLabels,
    Resettable,
    Restartable,
    SavesConfiguration,
)
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import Circuit

LONGEST_RESTART = 900_000_000_000
"""Time within which a switch has to answer again, in ns."""

_RETRY = 1_000_000_000
_MINUTE = 60 * _RETRY
_WATCHED = LATE_WINDOWS * _RETRY
"""Time between two readings of light during a restart from which on it may have been away."""


def warm_restart(subject: Subject, requirement: Requirement) -> Outcome:
    """Restart warm with all circuits made; compare circuits, and light where it is seen."""
    restart = _restart(subject, warm=True)
    subject.apply(subject.pairs_of(1))
    before = subject.switch.circuits()
    subject.note(before, before)
    try:
        chain = subject.chain()
    except DecidedError as unseen:
        took, note, slow = restart(None), f"; {unseen.outcome.reason}", ""
    else:
        with lit(chain):
            levels = levels_of(subject, chain)
            by_monitors = chain.method == "monitors"
            clock, dark = subject.fabric.bench.clock, set[int]()
            readings: list[Span] = []

            def watch() -> None:
                began = clock.now()
                seen = levels_of(subject, chain, readings=1)
                readings.append(Span(began, clock.now()))
                dark.update(p for p, dbm in seen.items() if dbm <= DARK_DBM < levels[p])

            took = restart(None if by_monitors else watch)
            watch()
        if dark:
            return Outcome("fail", f"the light of egress ports {sorted(dark)} was gone")
        note = "; light is there afterwards" if by_monitors else "; light at each reading"
        slow = slow_watch(longest_blind(readings), _WATCHED, "light")
    if (after := subject.switch.circuits()) != before:
        return Outcome("fail", f"{listed(after)} after a warm restart, before {listed(before)}")
    if slow:
        return Outcome("inconclusive", slow, n=1)
    reason = f"circuits stay, it answers again within {took:.1f} s{note}"
    return Outcome("pass", reason, took, None, "s", 1)


def cold_restart(subject: Subject, requirement: Requirement) -> Outcome:
    """Save one configuration, change it without saving, restart."""
    switch = subject.switch
    restart = _restart(subject, warm=False)
    if not isinstance(switch, SavesConfiguration):
        return Outcome("not tested", "the driver has no command that saves the configuration")
    pairs = subject.pairs_of(2)
    turned = [*pairs[1:], pairs[0]]
    unsaved = [Circuit(a.ingress, b.egress) for a, b in zip(pairs, turned, strict=True)]
    labelled = subject.egress[0]

    def labelled_now() -> str:
        return switch.labels().get(labelled, "") if isinstance(switch, HasPortLabels) else ""

    before = "" if is_mark(labelled, labelled_now()) else labelled_now()

    def label(text: str) -> None:
        if isinstance(switch, HasPortLabels):
            switch.set_label(labelled, text)

    def state() -> tuple[frozenset[Circuit], str]:
        return switch.circuits(), labelled_now()

    try:
        subject.apply(pairs)
        label(SAVED)
        saved = state()
        switch.save_configuration()
        subject.apply(unsaved)
        label(UNSAVED)
        changed = state()
        subject.note(unsaved, pairs)
        took = restart(None)
        found = state()
    finally:
        # What is stored must not be this clause's, whatever has happened.
        subject.fabric.restore()
        label(before)
        switch.save_configuration()
    if found not in (saved, changed):
        stated = f"{listed(found[0])}, label {found[1]!r}; saved were {listed(saved[0])}"
        return Outcome("fail", f"after a cold restart: {stated}, label {saved[1]!r}")
    which = "what was saved is back" if found == saved else "it saves by itself: all is back"
    return Outcome("pass", f"{which}, it answers within {took:.1f} s", took, None, "s", 1)


def reset(subject: Subject, requirement: Requirement) -> Outcome:
    """Reset with all circuits made."""
    switch = subject.switch
    if not isinstance(switch, Resettable):
        return Outcome("not tested", "the driver has no command that resets the configuration")
    subject.apply(subject.pairs_of(1))
    subject.note(subject.pairs, [])
    switch.reset_configuration()
    if left := switch.circuits():
        return Outcome("fail", f"a reset leaves {listed(left)}")
    return Outcome("pass", f"no circuit is left of {len(subject.pairs)}", n=1)


def power_loss(subject: Subject, requirement: Requirement) -> Outcome:
    """Have the power cut while circuits are changed, and compare what is there afterwards."""
    switch, clock, ask = subject.switch, subject.fabric.bench.clock, subject.trial.ask
    if ask is None:
        return Outcome("not tested", "needs an operator who cuts the power (--operator)")
    stored, *moving = subject.settings()
    if len(moving) < 2:
        return Outcome("not applicable", "fewer than three settings of the cabled ports")
    subject.apply(stored)
    allowed = {"none": frozenset[Circuit]()}
    if isinstance(switch, SavesConfiguration):
        switch.save_configuration()
        allowed["those that were saved"] = frozenset(stored)
    subject.apply(moving[0])
    everything = frozenset({*stored, *moving[0], *moving[1]})
    with _put_back(subject):
        ask(f"Within a minute from now, cut the power of {subject.name} and restore it.")
        began, lost = clock.now(), False
        while not lost and clock.now() < began + _MINUTE:
            before, wanted = moving
            subject.fabric.note_change(subject.name, frozenset(before), everything)
            try:
                switch.change(before, wanted).done()
            except InstrumentError:
                lost = True
            else:
                moving = [wanted, before]
        if not lost:
            return Outcome("not tested", "no change failed within a minute: no power was lost")
        allowed["those from before"] = frozenset(before)
        allowed["those of the change"] = frozenset(wanted)
        took = _await_answer(subject, clock.now())
        found = subject.ours(switch.circuits())
        clock.sleep(_RETRY)
        again = subject.ours(switch.circuits())
    if again != found:
        return Outcome("fail", f"it reports {listed(found)}, and then {listed(again)}")
    which = next((name for name, circuits in allowed.items() if circuits == found), None)
    if which is None and subject.profile.partial_batches:
        parts = (name for name, circuits in allowed.items() if found < circuits)
        which = next((f"a part of {name}" for name in parts), None)
    if which is None:
        return Outcome("fail", f"{listed(found)}, none of the circuits that are allowed")
    return Outcome("pass", f"circuits are {which}, it answers within {took:.1f} s", n=1)


def upgrade(subject: Subject, requirement: Requirement) -> Outcome:
    """Have another firmware installed, and the one from before again."""
    switch, clock, ask = subject.switch, subject.fabric.bench.clock, subject.trial.ask
    if ask is None:
        return Outcome("not tested", "needs an operator who installs firmware (--operator)")
    subject.apply(subject.pairs_of(1))
    before, first = switch.circuits(), switch.identity()
    subject.note(before, before)
    stated = [first.firmware]
    with _put_back(subject):
        if isinstance(switch, SavesConfiguration):
            switch.save_configuration()
        lit_before = _lit_ports(subject)
        for step in ("another firmware", f"the firmware {first.firmware} again"):
            ask(f"Install {step} on {subject.name}, and go on once it has begun to restart.")
            switch.close()
            _await_answer(subject, clock.now())
            stated.append(switch.identity().firmware)
            if (after := switch.circuits()) != before:
                return Outcome("fail", f"{stated[-1]}: {listed(after)}, before {listed(before)}")
            if dark := sorted(lit_before - _lit_ports(subject)):
                return Outcome("fail", f"{stated[-1]}: egress ports {dark} stay dark")
    if stated[1] == stated[0] or stated[2] != stated[0]:
        return Outcome("fail", f"it states the firmwares {', '.join(stated)}")
    seen = f"light of {len(lit_before)} circuits stays" if lit_before else "light is not seen"
    return Outcome("pass", f"{' to '.join(stated)}: circuits stay, {seen}", n=2)


@contextmanager
def _put_back(subject: Subject) -> Iterator[None]:
    """Restore the switch afterwards, and save that where it saves: no clause's state is stored."""
    try:
        yield
    finally:
        subject.fabric.restore()
        if isinstance(subject.switch, SavesConfiguration):
            subject.switch.save_configuration()


def _lit_ports(subject: Subject) -> frozenset[int]:
    """Return the egress ports with light; none where it is not seen."""
    try:
        chain = subject.chain()
    except DecidedError:
        return frozenset()
    with lit(chain):
        return frozenset(p for p, dbm in levels_of(subject, chain).items() if dbm > DARK_DBM)


def _restart(subject: Subject, *, warm: bool) -> Callable[[Callable[[], None] | None], float]:
    """Return what restarts the switch and waits until it answers again, in s.

    It calls what it is given meanwhile, once a second, however long the switch lets a question
    wait. Raises `DecidedError` where neither
    the driver nor an operator restarts it.
    """
    switch, clock = subject.switch, subject.fabric.bench.clock
    kind = "warm" if warm else "cold"
    ask = subject.trial.ask
    if not isinstance(switch, Restartable) and ask is None:
        reason = f"the driver has no {kind} restart, and there is no operator (--operator)"
        raise DecidedError(Outcome("not tested", reason))

    def restart(watch: Callable[[], None] | None) -> float:
        began = clock.now()
        if isinstance(switch, Restartable):
            switch.restart(warm=warm)
        else:
            assert ask is not None
            ask(f"Restart {subject.name} ({kind}), and go on once it has begun to.")
            switch.close()
        return _await_answer(subject, began, watch)

    return restart


def _await_answer(subject: Subject, began: int, watch: Callable[[], None] | None = None) -> float:
    """Wait until the switch answers, and return how long after `began` (ns) that was, in s."""
    clock = subject.fabric.bench.clock
    if watch is None:
        return _answered_again(subject, began)
    over = clock.event()

    def look() -> float:
        watch()
        while not over.wait(_RETRY):
            watch()
        return 0.0

    def ask() -> float:
        try:
            return _answered_again(subject, began)
        finally:
            over.set()

    return max(clock.parallel(ask, look))


def _answered_again(subject: Subject, began: int) -> float:
    clock = subject.fabric.bench.clock
    while True:
        try:
            subject.switch.identity()
        except InstrumentError as error:
            if clock.now() - began > LONGEST_RESTART:
                stated = f"no answer {LONGEST_RESTART / 1e9:.0f} s after a restart: {error}"
                raise DecidedError(Outcome("fail", stated)) from error
        else:
            return (clock.now() - began) / 1e9
        clock.sleep(_RETRY)
