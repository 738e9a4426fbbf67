"""Every setting that a driver makes is read back, or its driver says why it need not be."""

import contextlib
import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from driver_cases import Case, Rig, cases

from lightrig.instruments.core.errors import InstrumentError, NotDoneError
from lightrig.instruments.core.models import shipped_drivers
from lightrig.instruments.core.scpi_instrument import ScpiInstrument, Setting
from lightrig.instruments.switches.polatis import Polatis

MS = 1_000_000
ACTIONS = (
    ":SENS*:FUNC:STAT LOGG,*",
    ":WAV:SOUR CHAN*",
    ":PLUG:ERAT:NEW *",
    ":PLUG:ERAT:RES *",
    ":PLUG:ERAT:STAR *",
    ":PLUG:ERAT:STOP *",
    ":INP:ALIG:EYE:AUTO *",
)
"""Commands with arguments that set nothing: they begin or end something, or choose what is read."""

TRIED: dict[str, Callable[[Any], list[Callable[[], Any]]]] = {
    "power_meter": lambda driver: [
        lambda: driver.prepare([1], wavelength_nm=1550, averaging=100 * MS),
        lambda: driver.power([1]),
        *(
            [lambda: driver.log(1, samples=10, period=MS).result()]
            if hasattr(driver, "log")
            else ()
        ),
    ],
    "light_source": lambda driver: [
        lambda: driver.set_wavelength(1, 1550.12),
        lambda: driver.set_power(1, -1.5),
        lambda: driver.set_emission(1, on=True),
    ],
    "attenuator": lambda driver: [
        lambda: driver.set_attenuation(1, 3.0),
        lambda: driver.set_shutter(1, is_open=False),
        lambda: driver.set_shutter(1, is_open=True),
    ],
    "bit_error_tester": lambda driver: [
        lambda: driver.prepare(1, pattern="PRBS15", bits_per_second=10e9),
        lambda: driver.align(1),
        lambda: driver.count(1, duration=1_000 * MS).result(),
    ],
    "oscilloscope": lambda driver: [lambda: driver.log(1, samples=100, period=MS).result()],
    "climate_chamber": lambda driver: [lambda: driver.set_temperature(30)],
    "polarization_controller": lambda driver: [
        lambda: driver.set_polarization(1, (0.6, 0.0, 0.8)),
    ],
}
"""What sets something, by kind of instrument."""

CASES = [
    next(case for case in cases() if case.model == model)
    for model in sorted({case.model for case in cases() if case.kind in TRIED})
]


@contextlib.contextmanager
def opened(case: Case, folder: Any) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        rig = Rig(case, folder, patch)
        try:
            yield rig.driver
        finally:
            rig.bench.close()


def neither(
    sent: list[str], unverified: Mapping[str, str], reasoned: frozenset[str] = frozenset()
) -> list[str]:
    """Return the commands of `sent` that set something, and are neither read back nor declared.

    reasoned: commands, without their values, of declared settings with a reason.
    """
    found = []
    for place, command in enumerate(sent):
        node, _, argument = command.rpartition(" ")
        if " " not in command.rpartition(";")[2] or "?" in command:
            continue
        patterns = [*unverified, *ACTIONS]
        if any(fnmatch.fnmatchcase(command, pattern) for pattern in patterns) or node in reasoned:
            continue
        selector = argument.rpartition(",")[0]
        read = {f"{node}?", f"{node}? {selector}"}
        if read.isdisjoint(sent[place + 1 :]):
            found.append(command)
    return found


def commands_of(driver: Any) -> list[str]:
    """Return a list that every text which the driver sends from now on is added to."""
    sent: list[str] = []
    if isinstance(driver, ScpiInstrument):
        for name in ("write", "write_unchecked", "query"):
            sending = getattr(driver, name)

            def noted(command: str, *rest: Any, sending: Any = sending) -> Any:
                sent.append(command)
                return sending(command, *rest)

            setattr(driver, name, noted)
    return sent


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
def test_every_setting_is_read_back_or_says_why_not(case: Case, tmp_path: Any) -> None:
    with opened(case, tmp_path) as driver:
        sent = commands_of(driver)
        for act in TRIED[case.kind](driver):
            with contextlib.suppress(InstrumentError):  # no light is at a receiver
                act()
        declared = driver.settings() if hasattr(driver, "settings") else []
        reasoned = frozenset(one.node(1).strip() for one in declared if not one.setting.verified)
        assert neither(sent, driver.unverified, reasoned) == []
        if isinstance(driver, ScpiInstrument):
            assert sent
            unused = [pattern for pattern in driver.unverified if not fnmatch.filter(sent, pattern)]
            assert unused == []


@pytest.mark.parametrize("model", sorted(shipped_drivers()))
def test_what_is_not_read_back_has_a_reason(model: str) -> None:
    driver = shipped_drivers()[model].load()
    for name in dir(driver):
        if isinstance(member := getattr(driver, name), Setting):
            assert member.verified or len(member.reason.split()) > 5, name
    assert all(len(reason.split()) > 5 for reason in driver.unverified.values())


def test_a_setting_in_neither_is_found() -> None:
    sent = [":A 1", ":B 'x',2", ":B? 'x'", ":C 3", ":C?", ":D1:E 5", ":GO", ":F 1", ":F? MAX"]
    assert neither(sent, {":D*:E *": "why"}) == [":A 1", ":F 1"]
    assert neither([":A?", ":A 1"], {}) == [":A 1"]
    assert neither([":A 1"], {}, frozenset({":A"})) == []


def test_a_tester_without_queries_says_so_of_all_that_it_sets(tmp_path: Any) -> None:
    (case,) = (one for one in CASES if one.model == "eye-bert")
    with opened(case, tmp_path) as driver:
        sent: list[str] = []
        driver.session.write = lambda data: sent.append(data.decode().strip())
        driver.prepare(1, pattern="PRBS15", bits_per_second=10e9)
        assert [one.partition(" ")[0] for one in sent] == ["setrate", "setpat", "tx"]
        assert neither(sent, driver.unverified) == []
        assert neither(sent, {}) == sent


def test_a_chamber_that_does_nothing_is_an_error(tmp_path: Any) -> None:
    (case,) = (one for one in CASES if one.model == "weiss-simserv")
    with opened(case, tmp_path) as driver:
        command = driver.command
        for ignored, says in ((11001, r"its set point is"), (14001, r"does not run")):
            driver.command = lambda number, *rest, ignored=ignored: (
                "" if number == ignored else command(number, *rest)
            )
            with pytest.raises(NotDoneError, match=says):
                driver.set_temperature(41)
        driver.command = lambda number, *rest: "" if number == 11001 else command(number, *rest)
        with pytest.raises(NotDoneError, match="set point"):
            driver.restore_settings({"temperature 1": 52.0})


@pytest.mark.parametrize("what", ["attenuation", "shutter"])
def test_an_attenuator_of_a_switch_that_does_nothing_is_an_error(
    what: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(one for one in CASES if one.model == "polatis-voa")
    name = {"attenuation": "set_attenuation", "shutter": "set_shutters"}[what]
    with opened(case, tmp_path) as driver:
        monkeypatch.setattr(Polatis, name, lambda *_, **__: None)
        is_open = not driver.read_settings([1])["shutter 1"]
        act = {
            "attenuation": lambda: driver.set_attenuation(1, 3.0),
            "shutter": lambda: driver.set_shutter(1, is_open=is_open),
        }[what]
        with pytest.raises(NotDoneError, match=r"accepted .* reports"):
            act()
