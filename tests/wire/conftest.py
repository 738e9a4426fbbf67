"""Sessions with a server that lies."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from liar import Liar, Script, lying

from instruments.clock import SystemClock
from instruments.wire.tl1 import Tl1Session

PASSWORD = "hunter2-and-more"


@pytest.fixture
def system_clock() -> Iterator[SystemClock]:
    clock = SystemClock()
    yield clock
    clock.close()


@pytest.fixture
def against(system_clock: SystemClock) -> Iterator[Callable[..., tuple[Tl1Session, Liar]]]:
    """A session with a liar, which logs in where it is asked to."""
    with contextlib.ExitStack() as stack:

        def make(script: Script | None, *, login: bool = False) -> tuple[Tl1Session, Liar]:
            liar = stack.enter_context(lying(script))
            session = Tl1Session(
                "ocs", *liar.address, system_clock, ("bench", PASSWORD) if login else None
            )
            stack.callback(session.close)
            return session, liar

        yield make
