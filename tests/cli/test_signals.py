"""Signals that come while something is closed."""

import signal

import pytest

from lightrig.harness.signals import ENDING, postponed, uninterrupted


def test_a_postponed_signal_takes_effect_once_all_is_closed() -> None:
    done = []

    def close() -> None:
        with postponed():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("closed")

    with pytest.raises(KeyboardInterrupt):
        close()
    assert done == ["closed"]


def test_a_signal_while_the_switches_are_restored_is_dropped() -> None:
    before = [signal.getsignal(number) for number in ENDING]
    with uninterrupted():
        for number in ENDING:
            signal.raise_signal(number)
    with postponed():
        pass
    assert [signal.getsignal(number) for number in ENDING] == before


def test_an_alarm_while_the_switches_are_restored_takes_effect_afterwards() -> None:
    done = []

    def ring(_number: int, _frame: object) -> None:
        done.append("alarm")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGALRM)
            done.append("restored")
        assert done == ["restored", "alarm"]
        assert signal.getsignal(signal.SIGALRM) is ring
    finally:
        signal.signal(signal.SIGALRM, before)
