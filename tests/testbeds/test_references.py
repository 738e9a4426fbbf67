"""References: what holds today, and mistakes found where they stand."""

import datetime
import json
import re
from pathlib import Path

import pytest

from lightrig import testbeds
from lightrig.testbeds import Port, TestbedError
from lightrig.testbeds.references import (
    Calibration,
    References,
    ReferenceSet,
    load_references,
    references_path,
    references_schema,
    references_yaml,
)

HOME = Path(testbeds.__file__).resolve().parent
TODAY = datetime.date(2026, 11, 21)
LATER = datetime.date(2026, 12, 21)
WHOLE = """
references:
  by-meter:
    taken: 2026-11-20
    expires: 2026-12-20
    zeroed: 2026-11-20
    wavelength: 1310 nm
    patch_cord: cord 7
    instruments:
      - {model: N7745A, serial: DE60700123, calibrated_until: 2026-12-01}
    uncertainty: {each: 0.02 dB, common: 0.04 dB, drift: 0.001 dB, linearity: 0.01 dB,
                  polarization: 0.03 dB}
    launches: {ocs.1: -1.25 dBm}
    offsets: {ocs.33: -0.1 dB}
"""


def of(name="one", taken=TODAY, expires=LATER, wavelength=1310.0, **values):
    return ReferenceSet(name, taken, expires, wavelength, ("N7745A, serial 1",), 0.02, **values)


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "mine.references.yaml"
        path.write_text(text)
        return load_references(path)

    return read


def test_the_file_stands_beside_the_testbeds():
    assert references_path(Path("lab/mine.yaml")) == Path("lab/mine.references.yaml")


def test_a_set_with_everything(read):
    (found,) = read(WHOLE).sets
    assert found.launches == {Port("ocs", "1"): -1.25}
    assert found.offsets == {Port("ocs", "33"): -0.1}
    assert found.instruments == ("N7745A, serial DE60700123",)
    assert (found.each_db, found.common_db, found.drift_db) == (0.02, 0.04, 0.001)
    assert (found.linearity_db, found.polarization_db) == (0.01, 0.03)
    assert found.zeroed == datetime.date(2026, 11, 20)


def test_no_set_outlives_the_calibration_of_what_took_it(read):
    assert read(WHOLE).sets[0].expires == datetime.date(2026, 12, 1)


def test_written_references_read_back(read):
    sets = (
        of("older", taken=datetime.date(2026, 11, 1), offsets={Port("meter", "1"): 0.0125}),
        of("newer", launches={Port("laser", "1"): -3.0}, patch_cord="cord 7", drift_db=0.001),
    )
    for references in (References(sets), References(sets, simulated=True)):
        again = read(references_yaml(references))
        assert again.simulated == references.simulated
        assert [each.name for each in again.sets] == ["older", "newer"]
        assert again.sets[0].offsets == sets[0].offsets
        assert again.sets[1].launches == sets[1].launches
        assert again.sets[1].drift_db == sets[1].drift_db
        assert again.sets[1].patch_cord == "cord 7"


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("2026-11-20\n    expires", "20/11/26\n    expires", "4:12", "expected a date"),
        ("taken: 2026-11-20", "taken: 2026-02-30", "4:12", "a day that there is"),
        ("expires: 2026-12-20", "expires: 2026-10-20", "5:14", "a day after `taken`"),
        ("2026-12-01", "2026-11-01", "10:63", "had expired on 2026-11-01, before"),
        ("each: 0.02 dB", "each: 0.02", "11:25", "expected a ratio in dB"),
        ("{ocs.1: -1.25 dBm}", "{ocs: -1.25 dBm}", "13:16", "found 'ocs', expected e.g. ocs.5"),
        ("-0.1 dB", "-0.1 dBm", "14:23", "expected a ratio in dB"),
        ("launches: {ocs.1: -1.25 dBm}", "", "", "expected"),
    ],
)
def test_mistakes_are_found_where_they_stand(read, old, new, place, message):
    text = WHOLE.replace(old, new)
    if not place:
        text = text.replace("offsets: {ocs.33: -0.1 dB}", "")
    with pytest.raises(TestbedError, match=message) as caught:
        read(text)
    assert f":{place}" in str(caught.value)


