"""Quantities that a conftest declares are known to a later reader, who lacks the conftest."""

import json

import pytest

from lightrig.harness.quantities import registry
from lightrig.harness.quantities.quantity import Quantity
from lightrig.harness.quantities.registry import declare, find, quantity, quantity_of
from lightrig.harness.record import RecordError, Results, load_quantities, store_quantities
from lightrig.harness.record.run_folder import QUANTITIES
from lightrig.testbeds.baselines import Guard, Rule

ISOLATION = Quantity(
    name="isolation",
    unit="dB",
    meaning="optical power at a dark egress",
    better="higher",
    title="isolation of ports",
    section="Isolation",
    baseline=Rule(minimum=5, guard=Guard(None, 30.0, "dB")),
    aliases=("separation",),
)


@pytest.fixture
def new_process(monkeypatch):
    """Return a function that forgets what was declared, as another process would."""

    def new_process():
        monkeypatch.setattr(registry, "REGISTRY", registry.Registry())

    new_process()
    return new_process


def stored(folder, *quantities):
    folder.mkdir(parents=True, exist_ok=True)
    declare(*quantities)
    store_quantities(folder)
    return folder


def test_a_reader_without_the_conftest_knows_the_declaration(tmp_path, new_process):
    stored(tmp_path, ISOLATION)
    new_process()
    assert quantity_of("isolation", "dB").reduction() == "max"
    load_quantities(tmp_path)
    assert quantity("isolation") == quantity("separation") == ISOLATION
    assert quantity_of("isolation", "dB").reduction() == "min"


def test_a_declaration_that_an_earlier_version_kept_with_a_test_is_read(tmp_path, new_process):
    stored(tmp_path, ISOLATION)
    file = tmp_path / "quantities.json"
    text = file.read_text()
    assert '"test": null' in text
    file.write_text(text.replace('"test": null', '"test": "interval"'))
    new_process()
    load_quantities(tmp_path)
    assert quantity("isolation") == ISOLATION


def test_a_run_without_declarations_stores_nothing(tmp_path, new_process):
    store_quantities(tmp_path)
    assert list(tmp_path.iterdir()) == []
    load_quantities(tmp_path)


def test_the_declaration_of_this_process_takes_precedence(tmp_path, new_process):
    stored(tmp_path, ISOLATION)
    new_process()
    renamed = Quantity(name="isolation", unit="dB", meaning="other", combine="none")
    declare(renamed)
    load_quantities(tmp_path)
    assert quantity("isolation") == renamed
    assert find("separation") is None


def test_a_conftest_that_is_loaded_later_replaces_the_stored_declaration(tmp_path, new_process):
    stored(tmp_path, ISOLATION)
    new_process()
    load_quantities(tmp_path)
    renamed = Quantity(name="isolation", unit="dB", meaning="other", combine="none")
    declare(renamed)
    assert quantity("isolation") == renamed
    assert find("separation") is None


def test_of_several_runs_the_latest_declaration_is_taken(tmp_path, new_process):
    for run, meaning in (("20260301-a", "old"), ("20260302-b", "new")):
        one = Quantity(name="haze", unit="1", meaning=meaning, better="lower")
        stored(tmp_path / "runs" / run, one)
        new_process()
    Results(tmp_path).declare_quantities()
    assert quantity("haze").meaning == "new"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("[", "is damaged"),
        ('{"schema": 1, "quantities": [{"name": "x"}]}', "is damaged"),
        ('{"schema": 2}', "found schema 2, expected 1"),
    ],
)
def test_declarations_that_cannot_be_read_are_named(tmp_path, new_process, document, message):
    (tmp_path / QUANTITIES).write_text(document)
    with pytest.raises(RecordError, match=rf"quantities\.json.*{message}"):
        load_quantities(tmp_path)


def test_stored_declarations_are_readable_json(tmp_path, new_process):
    stored(tmp_path, ISOLATION)
    (one,) = json.loads((tmp_path / QUANTITIES).read_text())["quantities"]
    assert (one["name"], one["unit"], one["section"]) == ("isolation", "dB", "Isolation")
