"""Clauses on what a switch reports, accepts and refuses."""

import re
from collections.abc import Callable, Collection

from lightrig.harness.certify.configuration import mark
from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import Outcome, Subject, listed
from lightrig.instruments.core.capabilities import HasPortLabels
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import CANNOT, DeniedError, InstrumentError
from lightrig.testbeds import Circuit

_REPEATS = 5
_REFUSED = 3
_TAGS = (
    "in-use|invalid-value|too-big|missing-attribute|bad-attribute|unknown-attribute|"
    "missing-element|bad-element|unknown-element|unknown-namespace|access-denied|lock-denied|"
    "resource-denied|rollback-failed|data-exists|data-missing|operation-not-supported|"
    "operation-failed|malformed-message"
)
_STATUSES = (
    "INVALID_ARGUMENT|DEADLINE_EXCEEDED|NOT_FOUND|ALREADY_EXISTS|PERMISSION_DENIED|"
    "RESOURCE_EXHAUSTED|FAILED_PRECONDITION|ABORTED|OUT_OF_RANGE|UNIMPLEMENTED|UNAVAILABLE"
)
_CODES = {
    "tl1": "(?!DENY|PRTL)[A-Z]{4}",  # that status is what the driver has where no code came
    "scpi": r"-[1-4]\d\d|[1-9]\d{0,4}",
    "netconf": _TAGS,
    "restconf": rf"4\d\d|5\d\d|{_TAGS}",
    "gnmi": _STATUSES,  # UNKNOWN and INTERNAL are a fault of the server
    "ssh": r"[1-9]\d{0,2}",
}
"""Forms of error codes, by the scheme of an address."""


