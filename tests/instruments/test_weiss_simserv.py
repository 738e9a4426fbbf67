"""A climate chamber: its driver against the simulated device and against scripted replies."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from instrument_rig import MS, Rig

from lightrig.instruments.climate_chambers.weiss_simserv import WeissSimserv
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import (
    CANNOT,
    DeniedError,
    DisconnectedError,
    GarbledError,
    NotDoneError,
)
from lightrig.instruments.simulated.devices.simulated_weiss_simserv import SimulatedWeissSimserv

MINUTE = 60_000 * MS


@pytest.fixture
def chamber(in_virtual_time) -> Rig:
    return in_virtual_time(SimulatedWeissSimserv, kind="climate_chamber", name="oven", channels=1)


def opened(rig: Rig) -> WeissSimserv:
    made = WeissSimserv(rig.name, Endpoint("simserv", rig.host, rig.port), rig.clock)
    rig.closers.append(made.close)
    return made


def test_identity(chamber):
    identity = opened(chamber).identity()
    assert (identity.model, identity.serial) == ("LabEvent T/210/70/5", "SIM-oven")
    assert identity.simulated


def test_it_goes_to_a_temperature_and_keeps_it(chamber):
    driver = opened(chamber)
    assert driver.temperature() == pytest.approx(22.0, abs=0.5)
    before = chamber.clock.now()
    driver.set_temperature(52.0)
    assert chamber.clock.now() - before < 100 * MS
    chamber.clock.sleep(5 * MINUTE)
    assert driver.temperature() == pytest.approx(37.0, abs=0.5)
    chamber.clock.sleep(20 * MINUTE)
    assert driver.temperature() == pytest.approx(52.0, abs=0.5)
    driver.set_temperature(-10.0)
    chamber.clock.sleep(30 * MINUTE)
    assert driver.temperature() == pytest.approx(-10.0, abs=0.5)


@pytest.mark.parametrize("celsius", [-41.0, 181.0, 1000.0])
def test_outside_its_limits_it_is_not_sent(chamber, celsius):
    driver = opened(chamber)
    with pytest.raises(DeniedError, match=r"outside its limits, -40 to 180 °C") as denied:
        driver.set_temperature(celsius)
    assert denied.value.code == CANNOT
    assert not any("11001" in line for line in driver.wire())


def test_a_refusal_is_raised_with_its_meaning(chamber):
    driver = opened(chamber)
    for question, code, meaning in (
        ((12345,), "-5", "does not know the command"),
        ((11004, 7), "-8", "no such control variable"),
        ((11001, 1, "warm"), "-6", "missing or wrong"),
    ):
        with pytest.raises(DeniedError, match=meaning) as denied:
            driver.command(*question)
        assert denied.value.code == code


def test_typed_by_hand(in_real_time):
    rig = in_real_time(SimulatedWeissSimserv, kind="climate_chamber", name="oven", channels=1)
    with socket.create_connection((rig.host, rig.port), timeout=30) as line:

        def ask(text: str) -> str:
            line.sendall(text.encode("latin-1") + b"\r")
            answer = b""
            while not answer.endswith(b"\r\n"):
                answer += line.recv(100)
            return answer.decode("latin-1").rstrip()

        assert ask("99997¶1¶1") == "1¶LabEvent T/210/70/5"
        assert ask("10012¶1") == ask("10012¶1¶1") == "1¶1"
        assert ask("11001¶1¶1¶35.5") == "1"
        assert ask("11002¶1¶1") == "1¶35.5"
        assert ask("14001¶1¶1¶1") == "1"
        assert ask("10012¶1") == "1¶3"
        assert ask("14003¶1¶1") == "1¶1"
        assert ask("11026¶1¶1") == "1¶Temperature"
        assert ask("11001¶1¶1¶500") == "-6"
        assert ask("11004") == "-3"
        assert ask("") == "-5"


# ------------------------------------------------------------------------------------ lies

WELL = {
    "99997¶1¶1": "1¶VT 4002",
    "99997¶1¶3": "1¶12345",
    "11007¶1¶1": "1¶-40.0",
    "11009¶1¶1": "1¶180.0",
    "11001¶1¶1¶30.0": "1",
    "14001¶1¶1¶1": "1",
    "14003¶1¶1": "1¶1",
    "11002¶1¶1": "1¶30.0",
    "10012¶1": "1¶3",
    "11004¶1¶1": "1¶22.53",
}


@contextlib.contextmanager
def scripted(answer: Callable[[str], str | None]) -> Iterator[WeissSimserv]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    buffer = b""
                    while data := connection.recv(1000):
                        *lines, buffer = (buffer + data).split(b"\r")
                        reply = [answer(line.decode("latin-1")) for line in lines]
                        if None in reply:
                            break
                        connection.sendall("".join(f"{s}\r\n" for s in reply).encode("latin-1"))

    thread = threading.Thread(target=serve)
    thread.start()
    clock = SystemClock()
    driver = WeissSimserv("oven", Endpoint("simserv", *listener.getsockname()), clock)
    try:
        yield driver
    finally:
        driver.close()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()
        clock.close()


def test_valid_replies_are_accepted():
    with scripted(WELL.get) as driver:
        driver.set_temperature(30.0)
        assert driver.temperature() == 22.53
        assert driver.identity().model == "VT 4002"


@pytest.mark.parametrize(
    ("faulty", "error"),
    [
        ({"11002¶1¶1": "1¶22.0"}, NotDoneError),
        ({"14003¶1¶1": "1¶0"}, NotDoneError),
        ({"10012¶1": "1¶11"}, NotDoneError),
        ({"10012¶1": "1¶well"}, GarbledError),
        ({"10012¶1": "1¶²"}, GarbledError),
        ({"10012¶1": "1"}, GarbledError),
        ({"11009¶1¶1": "1¶hot"}, GarbledError),
        ({"11007¶1¶1": "read failed"}, GarbledError),
        ({"11001¶1¶1¶30.0": "-12"}, DeniedError),
        ({"14001¶1¶1¶1": None}, DisconnectedError),
    ],
)
def test_an_invalid_reply_is_an_error(faulty, error):
    with scripted({**WELL, **faulty}.get) as driver, pytest.raises(error, match="oven"):
        driver.set_temperature(30.0)


def test_every_reply_is_a_temperature_or_an_error():
    reply = [""]
    fields = st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=8)

    @example(["1", "0\x1f"])
    @given(st.lists(fields | st.sampled_from(["1", "-5", "21.5"]), min_size=1, max_size=3))
    def believed(answer):
        reply[0] = "¶".join(answer)
        if not reply[0].strip():
            return
        try:
            celsius = driver.temperature()
        except (DeniedError, GarbledError):
            return
        assert answer[0].strip() == "1"
        assert celsius == float(answer[1])

    with scripted(lambda _: reply[0]) as driver:
        believed()
