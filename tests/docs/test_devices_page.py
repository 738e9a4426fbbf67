"""docs/devices.md lists the facts that every driver declares about its wire.

Run as a program, it writes the table anew.
"""

from pathlib import Path

from lightrig.instruments.core.models import shipped_drivers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "devices.md"
HEADING = "## All facts\n\n"


def table() -> str:
    lines = ["| device | wire | fact | confirmed by |", "| --- | --- | --- | --- |"]
    for model, entry in sorted(shipped_drivers().items()):
        driver = entry.load()
        for fact in sorted(driver.wire_facts, key=lambda fact: not fact.confirmed):
            wires = ", ".join(scheme for scheme in driver.schemes if fact.is_about(scheme))
            if not wires:  # of a wire that only the switch's own driver speaks
                continue
            text = fact.text.replace("|", "\\|")
            lines.append(f"| {model} | {wires} | {text} | {fact.source or '**unconfirmed**'} |")
    return "\n".join(lines) + "\n"


def test_the_table_lists_every_fact():
    written = PAGE.read_text(encoding="utf-8").partition(HEADING)[2]
    assert written == table(), f"run: python {Path(__file__).relative_to(ROOT)}"


def test_every_driver_declares_what_confirms_it():
    without = [
        model
        for model, entry in shipped_drivers().items()
        if not any(fact.confirmed for fact in entry.load().wire_facts)
    ]
    assert not without, f"no wire_facts with a source: {', '.join(without)}"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8").partition(HEADING)[0]
    PAGE.write_text(text + HEADING + table(), encoding="utf-8")
