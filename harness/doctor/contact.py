"""Who answers, who it is, and what it has to complain about."""

import statistics

from harness.doctor.findings import Findings
from harness.doctor.opening import Ward
from instruments.capabilities import Identified, Troubled
from testbeds import LightrigError, Testbed
from testbeds.model import Identity as Expected

_ASKED = 7
_MOST_SHOWN = 3


def contact(ward: Ward, findings: Findings) -> None:
    """Reachability, identity, firmware, round trip and error queues."""
    testbed = ward.bench.testbed
    for name, error in ward.failures.items():
        first, *rest = str(error).splitlines()
        fix = next((line.split(maxsplit=1)[1] for line in rest if _is_advice(line)), "")
        findings.wrong(name, "contact", first.removeprefix(f"{name} "), fix or _advice(name))
    instruments: dict[str, Identified] = {
        **ward.bench.switches,
        **ward.bench.instruments,
        **ward.bench.servers,
    }
    for name, instrument in instruments.items():
        _identify(name, ward, testbed, findings)
        _round_trip(name, instrument, ward, findings)
        if isinstance(instrument, Troubled):
            _troubles(name, instrument, findings)


def _is_advice(line: str) -> bool:
    return line.strip().startswith("try ")


def _advice(name: str) -> str:
    return f"the address and login of {name} in the testbed file"


def _identify(name: str, ward: Ward, testbed: Testbed, findings: Findings) -> None:
    found = ward.bench.identities[name]
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
                else f"is it the right instrument at that address? else change {testbed.path}",
            )


def _round_trip(name: str, instrument: Identified, ward: Ward, findings: Findings) -> None:
    clock = ward.bench.clock
    took = []
    try:
        for _ in range(_ASKED):
            before = clock.now()
            if name in ward.bench.servers:
                ward.bench.servers[name].clock_offset()  # type: ignore[attr-defined]
            else:
                instrument.identity()
            took.append((clock.now() - before) / 1e6)
    except LightrigError as error:
        findings.wrong(name, "round trip", str(error).splitlines()[0], "see its trace")
        return
    middle, low, high = statistics.median(took), min(took), max(took)
    text = f"{middle:.2f} ms (median of {len(took)}; {low:.2f} ... {high:.2f})"
    findings.ok(name, "round trip", text)


def _troubles(name: str, instrument: Troubled, findings: Findings) -> None:
    entries = instrument.troubles()
    if not entries:
        findings.ok(name, "error queue", "empty")
        return
    shown = "; ".join(entries[:_MOST_SHOWN]) + ("; ..." if len(entries) > _MOST_SHOWN else "")
    findings.wrong(
        name,
        "error queue",
        f"{len(entries)} entries stood in its error queue: {shown}",
        "it is empty now; find out who sent what it did not understand",
    )
