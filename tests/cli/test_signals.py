"""Signals that come while something is closed."""

import signal

import pytest

from lightrig.harness.signals import postponed, uninterrupted


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
    """Ctrl-C, an end by others, and a terminal that is closed."""
    ending, came = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), list[int]()
    found = [signal.signal(number, lambda each, _: came.append(each)) for number in ending]
    try:
        before = [signal.getsignal(number) for number in ending]
        with uninterrupted():
            for number in ending:
                signal.raise_signal(number)
        with postponed():
            pass
        assert [signal.getsignal(number) for number in ending] == before
        assert came == []
        with postponed():
            signal.raise_signal(signal.SIGHUP)
            assert came == []
        assert came == [signal.SIGHUP]
    finally:
        for number, handler in zip(ending, found, strict=True):
            signal.signal(number, handler)


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
