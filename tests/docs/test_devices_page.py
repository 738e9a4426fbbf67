"""Every driver declares facts about its wire, which the site lists."""

from lightrig.instruments.core.models import shipped_drivers


def test_every_driver_declares_what_confirms_it():
    without = [
        model
        for model, entry in shipped_drivers().items()
        if not any(fact.confirmed for fact in entry.load().wire_facts)
    ]
    assert not without, f"no wire_facts with a source: {', '.join(without)}"