def test_the_newest_reference_that_holds_is_found():
    port = Port("ocs", "1")
    sets = (of("old", launches={port: -1.0}), of("new", launches={port: -2.0}))
    found = References(sets).find("launch", port, 1312.0, TODAY)
    assert (found.value, found.of.name, found.days) == (-2.0, "new", 0)
    aged = References(sets).find("launch", port, 1310.0, LATER)
    assert aged.days == 30


@pytest.mark.parametrize(
    ("kind", "port", "wavelength", "today", "why"),
    [
        ("launch", "2", 1310.0, TODAY, "nobody has taken a reference of what is launched at ocs.2"),
        ("offset", "1", 1310.0, TODAY, "nobody has taken a reference of what is shown too much"),
        ("launch", "1", 1550.0, TODAY, "was taken at 1310 nm, and the light has 1550 nm"),
        ("launch", "1", 1310.0, LATER + datetime.timedelta(1), "expired on 2026-12-21"),
    ],
)
def test_invalid_reference_has_a_reason(kind, port, wavelength, today, why):
    references = References((of(launches={Port("ocs", "1"): -1.0}),))
    assert why in references.find(kind, Port("ocs", port), wavelength, today)


def test_the_file_in_the_documentation_is_right(read):
    text = (HOME.parent / "docs" / "insertion-loss.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(#.*?)```", text, re.DOTALL)
    (found,) = read(example).sets
    assert found.launches[Port("ocs", "2")] == -0.87
    assert found.offsets[Port("ocs", "34")] == -0.05


def test_the_schema_helps_an_editor():
    assert '"type": "null"' not in json.dumps(references_schema())


def test_certificates_are_read_and_written_again(tmp_path):
    path = tmp_path / "mine.references.yaml"
    path.write_text("""
references:
  by-hand:
    taken: 2026-11-20
    expires: 2026-12-20
    wavelength: 1310 nm
    instruments:
      - {model: N7745A, serial: DE1, certificate: "1-23", laboratory: Lab, as_found: 0.02 dB,
         as_left: -0.01 dB}
      - {model: N-VST, serial: "21877"}
    uncertainty: {each: 0.03 dB}
    launches: {ocs.1: -1.32 dBm}
""")
    (found,) = load_references(path).sets
    stated = Calibration("1-23", "Lab", 0.02, -0.01)
    assert found.calibrations == (stated, Calibration())
    assert str(stated) == "certificate 1-23, of Lab, as found +0.02 dB, as left -0.01 dB"
    assert "not traceable" in str(Calibration())
    path.write_text(references_yaml(References((found,))))
    (again,) = load_references(path).sets
    assert again.calibrations == found.calibrations


def test_checks_and_wavelength_are_read_and_written_again(read):
    text = """
references:
  one:
    taken: 2026-11-20
    expires: 2026-12-20
    wavelength: 1310 nm
    instruments: [{model: N7745A, serial: "1"}]
    uncertainty: {each: 0.03 dB, wavelength: 0.015 dB}
    offsets: {ocs.33: 0.12 dB}
    checks: {ocs 1>33: 1.43 dB, ocs 2>34: 1.28 dB}
"""
    found = read(text)
    assert found.sets[0].checks == {"ocs 1>33": 1.43, "ocs 2>34": 1.28}
    assert found.sets[0].wavelength_db == 0.015
    again = read(references_yaml(found))
    assert again.sets[0].checks == found.sets[0].checks
    assert again.sets[0].wavelength_db == 0.015
    with pytest.raises(TestbedError, match="ocs 1-33"):
        read(text.replace("ocs 1>33", "ocs 1-33"))
