"""Contact with each instrument: identity, round trip and error queue."""

import statistics
from collections.abc import Mapping, Sequence

from lightrig.harness.bench import Bench
from lightrig.harness.doctor.findings import Findings
from lightrig.harness.findings import INSTRUMENT, advice_of
from lightrig.instruments.core.capabilities import HasErrorQueue, Identified
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.testbeds import Identity as Expected
from lightrig.testbeds import LightrigError, Testbed

_ASKED = 7
_MOST_SHOWN = 3


def contact(bench: Bench, failures: Mapping[str, LightrigError], findings: Findings) -> None:
    """Check reachability, identity, firmware, round trip and error queues.

    failures: the errors of instruments that did not answer, by name.
    """
    testbed = bench.testbed
    for name, error in failures.items():
        text = str(error).splitlines()[0].removeprefix(f"{name} ")
        findings.wrong(name, "contact", text, advice_of(error) or _advice(name), INSTRUMENT)
    instruments: dict[str, Identified] = {
        **bench.switches,
        **bench.instruments,
        **bench.servers,
    }
    for name, instrument in instruments.items():
        _identify(name, bench, findings)
        _round_trip(name, instrument, bench, findings)
        _weak_facts(name, instrument, testbed, findings)
        if isinstance(instrument, HasErrorQueue):
            _error_queue(name, instrument, findings)


def _advice(name: str) -> str:
    return f"the address and login of {name} in the testbed file"


def _identify(name: str, bench: Bench, findings: Findings) -> None:
    testbed, found = bench.testbed, bench.identities[name]
    findings.ok(name, "identity", str(found))
    spec = testbed.switches.get(name) or testbed.instruments.get(name)
    expected = spec.identity if spec is not None else Expected()
    for what in ("model", "serial", "firmware"):
        wanted, got = getattr(expected, what), getattr(found, what)
        if wanted is not None and wanted != got:
            findings.wrong(
                name,
                what,
                f"{what} is {got!r}, and {testbed.path.name} expects {wanted!r}",
                f"install firmware {wanted}, or change `identity:` in {testbed.path}"
                if what == "firmware"
                else f"check the address of the instrument, or change {testbed.path}",
            )


def _round_trip(name: str, instrument: Identified, bench: Bench, findings: Findings) -> None:
    clock = bench.clock
    took = []
    try:
        for _ in range(_ASKED):
            before = clock.now()
            if name in bench.servers:
                bench.servers[name].clock_offset()  # type: ignore[attr-defined]
            else:
                instrument.identity()
            took.append((clock.now() - before) / 1e6)
    except LightrigError as error:
        text = str(error).splitlines()[0]
        findings.wrong(name, "round trip", text, "see its trace", INSTRUMENT)
        return
    middle, low, high = statistics.median(took), min(took), max(took)
    text = f"{middle:.2f} ms (median of {len(took)}; {low:.2f} ... {high:.2f})"
    findings.ok(name, "round trip", text)


def _weak_facts(name: str, instrument: Identified, testbed: Testbed, findings: Findings) -> None:
    """Note what the driver relies on on this wire and no source, or one alone, confirms."""
    facts: Sequence[WireFact] = getattr(instrument, "wire_facts", ())
    spec = testbed.switches.get(name) or testbed.instruments.get(name)
    scheme = (spec.address or "").partition("://")[0] if spec is not None else ""
    unconfirmed = [f.text for f in facts if f.is_about(scheme) and not f.confirmed]
    if unconfirmed:
        findings.note(
            name,
            "unconfirmed",
            f"no manual or other source confirms what the driver assumes: {'; '.join(unconfirmed)}",
            "compare a trace with the manual of this unit (docs/devices.md)",
        )
    if single := [
        f"{f.text} ({f.source})" for f in facts if f.is_about(scheme) and f.has_one_source
    ]:
        findings.note(
            name,
            "one source",
            f"only one source confirms what the driver assumes: {'; '.join(single)}",
            "a second source, such as a trace of this unit, would show a misreading",
        )


def _error_queue(name: str, instrument: HasErrorQueue, findings: Findings) -> None:
    entries = instrument.read_errors()
    if not entries:
        findings.ok(name, "error queue", "empty")
        return
    shown = "; ".join(entries[:_MOST_SHOWN]) + ("; ..." if len(entries) > _MOST_SHOWN else "")
    findings.wrong(
        name,
        "error queue",
        f"{len(entries)} entries in its error queue: {shown}",
        "it is empty now; find the program that sent unknown commands",
    )