def identity(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for identity and size several times."""
    spec = subject.fabric.testbed.switches[subject.name]
    described = (spec.ingress_count, spec.egress_count)
    first = subject.fabric.bench.identities[subject.name]
    for _ in range(_REPEATS):
        stated, size = subject.switch.identity(), subject.size
        fields = (stated.manufacturer, stated.model, stated.serial, stated.firmware)
        if not all(fields) or stated != first:
            return Outcome("fail", f"stated {stated}, before {first}")
        if size is not None and size != described:
            return Outcome("fail", f"states {size[0]}x{size[1]} ports, described {described}")
    ports = "ports as described" if subject.size else "it has no query for its ports"
    return Outcome("pass", f"{first}; {ports}", n=_REPEATS)


def port_model(subject: Subject, requirement: Requirement) -> Outcome:
    """Make three settings and compare what is reported."""
    settings = subject.settings()
    for setting in settings:
        subject.apply(setting)
        for made in (subject.switch.circuits(), subject.switch.circuits()):
            ours = subject.ours(made)
            if ours != frozenset(setting):
                return Outcome("fail", f"reports {listed(ours)}, not {listed(setting)}")
            ports = [("in", c.ingress) for c in made] + [("out", c.egress) for c in made]
            if len(ports) != len(set(ports)):
                return Outcome("fail", f"a port is in two circuits of {listed(made)}")
    return Outcome("pass", "reported as asked, no port in two circuits", n=len(settings))


def labels(subject: Subject, requirement: Requirement) -> Outcome:
    """Label each cabled port and compare all labels after each."""
    switch = subject.switch
    if not isinstance(switch, HasPortLabels):
        return Outcome("not tested", "the driver has no labels of ports")
    ports = [*subject.ingress, *subject.egress]

    def stated() -> dict[int, str]:
        """Return the labels; some switches list ports without one, others do not."""
        return {port: label for port, label in switch.labels().items() if label}

    found = stated()
    expected = dict(found)
    try:
        for port in ports:
            expected[port] = mark(port)
            switch.set_label(port, expected[port])
            now = stated()
            for each in sorted({*now, *expected}):
                label, right = now.get(each, ""), expected.get(each, "")
                if label != right:
                    wrong = f"port {each} is labelled {label!r}, not {right!r}"
                    return Outcome("fail", f"with a label for port {port}, {wrong}")
    finally:
        now = stated()
        for port in sorted({*now, *expected}):  # those that were set, listed or not
            if found.get(port) != expected.get(port) or found.get(port) != now.get(port):
                switch.set_label(port, found.get(port, ""))
    if stated() != found:
        return Outcome("fail", "labels that were found cannot be given back")
    return Outcome("pass", "each label is its port's alone", n=len(ports))


def wires(subject: Subject, requirement: Requirement) -> Outcome:
    """Make settings over the testbed's wire and read them back over the others."""
    further = subject.trial.wires
    if not further:
        return Outcome("not tested", "no further wire is named (--wire ADDRESS)")
    serial, size = subject.fabric.bench.identities[subject.name].serial, subject.size
    for address, wire in further.items():
        stated = wire.identity().serial
        if stated != serial:
            return Outcome("fail", f"serial number {stated!r} over {address}, not {serial!r}")
        query: Callable[[], tuple[int, int]] | None = getattr(wire, "size", None)
        ports = size if query is None or size is None else query()
        if ports != size:
            return Outcome("fail", f"{ports} ports over {address}, not {size}")
    settings = subject.settings()
    for setting in settings:
        subject.apply(setting)
        expected = subject.switch.circuits()
        for address, wire in further.items():
            if (made := wire.circuits()) != expected:
                stated = f"{listed(made)} over {address}, not {listed(expected)}"
                return Outcome("fail", f"reports {stated}")
    known = f"{len(further)} further: {', '.join(further)}"
    return Outcome("pass", f"all wires agree, {known}", n=len(settings) * len(further))


def refusals(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for circuits at ports that do not exist, and at one in use."""
    (one, near), (two, far) = subject.pairs_of(2)[:2]
    present, absent = Circuit(one, near), subject.absent()
    for bad in (Circuit(absent, far), Circuit(two, absent)):
        subject.apply([present])
        before = subject.switch.circuits()
        denied = subject.attempt([bad])
        if (
            found := _judge(_at_absent(bad), denied, subject.switch.circuits(), [before])
        ) is not None:
            return found
    subject.apply([present])
    before, wanted = subject.switch.circuits(), Circuit(one, far)
    denied, after = subject.attempt([wanted]), subject.switch.circuits()
    expected = before if denied else before - {present} | {wanted}
    if after != expected:
        answer = f"denied ({denied.code})" if denied else "acknowledged"
        return Outcome("fail", f"{wanted} was {answer}, and leaves {listed(after)}")
    used = f"refused ({denied.code})" if denied else "moved"
    return Outcome("pass", f"ports that do not exist are refused, a port in use is {used}", n=3)


def batch(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for a batch with a bad circuit in its middle."""
    pairs = subject.pairs_of(3)[:5]
    middle = len(pairs) // 2
    valid = [*pairs[:middle], *pairs[middle + 1 :]]
    bad = Circuit(pairs[middle].ingress, subject.absent())
    subject.apply([])
    before = subject.switch.circuits()
    allowed = [before, before | set(valid)] if subject.profile.partial_batches else [before]
    denied = subject.attempt([*pairs[:middle], bad, *pairs[middle + 1 :]])
    after = subject.switch.circuits()
    if (found := _judge(_at_absent(bad), denied, after, allowed)) is not None:
        return found
    left = "unchanged" if after == before else "with all valid circuits made"
    return Outcome("pass", f"refused, the circuits {left}", n=1)


def port_twice(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for batches in which a port is twice."""
    first, second, third = subject.pairs_of(3)[:3]
    refused, parts, unsent = list[str](), list[str](), list[str]()
    for side, bad in (
        ("ingress", Circuit(second.ingress, third.egress)),
        ("egress", Circuit(third.ingress, second.egress)),
    ):
        subject.apply([])
        before = subject.switch.circuits()
        allowed = [before]
        if subject.profile.partial_batches:
            allowed += [before | {first}, before | {first, second}, before | {first, bad}]
        denied = subject.attempt([first, second, bad])
        after = subject.switch.circuits()
        if denied is not None and denied.code == CANNOT and after == before:
            unsent.append(f"the driver sends no {side} port twice: {denied.text}")
            continue
        what = f"{listed([first, second, bad])}, with an {side} port twice,"
        if (found := _judge(what, denied, after, allowed)) is not None:
            return found
        refused.append(side)
        if after != before:
            parts.append(f"with an {side} port twice, {listed(after - before)} made all the same")
    if not refused:
        return Outcome("not tested", "; ".join(unsent))
    sides = " or ".join(refused)
    reason = "; ".join([f"an {sides} port twice in a batch is refused", *parts, *unsent])
    return Outcome("pass", reason, n=len(refused))


def absent_removal(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for the removal of a circuit that does not exist."""
    pairs = subject.pairs_of(3)
    subject.apply(pairs[2:])
    before = subject.switch.circuits()
    denied = subject.attempt([], [pairs[0]])
    if denied is not None and denied.code == CANNOT:
        return Outcome("not tested", f"the driver sends no such request: {denied.text}")
    after = subject.switch.circuits()
    if after != before:
        stated = f"{listed(after)}, not {listed(before)}"
        return Outcome("fail", f"the removal of {pairs[0]}, which was not made, leaves {stated}")
    word = "acknowledged without effect" if denied is None else f"refused ({denied.code})"
    return Outcome("pass", f"the removal of a circuit that was not made is {word}", n=1)


def exchange(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask for two circuits that take each other's egress ports."""
    one, two, third = subject.pairs_of(3)[:3]
    subject.apply([one, two, third])
    before = subject.switch.circuits()
    wanted = [Circuit(one.ingress, two.egress), Circuit(two.ingress, one.egress)]
    denied = subject.attempt([*wanted, third])
    if denied is not None and denied.code == CANNOT:
        return Outcome("not tested", f"the driver sends no such request: {denied.text}")
    after = subject.switch.circuits()
    if after != (before if denied else before - {one, two} | set(wanted)):
        answer = f"denied ({denied.code})" if denied else "acknowledged"
        return Outcome("fail", f"{listed(wanted)} were {answer}, and leave {listed(after)}")
    word = f"refused whole ({denied.code})" if denied else "made whole"
    return Outcome("pass", f"an exchange of two circuits is {word}", n=1)


def error_codes(subject: Subject, requirement: Requirement) -> Outcome:
    """Ask several times for what is refused, and compare the codes."""
    endpoint: Endpoint | None = getattr(subject.switch, "endpoint", None)
    form = _CODES.get(endpoint.scheme) if endpoint else None
    if endpoint is None or form is None:
        return Outcome("not applicable", "errors on this wire have no codes")
    (one, near), (two, far) = subject.pairs_of(2)[:2]
    absent = subject.absent()
    present, codes = Circuit(one, near), dict[str, str]()
    for name, bad in (
        ("ingress above the greatest", Circuit(absent, far)),
        ("egress above the greatest", Circuit(two, absent)),
        ("port in use", Circuit(one, far)),
    ):
        for _ in range(_REFUSED):
            subject.apply([present])
            denied = subject.attempt([bad])
            if denied is None and name == "port in use":
                break
            if denied is None:
                return Outcome("fail", f"{_at_absent(bad)} is acknowledged")
            if denied.code == CANNOT:
                return Outcome("not tested", f"the driver sends no such request: {denied.text}")
            if not re.fullmatch(form, denied.code):
                return Outcome("fail", f"{name}: the code {denied.code!r} is none of the interface")
            if (first := codes.setdefault(name, denied.code)) != denied.code:
                return Outcome("fail", f"{name}: refused with {first}, then with {denied.code}")
    stated = ", ".join(f"{name} {code}" for name, code in codes.items())
    return Outcome("pass", stated, n=_REFUSED * len(codes))


def endurance(subject: Subject, requirement: Requirement) -> Outcome:
    """Make settings in turn for the hours that were stated."""
    if not subject.trial.hours:
        return Outcome("not tested", "no duration is stated (--hours)")
    clock, settings = subject.fabric.bench.clock, subject.settings()
    first = subject.switch.identity(), subject.size
    until, count = clock.now() + round(subject.trial.hours * 3.6e12), 0
    try:
        while clock.now() < until:
            count += 1
            subject.apply(settings[count % len(settings)])
            if count % 100 == 0 and (subject.switch.identity(), subject.size) != first:
                return Outcome("fail", f"after {count} changes it states another identity or size")
    except InstrumentError as error:
        first_line = " ".join(str(error).split())[:200]
        return Outcome("fail", f"change {count}: {first_line}", n=count)
    bound = 1 - 0.05 ** (1 / count)
    reason = f"no change of {count} failed in {subject.trial.hours:g} h; upper bound of the share"
    return Outcome("pass", reason, bound, (0.0, bound), "1", count)


def _at_absent(bad: Circuit) -> str:
    return f"{bad}, whose port does not exist,"


def _judge(
    what: str,
    denied: DeniedError | None,
    after: frozenset[Circuit],
    allowed: Collection[frozenset[Circuit]],
) -> Outcome | None:
    """Return why the request `what` was not refused as it has to be, if so."""
    if denied is None:
        return Outcome("fail", f"{what} is acknowledged")
    if denied.code == CANNOT:
        return Outcome("not tested", f"the driver sends no such request: {denied.text}")
    if after not in allowed:
        return Outcome("fail", f"{what} is denied ({denied.code}), and leaves {listed(after)}")
    return None
